"""The check that somebody can be asked, for tools that require approval whenever they run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._engine.definition.variants import always_gated_in
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import ToolConfigurationError

if TYPE_CHECKING:
    from toolsemble.review._gate import Gate
    from toolsemble.review._request import ReviewHandler

_NESTED = (
    "Tool '{tool}' requires approval inside of another call, which cannot be resumed in the middle, so PauseReview "
    "cannot leave it open; pass the inner agent a reviewer that waits, such as QueueReview, make it a tool of the "
    "outer agent with as_tool(), without cache and idempotency, or set requires_approval on the outer tool instead"
)
_IN_FLOW = (
    "Tool '{tool}' requires approval inside of '{outer}', which cannot be resumed in the middle, so PauseReview cannot "
    "leave it open; set requires_approval on '{outer}' instead, or pass a reviewer that waits, such as QueueReview"
)
_JOURNALED = (
    "Tool '{tool}' requires approval, and PauseReview ends a run whose journal would wait; pass a reviewer with a "
    "store, such as QueueReview, and RunJournal(..., park_after=0) to end the run all the same"
)


def check_reviewer(box: Toolbox, context: ToolContext) -> None:
    """Raise ToolConfigurationError if a tool always requires approval and nobody can be asked, before a model is.

    Tools that require approval under a condition are not known in advance; their calls raise it.

    :param context: the context around the calls, whose reviewer they inherit if the toolbox has none

    >>> check_reviewer(Toolbox([]), ToolContext())
    """
    if box._context.review is not None or context.review is not None:  # noqa: SLF001 - of this package
        return
    for definition in always_gated_in(box.definitions()):
        if definition.gate is not None and definition.gate.review is None:
            raise ToolConfigurationError(
                f"Tool '{definition.name}' requires approval but no ReviewHandler is configured; pass review=…"
            )


def check_pauses(box: Toolbox, context: ToolContext, *, nested: bool) -> None:
    """Raise ToolConfigurationError if a reviewer would have to pause where a run cannot be resumed.

    :param context: the context around the calls
    :param nested: whether the run is inside of a call that cannot be resumed in the middle

    >>> check_pauses(Toolbox([]), ToolContext(), nested=True)
    """
    review = box._context.review or context.review  # noqa: SLF001 - of this package
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
    if gate is None:
        return False
    return getattr(review if gate.review is None else gate.review, "pauses", False) is True
