"""A server's questions (elicitation), answered by a person."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Generator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

import mcp_types as types

from toolsemble._schema.argument_problems import MismatchError, format_path
from toolsemble._schema.json_schema import SchemaArguments
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.mcp._client.options import Options
from toolsemble.mcp._client.process_group import LOGGER
from toolsemble.mcp._client.remote_call import RemoteCall, ServerQuestion, current_call
from toolsemble.mcp._client.text_cleaning import clean_schema, clean_text
from toolsemble.review._request import Continue, Edit, ReviewDecision

_MAX_MESSAGE = 4000
_MAX_OPEN = 10
_MAX_QUESTIONS = 10
_ATTEMPTS = 3


class QuestionDesk:
    """One server's questions; each goes to its call, whose caller asks a person."""

    def __init__(self, options: Options, calls: Collection[RemoteCall]) -> None:
        self._options = options
        self._calls = calls
        self._open = 0

    async def ask(self, _: Any, params: Any) -> Any:
        """Return the answer to a server's question; the SDK's callback."""
        call = self._find_call()
        if call is None or self._open >= _MAX_OPEN:
            LOGGER.warning("%s asked a question that belongs to no call; declined", self._options.name)
            return types.ElicitResult(action="decline")
        call.questions += 1
        if call.questions > _MAX_QUESTIONS:
            if call.questions == _MAX_QUESTIONS + 1:
                LOGGER.warning(
                    "%s asked more than %d questions during one call; the rest are declined",
                    self._options.name,
                    _MAX_QUESTIONS,
                )
            return types.ElicitResult(action="decline")
        answer: Future[Any] = Future()
        self._open += 1
        call.stop_timer()  # a person takes longer than a server
        try:
            call.add(ServerQuestion(self._options.name, params, answer))
            return await asyncio.wrap_future(answer)
        finally:
            self._open -= 1
            call.start_timer(self._options.name)

    def _find_call(self) -> RemoteCall | None:
        """Return a question's call: if the connection does not identify it, the only one with a reviewer.

        None if there is no reviewer; a server may ask without the capability.
        """
        if isinstance(call := current_call.get(), RemoteCall):
            return call if self._can_ask(call) else None
        able = [each for each in self._calls if self._can_ask(each) and not each.done]
        return able[0] if len(able) == 1 else None

    def _can_ask(self, call: RemoteCall) -> bool:
        return (self._options.review or call.context.review) is not None


Asking = Generator[dict[str, Any], ReviewDecision, Any]
"""Yields review requests, receives decisions, and returns the ``ElicitResult``."""


def answer_question(question: ServerQuestion) -> Asking:
    """Ask a reviewer, repeatedly after invalid forms, and return the server's answer."""
    params = question.params
    message = clean_text(params.message, _MAX_MESSAGE)
    asked = f"The MCP server '{question.server}' asks: {message}"
    if isinstance(params, types.ElicitRequestURLParams):
        decision = yield {"description": asked, "arguments": {"url": clean_text(params.url, _MAX_MESSAGE)}}
        return types.ElicitResult(action="accept" if isinstance(decision, Continue) else _refusal(decision))
    try:
        form = Form(dict(params.requested_schema))
    except ToolDefinitionError as broken:
        LOGGER.warning("The form of %s cannot be used: %s", question.server, broken)
        return types.ElicitResult(action="decline")
    problem = ""
    for _ in range(_ATTEMPTS):
        more = f"\nThe last answer did not fit: {problem}" if problem else ""
        decision = yield {"description": asked + more, "arguments": {"fields": form.fields}}
        if not isinstance(decision, (Continue, Edit)):
            return types.ElicitResult(action=_refusal(decision))
        try:
            return types.ElicitResult(action="accept", content=form.read(decision))
        except ValueError as error:
            problem = str(error)
            if isinstance(decision, Continue):
                break
    return types.ElicitResult(action="decline")


def _refusal(decision: ReviewDecision) -> Any:
    """Return the action for a rejection; no answer is a cancellation."""
    return "cancel" if getattr(decision, "timed_out", False) else "decline"


class Form:
    """A question's form: fields with a schema, and defaults.

    The server's defaults fill only optional fields. The person fills required fields.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        cleaned = clean_schema(schema)
        self._arguments = SchemaArguments("form", {"additionalProperties": False, **cleaned})
        self.fields: dict[str, Any] = cleaned.get("properties", {})
        if not all(isinstance(each, dict) for each in self.fields.values()):
            raise ToolDefinitionError("a field of the form is not an object")
        # As sent: cleaning could change a default.
        given = schema.get("properties", {})
        self._required = set(cleaned.get("required", ()))
        optional = {name: each for name, each in given.items() if name not in self._required}
        self._defaults = {name: each["default"] for name, each in optional.items() if "default" in each}

    def read(self, decision: Continue | Edit) -> dict[str, Any]:
        """Return the filled form; raise ValueError if it does not fit."""
        try:
            values = json.loads(decision.revised) if isinstance(decision, Edit) else {}
        except (ValueError, RecursionError):
            raise ValueError("it is not JSON; send an object with the fields") from None
        if not isinstance(values, dict):
            raise ValueError("it is not an object with the fields")
        filled = {**self._defaults, **values}
        text = json.dumps(filled)
        try:
            return self._arguments.validate(text)
        except MismatchError as mismatch:
            problems = self._arguments.problems(text, filled, mismatch)[0]
            raise ValueError("; ".join(f"{format_path(each.path)}: {each.message}" for each in problems)) from None


def settle(question: ServerQuestion, value: Any, error: BaseException | None = None) -> None:
    """Pass the answer to the connection's thread; an error cancels the question."""
    with suppress(InvalidStateError):  # the call was cancelled meanwhile
        question.answer.set_result(value if error is None else types.ElicitResult(action="cancel"))
