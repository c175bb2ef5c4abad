"""A toolbox whose calls have their decisions already, to resume a run."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from dataclasses import replace
from functools import partial

from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._engine.definition.variants import map_definition
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble.review._gate import Gate
from toolsemble.review._request import ReviewHandler


def replace_reviewer(
    box: Toolbox, names: Collection[str], review: ReviewHandler, begun: Collection[str] = ()
) -> Toolbox:
    """Return a toolbox in which calls of some tools always ask this reviewer, also if they required no approval.

    :param begun: the ids of calls that were approved before, and have begun; nobody is asked about them

    >>> from toolsemble.review import AutoApprove
    >>> replace_reviewer(Toolbox([]), [], AutoApprove()).names
    []
    """
    changed = copy(box)
    changed._entries = {  # noqa: SLF001 - a new object
        name: replace(entry, definition=_replace_reviewer(entry.definition, review, begun)) if name in names else entry
        for name, entry in box._entries.items()  # noqa: SLF001 - as above
    }
    return changed


def replace_all_reviewers(box: Toolbox, review: ReviewHandler) -> Toolbox:
    """Return a toolbox with another reviewer, who is also asked instead of those that its tools have of their own.

    >>> from toolsemble.review import AutoApprove
    >>> replace_all_reviewers(Toolbox([]), AutoApprove()).names
    []
    """
    changed = copy(box)
    changed._context = box._context.derive({"review": review})  # noqa: SLF001 - a new object
    changed._entries = {  # noqa: SLF001 - as above
        name: replace(
            entry,
            context=entry.context.derive({"review": review}),
            definition=map_definition(entry.definition, partial(_put_to, review)),
        )
        for name, entry in box._entries.items()  # noqa: SLF001 - as above
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
