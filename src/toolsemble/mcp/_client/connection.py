"""A client's connection: its thread, its tools, and the handling of a server that ends."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator, Callable, Collection, Generator, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import ToolDefinition, check_description, typed_definition
from toolsemble._engine.work.body import TimedOutError, remaining
from toolsemble._runtime.threads import fork_safe_lock, wait_for
from toolsemble._runtime.watchers import watchers
from toolsemble._schema.json_schema import SchemaArguments
from toolsemble._tools.schema import SchemaTool
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError, ToolExecutionError
from toolsemble._vocabulary.result import Content, ToolResult
from toolsemble._vocabulary.specification import check_name, read_metadata
from toolsemble.catalog._pinning.diff import Verdict
from toolsemble.catalog._pinning.tool_lock import ToolLock
from toolsemble.mcp._changes import announce_changes
from toolsemble.mcp._client import remote_call, results, text_cleaning as cleaning
from toolsemble.mcp._client.options import DESTRUCTIVE, Options
from toolsemble.mcp._client.process_group import LOGGER
from toolsemble.review._gate import aask_during_call, ask_during_call
from toolsemble.review._request import ReviewDecision, ReviewHandler
from toolsemble.review._rules.pattern import matches_name

if TYPE_CHECKING:
    from toolsemble.catalog._pinning.pins import PinnedTool
    from toolsemble.mcp._client.client_thread import ClientThread
    from toolsemble.mcp._client.session import Target


class RemoteTool(SchemaTool):
    """A tool on an MCP server; calls are validated, gated, limited and recorded like any other."""

    def __init__(self, name: str, remote: cleaning.RemoteDefinition, connection: Any, options: Options) -> None:
        description = (
            cleaning.clean_text(remote.description, cleaning.MAX_DESCRIPTION)
            or cleaning.clean_text(remote.title, cleaning.MAX_TITLE)
            or f"The tool {name} of the MCP server {options.name}"
        )
        self.remote = remote
        """The server's definition, as sent."""
        settings = _tool_settings(name, remote, options)
        super().__init__(name, description, self._call_remote, remote.input_schema, **settings)
        self._connection = connection
        self._check: results.OutputCheck | None = None
        self._name = name
        check = results.build_output_check(name, remote.output_schema)
        if isinstance(check, str):
            LOGGER.warning("The results of '%s' are not checked: %s", name, check)
        else:
            self._check = check

    def _build_arguments(self, parameters: Any) -> SchemaArguments:
        if self.remote.is_plain:
            return cleaning.PlainArguments(self.name, parameters)
        return SchemaArguments(self.name, cleaning.clean_schema(parameters))

    def _call_remote(self, arguments: dict[str, Any]) -> Any:
        """Return a call's result, or a coroutine for it on an event loop."""
        return self._connection.call_tool(self, arguments, self.context, self._check)

    @property
    def repeatable(self) -> bool:
        """Whether a call may be retried."""
        return self.effects == "read" or self.idempotent

    @property
    def listed_output(self) -> dict[str, Any] | None:
        """The output schema, for forwarding by a server; None if there is none, or it is not checked."""
        schema = self.remote.output_schema
        is_object = isinstance(schema, dict) and schema.get("type") == "object"
        return cleaning.clean_schema(schema) if is_object and self._check is not None else None

    @property
    def listed_hints(self) -> dict[str, bool]:
        """The hints that may be forwarded: the ones that make clients more careful."""
        return {"destructiveHint": True} if self.remote.hints.get("destructiveHint") is True else {}

    @property
    def lock_source(self) -> str:
        """The server's identity in a lock file."""
        return str(self._connection.source)

    @cached_property
    def pin(self) -> PinnedTool:
        """The server's definition, as compared by a lock."""
        from toolsemble.catalog._pinning.pins import pin_tool

        return pin_tool(self.remote.to_listed())

    def use_lock(self, lock: ToolLock) -> None:
        """Check the server's tools with a lock, now and on each change, unless the client has its own."""
        if self._connection.lock is None:
            self._connection.lock_now(lock)

    def check_lock(self) -> None:
        """Raise ToolExecutionError if the client's lock refuses the tool."""
        if self._connection.lock is not None:
            self._connection.lock.check_call(self.remote.name, self.pin.digest)

    def find_lock_refusal(self, name: str) -> str:
        """Return why the client's lock hides another tool of the server; "" if it does not."""
        return str(self._connection.hidden.get(name, ""))

    def check_settings(self) -> None:
        """Raise ToolDefinitionError if the tool cannot be defined."""
        check_description(check_name(self.name), self.description)
        if self._connection.options.settings:  # without settings, there is nothing to check
            self._define()

    def _define(self) -> ToolDefinition:
        # Async: a call waits on the caller's event loop or in its thread, and never needs its own thread.
        definition = typed_definition(
            self.name, self.description, self.run, self._arguments, awaits=True, **self._declared()
        )
        if self._connection.lock is None:
            return definition
        from toolsemble.catalog._pinning.tool_lock import add_check

        return add_check(definition, self.pin.digest, self.check_lock)


