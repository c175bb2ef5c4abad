"""The connection of a client: started and closed any number of times, used from any thread and any event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from toolsemble._engine.context import ToolContext
from toolsemble._engine.work.deadline import TimedOutError, remaining
from toolsemble._runtime.concurrency import wait_for
from toolsemble._runtime.fork_locks import fork_safe_lock
from toolsemble._runtime.observers.watchers import watchers
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolExecutionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble.mcp._changes import announce_changes
from toolsemble.mcp._client.definitions import Listing, RemoteDefinition
from toolsemble.mcp._client.inbox import Inbox, LoopInbox, Outcome, Progress, ServerQuestion, ThreadInbox, is_in_loop
from toolsemble.mcp._client.names import NameMap
from toolsemble.mcp._client.options import Options
from toolsemble.mcp._client.process_group import LOGGER
from toolsemble.mcp._client.remote_call import RemoteCall
from toolsemble.mcp._client.remote_tool import RemoteTool, build_remote_tool
from toolsemble.mcp._client.requests import build_request
from toolsemble.mcp._client.results import InvalidAnswerError, OutputCheck, invalid_answer
from toolsemble.review._decision import ReviewDecision
from toolsemble.review._during_call import aask_during_call, ask_during_call

if TYPE_CHECKING:
    from toolsemble.catalog._lock.lock import ToolLock
    from toolsemble.mcp._client.server_lock import ServerLock
    from toolsemble.mcp._client.session import Target
    from toolsemble.mcp._client.worker import Worker


class Connection:
    """The state of a client: its thread, while it runs, and the tools that the server listed last.

    :param make_target: returns what to connect to; called at the first start, because it loads the SDK
    :param source: the identity of the server, for a lock
    """

    def __init__(self, make_target: Callable[[], Target], options: Options, source: str) -> None:
        self._make_target = make_target
        self.options = options
        self.source = source
        self.lock: ServerLock | None = None
        if options.lock is not None:
            self.use_lock(options.lock)
        self._lock = fork_safe_lock(self)
        self._worker: Worker | None = None
        self._names = NameMap(options.prefix)
        self.tools: dict[str, RemoteTool] = {}
        """The tools by the names of the server."""
        self.shown: tuple[RemoteDefinition, ...] = ()
        """All that the server showed last, also what is not wanted, or refused by the lock."""
        self.facts: dict[str, Any] = {}
        """What the server said about itself: instructions, protocol_version, server_info, capabilities."""

    def begin(self) -> Worker:
        """Start the thread, unless it runs; return the worker, whose future ``started`` says how that ends."""
        from toolsemble.mcp._client.worker import Worker

        with self._lock:
            worker = self._find_worker()
            if worker is None:
                worker = self._worker = Worker(self._make_target(), self.options, self._publish)
                worker.start()
            return worker

    def _find_worker(self) -> Worker | None:
        worker = self._worker
        if worker is None or worker.ended.done() or worker.process != os.getpid():
            return None
        return worker

    @property
    def is_running(self) -> bool:
        """Whether calls can be sent."""
        return self._find_worker() is not None

    def start(self) -> None:
        """Start, and wait in this thread; raise if that fails."""
        worker = self.begin()
        try:
            wait_for(worker.started, None)
        except BaseException:
            worker.stop()
            raise
        self._check_start(worker)

    async def astart(self) -> None:
        """Start without blocking the event loop; raise if that fails."""
        worker = self.begin()
        started = asyncio.wrap_future(worker.started)
        started.add_done_callback(lambda future: future.cancelled() or future.exception())  # raised below
        try:
            await asyncio.wait([started])
        except BaseException:
            worker.stop()
            raise
        self._check_start(worker)

    def _check_start(self, worker: Worker) -> None:
        if (error := worker.started.exception()) is not None:
            wait_for(worker.ended, None)  # the thread ends now
            raise error

    def take_worker(self) -> Worker | None:
        """Let the thread end, if it runs; return its worker, whose future ``ended`` says when it has."""
        with self._lock:
            worker, self._worker = self._find_worker(), None
        if worker is not None:
            worker.stop()
        return worker

    def close(self) -> None:
        """Close, and wait in this thread until the server has ended."""
        if (worker := self.take_worker()) is not None:
            wait_for(worker.ended, None)

    async def aclose(self) -> None:
        """Close without blocking the event loop."""
        if (worker := self.take_worker()) is not None:
            await asyncio.wrap_future(worker.ended)

    def use_lock(self, lock: ToolLock) -> None:
        """Check the tools with a lock, from the next list on."""
        from toolsemble.mcp._client.server_lock import ServerLock

        self.lock = ServerLock(lock, self.source, self.options.review)

    def lock_now(self, lock: ToolLock) -> None:
        """Check the tools with a lock, now and at each list; raise ToolConfigurationError if it refuses the server."""
        self.use_lock(lock)
        assert self.lock is not None  # noqa: S101 - it was set
        verdict = self.lock.check_now(self.shown)
        self.tools = {name: tool for name, tool in self.tools.items() if verdict.admits(name)}

    async def _publish(self, listing: Listing, client: Any) -> AsyncIterator[None]:
        """Take over a list of tools; yield when that is done, and before, while a reviewer is asked about changes."""
        self.shown = listing.shown
        self.facts = {
            "instructions": client.instructions or "",
            "protocol_version": client.protocol_version,
            "server_info": client.server_info,
            "capabilities": client.server_capabilities,
        }
        if self.lock is None:
            self._take_over(listing.tools)
            yield
            return
        try:
            async for verdict in self.lock.check(listing.shown):
                self._take_over([each for each in listing.tools if verdict.admits(each.name)])
                yield
        except ToolConfigurationError:
            self._take_over(())
            raise

    def _take_over(self, listed: Sequence[RemoteDefinition]) -> None:
        """Replace the tools; a tool whose definition is unchanged stays the same object."""
        names = self._names.assign(each.name for each in listed)
        tools = {}
        for remote in listed:
            known = self.tools.get(remote.name)
            if known is None or known.remote != remote:
                known = build_remote_tool(names[remote.name], remote, self, self.options)
            if known is not None:
                tools[remote.name] = known
        has_changed = list(tools.values()) != list(self.tools.values())
        self.tools = tools
        if has_changed or not tools:
            self._warn_of_unused_patterns()
        if has_changed:
            announce_changes()

    @property
    def hidden(self) -> dict[str, str]:
        """Why the lock hides tools that the server shows, by their names."""
        if self.lock is None:
            return {}
        refused = self.lock.refused
        names = [each.name for each in self.shown if self.options.takes(each.name) and each.name not in self.tools]
        return {self._names.propose(each): refused[each] for each in names if each in refused}

    def find_unused(self) -> list[tuple[str, str]]:
        """Return the patterns of ``approve`` and ``only`` that match no tool, each with the name of its option."""
        names = {
            "approve": [name for tool in self.tools.values() for name in (tool.name, tool.remote.name)],
            "only": [each.name for each in self.shown],
        }
        return [(option, each) for option, known in names.items() for each in self.options.find_unused(option, known)]

    def _warn_of_unused_patterns(self) -> None:
        """Log the patterns that match no tool: a typo would leave a tool without its gate, or leave it out."""
        for option, pattern in self.find_unused():
            LOGGER.warning("%s: %r matches none of the tools of %s", option, pattern, self.options.name)

    def call_tool(
        self, tool: RemoteTool, arguments: dict[str, Any], context: ToolContext, check: OutputCheck | None
    ) -> Any:
        """Return the result of a call; in an event loop, a coroutine of it."""
        send, read = build_request(tool.remote, arguments, check)

        def read_answer(answer: Any) -> ToolResult:
            try:
                return read(answer)
            except InvalidAnswerError as problem:
                raise invalid_answer(self.options.name, problem) from None

        check_lock = None if self.lock is None else tool.check_lock
        return self.exchange(send, read_answer, context, repeatable=tool.repeatable, check=check_lock)

    def exchange(
        self,
        send: Callable[..., Any],
        read: Callable[[Any], Any],
        context: ToolContext,
        *,
        repeatable: bool,
        check: Callable[[], None] | None = None,
    ) -> Any:
        """Send a request and return what ``read`` returns for its answer; in an event loop, a coroutine of it.

        :param check: raises if the request may not be sent; called when the server is ready
        """
        if is_in_loop():
            return self._wait_in_loop(send, read, context, repeatable=repeatable, check=check)
        inbox = ThreadInbox()
        worker, call = self._begin_call(send, context, inbox, repeatable=repeatable, check=check)
        try:
            while True:
                item = inbox.get(remaining(context))
                _check_time(item)
                if isinstance(item, Outcome):
                    return read(_unwrap(item))
                _receive(item, call)
                if isinstance(item, ServerQuestion):
                    self._ask_in_thread(item, context)
        except BaseException:
            worker.cancel(call)
            raise

    async def _wait_in_loop(
        self, send: Callable[..., Any], read: Callable[[Any], Any], context: ToolContext, **how: Any
    ) -> Any:
        inbox = LoopInbox()
        worker, call = self._begin_call(send, context, inbox, **how)
        try:
            while True:
                item = await inbox.get()
                if isinstance(item, Outcome):
                    return read(_unwrap(item))
                _receive(item, call)
                if isinstance(item, ServerQuestion):
                    await self._ask_in_loop(item, context)
        except BaseException:
            worker.cancel(call)
            raise

    def _begin_call(
        self, send: Callable[..., Any], context: ToolContext, inbox: Inbox, **how: Any
    ) -> tuple[Worker, RemoteCall]:
        worker = self._running_worker()
        call = RemoteCall(send, context, inbox, timeout=self.options.timeout, watched=bool(watchers()), **how)
        if worker is None or not worker.begin(call):
            raise ToolExecutionError(f"The MCP server '{self.options.name}' is not running")
        return worker, call

    def _running_worker(self) -> Worker | None:
        """Return the worker; in a forked process, where the thread does not exist, a new one."""
        worker = self._worker
        if worker is not None and worker.process != os.getpid():
            self.start()
            worker = self._worker
        return worker

    def _ask_in_thread(self, question: ServerQuestion, context: ToolContext) -> None:
        asking, context = self._prepare(question, context)
        try:
            step = next(asking)
            while True:
                step = asking.send(ask_during_call(context, **step))
        except BaseException as raised:  # raised again if it must end the call
            _settle(question, raised)

    async def _ask_in_loop(self, question: ServerQuestion, context: ToolContext) -> None:
        asking, context = self._prepare(question, context)
        try:
            step = next(asking)
            while True:
                step = asking.send(await aask_during_call(context, **step))
        except BaseException as raised:  # raised again if it must end the call
            _settle(question, raised)

    def _prepare(
        self, question: ServerQuestion, context: ToolContext
    ) -> tuple[Generator[dict[str, Any], ReviewDecision, Any], ToolContext]:
        from toolsemble.mcp._client.questions import answer_question  # loaded with the worker

        review = self.options.review or context.review
        return answer_question(question), context.derive({"review": review})


def _settle(question: ServerQuestion, raised: BaseException) -> None:
    """Pass the answer to the server; raise what must end the call."""
    from toolsemble.mcp._client.questions import settle  # loaded with the worker

    if isinstance(raised, StopIteration):
        settle(question, raised.value)
        return
    settle(question, None, raised)
    raise raised


def _check_time(item: Any) -> None:
    if item is None:
        raise TimedOutError


def _receive(item: Any, call: RemoteCall) -> None:
    if isinstance(item, Progress):
        call.received += 1
        call.context.progress(item.fraction, item.message)


def _unwrap(outcome: Outcome) -> Any:
    if outcome.error is not None:
        raise outcome.error
    return outcome.value
