"""Haystack: export toolbox tools as ``Tool`` objects, and adopt its tools."""

from __future__ import annotations

from base64 import b64decode
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Unpack, get_args, get_type_hints

from toolsemble._tools.schema import SchemaTool
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolReply
from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble._vocabulary.result import Content, FileContent, ImageContent, ToolResult
from toolsemble.interop import _exporting as exporting
from toolsemble.interop._adopting import ForeignTool, adopt_tools, failure, flatten, refuse
from toolsemble.models._adapter.wire import base64_text, describe_omitted

if TYPE_CHECKING:
    from toolsemble._tools.settings import ToolSettings

_import = partial(exporting.import_framework, install="haystack-ai", user="haystack")
_CANNOT_PAUSE = "Haystack cannot pause a run for approval"
# The model sees the content, with its media; the payload is for an agent's state.
_SHOWN = {"source": "content", "raw_result": True}


def export(
    box: Toolbox,
    *,
    memory_id: exporting.Choice = None,
    run_id: exporting.Choice = None,
    parameters: exporting.Parameters = None,
    approval: exporting.Approval = "ours",
) -> list[Any]:
    """Return a toolbox's tools as Haystack tools, for ``Agent`` or a chat generator.

    A tool returns a dict: "content" is what the model sees, with images and files, and "payload" is the structured
    output as JSON values, for ``outputs_to_state``. A failed call raises ``ToolInvocationError``, whose text an
    ``Agent`` shows to the model.

    :param memory_id: the conversation or user that calls belong to, or a function, which is called with None
    :param run_id: the run that calls belong to, or a function, which is called with None
    :param parameters: values that the tools of a run share, or a function, which is called with None
    :param approval: "ours": the reviewer of the toolbox is asked

    .. code-block:: python

        from haystack.components.agents import Agent

        agent = Agent(chat_generator=generator, tools=haystack.export(box))
    """
    found = exporting.export_tools(
        box, exporting.CallSettings(memory_id, run_id, parameters), approval, cannot_pause=_CANNOT_PAUSE
    )
    return [_write_tool(each) for each in found]


def _write_tool(exported: exporting.ExportedTool) -> Any:
    def run(**arguments: Any) -> dict[str, Any]:
        return _answer(exported.execute(arguments))

    async def arun(**arguments: Any) -> dict[str, Any]:
        return _answer(await exported.aexecute(arguments))

    made = _tool_class()(
        name=exported.shown_name,
        description=exported.description,
        parameters=exported.parameters,
        function=run,
        async_function=arun,
        outputs_to_string=dict(_SHOWN),
    )
    made.exported = exported
    return made


@cache
def _tool_class() -> Any:
    """Return the class of exported tools, defined only if Haystack is installed."""
    base: Any = _import("haystack.tools").Tool

    class ToolsembleTool(base):
        """A toolbox tool; self is positional, because a parameter may have its name."""

        def invoke(self, /, **arguments: Any) -> Any:
            return self.function(**arguments)

        async def invoke_async(self, /, **arguments: Any) -> Any:
            return await self.async_function(**arguments)

        def to_dict(self) -> dict[str, Any]:
            raise ToolConfigurationError(
                f"'{self.name}' is a tool of a toolbox and cannot be saved; save the code that makes the toolbox"
            )

    return ToolsembleTool


def _answer(reply: ToolReply) -> dict[str, Any]:
    """Return a tool's value; raise an exception that Haystack turns into a failed result."""
    if reply.is_error:
        error = _import("haystack.tools.errors").ToolInvocationError
        raise error(exporting.full_text_of(reply), tool_name=reply.name)
    return {"content": _write_content(reply), "payload": exporting.payload_of(reply)}