def build_remote_tool(
    name: str, remote: cleaning.RemoteDefinition, connection: Any, options: Options
) -> RemoteTool | None:
    """Return the tool for a definition; log a warning and return None if the definition is unusable."""
    try:
        tool = RemoteTool(name, remote, connection, options)
        tool.check_settings()
    except ToolDefinitionError as problem:
        LOGGER.warning("Skipped a tool of %s: %.100r: %s", options.name, remote.name, problem)
        return None
    return tool


def _tool_settings(name: str, remote: cleaning.RemoteDefinition, options: Options) -> dict[str, Any]:
    """Return a tool's settings: the client's applicable settings, and its hints."""
    title = cleaning.clean_text(remote.title, cleaning.MAX_TITLE)
    origin = {"server": options.name, "name": remote.name, "title": title}
    settings = {**_read_hints(remote, options), **options.settings}
    settings["metadata"] = {**read_metadata("MCPClient", options.settings.get("metadata")), "mcp": origin}
    reads = settings.get("effects") == "read"
    if not reads:
        settings.pop("cache", None)
    if not (reads or settings.get("idempotent")):
        settings.pop("retries", None)
    if reads:
        settings.pop("idempotency", None)
    if (gate := _needs_approval(name, remote, options)) is not False:
        settings["requires_approval"] = gate
    return settings


def _read_hints(remote: cleaning.RemoteDefinition, options: Options) -> dict[str, Any]:
    """Return the settings implied by trusted hints."""
    if not options.trust_hints:
        return {}
    believed: dict[str, Any] = {"idempotent": remote.hints.get("idempotentHint") is True}
    if remote.hints.get("readOnlyHint") is True:
        believed["effects"] = "read"
    elif is_destructive(remote):
        believed["effects"] = "irreversible" if remote.hints.get("destructiveHint") is True else None
    else:
        believed["effects"] = "write"
    return believed


def is_destructive(remote: cleaning.RemoteDefinition) -> bool:
    """Return whether a tool may be destructive by its hints; per the specification, no hints means yes."""
    if remote.hints.get("destructiveHint") is True:
        return True
    return remote.hints.get("destructiveHint") is not False and remote.hints.get("readOnlyHint") is not True


def _needs_approval(name: str, remote: cleaning.RemoteDefinition, options: Options) -> Any:
    approve = options.approve
    if approve is None:
        return False
    if approve == DESTRUCTIVE:
        # If a server claims both "read-only" and "destructive", the latter wins.
        return is_destructive(remote)
    if callable(approve):
        return approve
    return any(matches_name(pattern, each) for pattern in approve for each in (name, remote.name))


_INVALID = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST = 64
_DIGITS = 8
_MOST_KEPT = 1000


class NameMap:
    """The model-facing names of one server's tools.

    A valid name is kept, with the prefix. Any other name is cleaned; if the result is too long or taken, it ends with a
    digest of the server's name for the tool. An assigned name is not reused for another tool until the server has
    offered a thousand others.

    >>> names = NameMap("files_")
    >>> dict(names.assign(["read", "dir.list"]))
    {'read': 'files_read', 'dir.list': 'files_dir_list'}
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._local: dict[str, str] = {}
        self._taken: set[str] = set()

    def assign(self, remote: Iterable[str]) -> Mapping[str, str]:
        """Return the model-facing names by the server's names, for the currently listed tools."""
        listed = dict.fromkeys(remote)
        # Valid names first, so that a tool's name does not depend on the listing order.
        for name in sorted(listed.keys() - self._local.keys(), key=lambda each: (_clean_name(each) != each, each)):
            local = self._find_name(name)
            self._local[name] = local
            self._taken.add(local)
        self._forget(listed)
        return {name: self._local[name] for name in listed}

    def _forget(self, listed: Collection[str]) -> None:
        """Forget the least recently listed names, if there are too many."""
        for name in sorted(listed):
            self._local[name] = self._local.pop(name)  # the last ones now
        for name in list(self._local)[: max(0, len(self._local) - len(listed) - _MOST_KEPT)]:
            self._taken.discard(self._local.pop(name))

    def propose(self, remote: str) -> str:
        """Return a tool's prospective name, if it is valid and not taken."""
        return self._prefix + _clean_name(remote)

    def _find_name(self, remote: str) -> str:
        wanted = self.propose(remote)
        if len(wanted) <= _LONGEST and wanted not in self._taken:
            return wanted
        digest = hashlib.sha256(remote.encode(errors="surrogatepass")).hexdigest()
        # Use more of the digest on a collision.
        ends = (f"_{digest[:digits]}" for digits in range(_DIGITS, len(digest)))
        found = (wanted[: _LONGEST - len(end)] + end for end in ends)
        return next(each for each in found if each not in self._taken)


