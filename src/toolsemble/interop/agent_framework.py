"""Microsoft's Agent Framework: export toolbox tools as ``FunctionTool`` objects, and adopt its tools."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any, Unpack

from toolsemble._tools.schema import SchemaTool
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolReply
from toolsemble._vocabulary.result import AudioContent, Content, FileContent, ImageContent, ToolResult
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.interop import _exporting as exporting
from toolsemble.interop._adopting import ForeignTool, adopt_tools, flatten, join_parts, read_exported, refuse

if TYPE_CHECKING:
    from toolsemble._tools.settings import ToolSettings

_import = partial(exporting.import_framework, install="agent-framework-core", user="agent_framework")
_CANNOT_PAUSE = (
    "The Agent Framework asks for approval before arguments are validated, so that the answer could be about other "
    "arguments than those that run"
)
_CONTEXT = "_toolsemble_context"  # the parameter that the framework sets; no parameter of a tool has this name
_PAYLOAD = "structured_output"
_CALL_ID = "_toolsemble_call_id"


def export(
    box: Toolbox,
    *,
    memory_id: exporting.Choice = None,
    run_id: exporting.Choice = None,
    parameters: exporting.Parameters = None,
    approval: exporting.Approval = "ours",
) -> list[Any]:
    """Return a toolbox's tools as Agent Framework tools, for ``Agent(client, tools=...)``.

    The result of a failed call is a text that begins with "Error:", because the framework hides exceptions from tools.
    Media are items of the result; the structured output is in the ``additional_properties`` of its text. A call's run
    id is the session id, if there is one. ``ToolContext.deps`` are the ``function_invocation_kwargs``, and the session.

    .. code-block:: python

        from agent_framework import Agent
        from toolsemble.interop import agent_framework

        tools = agent_framework.export(box, memory_id=lambda context: context.kwargs["user"])
        await Agent(client, tools=tools).run("Order tea.", function_invocation_kwargs={"user": "ada"})

    :param memory_id: the conversation or user that calls belong to, or a function of the ``FunctionInvocationContext``
    :param run_id: the run that calls belong to, or a function of the ``FunctionInvocationContext``
    :param parameters: values that the tools of a run share, or a function of the ``FunctionInvocationContext``
    :param approval: "ours": the reviewer of the toolbox is asked
    """
    kind = _tool_class()
    settings = exporting.CallSettings(memory_id, run_id, parameters)
    return [kind(each) for each in exporting.export_tools(box, settings, approval, cannot_pause=_CANNOT_PAUSE)]


@cache
def _tool_class() -> Any:
    """Return the class of exported tools, defined only if the framework is installed."""
    library = _import("agent_framework")
    base: Any = library.FunctionTool

    class ToolsembleTool(base):
        """A toolbox tool that receives unprocessed arguments, which the toolbox validates."""

        DEFAULT_EXCLUDE = library.FunctionTool.DEFAULT_EXCLUDE | {"exported"}

        def __init__(self, exported: exporting.ExportedTool) -> None:
            async def execute(arguments: Any, _toolsemble_context: Any) -> Any:
                return _write_answer(library.Content, await _execute(exported, arguments, _toolsemble_context))

            execute.__annotations__[_CONTEXT] = library.FunctionInvocationContext
            super().__init__(
                name=exported.shown_name,
                description=exported.description,
                func=execute,
                input_model=exported.parameters,
                result_parser=_keep,
            )
            self.exported = exported

        def _prepare_arguments(self, arguments: Any) -> dict[str, Any]:
            return arguments if type(arguments) is dict else self._arguments_as_mapping(arguments) or {}

        def _prepare_context_arguments(self, context: Any, arguments: Any) -> dict[str, Any]:
            del context  # the framework would keep a copy there, so as not to validate the same arguments twice
            return self._prepare_arguments(arguments)

        def invoke(self, *, context: Any = None, tool_call_id: str | None = None, **settings: Any) -> Any:
            # The context is the only object that the framework passes on to the function.
            known = library.FunctionInvocationContext(self, settings.get("arguments")) if context is None else context
            known.metadata[_CALL_ID] = tool_call_id
            return super().invoke(context=known, tool_call_id=tool_call_id, **settings)

        async def _invoke_function(self, call_kwargs: dict[str, Any]) -> Any:
            if self.max_invocations is not None or self.max_invocation_exceptions is not None:
                return await super()._invoke_function(call_kwargs)
            # Without those limits, the framework's wrapper only finds out that the function is async.
            self.invocation_count += 1
            context = call_kwargs.pop(_CONTEXT)
            return await self.func(call_kwargs, context)

        def __call__(self, /, **arguments: Any) -> Any:
            # By position, since one of the arguments may be called "self".
            context = arguments.pop(_CONTEXT, None)
            return super().__call__(arguments, context)

    return ToolsembleTool


async def _execute(tool: exporting.ExportedTool, arguments: Any, context: Any) -> ToolReply:
    if context is None:  # a program called the tool as a function
        return await tool.aexecute(arguments)
    run_id = None if context.session is None else context.session.session_id
    call_id = context.metadata.get(_CALL_ID)
    return await tool.aexecute(arguments, call_id, context, run_id=run_id, deps=context.kwargs)


def _keep(items: list[Any]) -> list[Any]:
    """Return a result's items, already in the framework's form."""
    return items


def _write_answer(kind: Any, reply: ToolReply) -> list[Any]:
    """Return the items of a result."""
    payload = exporting.payload_of(reply)
    properties = None if payload is None else {_PAYLOAD: payload}
    text = kind("text", text=exporting.text_of(reply), additional_properties=properties)
    return [text, *(_write_media(kind, each) for each in exporting.media_of(reply))] if reply.contents else [text]


def _write_media(kind: Any, content: Any) -> Any:
    name = getattr(content, "name", None)
    if content.url:
        return kind.from_uri(content.url, media_type=content.mime_type, name=name)
    return kind.from_data(content.data, content.mime_type, name=name)


def adopt(tools: Any, **settings: Unpack[ToolSettings]) -> list[SchemaTool]:
    """Return Agent Framework tools as tools for a toolbox: one ``FunctionTool``, or a list of them.

    Their arguments are validated against their schema. A tool with the approval mode "always_require" also requires
    approval here. A tool that takes a ``FunctionInvocationContext`` is rejected, and so is one without a function,
    which a client runs; pass the ``functions`` of a connected ``MCPTool``.

    .. code-block:: python

        from agent_framework import tool
        from toolsemble.interop import agent_framework

        @tool
        def double(number: int) -> int:
            '''Double a number.'''
            return 2 * number

        box = Toolbox(agent_framework.adopt([double]))

    :param settings: the settings of the new tools, such as ``requires_approval`` or ``timeout``
    """
    kind = _import("agent_framework").FunctionTool
    found = flatten(tools, lambda each: isinstance(each, kind), "a FunctionTool of the Agent Framework")
    return adopt_tools("agent_framework", [_read(each) for each in found], dict(settings))


def _read(tool: Any) -> ForeignTool:
    exported = getattr(tool, "exported", None)
    if isinstance(exported, exporting.ExportedTool):
        return read_exported(exported)
    if tool.declaration_only:
        raise refuse(tool.name, "a client that runs it, since it has no function")
    if getattr(tool, "_context_parameter_name", None) is not None:
        raise refuse(tool.name, "a FunctionInvocationContext")

    async def call(arguments: dict[str, Any], call_id: str) -> Any:
        return _read_answer(await tool.invoke(arguments=arguments, tool_call_id=call_id))

    gate = {"requires_approval": True} if tool.approval_mode == "always_require" else {}
    return ForeignTool(tool.name, tool.description, tool.parameters(), call, settings=gate)


def _read_answer(items: Any) -> Any:
    """Return the result for a tool's returned items; a tool may be configured to return any value instead."""
    kind = _import("agent_framework").Content
    if not isinstance(items, list) or not all(isinstance(each, kind) for each in items):
        return items
    text, contents = join_parts(map(_read_item, items))
    return ToolResult.success(text, contents=contents)


def _read_item(item: Any) -> str | Content:
    """Return the text or the media of an item; items of other types become JSON text."""
    if item.type == "text":
        return item.text or ""
    if item.type not in ("data", "uri"):
        return compact_json(item.to_dict(), default=str)
    media_type, name = str(item.media_type or ""), getattr(item, "name", None)
    try:
        if media_type.startswith("image/"):
            return ImageContent.from_url(item.uri, media_type)
        if media_type.startswith("audio/"):
            return AudioContent.from_url(item.uri, media_type)
        return FileContent.from_url(item.uri, media_type or None, name)
    except ValueError:
        return f"[{media_type or 'file'} at a place that cannot be read]"
