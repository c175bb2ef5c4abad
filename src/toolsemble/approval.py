"""The fourth step of a call: whether a reviewer must agree, the question, and what the answer makes of the call."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from toolsemble.call import new_id
from toolsemble.context import ToolContext
from toolsemble.definition import ToolDefinition
from toolsemble.errors import ToolArgumentsError, ToolConfigurationError
from toolsemble.preview import preview
from toolsemble.review import Edit, ExitEarly, ReviewHandler, ReviewRequest
from toolsemble.review.gate import Gate, Predicate
from toolsemble.review.question import Question
from toolsemble.review.request import digest
from toolsemble.schema.decode import Decoded, Repair
from toolsemble.shape import described
from toolsemble.work import CallPredicate, Work

_MOST_ASKED = 3
_SHOWN = 200


class RejectedError(Exception):
    """A reviewer did not approve the call; the message is for the model."""


def approved(
    definition: ToolDefinition, gate: Gate, value: Any, repairs: Sequence[Repair], context: ToolContext
) -> Generator[Work, Any, Decoded]:
    """Give the input that may run, with its repairs: what was read, or what a reviewer made of it; else refuse."""
    doubt = ""
    if gate.predicates:
        needed, doubt = yield from _needed(definition, gate.predicates, value, context)
        if not needed:
            return value, repairs
    handler = _handler(definition, context)
    request = _request(definition, gate, value, repairs, context, doubt)
    for _ in range(_MOST_ASKED):
        decision = yield Question(handler, request)
        if isinstance(decision, ExitEarly):
            raise RejectedError(f"Rejected by reviewer: {decision.reason or _written(request)}")
        if not isinstance(decision, Edit):
            _check_unchanged(definition, value, request)
            return value, repairs
        try:
            return _edited(definition, value, decision), ()
        except ToolArgumentsError as problem:
            unfit = f"The edit does not fit: {problem}"
            context.logger.info("%s edit refused: %s", definition.name, preview(unfit, _SHOWN))
            request = replace(request, id=new_id(), prompt=unfit, **context.patience(gate.timeout, gate.on_timeout))
    raise RejectedError(f"Rejected by reviewer: {unfit[0].lower()}{unfit[1:]}")


def _needed(
    definition: ToolDefinition, predicates: Sequence[Predicate], value: Any, context: ToolContext
) -> Generator[Work, Any, tuple[bool, str]]:
    """Tell whether a predicate asks for approval; one that fails does, and the reviewer is told so."""
    for predicate in predicates:
        try:
            # Each gets a copy of its own, so that none can change what the reviewer sees.
            if (yield CallPredicate(predicate, definition.present(value), context)):
                return True, ""
        except Exception as error:
            context.logger.warning("The approval predicate of '%s' failed", definition.name, exc_info=True)
            return True, f"The approval predicate failed: {type(error).__name__}: {described(error)}"
    return False, ""


def _handler(definition: ToolDefinition, context: ToolContext) -> ReviewHandler:
    review = context.review
    if review is None:
        raise ToolConfigurationError(f"Tool '{definition.name}' requires approval but no ReviewHandler is configured")
    if isinstance(review, type) or not callable(getattr(review, "review", None)):
        raise ToolConfigurationError(
            f"Tool '{definition.name}' requires approval but {review!r:.80} is no ReviewHandler: pass an object with a "
            "method review(request)"
        )
    return review


def _request(
    definition: ToolDefinition, gate: Gate, value: Any, repairs: Sequence[Repair], context: ToolContext, prompt: str
) -> ReviewRequest:
    return ReviewRequest(
        definition.reviewed_as or definition.description,
        definition.name,
        definition.present(value),
        prompt=prompt,
        required_role=gate.role,
        call_id=context.call_id,
        run_id=context.run_id,
        agent_role=context.agent_role,
        repairs=tuple(repairs),
        editable=definition.editable,
        schema_digest=digest(definition.schema()),
        **context.patience(gate.timeout, gate.on_timeout),
    )


def _edited(definition: ToolDefinition, value: Any, edit: Edit) -> Any:
    """Give the input that a reviewer wrote, checked as strictly as can be: what a person means is not guessed."""
    revised: Any = edit.revised
    if definition.editable:
        revised = {**definition.present(value), definition.editable: revised}
    elif not revised.strip() and isinstance(definition.present(value), dict):
        raise ToolArgumentsError("it is empty; write all arguments as a JSON object")
    return definition.accept(revised, frozenset())[0]


def _check_unchanged(definition: ToolDefinition, value: Any, request: ReviewRequest) -> None:
    """Refuse when somebody on the way to the reviewer has changed what the reviewer saw."""
    if request.arguments_digest != digest(definition.present(value)):
        raise RejectedError("Rejected by reviewer: the arguments were changed on their way to the reviewer")


def _written(request: ReviewRequest) -> str:
    arguments = request.arguments
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"{request.tool_name}({preview(text, _SHOWN)})"
