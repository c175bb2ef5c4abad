"""Approval, the fourth step of a call: whether a reviewer is asked, the request, and the decision."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._engine.execution.edits import EditedArguments, apply_edit, matches_edit, show_edit
from toolsemble._engine.work.body import Apply, Work
from toolsemble._engine.work.snapshot import UncopyableError, copy_input, exact_digest
from toolsemble._runtime.concurrency import unwrap_stop_iteration
from toolsemble._runtime.lazy import LazyModule
from toolsemble._runtime.text import describe_with_class, preview
from toolsemble._schema.decode import Decoded, Repair
from toolsemble._schema.masking.secrets import add_sent_secrets, mask_error, mask_text, mask_value
from toolsemble._vocabulary.call import GeneratedRunId
from toolsemble._vocabulary.errors import RejectedError, ToolArgumentsError, ToolConfigurationError
from toolsemble.review import Continue, ExitEarly, ReviewHandler, ReviewRequest
from toolsemble.review._gate import Gate, Predicate
from toolsemble.review._question import Check, Question
from toolsemble.review._request import digest
from toolsemble.review._terms import fit_to_deadline

if TYPE_CHECKING:
    from toolsemble._engine.execution import parked_question as parked
else:  # most calls that need approval have no journal
    parked = LazyModule("toolsemble._engine.execution.parked_question")

_MAX_ROUNDS = 3
_ANOTHER_READING = "The edit was read as what is shown here; continue if that is what you mean"


def ask_reviewers(
    definition: ToolDefinition, gate: Gate, read: Decoded, given: Any, steps: frozenset[str], context: ToolContext
) -> Generator[Work, Any, tuple[Decoded, EditedArguments | None]]:
    """Return the input that every gate approves, with its repairs and the edit; raise RejectedError otherwise.

    An edit by one reviewer goes to the other reviewers again: each of them approves exactly what runs.
    """
    # A private copy from here on: what a reviewer or a predicate has seen is what runs.
    read = first = _copy_input(definition, read[0]), read[1]
    gates = (gate, *gate.further)
    agreed = asked = 0
    while agreed < len(gates):
        if asked == len(gates) * _MAX_ROUNDS:
            raise RejectedError("Rejected by reviewer: the reviewers do not agree on the arguments")
        before = read[0]
        read = yield from _ask_gate(definition, gates[asked % len(gates)], read, given, steps, context)
        asked += 1
        agreed += 1
        if read[0] is not before and gate.further:
            agreed, given = 1, definition.present(read[0], reveal=True)
    return read, None if read[0] is first[0] else show_edit(definition, first[0], read[0])


def _ask_gate(
    definition: ToolDefinition, gate: Gate, read: Decoded, given: Any, steps: frozenset[str], context: ToolContext
) -> Generator[Work, Any, Decoded]:
    """Return the input that one gate approves: as read, or as edited; raise RejectedError otherwise."""
    (value, repairs), doubt = read, ""
    if gate.predicates:
        needed, doubt = yield from _needs_approval(definition, gate.predicates, value, context)
        if not needed:
            return value, repairs
    handler = _find_handler(definition, gate, context)
    for _ in range(_MAX_ROUNDS):
        request, sealed = (
            _build_request(definition, gate, value, repairs, context, doubt),
            exact_digest(definition, value),
        )
        check = partial(_find_edit_problem, definition, value, given, steps)
        decision = yield from _ask_reviewer(handler, request, check, context)
        if type(decision) is ExitEarly:
            raise RejectedError(f"Rejected by reviewer: {decision.reason or _format_call(request)}")
        if type(decision) is Continue:
            _check_unchanged(definition, value, request, sealed)
            return value, repairs
        if definition.secret:
            add_sent_secrets(definition, decision.revised)
        try:
            edited = apply_edit(definition, value, given, decision.revised, steps)
        except ToolArgumentsError as problem:
            doubt = mask_text(f"The edit does not fit: {problem}")
            context.logger.info("%s edit refused: %s", definition.name, preview(doubt))
            continue
        if matches_edit(definition, decision.revised, edited):
            return _copy_input(definition, edited), ()
        value, repairs, given, doubt = _copy_input(definition, edited), (), decision.revised, _ANOTHER_READING
    raise RejectedError(f"Rejected by reviewer: {doubt[0].lower()}{doubt[1:]}")


def _ask_reviewer(
    handler: ReviewHandler, request: ReviewRequest, check: Check, context: ToolContext
) -> Generator[Work, Any, Any]:
    """Return the decision of a reviewer."""
    if context.place is None:
        return (yield Question(handler, request, check))
    review, request, is_over, known = yield from parked.prepare_question(handler, request, context.place)
    if known is not None:
        return known
    question = Question(review, request, check, is_known=review.is_known)
    return question.expire() if is_over else (yield question)


def _find_edit_problem(definition: ToolDefinition, value: Any, given: Any, steps: frozenset[str], revised: str) -> str:
    """Return what is wrong with an edit that a reviewer is about to make; "" if it fits."""
    try:
        apply_edit(definition, value, given, revised, steps)
    except ToolArgumentsError as problem:
        return mask_text(f"{problem}")
    return ""


def _copy_input(definition: ToolDefinition, value: Any) -> Any:
    """Return a copy of the input, or the input itself if it cannot be copied: it is compared after the decision."""
    try:
        return copy_input(definition, value)
    except UncopyableError:
        return value


def _needs_approval(
    definition: ToolDefinition, predicates: Sequence[Predicate], value: Any, context: ToolContext
) -> Generator[Work, Any, tuple[bool, str]]:
    """Return whether a predicate asks for approval, and a remark; a predicate that raises asks for it."""
    for predicate in predicates:
        try:
            # Each predicate gets a copy, so that it cannot change what the reviewer sees.
            told = yield Apply(predicate, context, definition.present(value), context)
        except Exception as wrapped:
            error = unwrap_stop_iteration(wrapped)
            shown = mask_error(error)
            context.logger.warning("The approval predicate of '%s' failed", definition.name, exc_info=shown)
            return True, f"The approval predicate failed: {describe_with_class(error)}"
        if told is None:
            return True, "The approval predicate returned None instead of True or False"
        if told:
            return True, ""
    return False, ""


def _find_handler(definition: ToolDefinition, gate: Gate | None, context: ToolContext) -> ReviewHandler:
    review = context.review if gate is None or gate.review is None else gate.review
    if review is None:
        raise ToolConfigurationError(f"Tool '{definition.name}' requires approval but no ReviewHandler is configured")
    if isinstance(review, type) or not callable(getattr(review, "review", None)):
        raise ToolConfigurationError(
            f"Tool '{definition.name}' requires approval but {review!r:.80} is not a ReviewHandler: pass an object "
            "with a method review(request)"
        )
    return review


def check_reviewer(asking: Iterable[ToolDefinition], context: ToolContext) -> None:
    """Raise ToolConfigurationError if there is no reviewer for tools that will ask one, before any of them runs.

    >>> check_reviewer([], ToolContext())
    """
    for definition in asking:
        _find_handler(definition, definition.gate, context)


def _build_request(
    definition: ToolDefinition, gate: Gate, value: Any, repairs: Sequence[Repair], context: ToolContext, prompt: str
) -> ReviewRequest:
    shown, exact = mask_value(definition.present(value)), definition.present(value, reveal=True)
    return ReviewRequest(
        definition.reviewed_as or definition.description,
        definition.name,
        shown,
        prompt=prompt,
        required_role=gate.role,
        call_id=context.call_id,
        run_id=context.run_id,
        agent_role=context.agent_role,
        memory_id=context.memory_id,
        chosen_run=not isinstance(context.run_id, GeneratedRunId),
        durable=context.place is not None,
        repairs=tuple(repairs),
        editable=definition.editable,
        schema_digest=_digest_definition(definition),
        schema=definition.schema(),
        # Also without a secret in the arguments: a reviewer can write one.
        hidden_digest=digest([context.run_id, exact]) if definition.secret or exact != shown else "",
        **fit_to_deadline(context.deadline, gate.timeout, gate.on_timeout),
    )


def _digest_definition(definition: ToolDefinition) -> str:
    """Return a digest of all that a reviewer relies on: an approval of a tool ends when its definition changes."""
    hints = {} if definition.policy is None else definition.policy.hints
    return digest([definition.schema(), definition.description, {**hints, **definition.metadata}, definition.pinned])


def _check_unchanged(definition: ToolDefinition, value: Any, request: ReviewRequest, sealed: str) -> None:
    """Raise RejectedError if what the reviewer saw, or what would run, was changed meanwhile."""
    if sealed != exact_digest(definition, value):
        raise RejectedError("Rejected by reviewer: the arguments were changed while the reviewer was asked")
    if request.arguments_digest != replace(request, arguments=mask_value(definition.present(value))).arguments_digest:
        raise RejectedError("Rejected by reviewer: the arguments were changed on their way to the reviewer")


def _format_call(request: ReviewRequest) -> str:
    arguments = request.arguments
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"{request.tool_name}({preview(text)})"
