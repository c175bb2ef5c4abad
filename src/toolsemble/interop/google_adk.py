"""Google's Agent Development Kit: export toolbox tools as ``BaseTool`` objects, and adopt its tools."""

from __future__ import annotations

import asyncio
import inspect
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from functools import cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from toolsemble._runtime.event_loops import is_async
from toolsemble._tools.schema import SchemaTool
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolReply
from toolsemble._vocabulary.errors import CallPausedError, ToolExecutionError
from toolsemble.interop import _exporting as exporting, _pausing as pausing
from toolsemble.interop._adopting import ForeignTool, adopt_tools, failure, flatten, read_exported, refuse
from toolsemble.interop._exporting import ExportedTool
from toolsemble.review._request import Continue, ExitEarly, ReviewDecision, ReviewRequest

if TYPE_CHECKING:
    from toolsemble._tools.settings import ToolSettings

_import = partial(exporting.import_framework, install="google-adk", user="google_adk")
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


def export(
    box: Toolbox,
    *,
    memory_id: exporting.Choice = None,
    run_id: exporting.Choice = None,
    parameters: exporting.Parameters = None,
    approval: exporting.Approval = "ours",
) -> list[Any]:
    """Return a toolbox's tools as ADK tools, for ``LlmAgent(tools=...)``.

    The response is ``{"result": text}``, or ``{"error": text}`` for a failed call; images and documents are parts of
    it. Callbacks and plugins get a :class:`ToolResponse`, which has the structured output. By default, calls belong to
    the session's user; the run id is the invocation id. ``ToolContext.deps`` is the session state.

    .. code-block:: python

        from google.adk.agents import LlmAgent
        from toolsemble.interop import google_adk

        agent = LlmAgent(name="shop", model="gemini-2.5-flash", tools=google_adk.export(box))

    :param memory_id: the conversation or user that calls belong to, or a function of ADK's ``ToolContext``
    :param run_id: the run that calls belong to, or a function of ADK's ``ToolContext``
    :param parameters: values that the tools of a run share, or a function of ADK's ``ToolContext``
    :param approval: "theirs" asks with ADK's tool confirmation, whose payload is the request; the run id is then the
    session id
    """
    kind = _tool_class()
    user = _read_user if memory_id is None else memory_id
    found = exporting.export_tools(
        box, exporting.CallSettings(user, run_id, parameters), approval, fit_name=_begin_with_letter
    )
    confirmations = Confirmations() if approval == "theirs" else None
    return [kind(each, confirmations) for each in found]


def _read_user(context: Any) -> str | None:
    return getattr(context, "user_id", None)


def _begin_with_letter(name: str) -> str:
    """Return a name for Gemini, which begins with a letter or an underscore."""
    return name if name[0].isalpha() or name[0] == "_" else f"_{name}"[:64]


@cache
def _tool_class() -> Any:
    """Return the class of exported tools, defined only if ADK is installed."""
    base: Any = _import("google.adk.tools.base_tool").BaseTool
    types = _import("google.genai.types")

    class ToolsembleTool(base):
        """A tool of a toolbox."""

        def __init__(self, exported: exporting.ExportedTool, confirmations: Confirmations | None) -> None:
            super().__init__(name=exported.shown_name, description=exported.description)
            self.exported, self._confirmations = exported, confirmations

        def _get_declaration(self) -> Any:
            return types.FunctionDeclaration(
                name=self.name, description=self.description, parameters_json_schema=self.exported.parameters
            )

        async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:
            if self._confirmations is not None:
                reply = await self._confirmations.execute(self.exported, args, tool_context)
                return reply if isinstance(reply, dict) else write_response(types, reply)
            call_id, run_id = (getattr(tool_context, each, None) for each in ("function_call_id", "invocation_id"))
            deps = getattr(tool_context, "state", None)
            reply = await self.exported.aexecute(args, call_id, tool_context, run_id=run_id, deps=deps)
            return write_response(types, reply)

        def _detect_error_in_response(self, response: Any) -> str | None:
            """Return the failure type for telemetry."""
            return "TOOL_ERROR" if isinstance(response, dict) and "error" in response else None

    return ToolsembleTool


class ToolResponse(dict[str, Any]):
    """The response of an exported tool for ADK's callbacks and plugins; the model sees the dict.

    >>> ToolResponse({"result": "noon"}, {"hour": 12}).structured_output
    {'hour': 12}
    """

    def __init__(self, response: dict[str, Any], structured_output: Any = None) -> None:
        super().__init__(response)
        self.structured_output = structured_output
        """The structured output of the call as JSON values; None if there is none."""