def _clean_name(name: str) -> str:
    return _INVALID.sub("_", name) or "tool"


_MAX_LINE = 500

Send = Callable[[Any, Any], Any]
"""Sends a call's request with the SDK's client."""
Read = Callable[[Any], ToolResult]
"""Converts an answer to a result."""


def build_request(
    remote: cleaning.RemoteDefinition, arguments: dict[str, Any], check: results.OutputCheck | None
) -> tuple[Send, Read]:
    """Return the sender of a remote tool call, and the reader of its answer."""
    if remote.kind == cleaning.TOOL:

        async def call_tool(client: Any, call: Any) -> Any:
            report = call.report if call.watched else None
            return await client.call_tool(remote.target, arguments, progress_callback=report)

        return call_tool, lambda answer: results.read_result(answer, check)
    if remote.kind == cleaning.PROMPT:
        return lambda client, _: client.get_prompt(remote.target, arguments), _read_prompt
    if remote.kind == cleaning.READ_RESOURCE:
        return lambda client, _: client.read_resource(arguments["uri"], cache_mode="bypass"), _read_resources
    cursor = arguments.get("cursor")
    return lambda client, _: client.list_resources(cursor=cursor, cache_mode="bypass"), _read_list


def _read_prompt(answer: Any) -> ToolResult:
    texts: list[str] = []
    contents: list[Content] = []
    for message in answer.messages:
        said: list[str] = []
        results.read_block(message.content, said, contents)
        texts += [f"{message.role}: {text}" for text in said]
    return ToolResult.success("\n".join(texts), contents=contents)


def _read_resources(answer: Any) -> ToolResult:
    texts: list[str] = []
    contents: list[Content] = []
    for resource in answer.contents:
        results.read_resource(resource, texts, contents)
    return ToolResult.success("\n".join(texts), contents=contents)


def _read_list(answer: Any) -> ToolResult:
    lines = [_describe(each) for each in answer.resources]
    if answer.next_cursor is not None:
        lines.append(f"There are more; call again with cursor: {cleaning.clean_line(answer.next_cursor, _MAX_LINE)}")
    return ToolResult.success("\n".join(lines), [str(each.uri) for each in answer.resources])


def _describe(resource: Any) -> str:
    words = (resource.title or resource.name, resource.mime_type, resource.description)
    details = ", ".join(cleaning.clean_line(each, _MAX_LINE) for each in words if each)
    return f"{cleaning.clean_line(str(resource.uri), _MAX_LINE)} ({details})"


class ServerLock:
    """A lock for one server's tools, with the verdict for one client.

    :param lock: the program's lock, which other clients may share
    :param source: the server's identity
    :param review: the client's reviewer; None: the lock's
    """

    def __init__(self, lock: ToolLock, source: str, review: ReviewHandler | None) -> None:
        self._lock = lock.separate()
        self._source = source
        self._review = review

    async def check(self, shown: Sequence[cleaning.RemoteDefinition]) -> AsyncIterator[Verdict]:
        """Yield the verdict on a list; if a reviewer is asked, first yield one that refuses changed tools."""
        listed = [each.to_listed() for each in shown]
        checking = asyncio.ensure_future(self._lock.acheck(self._source, listed, review=self._review))
        try:
            await asyncio.sleep(0)  # a check without review takes one step
            if not checking.done():
                yield self._lock.verdict(self._source)
            yield await checking
        finally:
            checking.cancel()

    def check_now(self, shown: Sequence[cleaning.RemoteDefinition]) -> Verdict:
        """Return the verdict on a list, waiting for the reviewer."""
        return self._lock.check(self._source, [each.to_listed() for each in shown], review=self._review)

    @property
    def refused(self) -> Mapping[str, str]:
        """The reasons for refused tools, by the server's names."""
        return self._lock.verdict(self._source).refused

    def check_call(self, name: str, digest: str) -> None:
        """Raise ToolExecutionError if a tool may not be called.

        :param name: the server's own name
        :param digest: the digest of its pin when it was listed
        """
        self._lock.check_call(self._source, name, digest)


