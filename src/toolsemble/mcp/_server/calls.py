"""Tool listings and calls for a server's clients, with progress."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import mcp_types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic_core import to_json

from toolsemble._engine.context import Exposure, InvocationParameters, ToolContext, enter, leave, new_unnamed_run
from toolsemble._engine.execution.call import missing_deps
from toolsemble._runtime.text import describe_error, preview
from toolsemble._runtime.watchers import unwatch, watch
from toolsemble._tools.toolbox.registry import Registered
from toolsemble._tools.toolbox.structured_output import OutputSchema, UnfitResultError, find_output
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolCall, ToolReply, received_call
from toolsemble._vocabulary.errors import ExitEarlyError, RunError, ToolConfigurationError
from toolsemble._vocabulary.result import ToolResult
from toolsemble.events import CallProgress
from toolsemble.mcp._param_headers import names_header
from toolsemble.mcp._server.elicitation import ElicitedReview
from toolsemble.mcp._server.exchange import Caller, Exchange, connection_of, current_caller
from toolsemble.mcp._server.listeners import Listeners
from toolsemble.mcp._server.parking import Parking
from toolsemble.mcp._server.source import Source, is_lockable, is_refused
from toolsemble.mcp._wire import write_settings

LOGGER = logging.getLogger("toolsemble.mcp")
_HINTS = {
    "readOnlyHint": "read_only_hint",
    "destructiveHint": "destructive_hint",
    "idempotentHint": "idempotent_hint",
    "openWorldHint": "open_world_hint",
}


class Listing:
    """One toolbox's tools as clients see them; each part is created on first use."""

    def __init__(self, box: Toolbox) -> None:
        self.box = box
        self._outputs: dict[str, OutputSchema | None] = {}

    @cached_property
    def result(self) -> mcp_types.ListToolsResult:
        """The result of ``tools/list``."""
        return mcp_types.ListToolsResult(tools=[self._list_tool(name) for name in self.box.names])

    @cached_property
    def has_locks(self) -> bool:
        """Whether a lock may refuse some tools while they are served."""
        return any(is_lockable(tool) for tool in self.box)

    def show(self) -> mcp_types.ListToolsResult:
        """Return the result of ``tools/list`` without tools that a lock currently refuses."""
        if not self.has_locks:
            return self.result
        return mcp_types.ListToolsResult(
            tools=[each for each in self.result.tools if not is_refused(self.box[each.name])]
        )

    @cached_property
    def header_schemas(self) -> dict[str, dict[str, Any]]:
        """The schemas that name headers, by tool; the SDK checks each call's headers against them."""
        return {each.name: each.input_schema for each in self.result.tools if names_header(each.input_schema)}

    def output(self, name: str) -> OutputSchema | None:
        """Return a tool's output schema; None if it declares no type, or its text is limited."""
        if name not in self._outputs:
            self._outputs[name] = find_output(self.box.registered(name))
        return self._outputs[name]

    def _list_tool(self, name: str) -> mcp_types.Tool:
        definition = self.box.registered(name).definition
        output, metadata = self.output(name), _metadata(self.box.registered(name))
        origin = metadata.get("mcp")
        title = metadata.get("title") or (origin.get("title") if isinstance(origin, Mapping) else None)
        listed = mcp_types.Tool(
            name=name,
            title=title if isinstance(title, str) and title else None,
            description=definition.description,
            input_schema={"type": "object", **definition.schema()},
            output_schema=None if output is None else output.schema,
            annotations=_annotations(metadata),
        )
        return _add_settings(listed, write_settings(metadata))


def _add_settings(listed: mcp_types.Tool, settings: Mapping[str, Any]) -> mcp_types.Tool:
    """Return a tool with its MCP metadata, without keys unknown to the protocol."""
    if not settings:
        return listed
    try:
        return mcp_types.Tool.model_validate({**listed.model_dump(by_alias=True, exclude_none=True), **settings})
    except ValueError as problem:
        LOGGER.warning("The metadata for MCP of %s is left out: %s", listed.name, problem)
        return listed


def _metadata(entry: Registered) -> Mapping[str, Any]:
    definition = entry.definition
    hints = {} if definition.policy is None else definition.policy.hints
    return {**getattr(entry.tool, "listed_hints", {}), **hints, **definition.metadata}


def _annotations(metadata: Mapping[str, Any]) -> mcp_types.ToolAnnotations | None:
    hints = {field: metadata[hint] for hint, field in _HINTS.items() if isinstance(metadata.get(hint), bool)}
    return mcp_types.ToolAnnotations(**hints) if hints else None


_MOST_WAITING = 64
_STEP = 1000  # reports without a fraction advance by this share of the remainder