def _write_content(reply: ToolReply) -> Any:
    """Return the text, or a list of text, images and files; audio and media URLs become text lines."""
    media: list[Any] = exporting.media_of(reply)
    carried = [each for each in media if isinstance(each, (FileContent, ImageContent)) and not each.url]
    lines = [describe_omitted(each) for each in media if each not in carried]
    text = "\n".join([exporting.text_of(reply), *lines])
    return [_import("haystack.dataclasses").TextContent(text), *map(_write_media, carried)] if carried else text


def _write_media(content: ImageContent | FileContent) -> Any:
    library, data = _import("haystack.dataclasses"), base64_text(content.data)
    if isinstance(content, ImageContent):
        return library.ImageContent(data, content.mime_type, validation=False)
    return library.FileContent(data, content.mime_type, content.name, validation=False)


def adopt(tools: Any, **settings: Unpack[ToolSettings]) -> list[SchemaTool]:
    """Return Haystack tools as tools for a toolbox: one tool, a ``Toolset``, or a list of them.

    Their arguments are validated against their schema; their values become text according to ``outputs_to_string``. A
    tool that needs an agent's ``State`` is rejected.

    :param settings: the settings of the new tools, such as ``requires_approval`` or ``timeout``

    .. code-block:: python

        from haystack.tools import ComponentTool

        box = Toolbox(haystack.adopt(ComponentTool(component=retriever), timeout=20))
    """
    base: Any = _import("haystack.tools").Tool
    found = flatten(tools, lambda each: isinstance(each, base), "a Haystack tool")
    return adopt_tools("haystack", [_read(each) for each in found], dict(settings))


def _read(tool: Any) -> ForeignTool:
    needs = _find_state(tool)
    if needs:
        raise refuse(tool.name, f"the State of an agent for the parameters {', '.join(needs)}")
    error = _import("haystack.tools.errors").ToolInvocationError

    async def call(arguments: dict[str, Any], _: str) -> Any:
        try:
            output = await tool.invoke_async(**arguments)
        except error as problem:
            if problem.__cause__ is None:
                return failure(str(problem))
            raise problem.__cause__ from None
        return _read_output(output, tool.outputs_to_string or {})

    return ForeignTool(tool.name, tool.description, tool.parameters, call, getattr(tool, "exported", None))


def _find_state(tool: Any) -> list[str]:
    """Return the parameters that an agent sets from its state."""
    state = _import("haystack.components.agents").State
    try:
        hints = get_type_hints(tool.function or tool.async_function)
    except (AttributeError, NameError, TypeError):  # not a function, or types known only to its module
        hints = {}
    annotated = {name for name, hint in hints.items() if state in (hint, *get_args(hint))}
    return sorted(annotated.union((tool.inputs_from_state or {}).values()))


def _read_output(output: Any, shown: dict[str, Any]) -> Any:
    """Return the result for a tool's output, converted like an agent would."""
    if shown and not shown.keys() & {"source", "handler", "raw_result"}:
        return {key: _convert(output, each) for key, each in shown.items()}
    value = _convert(output, shown)
    payload = output.get("payload") if shown == _SHOWN else None
    if isinstance(value, str):
        return ToolResult.success(value, payload)
    return _read_parts(value, payload) if shown.get("raw_result") else value


def _convert(output: Any, shown: dict[str, Any]) -> Any:
    """Return a part of an output, or all of it, as a handler writes it."""
    value = output.get(shown["source"]) if isinstance(output, dict) and "source" in shown else output
    handler = shown.get("handler")
    return value if handler is None else handler(value)


def _read_parts(parts: Any, payload: Any) -> ToolResult:
    """Return the result for a list of texts, images and files."""
    texts = [each.text for each in parts if hasattr(each, "text")]
    media = [_read_media(each) for each in parts if not hasattr(each, "text")]
    return ToolResult.success("\n".join(texts), payload, contents=media)


def _read_media(part: Any) -> Content:
    if hasattr(part, "base64_image"):
        return ImageContent(b64decode(part.base64_image), part.mime_type or "image/png")
    return FileContent(
        b64decode(part.base64_data), part.mime_type or "application/octet-stream", part.filename or "file"
    )
