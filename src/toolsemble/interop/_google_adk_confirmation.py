"""Approval by ADK's tool confirmation: the payload is the request, stored in the session."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeAlias

from toolsemble._vocabulary.call import ToolReply
from toolsemble._vocabulary.errors import CallPausedError, ToolExecutionError
from toolsemble.interop import _pausing as pausing
from toolsemble.interop._exporting import ExportedTool
from toolsemble.review._request import Continue, ExitEarly, ReviewDecision, ReviewRequest

Execute: TypeAlias = Callable[..., Awaitable[ToolReply]]
"""Executes a call, with the toolbox ``box=`` or the exported one."""
_MOST_REPLIES = 10_000
_ASKED = "This call needs approval; it has not run"


class Confirmations:
    """The approved calls of one export, in this process: a duplicate answer does not run a call twice."""

    def __init__(self) -> None:
        self._replies: OrderedDict[str, Future[ToolReply]] = OrderedDict()

    async def execute(self, tool: ExportedTool, arguments: Any, context: Any) -> ToolReply | dict[str, Any]:
        """Execute a call and return its reply, or ask for confirmation and return the interim response."""
        call_id = getattr(context, "function_call_id", None)
        given = {"run_id": context.session.id, "deps": context.state} if call_id else {}
        execute = partial(tool.aexecute, arguments, call_id, context, **given)
        if call_id and context.tool_confirmation is not None:
            request = await tool.find_request(arguments, call_id, context, **given)
            return await self._resume(tool, request, context, execute)
        try:
            return await execute()
        except CallPausedError as paused:
            if not call_id or not pausing.asks_before(paused):
                return tool.fail(call_id, paused)
            return _ask(context, paused.request)

    async def _resume(
        self, tool: ExportedTool, request: ReviewRequest | None, context: Any, execute: Execute
    ) -> ToolReply:
        """Execute a call with a person's answer, if the call is unchanged."""
        shown, call_id = _find_shown(context), context.function_call_id
        if request is None or shown is None or pausing.show_request(request)["shown"] != shown["shown"]:
            return tool.fail(call_id, ToolExecutionError(pausing.CHANGED))
        decision = _read_confirmation(context.tool_confirmation, shown)
        own: Future[ToolReply] = Future()
        known = self._replies.setdefault(shown["id"], own)
        if known is not own:
            return await asyncio.shield(asyncio.wrap_future(known))
        while len(self._replies) > _MOST_REPLIES:
            self._replies.popitem(last=False)
        reply = tool.fail(call_id, ToolExecutionError(pausing.UNKNOWN))
        try:
            reply = await _decide(tool, request, decision, execute)
        finally:
            own.set_result(reply)
        return reply


async def _decide(tool: ExportedTool, request: ReviewRequest, decision: ReviewDecision, execute: Execute) -> ToolReply:
    try:
        return await execute(box=pausing.bind_decision(tool.box, request, decision))
    except CallPausedError as paused:
        if not pausing.asks_before(paused):
            return tool.fail(request.call_id, paused)
        # The edit does not fit, and ADK asks only once per call.
        problem = f"{paused.request.prompt}; the call has not run, call the tool again"
        return tool.fail(request.call_id, ToolExecutionError(problem))


def _ask(context: Any, request: ReviewRequest) -> dict[str, Any]:
    """Ask for confirmation, and return the interim response, which the model does not see."""
    context.request_confirmation(
        hint=f"Approve {request.tool_name}: {request.description}", payload=pausing.show_request(request)
    )
    context.actions.skip_summarization = True
    return {"error": _ASKED}


def _find_shown(context: Any) -> Mapping[str, Any] | None:
    """Return a call's shown request from the session's events; None if unknown."""
    for event in reversed(context.session.events):
        asked = (event.actions.requested_tool_confirmations or {}).get(context.function_call_id)
        if asked is not None:
            return asked.payload if isinstance(asked.payload, Mapping) else None
    return None


def _read_confirmation(confirmation: Any, shown: Mapping[str, Any]) -> ReviewDecision:
    """Return the decision of a person.

    The answer's payload is empty, a decision, or the shown request, perhaps with other arguments, as sent back by ADK's
    user interfaces.
    """
    payload = confirmation.payload
    fields = payload if isinstance(payload, Mapping) else {}
    if not confirmation.confirmed:
        return ExitEarly(str(fields.get("reason") or ""))
    if not payload:
        return Continue()
    if "decision" in fields or "arguments" not in fields:
        return pausing.read_decision(payload)
    return pausing.edit_arguments(shown, fields["arguments"])
