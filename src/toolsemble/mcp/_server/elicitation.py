"""Questions to a client's user: approval of calls, and tools' forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolsemble._runtime.text import escape_lines
from toolsemble._vocabulary.errors import ToolDefinitionError, ToolExecutionError
from toolsemble.mcp._server.exchange import Exchange, find_exchange
from toolsemble.review._request import Continue, Edit, ExitEarly, ReviewDecision, Reviewer, ReviewRequest
from toolsemble.review._terms import ReviewTiming

_LONGEST = 50_000
_NO_FORM = (
    "this tool needs the approval of a person, and this client cannot ask one: it does not declare the capability "
    "'elicitation'"
)


class ElicitedReview(Reviewer):
    """The default reviewer of a served toolbox, which asks the client's user.

    Only an accepted form with a checked box approves. The client relays the answer, so it is the consent of the
    client's user, not of another person; a request that requires a role is therefore rejected.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def review(self, request: ReviewRequest) -> ReviewDecision:
        """Return the decision of the client's user."""
        if request.required_role is not None:
            return ExitEarly(
                f"the role '{request.required_role}' is required, and the user of an MCP client has no proven role"
            )
        if not self._exchange.can_elicit:
            return ExitEarly(_NO_FORM)
        message = "\n".join(_lines(request))
        if len(message) > _LONGEST:
            return ExitEarly("the arguments are too long to be shown to the user of the client")
        try:
            answer = await self._exchange.ask(_form_request(message, _approval_form(request)))
        except ToolExecutionError as unanswered:
            return ExitEarly(str(unanswered))
        return _read_decision(answer, request)


def _lines(request: ReviewRequest) -> Iterator[str]:
    """Yield a question's parts; invisible characters in a model's text are escaped."""
    if request.timing is ReviewTiming.DURING_EXECUTION:
        shown = request.arguments if request.arguments != request.description else None
        parts = [f"{request.tool_name} asks:", request.description, request.arguments_text if shown else ""]
    else:
        parts = [f"May this call run? {request.tool_name}", request.description, "Arguments:", request.arguments_text]
    repairs = [f"Repaired at {each['path']}: {each['from']!r} -> {each['to']!r}" for each in request.repairs]
    yield from (escape_lines(part) for part in (*parts, *repairs, request.prompt) if part)


def _approval_form(request: ReviewRequest) -> dict[str, Any]:
    approve = {"type": "boolean", "title": "Approve", "description": "Whether the call may go on", "default": False}
    properties: dict[str, Any] = {"approve": approve}
    if request.timing is ReviewTiming.DURING_EXECUTION:
        properties["answer"] = {"type": "string", "title": "Answer", "description": "An answer in words, if needed"}
    elif request.editable and not request.hidden_digest:
        properties["edit"] = {
            "type": "string",
            "title": request.editable,
            "description": f"The text of {request.editable}, as it should be",
            "default": request.editable_text,
        }
    return {"type": "object", "properties": properties, "required": ["approve"]}


def _read_decision(answer: Any, request: ReviewRequest) -> ReviewDecision:
    """Return an answer's decision; anything but an accepted form with ``approve`` true is a rejection."""
    action = getattr(answer, "action", None)
    content = getattr(answer, "content", None) or {}
    if action != "accept" or content.get("approve") is not True:
        refused = {"decline": "the user declined", "cancel": "the user gave no answer"}
        return ExitEarly(refused.get(str(action), "the user did not approve"))
    if request.timing is ReviewTiming.DURING_EXECUTION:
        text = content.get("answer")
        return Edit(text) if isinstance(text, str) and text else Continue()
    text = content.get("edit") if request.editable and not request.hidden_digest else None
    return Edit(text) if isinstance(text, str) and text != request.editable_text else Continue()


async def elicit(message: str, form: Mapping[str, Any], *, key: str | None = None) -> dict[str, Any] | None:
    """Ask the client's user to fill in a form; return its fields, or None if the user declines.

    For tools, prompts and resources served over MCP, in every protocol version. The fields are validated against the
    form; missing fields get their default.

    :param message: the question
    :param form: a JSON Schema: an object whose properties are texts, numbers, booleans and choices
    :param key: the question's name in version 2026-07-28; default: a new one

    >>> import asyncio
    >>> asyncio.run(elicit("Which branch?", {"type": "object", "properties": {"branch": {"type": "string"}}}))
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: elicit works only in tools, prompts and resources served by MCP
    """
    exchange = find_exchange("elicit")
    fits = _compile_form(form)
    answer = await exchange.ask(_form_request(message, form), key)
    if getattr(answer, "action", None) != "accept":
        return None
    defaults = {name: field["default"] for name, field in form.get("properties", {}).items() if "default" in field}
    content = {**defaults, **(answer.content or {})}
    if not fits(content):
        raise ToolExecutionError("The answer of the client's user does not fit the form")
    return content


def _compile_form(form: Mapping[str, Any]) -> Any:
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(dict(form)).is_valid
    except ValueError as problem:
        raise ToolDefinitionError(f"elicit: the form is not a valid JSON Schema: {problem}") from None


def _form_request(message: str, form: Mapping[str, Any]) -> Any:
    from mcp_types import ElicitRequest, ElicitRequestFormParams

    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=dict(form)))
