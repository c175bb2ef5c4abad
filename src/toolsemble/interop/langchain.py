"""Content blocks of LangChain's messages: texts, images, audio and files."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError as FutureCancelledError, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from threading import RLock
from typing import TYPE_CHECKING, Any, Unpack

from toolsemble._tools.schema import SchemaTool
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolReply, new_id
from toolsemble._vocabulary.errors import CallPausedError, ToolConfigurationError, ToolExecutionError
from toolsemble._vocabulary.result import AudioContent, Content, FileContent, ImageContent, ToolResult
from toolsemble._vocabulary.serialization import compact_json, read_content
from toolsemble.interop import _exporting as exporting
from toolsemble.interop._adopting import ForeignTool, adopt_tools, failure, flatten, join_parts, refuse
from toolsemble.interop._exporting import ExportedTool, import_framework
from toolsemble.interop._pausing import UNKNOWN, asks_before, bind_decision, fingerprint_of, read_decision, show_request
from toolsemble.models._adapter.wire import base64_text, describe_omitted
from toolsemble.review._request import ReviewRequest

if TYPE_CHECKING:
    from toolsemble._tools.settings import ToolSettings


_TYPES: dict[str, type[Any]] = {"image": ImageContent, "audio": AudioContent, "file": FileContent}


def write_blocks(text: str, media: Iterable[Content]) -> list[dict[str, Any]]:
    """Return a text and media as content blocks.

    >>> write_blocks("a map", [ImageContent(b"...", "image/png")])[1]
    {'type': 'image', 'mime_type': 'image/png', 'base64': 'Li4u'}
    """
    return [{"type": "text", "text": text}, *map(_write_block, media)]


def _write_block(content: Any) -> dict[str, Any]:
    if isinstance(content, AudioContent):  # a message with it would become one text including all bytes
        return {"type": "text", "text": describe_omitted(content)}
    kind = next(name for name, each in _TYPES.items() if isinstance(content, each))
    name = {"filename": content.name} if kind == "file" else {}
    source = {"url": content.url} if content.url else {"base64": base64_text(content.data)}
    return {"type": kind, "mime_type": content.mime_type, **source, **name}


def read_blocks(content: Any) -> tuple[str, list[Content]]:
    """Return the text and the media of a message; blocks of other types become JSON text.

    >>> read_blocks([{"type": "text", "text": "a map"}, {"type": "image", "mime_type": "image/png", "base64": "Li4u"}])
    ('a map', [ImageContent(<3 bytes>, mime_type='image/png')])
    """
    if isinstance(content, str):
        return content, []
    return join_parts(map(_read_block, content))


def _read_block(block: Any) -> str | Content:
    if isinstance(block, str):
        return block
    if block.get("type") == "text":
        return str(block.get("text", ""))
    found = _read_media(block)
    return compact_json(block, default=str) if found is None else found


def _read_media(block: dict[str, Any]) -> Content | None:
    """Return a block's content from one of LangChain's formats; None if unknown or invalid."""
    kind = str(block.get("type"))
    if kind == "image_url":
        source = block.get("image_url")
        kind, block = "image", {"url": source.get("url") if isinstance(source, dict) else source}
    if kind not in _TYPES:
        return None
    data = block.get("base64") or (block.get("data") if block.get("source_type", "base64") == "base64" else None)
    name = {"name": str(block.get("filename") or block.get("name") or "file")} if kind == "file" else {}
    try:
        if isinstance(data, str):
            mime_type = block.get("mime_type") or "application/octet-stream"
            return read_content({"type": kind, "data": data, "mime_type": mime_type, **name})  # type: ignore[no-any-return]  # one of the contents
        return _TYPES[kind].from_url(block["url"], block.get("mime_type"))  # type: ignore[no-any-return]  # as above
    except (KeyError, TypeError, ValueError):
        return None


_import = partial(exporting.import_framework, install="langchain-core", user="langchain")


def export(
    box: Toolbox,
    *,
    memory_id: exporting.Choice = None,
    run_id: exporting.Choice = None,
    parameters: exporting.Parameters = None,
    approval: exporting.Approval = "ours",
) -> list[Any]:
    """Return a toolbox's tools as LangChain tools, for ``create_agent``, ``ToolNode`` or ``bind_tools``.

    A failed call is a ``ToolMessage`` with the status "error"; the structured output is its artifact, as JSON values.
    Media are content blocks. A call's run id is the configuration's ``thread_id``, if there is one.

    :param memory_id: the conversation or user that calls belong to, or a function of the ``RunnableConfig``
    :param run_id: the run that calls belong to, or a function of the ``RunnableConfig``
    :param parameters: values that the tools of a run share, or a function of the ``RunnableConfig``
    :param approval: "theirs" asks with LangGraph's ``interrupt``; the run is resumed with
        ``Command(resume=Continue())``, ``Edit(...)`` or ``Reject(...)``, or the JSON form of one

    >>> from toolsemble import tool
    >>> @tool
    ... def double(number: int) -> int:
    ...     '''Double a number.'''
    ...     return 2 * number
    >>> [exported] = export(Toolbox([double]))
    >>> exported.invoke({"number": "21"})
    '42'
    """
    kind = _tool_class()
    caller = Interrupts() if approval == "theirs" else Direct()
    found = exporting.export_tools(box, exporting.CallSettings(memory_id, run_id, parameters), approval)
    return [
        kind(
            name=each.shown_name,
            description=each.description,
            args_schema=each.parameters,
            exported=each,
            caller=caller,
        )
        for each in found
    ]


@cache
def _tool_class() -> Any:
    """Return the class of exported tools, defined only if LangChain is installed."""
    base: Any = _import("langchain_core.tools").BaseTool
    config = _import("langchain_core.runnables.config")

    class ToolsembleTool(base):
        """A toolbox tool that receives unprocessed arguments, even ones named ``config`` or ``run_manager``."""

        exported: Any
        caller: Any
        response_format: str = "content_and_artifact"
        handle_tool_error: bool = True

        def _to_args_and_kwargs(self, tool_input: Any, tool_call_id: str | None) -> tuple[Any, dict[str, Any]]:
            return (tool_input, tool_call_id), {}

        def _run(self, tool_input: Any, call_id: str | None) -> Any:
            given, source = _arguments(self.exported, tool_input), config.ensure_config()
            return _answer(self.caller.execute(self.exported, given, call_id, source))

        async def _arun(self, tool_input: Any, call_id: str | None) -> Any:
            given, source = _arguments(self.exported, tool_input), config.ensure_config()
            return _answer(await self.caller.aexecute(self.exported, given, call_id, source))

    return ToolsembleTool


def _arguments(exported: exporting.ExportedTool, given: Any) -> Any:
    """Return the arguments; a plain text is the only parameter's value, as in LangChain's own tools."""
    names = list(exported.parameters.get("properties", {}))
    return {names[0]: given} if isinstance(given, str) and len(names) == 1 else given


class Direct:
    """Calls that run directly, with the toolbox's reviewer."""

    def execute(self, tool: exporting.ExportedTool, arguments: Any, call_id: str | None, source: Any) -> ToolReply:
        """Execute a call; its run is the configuration's conversation."""
        return tool.execute(arguments, call_id, source, run_id=thread_of(source))

    async def aexecute(
        self, tool: exporting.ExportedTool, arguments: Any, call_id: str | None, source: Any
    ) -> ToolReply:
        """Execute a call without blocking the event loop."""
        return await tool.aexecute(arguments, call_id, source, run_id=thread_of(source))


