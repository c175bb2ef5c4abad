"""Approval by LangGraph's ``interrupt``: a resumed run repeats its node, and no call of it runs twice.

LangGraph numbers the interrupts of a node, and gives the n-th answer to the n-th interrupt. Here each answer goes to
the call whose request was shown, and a call that already ran returns its recorded reply.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import CancelledError as FutureCancelledError, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import RLock
from typing import Any

from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolReply, new_id
from toolsemble._vocabulary.errors import CallPausedError, ToolConfigurationError, ToolExecutionError
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.interop._exporting import ExportedTool, import_framework
from toolsemble.interop._pausing import UNKNOWN, asks_before, bind_decision, fingerprint_of, read_decision, show_request
from toolsemble.review._request import ReviewRequest

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