class Connection:
    """A client's state: its thread while running, and the most recently listed tools.

    :param make_target: returns the connection target; called on the first start, because it loads the SDK
    :param source: the server's identity, for a lock
    """

    def __init__(self, make_target: Callable[[], Target], options: Options, source: str) -> None:
        self._make_target = make_target
        self.options = options
        self.source = source
        self.lock: ServerLock | None = None
        if options.lock is not None:
            self.use_lock(options.lock)
        self._lock = fork_safe_lock(self)
        self._worker: ClientThread | None = None
        self._names = NameMap(options.prefix)
        self.tools: dict[str, RemoteTool] = {}
        """The tools by the server's names."""
        self.shown: tuple[cleaning.RemoteDefinition, ...] = ()
        """The server's latest full listing, including unselected and refused tools."""
        self.facts: dict[str, Any] = {}
        """The server's self-description: instructions, protocol_version, server_info, capabilities."""

    def begin(self) -> ClientThread:
        """Start the thread unless it is running; return the worker, whose future ``started`` has the outcome."""
        from toolsemble.mcp._client.client_thread import ClientThread

        with self._lock:
            worker = self._find_worker()
            if worker is None:
                worker = self._worker = ClientThread(self._make_target(), self.options, self._publish)
                worker.start()
            return worker

    def _find_worker(self) -> ClientThread | None:
        worker = self._worker
        if worker is None or worker.ended.done() or worker.process != os.getpid():
            return None
        return worker

    @property
    def is_running(self) -> bool:
        """Whether calls can be sent."""
        return self._find_worker() is not None

    def start(self) -> None:
        """Start and wait in this thread; raise if that fails."""
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

    def _check_start(self, worker: ClientThread) -> None:
        if (error := worker.started.exception()) is not None:
            wait_for(worker.ended, None)  # the thread ends now
            raise error

    def take_worker(self) -> ClientThread | None:
        """Stop the thread if it is running; return its worker, whose future ``ended`` completes then."""
        with self._lock:
            worker, self._worker = self._find_worker(), None
        if worker is not None:
            worker.stop()
        return worker

    def close(self) -> None:
        """Close, and wait in this thread until the server has exited."""
        if (worker := self.take_worker()) is not None:
            wait_for(worker.ended, None)

    async def aclose(self) -> None:
        """Close without blocking the event loop."""
        if (worker := self.take_worker()) is not None:
            await asyncio.wrap_future(worker.ended)

    def use_lock(self, lock: ToolLock) -> None:
        """Check the tools with a lock, starting with the next list."""
        self.lock = ServerLock(lock, self.source, self.options.review)

    def lock_now(self, lock: ToolLock) -> None:
        """Check the tools with a lock, now and on each listing; raise ToolConfigurationError on refusal."""
        self.use_lock(lock)
        assert self.lock is not None  # noqa: S101 - it was set
        verdict = self.lock.check_now(self.shown)
        self.tools = {name: tool for name, tool in self.tools.items() if verdict.admits(name)}

    async def _publish(self, listing: cleaning.Listing, client: Any) -> AsyncIterator[None]:
        """Publish a tool list; yield when done, and before, while a reviewer is asked about changes."""
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

    def _take_over(self, listed: Sequence[cleaning.RemoteDefinition]) -> None:
        """Replace the tools; unchanged tools remain the same objects."""
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
        """The reasons why the lock hides listed tools, by their names."""
        if self.lock is None:
            return {}
        refused = self.lock.refused
        names = [each.name for each in self.shown if self.options.takes(each.name) and each.name not in self.tools]
        return {self._names.propose(each): refused[each] for each in names if each in refused}

    def find_unused(self) -> list[tuple[str, str]]:
        """Return the patterns in ``approve`` and ``only`` that match no tool, with their option's name."""
        names = {
            "approve": [name for tool in self.tools.values() for name in (tool.name, tool.remote.name)],
            "only": [each.name for each in self.shown],
        }
        return [(option, each) for option, known in names.items() for each in self.options.find_unused(option, known)]

    def _warn_of_unused_patterns(self) -> None:
        """Log the patterns that match no tool: a typo would leave a tool ungated, or omit it."""
        for option, pattern in self.find_unused():
            LOGGER.warning("%s: %r matches none of the tools of %s", option, pattern, self.options.name)

    def call_tool(
        self, tool: RemoteTool, arguments: dict[str, Any], context: ToolContext, check: results.OutputCheck | None
    ) -> Any:
        """Return a call's result; on an event loop, a coroutine for it."""
        send, read = build_request(tool.remote, arguments, check)

        def read_answer(answer: Any) -> ToolResult:
            try:
                return read(answer)
            except results.InvalidAnswerError as problem:
                raise results.invalid_answer(self.options.name, problem) from None

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
        """Send a request and return its answer as converted by ``read``; on an event loop, a coroutine for it.

        :param check: raises if the request may not be sent; called once the server is ready
        """
        if remote_call.is_in_loop():
            return self._wait_in_loop(send, read, context, repeatable=repeatable, check=check)
        inbox = remote_call.ThreadInbox()
        worker, call = self._begin_call(send, context, inbox, repeatable=repeatable, check=check)
        try:
            while True:
                item = inbox.get(remaining(context))
                _check_time(item)
                if isinstance(item, remote_call.Outcome):
                    return read(_unwrap(item))
                _receive(item, call)
                if isinstance(item, remote_call.ServerQuestion):
                    self._ask_in_thread(item, context)
        except BaseException:
            worker.cancel(call)
            raise

    async def _wait_in_loop(
        self, send: Callable[..., Any], read: Callable[[Any], Any], context: ToolContext, **how: Any
    ) -> Any:
        inbox = remote_call.LoopInbox()
        worker, call = self._begin_call(send, context, inbox, **how)
        try:
            while True:
                item = await inbox.get()
                if isinstance(item, remote_call.Outcome):
                    return read(_unwrap(item))
                _receive(item, call)
                if isinstance(item, remote_call.ServerQuestion):
                    await self._ask_in_loop(item, context)
        except BaseException:
            worker.cancel(call)
            raise

    def _begin_call(
        self, send: Callable[..., Any], context: ToolContext, inbox: remote_call.Inbox, **how: Any
    ) -> tuple[ClientThread, remote_call.RemoteCall]:
        worker = self._running_worker()
        call = remote_call.RemoteCall(
            send, context, inbox, timeout=self.options.timeout, watched=bool(watchers()), **how
        )
        if worker is None or not worker.begin(call):
            raise ToolExecutionError(f"The MCP server '{self.options.name}' is not running")
        return worker, call

    def _running_worker(self) -> ClientThread | None:
        """Return the worker, or a new one in a forked process, where the thread does not exist."""
        worker = self._worker
        if worker is not None and worker.process != os.getpid():
            self.start()
            worker = self._worker
        return worker

    def _ask_in_thread(self, question: remote_call.ServerQuestion, context: ToolContext) -> None:
        asking, context = self._prepare(question, context)
        try:
            step = next(asking)
            while True:
                step = asking.send(ask_during_call(context, **step))
        except BaseException as raised:  # reraised if it must end the call
            _settle(question, raised)

    async def _ask_in_loop(self, question: remote_call.ServerQuestion, context: ToolContext) -> None:
        asking, context = self._prepare(question, context)
        try:
            step = next(asking)
            while True:
                step = asking.send(await aask_during_call(context, **step))
        except BaseException as raised:  # reraised if it must end the call
            _settle(question, raised)

    def _prepare(
        self, question: remote_call.ServerQuestion, context: ToolContext
    ) -> tuple[Generator[dict[str, Any], ReviewDecision, Any], ToolContext]:
        from toolsemble.mcp._client.elicitation import answer_question  # loaded with the worker

        review = self.options.review or context.review
        return answer_question(question), context.derive({"review": review})


def _settle(question: remote_call.ServerQuestion, raised: BaseException) -> None:
    """Send the answer to the server; raise exceptions that must end the call."""
    from toolsemble.mcp._client.elicitation import settle  # loaded with the worker

    if isinstance(raised, StopIteration):
        settle(question, raised.value)
        return
    settle(question, None, raised)
    raise raised


def _check_time(item: Any) -> None:
    if item is None:
        raise TimedOutError


def _receive(item: Any, call: remote_call.RemoteCall) -> None:
    if isinstance(item, remote_call.Progress):
        call.received += 1
        call.context.progress(item.fraction, item.message)


def _unwrap(outcome: remote_call.Outcome) -> Any:
    if outcome.error is not None:
        raise outcome.error
    return outcome.value
