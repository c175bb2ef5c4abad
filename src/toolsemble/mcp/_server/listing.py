"""The tools of a toolbox as a server lists them: whole schemas, output schemas, and hints from effects."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from mcp_types import ListToolsResult, Tool as ListedTool, ToolAnnotations

from toolsemble._tools.toolbox.registry import Registered
from toolsemble._tools.toolbox.structured_output import OutputSchema, find_output
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble.mcp._param_headers import names_header
from toolsemble.mcp._server.served_lock import is_lockable, is_refused
from toolsemble.mcp._wire import write_settings

LOGGER = logging.getLogger("toolsemble.mcp")
_HINTS = {
    "readOnlyHint": "read_only_hint",
    "destructiveHint": "destructive_hint",
    "idempotentHint": "idempotent_hint",
    "openWorldHint": "open_world_hint",
}


class Listing:
    """The tools of one toolbox as clients see them; each part is created when it is first needed."""

    def __init__(self, box: Toolbox) -> None:
        self.box = box
        self._outputs: dict[str, OutputSchema | None] = {}

    @cached_property
    def result(self) -> ListToolsResult:
        """The result of ``tools/list``."""
        return ListToolsResult(tools=[self._list_tool(name) for name in self.box.names])

    @cached_property
    def has_locks(self) -> bool:
        """Whether there are tools that a lock may refuse while they are served."""
        return any(is_lockable(tool) for tool in self.box)

    def show(self) -> ListToolsResult:
        """Return the result of ``tools/list`` without the tools that a lock refuses now."""
        if not self.has_locks:
            return self.result
        return ListToolsResult(tools=[each for each in self.result.tools if not is_refused(self.box[each.name])])

    @cached_property
    def header_schemas(self) -> dict[str, dict[str, Any]]:
        """The schemas that name headers, by tool; the SDK compares the headers of each call with them."""
        return {each.name: each.input_schema for each in self.result.tools if names_header(each.input_schema)}

    def output(self, name: str) -> OutputSchema | None:
        """Return the output schema of a tool; None if it declares no type, or its text is limited."""
        if name not in self._outputs:
            self._outputs[name] = find_output(self.box.registered(name))
        return self._outputs[name]

    def _list_tool(self, name: str) -> ListedTool:
        definition = self.box.registered(name).definition
        output, metadata = self.output(name), _metadata(self.box.registered(name))
        origin = metadata.get("mcp")
        title = metadata.get("title") or (origin.get("title") if isinstance(origin, Mapping) else None)
        listed = ListedTool(
            name=name,
            title=title if isinstance(title, str) and title else None,
            description=definition.description,
            input_schema={"type": "object", **definition.schema()},
            output_schema=None if output is None else output.schema,
            annotations=_annotations(metadata),
        )
        return _add_settings(listed, write_settings(metadata))


def _add_settings(listed: ListedTool, settings: Mapping[str, Any]) -> ListedTool:
    """Return a tool with the keys of its metadata for MCP; those that the protocol does not know are left out."""
    if not settings:
        return listed
    try:
        return ListedTool.model_validate({**listed.model_dump(by_alias=True, exclude_none=True), **settings})
    except ValueError as problem:
        LOGGER.warning("The metadata for MCP of %s is left out: %s", listed.name, problem)
        return listed


def _metadata(entry: Registered) -> Mapping[str, Any]:
    definition = entry.definition
    hints = {} if definition.policy is None else definition.policy.hints
    return {**getattr(entry.tool, "listed_hints", {}), **hints, **definition.metadata}


def _annotations(metadata: Mapping[str, Any]) -> ToolAnnotations | None:
    hints = {field: metadata[hint] for hint, field in _HINTS.items() if isinstance(metadata.get(hint), bool)}
    return ToolAnnotations(**hints) if hints else None
