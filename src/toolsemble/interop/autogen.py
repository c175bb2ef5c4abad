"""AutoGen: export toolbox tools as a ``Workbench``, and adopt its tools."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Unpack

from toolsemble._runtime.event_loops import finish
from toolsemble._tools.schema import SchemaTool
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolReply, received_call
from toolsemble._vocabulary.result import ImageContent, ToolResult
from toolsemble.interop import _exporting as exporting
from toolsemble.interop._adopting import ForeignTool, adopt_tools, failure, flatten
from toolsemble.models._adapter.wire import base64_text, describe_omitted

if TYPE_CHECKING:
    from toolsemble._tools.settings import ToolSettings

_import = partial(exporting.import_framework, install="autogen-core", user="autogen")
_CANNOT_PAUSE = "AutoGen cannot pause a run for approval"


def export(
    box: Toolbox,
    *,
    memory_id: exporting.Choice = None,
    run_id: exporting.Choice = None,
    parameters: exporting.Parameters = None,
    approval: exporting.Approval = "ours",
) -> Any:
    """Return a toolbox's tools as a workbench, for AutoGen's ``AssistantAgent(workbench=...)``.

    A failed call is a result with ``is_error``. Images are contents of the result; other media become a line of text,
    and the structured output is dropped. A cancelled token cancels the call.

    :param memory_id: the conversation or user that calls belong to, or a function of the ``CancellationToken``,
        the only context that AutoGen passes to a call
    :param run_id: the run that calls belong to, likewise
    :param parameters: values that the tools of a run share, likewise
    :param approval: "ours": the reviewer of the toolbox is asked; AutoGen cannot pause a run

    >>> from toolsemble import tool
    >>> @tool
    ... def double(number: int) -> int:
    ...     '''Double a number.'''
    ...     return 2 * number
    >>> import asyncio
    >>> workbench = export(Toolbox([double]))
    >>> asyncio.run(workbench.call_tool("double", {"number": "21"})).to_text()
    '42'
    """
    found = exporting.export_tools(
        box, exporting.CallSettings(memory_id, run_id, parameters), approval, cannot_pause=_CANNOT_PAUSE
    )
    return _workbench_class()(box, {each.shown_name: each for each in found})


@cache
def _workbench_class() -> Any:
    """Return the class of exported workbenches, defined only if AutoGen is installed."""
    base: Any = _import("autogen_core.tools").Workbench

    class ToolsembleWorkbench(base):
        """The tools of a toolbox, without startup and state."""

        def __init__(self, box: Toolbox, exported: dict[str, exporting.ExportedTool]) -> None:
            self.exported = exported
            self._box = box

        async def list_tools(self) -> list[Any]:
            return [
                {"name": each.shown_name, "description": each.description, "parameters": each.parameters}
                for each in self.exported.values()
            ]

        async def call_tool(
            self, name: str, arguments: Any = None, cancellation_token: Any = None, call_id: str | None = None
        ) -> Any:
            given = dict(arguments) if isinstance(arguments, Mapping) else arguments
            tool = self.exported.get(name)
            call = (
                self._box.aexecute(received_call(name, id=call_id))
                if tool is None
                else tool.aexecute(given, call_id, cancellation_token)
            )
            task = asyncio.ensure_future(call)
            if cancellation_token is not None:
                cancellation_token.link_future(task)
            return write_result(name, await task)

        async def start(self) -> None:
            """Do nothing."""

        stop = reset = start

        async def save_state(self) -> dict[str, Any]:
            return {}

        async def load_state(self, state: Any) -> None:
            """Do nothing."""

    return ToolsembleWorkbench


def write_result(name: str, reply: ToolReply) -> Any:
    """Return a call's result in AutoGen's form."""
    tools = _import("autogen_core.tools")
    contents: list[Any] = [tools.TextResultContent(content=exporting.text_of(reply))]
    for content in exporting.media_of(reply):
        image = _write_image(content)
        contents.append(
            tools.TextResultContent(content=describe_omitted(content))  # type: ignore[arg-type]  # not a text
            if image is None
            else tools.ImageResultContent(content=image)
        )
    return tools.ToolResult(name=name, result=contents, is_error=reply.is_error)


def _write_image(content: Any) -> Any:
    """Return an image; None for other media and unreadable images."""
    if not isinstance(content, ImageContent) or content.url:
        return None
    try:
        return _import("autogen_core").Image.from_base64(base64_text(content.data))
    except (OSError, ValueError):
        return None


def adopt(tools: Any, **settings: Unpack[ToolSettings]) -> list[SchemaTool]:
    """Return AutoGen tools and workbenches as tools for a toolbox: a single one, or a list.

    A workbench's tools are listed now, so it must already be started if it needs to be.

    :param settings: the settings of the new tools, such as ``requires_approval`` or ``timeout``

    >>> from autogen_core.tools import FunctionTool
    >>> def double(number: int) -> int:
    ...     return 2 * number
    >>> Toolbox(adopt(FunctionTool(double, "Double a number.")))["double"].execute({"number": "21"}).output
    '42'
    """
    found = _import("autogen_core.tools")
    kinds = found.BaseTool, found.Workbench
    listed = flatten(tools, lambda each: isinstance(each, kinds), "a tool or a workbench of AutoGen")
    foreign = [tool for each in listed for tool in _read(each, found.Workbench)]
    return adopt_tools("autogen", foreign, dict(settings))


def _read(source: Any, workbench: Any) -> list[ForeignTool]:
    if not isinstance(source, workbench):
        return [_read_tool(source)]
    exported = getattr(source, "exported", {})
    return [_read_listed(source, each, exported.get(each["name"])) for each in finish(source.list_tools())]


def _read_tool(tool: Any) -> ForeignTool:
    async def call(arguments: dict[str, Any], call_id: str) -> ToolResult:
        value = await tool.run_json(arguments, _import("autogen_core").CancellationToken(), call_id)
        text = tool.return_value_as_string(value)
        return ToolResult.success(text, None if isinstance(value, str) else value)

    return ForeignTool(tool.name, tool.description, tool.schema.get("parameters", {}), call)


def _read_listed(workbench: Any, listed: Any, exported: exporting.ExportedTool | None) -> ForeignTool:
    name = listed["name"]

    async def call(arguments: dict[str, Any], call_id: str) -> ToolResult:
        return read_result(await workbench.call_tool(name, arguments, call_id=call_id))

    return ForeignTool(name, listed.get("description", ""), listed.get("parameters", {}), call, exported)


def read_result(result: Any) -> ToolResult:
    """Return the result for a result of a workbench."""
    texts = [each.content for each in result.result if each.type == "TextResultContent"]
    images = [each.content.data_uri for each in result.result if each.type == "ImageResultContent"]
    text = "\n".join(texts)
    return failure(text) if result.is_error else ToolResult.success(text, contents=map(ImageContent.from_url, images))
