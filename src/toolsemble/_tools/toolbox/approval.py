"""A toolbox's reviewers: validation, and replacement by existing decisions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from copy import copy
from dataclasses import replace
from functools import partial

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import ToolDefinition, always_gated_in, map_definition
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.review._gate import Gate
from toolsemble.review._request import ReviewHandler, to_reviewer

_NESTED = (
    "Tool '{tool}' requires approval inside another call, which cannot be resumed in the middle, so PauseReview "
    "cannot leave it open; pass the inner agent a reviewer that waits, such as QueueReview, make it a tool of the "
    "outer agent with as_tool(), without cache and idempotency, or set requires_approval on the outer tool instead"
)
_IN_FLOW = (
    "Tool '{tool}' requires approval inside '{outer}', which cannot be resumed in the middle, so PauseReview cannot "
    "leave it open; set requires_approval on '{outer}' instead, or pass a reviewer that waits, such as QueueReview"
)
_JOURNALED = (
    "Tool '{tool}' requires approval, and PauseReview ends a run whose journal would wait; pass a reviewer with a "
    "store, such as QueueReview, and RunJournal(..., park_after=0) to end the run all the same"
)


def check_reviewer(box: Toolbox, context: ToolContext) -> None:
    """Raise ToolConfigurationError before a model request if a tool always requires approval without a reviewer.

    Conditional approval is unknown in advance; such calls raise it.

    :param context: the calls' enclosing context, whose reviewer they inherit if the toolbox has none

    >>> check_reviewer(Toolbox([]), ToolContext())
    """
    if box._context.review is not None or context.review is not None:
        return
    for definition in always_gated_in(box.definitions()):
        if definition.gate is not None and definition.gate.review is None:
            raise ToolConfigurationError(
                f"Tool '{definition.name}' requires approval but no ReviewHandler is configured; pass review=…"
            )


def check_pauses(box: Toolbox, context: ToolContext, *, nested: bool) -> None:
    """Raise ToolConfigurationError if a reviewer would have to pause where a run cannot be resumed.

    :param context: the calls' enclosing context
    :param nested: whether the run is inside a call that cannot be resumed in the middle

    >>> check_pauses(Toolbox([]), ToolContext(), nested=True)
    """
    review = box._context.review or context.review
    for definition in box.definitions():
        if definition.gate is None and definition.flow is None:
            continue  # most tools
        gated = [definition] if _pauses(definition.gate, review) else []
        inside = [] if definition.flow is None else [*_find_pausing(definition.flow.tools(), review)]
        if context.place is not None and (gated or inside):
            raise ToolConfigurationError(_JOURNALED.format(tool=(gated + inside)[0].name))
        if nested and (gated or inside):
            raise ToolConfigurationError(_NESTED.format(tool=(gated + inside)[0].name))
        if inside:
            raise ToolConfigurationError(_IN_FLOW.format(tool=inside[0].name, outer=definition.name))


def _find_pausing(tools: Iterable[ToolDefinition], review: ReviewHandler | None) -> Iterable[ToolDefinition]:
    """Yield the tools, at every depth, whose reviewer can leave calls open."""
    for each in tools:
        if _pauses(each.gate, review):
            yield each
        if each.flow is not None:
            yield from _find_pausing(each.flow.tools(), review)


def _pauses(gate: Gate | None, review: ReviewHandler | None) -> bool:
    asked = None if gate is None else review if gate.review is None else gate.review
    return asked is not None and to_reviewer(asked).pauses


def replace_reviewer(
    box: Toolbox, names: Collection[str], review: ReviewHandler, begun: Collection[str] = ()
) -> Toolbox:
    """Return a toolbox in which calls of some tools always ask this reviewer, even if they require no approval.

    :param begun: the ids of already approved and started calls, which are not reviewed again

    >>> from toolsemble.review import AutoApprove
    >>> replace_reviewer(Toolbox([]), [], AutoApprove()).names
    []
    """
    changed = copy(box)
    changed._entries = {
        name: replace(entry, definition=_replace_reviewer(entry.definition, review, begun)) if name in names else entry
        for name, entry in box._entries.items()
    }
    return changed


def replace_all_reviewers(box: Toolbox, review: ReviewHandler) -> Toolbox:
    """Return a toolbox with another reviewer, which also replaces its tools' own reviewers.

    >>> from toolsemble.review import AutoApprove
    >>> replace_all_reviewers(Toolbox([]), AutoApprove()).names
    []
    """
    changed = copy(box)
    changed._context = box._context.derive({"review": review})
    changed._entries = {
        name: replace(
            entry,
            context=entry.context.derive({"review": review}),
            definition=map_definition(entry.definition, partial(_put_to, review)),
        )
        for name, entry in box._entries.items()
    }
    return changed


def _put_to(review: ReviewHandler, definition: ToolDefinition) -> ToolDefinition:
    if definition.gate is None:
        return definition
    gates = (definition.gate, *definition.gate.further)
    always = any(not gate.predicates for gate in gates)
    predicates = () if always else tuple(each for gate in gates for each in gate.predicates)
    gate = replace(definition.gate, predicates=predicates, timeout=None, review=review, further=())
    return replace(definition, gate=gate)


def _replace_reviewer(definition: ToolDefinition, review: ReviewHandler, begun: Collection[str]) -> ToolDefinition:
    gate = definition.gate or Gate()
    predicates = (lambda _, context: context.call_id not in begun,) if begun else ()
    return replace(definition, gate=replace(gate, predicates=predicates, timeout=None, review=review))
