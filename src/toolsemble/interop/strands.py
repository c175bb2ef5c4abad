"""Tool results of Strands: text, images and documents in blocks, as in Amazon Bedrock's Converse."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Unpack
from weakref import WeakKeyDictionary

from toolsemble._tools.schema import SchemaTool
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolReply, new_id
from toolsemble._vocabulary.errors import CallPausedError
from toolsemble._vocabulary.result import Content, FileContent, ImageContent, TextContent, ToolResult
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.interop import _exporting as exporting
from toolsemble.interop._adopting import ForeignTool, adopt_tools, failure, flatten, join_parts, refuse
from toolsemble.interop._pausing import asks_before, bind_decision, fingerprint_of, read_decision, show_request
from toolsemble.models._adapter.wire import describe_omitted, media_type
from toolsemble.models.bedrock._wire import DOCUMENTS, IMAGES, VIDEOS

if TYPE_CHECKING:
    from toolsemble._tools.settings import ToolSettings


_TYPES = {name: kind for kind, name in {**IMAGES, **DOCUMENTS}.items()}


def write_result(reply: ToolReply) -> dict[str, Any]:
    """Return a call's result, with the structured output in the same place as MCP tools' output.

    >>> from toolsemble import ToolCall
    >>> write_result(ToolReply(ToolCall("now", id="c1"), ToolResult.success("noon")))
    {'toolUseId': 'c1', 'status': 'success', 'content': [{'text': 'noon'}]}
    """
    result: dict[str, Any] = _omit_videos(reply).to_bedrock()["toolResult"]
    payload = exporting.payload_of(reply)
    return result if payload is None else {**result, "structuredContent": payload}


def _omit_videos(reply: ToolReply) -> ToolReply:
    """Return a reply with a text line for each video, which Strands results do not support."""
    if not reply.contents:
        return reply
    contents = tuple(map(_omit_video, reply.contents))
    return replace(reply, result=replace(reply.result, contents=contents))


def _omit_video(content: Content) -> Content:
    if isinstance(content, TextContent) or media_type(content) not in VIDEOS:
        return content
    return TextContent(describe_omitted(content))


def read_result(result: Any) -> ToolResult:
    """Return the result of a tool of Strands.

    >>> read_result({"toolUseId": "c1", "status": "error", "content": [{"text": "no such city"}]})
    ToolResult.failure('no such city')
    """
    if not isinstance(result, Mapping) or not isinstance(result.get("content"), list):
        return failure(f"The tool returned no result, but a {type(result).__name__}")
    text, contents = join_parts(map(_read_block, result["content"]))
    if result.get("status") == "error":
        return failure(text)
    return ToolResult.success(text, result.get("structuredContent"), contents=contents)


def _read_block(block: Mapping[str, Any]) -> str | Content:
    """Return the text or the media of a block; blocks of other types become JSON text."""
    if "text" in block:
        return str(block["text"])
    kind = "image" if "image" in block else "document"
    media = block.get(kind) or {}
    data, mime_type = media.get("source", {}).get("bytes"), _TYPES.get(str(media.get("format")))
    if isinstance(data, bytes) and mime_type is not None:
        name = str(media.get("name") or "document")
        return ImageContent(data, mime_type) if kind == "image" else FileContent(data, mime_type, name)
    return compact_json(block.get("json", block), default=str)


_import = partial(exporting.import_framework, install="strands-agents", user="strands")
_RUN_IDS: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def export(
    box: Toolbox,
    *,
    memory_id: exporting.Choice = None,
    run_id: exporting.Choice = None,
    parameters: exporting.Parameters = None,
    approval: exporting.Approval = "ours",
) -> list[Any]:
    """Return a toolbox's tools as Strands tools, for ``Agent(tools=...)``.

    A failed call is a tool result with the status "error"; the structured output is its ``structuredContent``, as for
    tools of MCP servers. Images and documents are content blocks. A call's run id is the agent's session id; an agent
    without a session gets its own id. ``ToolContext.deps`` is the invocation state.

    .. code-block:: python

        from strands import Agent
        from toolsemble.interop import strands

        agent = Agent(tools=strands.export(box, memory_id=lambda state: state["user"]))
        agent("Order tea.", invocation_state={"user": "ada"})

    :param memory_id: the conversation or user that calls belong to, or a function of the invocation state
    :param run_id: the run that calls belong to, or a function of the invocation state
    :param parameters: values that the tools of a run share, or a function of the invocation state
    :param approval: "theirs" interrupts the agent; its reason is the request, and the response to it is a decision
    """
    kind = _tool_class()
    find = partial(exporting.export_tools, box, exporting.CallSettings(memory_id, run_id, parameters), approval)
    found = find()
    if len({_use_underscores(each.name) for each in found}) < len(found):
        found = find(fit_name=_use_underscores)  # Strands rejects two names that differ only by - and _
    return [kind(each, pausable=approval == "theirs") for each in found]


def _use_underscores(name: str) -> str:
    return name.replace("-", "_")


@cache
def _tool_class() -> Any:
    """Return the class of exported tools, which can be defined only if Strands is there."""
    base: Any = _import("strands.types.tools").AgentTool
    events = _import("strands.types.events")

    class ToolsembleTool(base):
        """A tool of a toolbox."""

        def __init__(self, exported: exporting.ExportedTool, *, pausable: bool) -> None:
            super().__init__()
            self.exported, self._pausable = exported, pausable

        @property
        def tool_name(self) -> str:
            return self.exported.shown_name

        @property
        def tool_spec(self) -> dict[str, Any]:
            tool = self.exported
            description = tool.description or tool.shown_name
            return {"name": tool.shown_name, "description": description, "inputSchema": {"json": tool.parameters}}

        @property
        def tool_type(self) -> str:
            return "toolsemble"

        async def stream(self, tool_use: Any, invocation_state: dict[str, Any], **settings: Any) -> AsyncIterator[Any]:
            execute = partial(_execute, self.exported, tool_use, invocation_state)
            if self._pausable:
                reply = await _ask(self.exported, execute, _make_context(tool_use, invocation_state, settings))
            else:
                reply = await execute()
            yield events.ToolResultEvent(write_result(reply))

    return ToolsembleTool


async def _execute(
    tool: exporting.ExportedTool, tool_use: Any, state: dict[str, Any], *, box: Toolbox | None = None
) -> ToolReply:
    run_id = _find_run_id(state.get("agent"))
    return await tool.aexecute(tool_use["input"], tool_use["toolUseId"], state, run_id=run_id, deps=state, box=box)


def _find_run_id(agent: Any) -> str | None:
    """Return the id of an agent's session, or one that is kept as long as the agent: it has one conversation."""
    if agent is None:
        return None
    session = getattr(getattr(agent, "_session_manager", None), "session_id", None)
    return str(session) if session else _RUN_IDS.setdefault(agent, new_id())


