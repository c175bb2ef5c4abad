"""The fourth step of a call: whether a reviewer must agree, the question, and what the answer makes of the call."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from typing import Any

from toolsemble.context import ToolContext
from toolsemble.definition.definition import ToolDefinition
from toolsemble.errors import ToolArgumentsError, ToolConfigurationError
from toolsemble.execution.edits import edited_input, says
from toolsemble.masking.secrets import know_sent, masked, masked_error, masked_value
from toolsemble.review import Continue, ExitEarly, ReviewHandler, ReviewRequest
from toolsemble.review.gate import Gate, Predicate
from toolsemble.review.question import Question
from toolsemble.review.request import digest
from toolsemble.runtime.concurrency import unwrap_stop_iteration
from toolsemble.runtime.text import preview
from toolsemble.schema.decode import Decoded, Repair
from toolsemble.shape import describe_error
from toolsemble.work.body import Apply, Work
from toolsemble.work.snapshot import UncopyableError, copy_input, exact_digest

_MOST_ASKED = 3
_ANOTHER_READING = "The edit was read as what is shown here; continue if that is what you mean"


class RejectedError(Exception):
    """A reviewer did not approve the call; the message is for the model."""


def approved(
    definition: ToolDefinition, gate: Gate, read: Decoded, given: Any, steps: frozenset[str], context: ToolContext
) -> Generator[Work, Any, Decoded]:
    """Return the input to which every gate has agreed, with its repairs; else refuse.

    What one reviewer has edited is put to the others again: each of them agrees to what runs.
    """
    # From here on nobody else holds the input: what a reviewer, or a predicate, has seen is what runs.
    read = _own(definition, read[0]), read[1]
    gates = (gate, *gate.further)
    agreed = asked = 0
    while agreed < len(gates):
        if asked == len(gates) * _MOST_ASKED:
            raise RejectedError("Rejected by reviewer: the reviewers do not agree on the arguments")
        before = read[0]
        read = yield from _approved_by(definition, gates[asked % len(gates)], read, given, steps, context)
        asked += 1
        agreed += 1
        if read[0] is not before and gate.further:
            agreed, given = 1, definition.present(read[0], reveal=True)
    return read


def _approved_by(
    definition: ToolDefinition, gate: Gate, read: Decoded, given: Any, steps: frozenset[str], context: ToolContext
) -> Generator[Work, Any, Decoded]:
    """Give the input that may run, with its repairs: what was read, or what a reviewer made of it; else refuse."""
    (value, repairs), doubt = read, ""
    if gate.predicates:
        needed, doubt = yield from _needed(definition, gate.predicates, value, context)
        if not needed:
            return value, repairs
    handler = _handler(definition, gate, context)
    for _ in range(_MOST_ASKED):
        request, sealed = _request(definition, gate, value, repairs, context, doubt), exact_digest(definition, value)
        decision = yield Question(handler, request)
        if type(decision) is ExitEarly:
            raise RejectedError(f"Rejected by reviewer: {decision.reason or _written(request)}")
        if type(decision) is Continue:
            _check_unchanged(definition, value, request, sealed)
            return value, repairs
        if definition.secret:
            know_sent(definition, decision.revised)
        try:
            edited = edited_input(definition, value, given, decision.revised, steps)
        except ToolArgumentsError as problem:
            doubt = masked(f"The edit does not fit: {problem}")
            context.logger.info("%s edit refused: %s", definition.name, preview(doubt))
            continue
        if says(definition, decision.revised, edited):
            return _own(definition, edited), ()
        value, repairs, given, doubt = _own(definition, edited), (), decision.revised, _ANOTHER_READING
    raise RejectedError(f"Rejected by reviewer: {doubt[0].lower()}{doubt[1:]}")


def _own(definition: ToolDefinition, value: Any) -> Any:
    """Return a copy of an input; one that cannot be copied as it is, since it is compared when the answer comes."""
    try:
        return copy_input(definition, value)
    except UncopyableError:
        return value


def _needed(
    definition: ToolDefinition, predicates: Sequence[Predicate], value: Any, context: ToolContext
) -> Generator[Work, Any, tuple[bool, str]]:
    """Tell whether a predicate asks for approval; one that fails does, and the reviewer is told so."""
    for predicate in predicates:
        try:
            # Each gets a copy of its own, so that none can change what the reviewer sees.
            told = yield Apply(predicate, context, definition.present(value), context)
        except Exception as wrapped:
            error = unwrap_stop_iteration(wrapped)
            shown = masked_error(error)
            context.logger.warning("The approval predicate of '%s' failed", definition.name, exc_info=shown)
            return True, f"The approval predicate failed: {type(error).__name__}: {describe_error(error)}"
        if told is None:
            return True, "The approval predicate gave None, neither True nor False"
        if told:
            return True, ""
    return False, ""


def _handler(definition: ToolDefinition, gate: Gate | None, context: ToolContext) -> ReviewHandler:
    review = context.review if gate is None or gate.review is None else gate.review
    if review is None:
        raise ToolConfigurationError(f"Tool '{definition.name}' requires approval but no ReviewHandler is configured")
    if isinstance(review, type) or not callable(getattr(review, "review", None)):
        raise ToolConfigurationError(
            f"Tool '{definition.name}' requires approval but {review!r:.80} is no ReviewHandler: pass an object with a "
            "method review(request)"
        )
    return review


def check_reviewer(asking: Iterable[ToolDefinition], context: ToolContext) -> None:
    """Refuse a program without a reviewer for tools that will ask one, before anything is done.

    >>> check_reviewer([], ToolContext())
    """
    for definition in asking:
        _handler(definition, definition.gate, context)


def _request(
    definition: ToolDefinition, gate: Gate, value: Any, repairs: Sequence[Repair], context: ToolContext, prompt: str
) -> ReviewRequest:
    shown, exact = masked_value(definition.present(value)), definition.present(value, reveal=True)
    return ReviewRequest(
        definition.reviewed_as or definition.description,
        definition.name,
        shown,
        prompt=prompt,
        required_role=gate.role,
        call_id=context.call_id,
        run_id=context.run_id,
        agent_role=context.agent_role,
        repairs=tuple(repairs),
        editable=definition.editable,
        schema_digest=digest(definition.schema()),
        # Also where no secret was sent: a reviewer can write one.
        hidden_digest=digest([context.run_id, exact]) if definition.secret or exact != shown else "",
        **context.patience(gate.timeout, gate.on_timeout),
    )


def _check_unchanged(definition: ToolDefinition, value: Any, request: ReviewRequest, sealed: str) -> None:
    """Refuse when somebody has changed what the reviewer saw, or what would run."""
    if sealed != exact_digest(definition, value):
        raise RejectedError("Rejected by reviewer: the arguments were changed while the reviewer was asked")
    if request.arguments_digest != replace(request, arguments=masked_value(definition.present(value))).arguments_digest:
        raise RejectedError("Rejected by reviewer: the arguments were changed on their way to the reviewer")


def _written(request: ReviewRequest) -> str:
    arguments = request.arguments
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"{request.tool_name}({preview(text)})"
