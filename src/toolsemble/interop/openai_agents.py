"""The OpenAI Agents SDK: tool outputs as texts, images and files, and approval."""

from __future__ import annotations

import dataclasses
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack
from weakref import WeakKeyDictionary

from toolsemble._tools.schema import SchemaTool
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolReply
from toolsemble._vocabulary.errors import CallPausedError, ToolDefinitionError
from toolsemble._vocabulary.result import Content, FileContent, ImageContent, ToolResult
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.interop import _exporting as exporting
from toolsemble.interop._adopting import ForeignTool, adopt_tools, failure, flatten, refuse
from toolsemble.interop._pausing import CHANGED, ShownRequests, asks_before, bind_decision
from toolsemble.models._adapter.wire import data_url, file_name
from toolsemble.review._request import Continue

if TYPE_CHECKING:
    from toolsemble._tools.settings import ToolSettings


def write_output(agents: Any, reply: ToolReply) -> Any:
    """Return the output of a call: a text, or a list if there are media.

    :param agents: the SDK's package
    """
    media = exporting.media_of(reply)
    if not media:
        return exporting.text_of(reply)
    return [agents.ToolOutputText(text=exporting.text_of(reply)), *(_write_media(agents, each) for each in media)]


def _write_media(agents: Any, content: Any) -> Any:
    if isinstance(content, ImageContent):
        return agents.ToolOutputImage(image_url=data_url(content))
    if content.url:
        return agents.ToolOutputFileContent(file_url=content.url)
    return agents.ToolOutputFileContent(file_data=data_url(content), filename=file_name(content))


def read_own_output(agents: Any, output: Any, payload: Any) -> ToolResult:
    """Return the result for a toolbox tool's output, whose failures begin with ``Error:``."""
    if isinstance(output, str):
        return failure(output) if output.startswith("Error: ") else ToolResult.success(output, payload)
    found: ToolResult = read_output(agents, output)
    return ToolResult.success(found.output, payload, contents=found.contents)


def read_output(agents: Any, output: Any) -> Any:
    """Return the result for a tool's output; values that are not SDK objects are returned unchanged."""
    kinds = agents.ToolOutputText, agents.ToolOutputImage, agents.ToolOutputFileContent
    items = output if isinstance(output, list) and output else [output]
    if not all(isinstance(each, kinds) for each in items):
        return output
    texts = [each.text for each in items if each.type == "text"]
    contents = [_read_media(each) for each in items if each.type != "text"]
    return ToolResult.success("\n".join(texts), contents=contents)


def _read_media(item: Any) -> Content:
    if item.type == "image" and item.image_url:
        return ImageContent.from_url(item.image_url)
    url = getattr(item, "file_url", None) or getattr(item, "file_data", None)
    if not url:
        raise ValueError(f"The tool returned a file of OpenAI's servers ({item.file_id}), which cannot be read here")
    address = url if ":" in url else f"data:application/octet-stream;base64,{url}"
    return FileContent.from_url(address, name=item.filename)


_import = partial(exporting.import_framework, install="openai-agents", user="openai_agents")
_RAISES = {"_failure_error_function": None, "_use_default_failure_error_function": False}


def export(
    box: Toolbox,
    *,
    memory_id: exporting.Choice = None,
    run_id: exporting.Choice = None,
    parameters: exporting.Parameters = None,
    approval: exporting.Approval = "ours",
) -> list[Any]:
    """Return a toolbox's tools for the OpenAI Agents SDK's ``Agent(tools=...)``.

    Images and files are part of the output; the structured output is ``custom_data["structured_output"]`` of the output
    item. ``ToolContext.deps`` is the run's ``context``, and the run id is the trace id.

    :param memory_id: the conversation or user that calls belong to, or a function of the SDK's ``ToolContext``
    :param run_id: the run that calls belong to, or a function of the SDK's ``ToolContext``
    :param parameters: values that the tools of a run share, or a function of the SDK's ``ToolContext``
    :param approval: "theirs" interrupts the run, to be resumed with ``state.approve(...)`` or ``state.reject(...)``; an
    invalid call is not sent for approval

    >>> from toolsemble import tool
    >>> @tool
    ... def double(number: int) -> int:
    ...     '''Double a number.'''
    ...     return 2 * number
    >>> [exported] = export(Toolbox([double]))
    >>> exported.name, exported.params_json_schema["required"]
    ('double', ['number'])
    """
    found = exporting.export_tools(box, exporting.CallSettings(memory_id, run_id, parameters), approval)
    shown = ShownRequests() if approval == "theirs" else None
    return [_export(each, shown) for each in found]


def _export(tool: exporting.ExportedTool, shown: ShownRequests | None) -> Any:
    invoker = Invoker(tool, shown)
    return _import("agents").FunctionTool(
        name=tool.shown_name,
        description=tool.description,
        params_json_schema=tool.parameters,
        on_invoke_tool=invoker,
        strict_json_schema=False,
        needs_approval=invoker.needs_approval if shown is not None and tool.is_gated else False,
        custom_data_extractor=invoker.read_custom_data,
    )


