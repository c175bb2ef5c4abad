"""``RenamedTool``: a tool under another name."""

from __future__ import annotations

from typing import Any, NoReturn

from toolsemble._engine.definition import ToolDefinition, rename_definition
from toolsemble._tools.base import Tool, define
from toolsemble._tools.settings import ToolSettings


class RenamedTool(Tool):
    """A tool under another name; created by :meth:`Tool.renamed` and by toolboxes.

    Everything else is the original's: schema, body, approval, limits, and the limits' state, so that calls of both
    count together. Other attributes are delegated to the original.
    """

    def __init__(
        self, source: object, name: str, description: str | None = None, definition: ToolDefinition | None = None
    ) -> None:
        """Check the name and the description.

        :param source: the tool
        :param definition: the tool's definition in a toolbox, with the toolbox's gate and limits; None: the tool's own
        """
        kept = {each: getattr(source, each) for each in ToolSettings.__annotations__ if hasattr(source, each)}
        vars(self).update(kept, _source=source, _definition=definition, name=name, description=description)
        vars(self)["description"] = self._define().description

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"A renamed tool has the settings of its original: set {name!r} there")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # also during copying, before it has a source
            raise AttributeError(name)
        return getattr(self._source, name)

    def run(self, input: Any) -> Any:
        """Call the body of the original."""
        return self._original().body(input)

    def _original(self) -> ToolDefinition:
        made = define(self._source) if self._definition is None else self._definition
        assert made is not None  # noqa: S101 - only tools are renamed
        return made

    def _define(self) -> ToolDefinition:
        return rename_definition(self._original(), self.name, self.description)
