"""Calls of a client: executed by the toolbox, as every call is, and answered in the form of the protocol."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY, CallToolRequestParams, ListToolsResult
from pydantic_core import to_json

from toolsemble.call import ToolCall, ToolReply
from toolsemble.context import Exposure, InvocationParameters, ToolContext, enter, leave
from toolsemble.errors import ExitEarlyError, ToolConfigurationError
from toolsemble.mcp.server.caller import Caller, current_caller
from toolsemble.mcp.server.elicitation import ElicitedReview
from toolsemble.mcp.server.exchange import Exchange
from toolsemble.mcp.server.listeners import Listeners
from toolsemble.mcp.server.listing import Listing
from toolsemble.mcp.server.parking import Parking
from toolsemble.mcp.server.progress import ProgressReporter
from toolsemble.mcp.server.served_lock import is_refused
from toolsemble.mcp.server.source import Source
from toolsemble.mcp.server.structured_output import UnfitResultError
from toolsemble.observers.watchers import unwatch, watch
from toolsemble.result import ToolResult
from toolsemble.runtime.text import describe_error, preview
from toolsemble.toolbox.run import new_unnamed_run
from toolsemble.toolbox.toolbox import Toolbox

LOGGER = logging.getLogger("toolsemble.mcp")
_MOST_LISTINGS = 64
_LONGEST_NAME = 128
_OUTSIDE: ToolContext[Any] = ToolContext()


class ToolCalls:
    """The handlers of ``tools/list`` and ``tools/call``.

    :param source: finds the toolbox of a caller
    :param parking: the calls that wait for answers
    :param expose_errors: which error messages clients see, unless the toolbox shows fewer
    """

    def __init__(self, source: Source, parking: Parking, expose_errors: Exposure) -> None:
        self._source = source
        self.listeners: Listeners | None = None
        """The clients that are told when the tools change; None if they do not."""
        self._parking = parking
        self._expose_errors = expose_errors
        self._listings: dict[int, Listing] = {}

    @property
    def can_change(self) -> bool:
        """Whether the tools come from a function of the caller, or a lock may refuse some of them later."""
        fixed = self._source.fixed
        return fixed is None or self._list(fixed).has_locks

    async def list_tools(self, request: ServerRequestContext[Any, Any], _: Any) -> Any:
        """Return the tools of the caller."""
        listed = await self.list_now(current_caller())
        if self.listeners is not None:
            self.listeners.record("tools", request, listed)
        return listed

    async def list_now(self, caller: Caller) -> ListToolsResult:
        """Return the tools of a caller as they are now."""
        return self._list(await self._source.find(caller)).show()

    def find_header_schema(self, name: str) -> dict[str, Any] | None:
        """Return the schema of a tool that names headers; None if it names none, or the tools differ by caller."""
        box = self._source.shared
        return None if box is None else self._list(box).header_schemas.get(name)

    async def call_tool(self, request: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> Any:
        """Return the result of a call, or the questions that its client has to answer first."""
        caller = current_caller()
        box = await self._source.find(caller)
        if params.name not in box:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {preview(params.name, _LONGEST_NAME)}")
        if self._list(box).has_locks and is_refused(box[params.name]):
            # Not the reason: it has the command line of a server, which is for the log.
            raise MCPError(INVALID_PARAMS, f"The lock refuses '{params.name}': its definition was not reviewed")
        arguments = params.arguments or {}
        call = ToolCall(params.name, _write_arguments(arguments))
        work = partial(self._run, box, call, caller)
        try:
            return await self._parking.run(request, params, arguments, caller, work)
        finally:
            if self.listeners is not None:
                self.listeners.check_caller(caller)

    async def _run(self, box: Toolbox, call: ToolCall, caller: Caller, exchange: Exchange) -> dict[str, Any]:
        reply = await execute(box, call, caller, exchange, self._expose_errors)
        check_capability(exchange, reply)
        return self._write_result(box, reply)

    def _write_result(self, box: Toolbox, reply: ToolReply) -> dict[str, Any]:
        """Return the result of a call, with structured content if the tool declares a type."""
        output = None if reply.is_error else self._list(box).output(reply.call.name)
        if output is None:
            return {"resultType": "complete", **reply.to_mcp()}
        try:
            return {"resultType": "complete", **reply.to_mcp(), "structuredContent": output.read(reply.result)}
        except UnfitResultError:
            LOGGER.warning("%s returned a value that does not fit its declared type", reply.call.name)
            failure = ToolResult.failure("The tool returned a value that does not fit its declared type")
            return {"resultType": "complete", **ToolReply(reply.call, failure).to_mcp()}

    def _list(self, box: Toolbox) -> Listing:
        """Return the listing of a toolbox; kept, because a call needs it as well."""
        listing = self._listings.get(id(box))
        if listing is None:
            if len(self._listings) >= _MOST_LISTINGS:
                del self._listings[next(iter(self._listings))]
            listing = self._listings[id(box)] = Listing(box)
        return listing


async def execute(
    box: Toolbox, call: ToolCall, caller: Caller, exchange: Exchange, expose_errors: Exposure
) -> ToolReply:
    """Execute a call as the toolbox does, with the client's user as the reviewer if the toolbox has none."""
    around = _OUTSIDE.derive(
        {
            "review": ElicitedReview(exchange),
            "expose_errors": expose_errors,
            "agent_role": caller.client_id or "unknown",
            "parameters": InvocationParameters(),
        }
    )
    meta = exchange.request.meta
    progress = ProgressReporter(exchange) if meta and meta.get("progress_token") is not None else None
    entered = enter(around)
    watching = None if progress is None else watch(progress)
    try:
        return await box.aexecute(call, memory_id=caller.memory_id, run_id=_run_id(exchange))
    except ExitEarlyError as stop:
        return ToolReply(call, ToolResult.failure(str(stop) or "The user stopped the call"))
    except SystemExit:  # of argparse or sys.exit in a tool, which must not end the server of all other callers
        LOGGER.exception("%s called sys.exit; the server goes on", call.name)
        return ToolReply(call, ToolResult.failure("The tool tried to end the program"))
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
    """Return arguments as JSON text, several times faster than ToolCall does; as they are if that is not possible."""
    try:
        return to_json(arguments, inf_nan_mode="constants").decode()
    except ValueError:  # half a character, which the toolbox refuses in words
        return arguments


def check_capability(exchange: Exchange, reply: ToolReply) -> None:
    """Raise the error of the version 2026-07-28 for a call that failed because its client cannot be asked."""
    if reply.is_error and exchange.missing is not None and exchange.is_modern:
        data = {"requiredCapabilities": {exchange.missing: dict[str, Any]()}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, str(reply.result.error_message), data)


def _run_id(exchange: Exchange) -> str:
    """Return the id of the client's session, or that of a run without a name."""
    headers = getattr(exchange.request.request, "headers", {})
    session = headers.get("mcp-session-id")
    return session or new_unnamed_run()