def thread_of(source: Any) -> str | None:
    """Return a configuration's conversation id; None if there is none.

    >>> thread_of({"configurable": {"thread_id": 7}})
    '7'
    """
    found = source.get("configurable", {}).get("thread_id")
    return None if found is None else str(found)


def _answer(reply: ToolReply) -> tuple[Any, Any]:
    """Return a message's content and artifact; raise an exception that LangChain turns into a failed message."""
    text, media = exporting.text_of(reply), exporting.media_of(reply)
    if reply.is_error:
        raise _import("langchain_core.tools").ToolException(text)
    return (write_blocks(text, media) if media else text), exporting.payload_of(reply)


def adopt(tools: Any, **settings: Unpack[ToolSettings]) -> list[SchemaTool]:
    """Return LangChain tools as tools for a toolbox: one tool, or a list of them.

    Their arguments are validated against their schema; a tool that needs a graph's state, store or runtime is rejected.

    :param settings: the settings of the new tools, such as ``requires_approval`` or ``timeout``

    >>> from langchain_core.tools import tool
    >>> @tool
    ... def double(number: int) -> int:
    ...     '''Double a number.'''
    ...     return 2 * number
    >>> Toolbox(adopt(double))["double"].execute({"number": "21"}).output
    '42'
    """
    base = _import("langchain_core.tools").BaseTool
    found = flatten(tools, lambda each: isinstance(each, base), "a LangChain tool")
    return adopt_tools("langchain", [_read(each) for each in found], dict(settings))


def _read(tool: Any) -> ForeignTool:
    shown = tool.tool_call_schema
    schema = shown if isinstance(shown, dict) else shown.model_json_schema()
    injected = _find_injected(tool, schema)
    if injected:
        raise refuse(tool.name, f"the parameters {', '.join(injected)}, injected by a graph")

    async def call(arguments: dict[str, Any], call_id: str) -> Any:
        request = {"type": "tool_call", "name": tool.name, "args": arguments, "id": call_id}
        return _read_answer(await tool.ainvoke(request))

    parameters = {key: value for key, value in schema.items() if key not in ("title", "description")}
    return ForeignTool(tool.name, tool.description, parameters, call, getattr(tool, "exported", None))


