"""A toolbox whose calls have their decisions already, to resume a run."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from dataclasses import replace

from toolsemble.definition.definition import ToolDefinition
from toolsemble.review.gate import Gate
from toolsemble.review.request import ReviewHandler
from toolsemble.toolbox.toolbox import Toolbox


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


def _replace_reviewer(definition: ToolDefinition, review: ReviewHandler, begun: Collection[str]) -> ToolDefinition:
    gate = definition.gate or Gate()
    predicates = (lambda _, context: context.call_id not in begun,) if begun else ()
    return replace(definition, gate=replace(gate, predicates=predicates, timeout=None, review=review))