def write_response(types: Any, reply: ToolReply) -> ToolResponse:
    """Return the response to a call: its text, and the media that Gemini accepts in responses.

    :param types: the module ``google.genai.types``
    """
    written = reply.to_google()["function_response"]
    [text] = written["response"].values()
    # ADK moves parts out of the dict, and into the parts of the response.
    media = {"media": [types.Part(**each) for each in written["parts"]]} if "parts" in written else {}
    return ToolResponse({"error" if reply.is_error else "result": text, **media}, exporting.payload_of(reply))


def adopt(tools: Any, **settings: Unpack[ToolSettings]) -> list[SchemaTool]:
    """Return ADK tools as tools for a toolbox: functions, ``FunctionTool`` objects, and exported tools.

    A tool that requires confirmation there requires approval here. A tool that takes a ``ToolContext`` is rejected, and
    so are toolsets and tools of other classes, which work only in a run.

    .. code-block:: python

        from toolsemble.interop import google_adk

        def double(number: int) -> int:
            '''Double a number.'''
            return 2 * number

        box = Toolbox(google_adk.adopt([double]))

    :param settings: the settings of the new tools, such as ``requires_approval`` or ``timeout``
    """
    base, toolset = _import("google.adk.tools.base_tool").BaseTool, _import("google.adk.tools.base_toolset").BaseToolset
    found = flatten(tools, lambda each: isinstance(each, (base, toolset)) or inspect.isroutine(each), "a tool of ADK")
    return adopt_tools("google_adk", [_read(each) for each in found], dict(settings))


def _read(tool: Any) -> ForeignTool:
    if isinstance(tool, _tool_class()):
        return read_exported(tool.exported)
    kind = _import("google.adk.tools.function_tool").FunctionTool
    found = kind(tool) if inspect.isroutine(tool) else tool
    needs = _find_need(found, kind)
    if needs:
        raise refuse(getattr(found, "name", type(found).__name__), needs)
    run = partial(_run_async if is_async(found.func) else _run, found)
    gate = {"requires_approval": True} if getattr(found, "_require_confirmation", False) else {}
    return ForeignTool(found.name, found.description, _read_schema(found), run, settings=gate)


def _find_need(tool: Any, kind: Any) -> str | None:
    """Return what a tool needs from a run; None for a function that needs nothing."""
    if not isinstance(tool, kind) or type(tool).run_async is not kind.run_async:
        return f"a run of an agent ({type(tool).__name__})"
    if tool.is_long_running:
        return "a run that gets the answer later (is_long_running)"
    if inspect.isgeneratorfunction(tool.func) or inspect.isasyncgenfunction(tool.func):
        return "a live run (it yields its results)"
    hidden = {getattr(tool, "_context_param_name", "tool_context"), "input_stream"}
    injected = sorted(hidden & inspect.signature(tool.func).parameters.keys())
    return f"a ToolContext of a run (the parameter {injected[0]})" if injected else None


def _read_schema(tool: Any) -> dict[str, Any]:
    """Return the argument schema; older ADK releases have it in Google's own form."""
    declared = tool._get_declaration()  # noqa: SLF001 - no public method returns it
    if declared.parameters_json_schema is None and declared.parameters is not None:
        schema: dict[str, Any] = declared.parameters.json_schema.model_dump(
            mode="json", exclude_none=True, by_alias=True
        )
        return schema
    found = declared.parameters_json_schema or _NO_PARAMETERS
    return {key: value for key, value in found.items() if key != "title"}


async def _run_async(tool: Any, arguments: dict[str, Any], call_id: str) -> Any:
    return _read_response(await tool.run_async(args=arguments, tool_context=_approve(call_id)))


def _run(tool: Any, arguments: dict[str, Any], call_id: str) -> Any:
    return _read_response(_finish(tool.run_async(args=arguments, tool_context=_approve(call_id))))


def _finish(running: Coroutine[Any, Any, Any]) -> Any:
    """Return the value of a coroutine that never suspends: ADK calls a sync function in the current thread."""
    try:
        running.send(None)
    except StopIteration as done:
        return done.value
    running.close()
    raise RuntimeError("The function waits for something, and can be called only in a run of ADK")


def _approve(call_id: str) -> Any:
    """Return the context that ADK expects: the toolbox has already asked for any required approval."""
    confirmed = _import("google.adk.tools.tool_confirmation").ToolConfirmation(confirmed=True)
    return SimpleNamespace(function_call_id=call_id, tool_confirmation=confirmed)


def _read_response(response: Any) -> Any:
    """Return a tool's value, or its reported failure; ADK itself reports missing arguments this way."""
    failed = isinstance(response, dict) and response.keys() == {"error"} and isinstance(response["error"], str)
    return failure(response["error"]) if failed else response


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