def _find_injected(tool: Any, schema: dict[str, Any]) -> list[str]:
    """Return the parameters that a graph injects, except the call id, which every call has."""
    call_id = _import("langchain_core.tools").InjectedToolCallId
    hidden = set(getattr(tool, "_injected_args_keys", ()))
    if isinstance(tool.args_schema, type):
        fields = getattr(tool.args_schema, "model_fields", {})
        hidden |= fields.keys() - schema.get("properties", {}).keys()
        hidden -= {name for name, field in fields.items() if call_id in {_class_of(each) for each in field.metadata}}
    return sorted(hidden - {"tool_call_id"})


def _class_of(value: Any) -> Any:
    return value if isinstance(value, type) else type(value)


def _read_answer(message: Any) -> ToolResult:
    """Return the result for the message of a call."""
    if not hasattr(message, "status"):
        return failure(f"The tool returned a {type(message).__name__}, which only a graph can use")
    text, contents = read_blocks(message.content)
    if message.status == "error":
        return failure(text)
    return ToolResult.success(text, message.artifact, contents=contents)


_MOST_NODES = 1000
_YIELDS = 10  # event loop iterations in which the calls beside an asking one start


class Node:
    """One execution of a graph node, and its repetitions: completed calls, requests and answers."""

    def __init__(self, shown: list[str]) -> None:
        self.replies: dict[tuple[str, str, str], Future[ToolReply]] = {}
        self.shown = shown
        self.answers: dict[str, Any] = {}
        self._asking: set[Future[ToolReply]] = set()
        self._lock = RLock()
        self._execution: object = None
        self._position = 0
        self._open: BaseException | None = None

    def ask(self, request: ReviewRequest, execution: object) -> Any:
        """Return the answer to a request; raise LangGraph's ``GraphInterrupt`` if there is none yet.

        :param execution: an object unique to each repetition of the node
        """
        fingerprint = fingerprint_of(request)
        with self._lock:
            if self._execution is not execution:
                self._execution, self._position, self._open = execution, 0, None
            while fingerprint not in self.answers:
                answer = self._interrupt(request, fingerprint)
                if self._position < len(self.shown):
                    self.answers[self.shown[self._position]] = answer
                self._position += 1
            return self.answers.pop(fingerprint)

    async def settle(self, own: Future[ToolReply]) -> None:
        """Wait for the calls beside an interrupting one, so that their replies are recorded."""
        for _ in range(_YIELDS):
            await asyncio.sleep(0)
        self._asking.add(own)
        beside = [asyncio.wrap_future(each) for each in self.replies.values() if each not in self._asking]
        if beside:
            await asyncio.wait(beside)

    def _interrupt(self, request: ReviewRequest, fingerprint: str) -> Any:
        types = import_framework("langgraph.types", install="langgraph", user="langchain")
        if self._open is not None:
            raise self._open  # one request at a time: the person answers what LangGraph shows
        try:
            return types.interrupt(show_request(request))
        except Exception as interrupt:
            self.shown[self._position :] = [fingerprint]
            self._open = interrupt
            raise