class Invoker:
    """The function of an exported tool: executes calls, and decides which of them need approval."""

    def __init__(self, exported: exporting.ExportedTool, shown: ShownRequests | None) -> None:
        self.exported = exported
        self._shown = shown
        self._payloads: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    async def __call__(self, context: Any, arguments: str) -> Any:
        """Execute a call and return its output; a failure is a text that begins with ``Error:``."""
        facts = {"call_id": context.tool_call_id, "source": context, "run_id": _find_run(context.tool_call_id)}
        reply = await self._execute(arguments, context, {**facts, "deps": context.context})
        payload = exporting.payload_of(reply)
        if payload is not None:
            self._payloads[context] = payload
        return write_output(_import("agents"), reply)

    async def _execute(self, arguments: str, context: Any, facts: dict[str, Any]) -> ToolReply:
        try:
            return await self.exported.aexecute(arguments, **facts)
        except CallPausedError as paused:
            # The SDK has checked the approval, unless a condition changed in between.
            approved = context.is_tool_approved(self.exported.shown_name, context.tool_call_id) is True
            if self._shown is None or not approved or not asks_before(paused):
                return self.exported.fail(context.tool_call_id, paused)
            request = paused.request
        if not self._shown.allows(request):
            return self.exported.fail(context.tool_call_id, ToolDefinitionError(CHANGED))
        return await self.exported.aexecute(
            arguments, **facts, box=bind_decision(self.exported.box, request, Continue())
        )

    async def needs_approval(self, context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        """Return whether a call needs approval; an invalid call does not."""
        facts = {"run_id": _find_run(call_id), "deps": context.context}
        request = await self.exported.find_request(arguments, call_id, context, **facts)
        if request is not None and self._shown is not None:
            self._shown.add(request)
        return request is not None

    def read_custom_data(self, context: Any) -> dict[str, Any] | None:
        """Return the structured output of a call, which the model does not see."""
        payload = self._payloads.pop(context.tool_context, None)
        return None if payload is None else {"structured_output": payload}


def _find_run(call_id: str) -> str:
    """Return the trace id, which a resumed run keeps; without tracing, the call id."""
    trace = _import("agents.tracing").get_current_trace()
    return call_id if trace is None or trace.trace_id == "no-op" else str(trace.trace_id)


def adopt(tools: Any, **settings: Unpack[ToolSettings]) -> list[SchemaTool]:
    """Return the SDK's function tools as tools for a toolbox: one tool, or a list of them.

    A tool that needs approval there requires it here. A tool that takes a run's context is rejected, and so are tools
    that run on OpenAI's servers.

    :param settings: the settings of the new tools, such as ``requires_approval`` or ``timeout``

    >>> from agents import function_tool
    >>> @function_tool
    ... def double(number: int) -> int:
    ...     '''Double a number.'''
    ...     return 2 * number
    >>> Toolbox(adopt(double))["double"].execute({"number": "21"}).output
    '42'
    """
    agents = _import("agents")
    found = flatten(tools, lambda each: type(each).__module__.startswith("agents."), "a tool of the OpenAI Agents SDK")
    return adopt_tools("openai_agents", [_read(agents, each) for each in found], dict(settings))


def _read(agents: Any, tool: Any) -> ForeignTool:
    if not isinstance(tool, agents.FunctionTool):
        raise refuse(
            getattr(tool, "name", type(tool).__name__), f"the servers of OpenAI, or a run ({type(tool).__name__})"
        )
    if _takes_context(tool):
        raise refuse(tool.name, "the context of a run (RunContextWrapper)")
    exported = getattr(tool.on_invoke_tool, "exported", None)
    # Report a tool's own exception, not the SDK's rendering of it.
    known = {each.name for each in dataclasses.fields(tool)}
    raising = dataclasses.replace(tool, **{name: value for name, value in _RAISES.items() if name in known})
    context_class = _import("agents.tool_context").ToolContext

    async def call(arguments: dict[str, Any], call_id: str) -> Any:
        text = compact_json(arguments)
        context = context_class(context=None, tool_name=tool.name, tool_call_id=call_id, tool_arguments=text)
        output = await raising.on_invoke_tool(context, text)
        if exported is None:
            return read_output(agents, output)
        data = tool.on_invoke_tool.read_custom_data(_Invocation(context)) or {}
        return read_own_output(agents, output, data.get("structured_output"))

    gate = {"requires_approval": True} if tool.needs_approval and exported is None else {}
    return ForeignTool(tool.name, tool.description, tool.params_json_schema, call, exported, gate)


@dataclasses.dataclass(frozen=True, slots=True)
class _Invocation:
    """The part of the SDK's context for custom data that is used here."""

    tool_context: Any


def _takes_context(tool: Any) -> bool:
    """Return whether the function of a tool takes the context of a run as its first parameter."""
    function = getattr(tool, "__wrapped__", None)
    if function is None:
        return False
    wrapper = _import("agents").RunContextWrapper
    try:
        kinds = inspect.signature(function, eval_str=True).parameters.values()
    except (NameError, TypeError, ValueError):
        return False
    first = next((each.annotation for each in kinds), None)
    origin = getattr(first, "__origin__", first)
    return isinstance(origin, type) and issubclass(origin, wrapper)
