"""The check that somebody can be asked, for tools that require approval whenever they run."""

from __future__ import annotations

from toolsemble.context import ToolContext
from toolsemble.definition.variants import always_gated_in
from toolsemble.errors import ToolConfigurationError
from toolsemble.toolbox.toolbox import Toolbox


def check_reviewer(box: Toolbox, context: ToolContext) -> None:
    """Raise ToolConfigurationError if a tool always requires approval and nobody can be asked, before a model is.

    Tools that require approval under a condition are not known in advance; their calls raise it.

    :param context: the context around the calls, whose reviewer they inherit if the toolbox has none

    >>> check_reviewer(Toolbox([]), ToolContext())
    """
    if box._context.review is not None or context.review is not None:  # noqa: SLF001 - of this package
        return
    for definition in always_gated_in(entry.definition for entry in box._entries.values()):  # noqa: SLF001 - as above
        if definition.gate is not None and definition.gate.review is None:
            raise ToolConfigurationError(
                f"Tool '{definition.name}' requires approval but no ReviewHandler is configured; pass review=…"
            )