class Interrupts:
    """The nodes with calls of one export, in this process; the least recently used are dropped."""

    def __init__(self) -> None:
        self._nodes: OrderedDict[tuple[str, str], Node] = OrderedDict()
        self._lock = RLock()

    def execute(self, tool: ExportedTool, arguments: Any, call_id: str | None, source: Any) -> ToolReply:
        """Execute a call, and interrupt the run if it needs approval; a call that already ran returns its reply."""
        place = Place.of(source)
        node = self._find(place) or self._add(place, place.find_shown(place.checkpointer.get_tuple(place.parent)))
        call = RepeatedCall(node, place, tool, arguments, call_id or new_id(), source)
        own: Future[ToolReply] = Future()
        while (known := call.claim(own)) is not own:
            with suppress(FutureCancelledError):
                return known.result()
        with call.release(own):
            outcome: Toolbox | ToolReply = tool.box
            while isinstance(outcome, Toolbox):
                try:
                    outcome = tool.execute(*call.given, run_id=place.thread, box=outcome)
                except CallPausedError as paused:
                    outcome = call.decide(paused)
            own.set_result(outcome)
            return outcome

    async def aexecute(self, tool: ExportedTool, arguments: Any, call_id: str | None, source: Any) -> ToolReply:
        """Execute a call like :meth:`execute`, without blocking the event loop."""
        place = Place.of(source)
        node = self._find(place)
        if node is None:
            node = self._add(place, place.find_shown(await place.checkpointer.aget_tuple(place.parent)))
        call = RepeatedCall(node, place, tool, arguments, call_id or new_id(), source)
        own: Future[ToolReply] = Future()
        while (known := call.claim(own)) is not own:
            await asyncio.wait([asyncio.wrap_future(known)])
            if not known.cancelled():
                return known.result()
        with call.release(own):
            outcome: Toolbox | ToolReply = tool.box
            while isinstance(outcome, Toolbox):
                try:
                    outcome = await tool.aexecute(*call.given, run_id=place.thread, box=outcome)
                except CallPausedError as paused:
                    await node.settle(own)
                    outcome = call.decide(paused)
                except asyncio.CancelledError:
                    own.set_result(tool.fail(call_id, ToolExecutionError(UNKNOWN)))
                    raise
            own.set_result(outcome)
            return outcome

    def _find(self, place: Place) -> Node | None:
        with self._lock:
            if place.key in self._nodes:
                self._nodes.move_to_end(place.key)
            return self._nodes.get(place.key)

    def _add(self, place: Place, shown: list[str]) -> Node:
        with self._lock:
            while len(self._nodes) >= _MOST_NODES:
                self._nodes.popitem(last=False)
            return self._nodes.setdefault(place.key, Node(shown))


class RepeatedCall:
    """A call in a node, which LangGraph may repeat after an interrupt."""

    def __init__(self, node: Node, place: Place, tool: ExportedTool, arguments: Any, call_id: str, source: Any) -> None:
        self._node, self._place, self._tool = node, place, tool
        self._key = (
            call_id,
            tool.name,
            arguments if isinstance(arguments, str) else compact_json(arguments, default=str),
        )
        self.given = arguments, call_id, source

    def claim(self, own: Future[ToolReply]) -> Future[ToolReply]:
        """Return the future to fill with the reply; an existing one if the call already ran or is running."""
        return self._node.replies.setdefault(self._key, own)

    @contextmanager
    def release(self, own: Future[ToolReply]) -> Iterator[None]:
        """Store the reply, or drop a call without one, because it has not run."""
        try:
            yield
        finally:
            if not own.done():
                del self._node.replies[self._key]
                own.cancel()

    def decide(self, paused: CallPausedError) -> Toolbox | ToolReply:
        """Return a toolbox with a call's decision, or the reply to a call that cannot be resumed.

        Raise LangGraph's ``GraphInterrupt`` if there is no decision.
        """
        if not asks_before(paused):
            return self._tool.fail(self._key[0], paused)
        answer = self._node.ask(paused.request, self._place.execution)
        return bind_decision(self._tool.box, paused.request, read_decision(answer))


@dataclass(frozen=True, slots=True)
class Place:
    """The node execution of a configuration."""

    thread: str
    """The id of the conversation."""
    namespace: str
    """The node's path with its execution id, equal for repetitions."""
    execution: Any
    """An object unique to each repetition, with the answers so far."""
    checkpointer: Any
    """The checkpointer of the graph."""

    @classmethod
    def of(cls, source: Any) -> Place:
        """Return a configuration's place; raise ToolConfigurationError if its run cannot be interrupted."""
        known = source.get("configurable", {})
        found = [known.get(key) for key in ("thread_id", "checkpoint_ns", _EXECUTION, _CHECKPOINTER)]
        if None in found:
            raise ToolConfigurationError(
                'approval="theirs" needs a LangGraph run with a checkpointer and a thread_id; pass approval="ours" to '
                "ask the reviewer of the toolbox"
            )
        return cls(str(found[0]), *found[1:])

    @property
    def key(self) -> tuple[str, str]:
        """The conversation and the node."""
        return self.thread, self.namespace

    @property
    def parent(self) -> dict[str, Any]:
        """The configuration of the node's graph, for its checkpointer."""
        graph = self.namespace.rpartition("|")[0]
        return {"configurable": {"thread_id": self.thread, "checkpoint_ns": graph}}

    def find_shown(self, checkpoint: Any) -> list[str]:
        """Return the fingerprints of requests shown by another process; "" for unknown ones.

        :param checkpoint: the graph's latest checkpoint, which has the node's last request
        """
        task = self.namespace.rpartition(":")[2]
        writes = [] if checkpoint is None else checkpoint.pending_writes or []
        asked = [value for owner, channel, value in writes if owner == task and channel == "__interrupt__"]
        shown = [each.value.get("fingerprint", "") for each in (asked[-1] if asked else ())]
        return [*("" for _ in self.execution.resume), *shown]


_EXECUTION = "__pregel_scratchpad"
_CHECKPOINTER = "__pregel_checkpointer"