class ProgressReporter:
    """A watcher that sends a call's progress to a client that requested it.

    The protocol requires increasing numbers, so reports that do not increase are dropped. If a tool reports faster than
    the client reads, the oldest reports are dropped.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._loop = asyncio.get_running_loop()
        self._last = -1.0
        self._waiting: deque[tuple[float, float | None, str]] = deque(maxlen=_MOST_WAITING)
        self._sending: asyncio.Task[None] | None = None

    def __call__(self, event: Any) -> None:
        """Receive an event, in any thread."""
        if not isinstance(event, CallProgress):
            return
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            self._add(event)
        else:
            self._loop.call_soon_threadsafe(self._add, event)

    def _add(self, event: CallProgress) -> None:
        least = max(self._last, 0.0)
        progress = least + (1 - least) / _STEP if event.fraction is None else event.fraction
        if progress <= self._last:
            return
        self._last = progress
        self._waiting.append((progress, None if event.fraction is None else 1.0, event.message))
        if self._sending is None or self._sending.done():
            self._sending = self._loop.create_task(self._send())

    async def _send(self) -> None:
        while self._waiting:
            progress, total, message = self._waiting.popleft()
            try:
                await self._exchange.report_progress(progress, total, message or None)
            except Exception:
                # A disconnected client must not fail the call.
                LOGGER.debug("progress was not sent", exc_info=True)

    async def finish(self) -> None:
        """Wait until all reports are sent."""
        if self._sending is not None:
            await self._sending


_MOST_LISTINGS = 64
_LONGEST_NAME = 128
# Not the pinned target: it may be a server's command line, which belongs in the log.
_REVIEW = "its operator can review it with 'toolsemble lock --check', and pin it with 'toolsemble lock'"
_OUTSIDE: ToolContext[Any] = ToolContext()


class ToolCalls:
    """The handlers of ``tools/list`` and ``tools/call``.

    :param source: finds a caller's toolbox
    :param parking: the calls waiting for answers
    :param expose_errors: which error messages clients see, unless the toolbox exposes fewer
    :param is_hidden: returns whether a lock other than the source's hides a tool with this name
    :param deps: the tools' ``ToolContext.deps``
    """

    def __init__(
        self,
        source: Source,
        parking: Parking,
        expose_errors: Exposure,
        is_hidden: Callable[[str], bool],
        deps: Any = None,
    ) -> None:
        self._source = source
        self._is_hidden = is_hidden
        self._deps = deps
        self.listeners: Listeners | None = None
        """The clients to notify of changed tools; None if the tools cannot change."""
        self._parking = parking
        self._expose_errors = expose_errors
        self._listings: dict[int, Listing] = {}

    @property
    def can_change(self) -> bool:
        """Whether the tools come from a function of the caller, or a lock may refuse some later."""
        fixed = self._source.fixed
        return fixed is None or self._list(fixed).has_locks

    async def list_tools(self, request: ServerRequestContext[Any, Any], _: Any) -> Any:
        """Return the caller's tools."""
        listed = await self.list_now(current_caller())
        if self.listeners is not None:
            self.listeners.record("tools", request, listed)
        return listed

    async def list_now(self, caller: Caller) -> mcp_types.ListToolsResult:
        """Return a caller's current tools."""
        return self._list(await self._source.find(caller)).show()

    def find_header_schema(self, name: str) -> dict[str, Any] | None:
        """Return a tool's schema if it names headers; None if not, or if tools differ by caller."""
        box = self._source.shared
        return None if box is None else self._list(box).header_schemas.get(name)

    async def call_tool(self, request: ServerRequestContext[Any, Any], params: mcp_types.CallToolRequestParams) -> Any:
        """Return a call's result, or questions that its client must answer first."""
        caller = current_caller()
        box = await self._source.find(caller)
        self._check_name(box, params.name)
        arguments = params.arguments or {}
        call = received_call(params.name, _write_arguments(arguments))
        work = partial(self._run, box, call, caller)
        try:
            return await self._parking.run(request, params, arguments, caller, work)
        finally:
            if self.listeners is not None:
                self.listeners.check_caller(caller)

    def _check_name(self, box: Toolbox, name: str) -> None:
        """Raise the protocol's error if there is no tool with this name, or a lock refuses it."""
        if name not in box:
            if self._source.is_hidden(box, name) or self._is_hidden(name):
                raise MCPError(
                    mcp_types.INVALID_PARAMS, f"The lock hides '{name}': its definition was not reviewed; {_REVIEW}"
                )
            raise MCPError(mcp_types.INVALID_PARAMS, f"Unknown tool: {preview(name, _LONGEST_NAME)}")
        if self._list(box).has_locks and is_refused(box[name]):
            raise MCPError(
                mcp_types.INVALID_PARAMS, f"The lock refuses '{name}': its definition was not reviewed; {_REVIEW}"
            )

    async def _run(self, box: Toolbox, call: ToolCall, caller: Caller, exchange: Exchange) -> dict[str, Any]:
        reply = await execute(box, call, caller, exchange, self._expose_errors, self._deps)
        check_capability(exchange, reply)
        return self._write_result(box, reply)

    def _write_result(self, box: Toolbox, reply: ToolReply) -> dict[str, Any]:
        """Return a call's result, with structured content if the tool declares a type."""
        output = None if reply.is_error else self._list(box).output(reply.call.name)
        if output is None:
            content = reply.to_mcp()
            content.pop("structuredContent", None)  # the listing does not include it
            return {"resultType": "complete", **content}
        try:
            return {"resultType": "complete", **reply.to_mcp(), "structuredContent": output.read(reply.result)}
        except UnfitResultError:
            LOGGER.warning("%s returned a value that does not fit its declared type", reply.call.name)
            failure = ToolResult.failure("The tool returned a value that does not fit its declared type")
            return {"resultType": "complete", **ToolReply(reply.call, failure).to_mcp()}

    def _list(self, box: Toolbox) -> Listing:
        """Return a toolbox's listing; cached, because calls need it too."""
        listing = self._listings.get(id(box))
        if listing is None:
            if len(self._listings) >= _MOST_LISTINGS:
                del self._listings[next(iter(self._listings))]
            listing = self._listings[id(box)] = Listing(box)
        return listing