def _make_context(tool_use: Any, state: dict[str, Any], settings: dict[str, Any]) -> Any:
    """Return the context of a call, which can interrupt the agent; None outside of an agent."""
    if settings.get("_tool_context") is not None:
        return settings["_tool_context"]  # a call in the background
    kind, agent = _import("strands.types.tools").ToolContext, state.get("agent")
    return agent and kind(tool_use=tool_use, agent=agent, invocation_state=state)


async def _ask(tool: exporting.ExportedTool, execute: Callable[..., Awaitable[ToolReply]], context: Any) -> ToolReply:
    """Execute a call; interrupt the agent if it needs approval and the shown request has no decision."""
    box = None
    while True:
        try:
            return await execute(box=box)
        except CallPausedError as paused:
            if context is None or not asks_before(paused):
                return tool.fail(context and context.tool_use["toolUseId"], paused)
            request = paused.request
            # The name is part of the interrupt's id: a response is for exactly what was shown.
            name = f"approval of {request.tool_name}, {fingerprint_of(request)}"
            answer = context.interrupt(name, show_request(request))
            box = bind_decision(tool.box, request, read_decision(answer))


def adopt(tools: Any, **settings: Unpack[ToolSettings]) -> list[SchemaTool]:
    """Return Strands tools as tools for a toolbox: one tool, or a list of them.

    Their arguments are validated against their schema. A tool that takes a ``ToolContext`` or the agent is refused, and
    so is a tool provider, which an agent starts; pass the tools of an ``MCPClient``: ``client.list_tools_sync()``.

    .. code-block:: python

        from strands import tool
        from toolsemble.interop import strands

        @tool
        def double(number: int) -> int:
            '''Double a number.'''
            return 2 * number

        box = Toolbox(strands.adopt([double]))

    :param settings: the settings of the new tools, such as ``requires_approval`` or ``timeout``
    """
    kinds = _import("strands.types.tools").AgentTool, _import("strands.tools.tool_provider").ToolProvider
    found = flatten(tools, lambda each: isinstance(each, kinds), "a Strands tool")
    return adopt_tools("strands", [_read(each, kinds[1]) for each in found], dict(settings))


def _read(tool: Any, provider: type) -> ForeignTool:
    if isinstance(tool, provider):
        raise refuse(type(tool).__name__, "an agent, which starts it")
    injected = _find_injected(tool)
    if injected:
        raise refuse(tool.tool_name, f"the parameter {injected}, injected by an agent")

    async def call(arguments: dict[str, Any], call_id: str) -> Any:
        use = {"toolUseId": call_id, "name": tool.tool_name, "input": arguments}
        events = [event async for event in tool.stream(use, {})]
        return _read_last(events[-1] if events else None)

    found = _import("strands.tools.tools").normalize_tool_spec(tool.tool_spec)
    schema = found["inputSchema"]["json"]
    return ForeignTool(tool.tool_name, found["description"], schema, call, getattr(tool, "exported", None))


def _find_injected(tool: Any) -> str | None:
    """Return the parameter of a decorated function that gets the context or the agent; None if it has none."""
    metadata = getattr(tool, "_metadata", None)
    parameters = getattr(getattr(metadata, "signature", None), "parameters", {})
    injected = (getattr(metadata, "_context_param", None), "agent")
    return next((name for name in injected if name in parameters), None)


def _read_last(event: Any) -> Any:
    """Return the result of a tool, for the last event of its stream."""
    kinds = _import("strands.types.events"), _import("strands.types._events")
    if isinstance(event, kinds[1].ToolInterruptEvent):
        return failure("The tool interrupted its agent, which only an agent of Strands can handle")
    return read_result(event.tool_result if isinstance(event, kinds[0].ToolResultEvent) else event)