async def execute(
    box: Toolbox, call: ToolCall, caller: Caller, exchange: Exchange, expose_errors: Exposure, deps: Any = None
) -> ToolReply:
    """Execute a call with the toolbox, with the client's user as the default reviewer."""
    if deps is None and (need := box.registered(call.name).definition.deps_need) is not None:
        problem = str(missing_deps(need))
        LOGGER.error("%s", problem)
        return ToolReply(call, ToolResult.failure(problem))  # sent to all clients, because it contains no server data
    around = _OUTSIDE.derive(
        {
            "review": ElicitedReview(exchange),
            "expose_errors": expose_errors,
            "agent_role": caller.client_id or "unknown",
            "parameters": InvocationParameters(),
            "deps": deps,
        }
    )
    meta = exchange.request.meta
    progress = ProgressReporter(exchange) if meta and meta.get("progress_token") is not None else None
    entered = enter(around)
    watching = None if progress is None else watch(progress)
    try:
        return await box.aexecute(call, memory_id=caller.memory_id, run_id=_run_id(exchange))
    except ExitEarlyError as stop:
        return ToolReply(call, ToolResult.failure(str(stop) or "The user stopped the call", error_kind="rejected"))
    except SystemExit:  # from argparse or sys.exit in a tool, which must not stop the server for other callers
        LOGGER.exception("%s called sys.exit; the server goes on", call.name)
        return ToolReply(call, ToolResult.failure("The tool tried to end the program"))
    except RunError as stopped:  # a normal outcome of an agent with a journal that the client can act on
        return ToolReply(call, ToolResult.failure(str(stopped)))
    except ToolConfigurationError as problem:
        LOGGER.exception("%s could not be called", call.name)
        shown = describe_error(problem) if expose_errors == "all" else "The tool is not set up; see the server's log"
        return ToolReply(call, ToolResult.failure(shown))
    finally:
        if watching is not None:
            unwatch(watching)
        leave(entered)
        if progress is not None:
            await progress.finish()


def _write_arguments(arguments: dict[str, Any]) -> str | dict[str, Any]:
    """Return arguments as JSON text, several times faster than ToolCall; unchanged if that fails."""
    try:
        return to_json(arguments, inf_nan_mode="constants").decode()
    except ValueError:  # a lone surrogate, which the toolbox rejects with a message
        return arguments


def check_capability(exchange: Exchange, reply: ToolReply) -> None:
    """Raise the error of version 2026-07-28 for a call that failed because its client cannot be asked."""
    if reply.is_error and exchange.missing is not None and exchange.is_modern:
        data = {"requiredCapabilities": {exchange.missing: dict[str, Any]()}}
        raise MCPError(mcp_types.MISSING_REQUIRED_CLIENT_CAPABILITY, str(reply.result.error_message), data)


def _run_id(exchange: Exchange) -> str:
    """Return the id of the session that this server opened for the client, else a new id.

    Never a header: without a session, as since 2026-07-28, a client could name another client's run.
    """
    return connection_of(exchange.request).session_id or new_unnamed_run()
