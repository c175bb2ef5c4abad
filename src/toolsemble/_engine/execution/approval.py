"""Approval, the fourth step of a call: whether a reviewer is asked, the request, the decision, and its edit."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import ToolDefinition
from toolsemble._engine.execution.edits import EditedArguments, show_edit
from toolsemble._engine.work.body import Apply, Work
from toolsemble._engine.work.snapshot import UncopyableError, copy_input, exact_digest
from toolsemble._engine.work.wait import RunInThread
from toolsemble._runtime.event_loops import unwrap_stop_iteration
from toolsemble._runtime.text import describe_with_class, preview
from toolsemble._schema.decode import Decoded, Repair
from toolsemble._schema.masking import add_sent_secrets, mask_error, mask_text, mask_value
from toolsemble._vocabulary.call import GeneratedRunId
from toolsemble._vocabulary.errors import CallPausedError, RejectedError, ToolArgumentsError, ToolConfigurationError
from toolsemble._vocabulary.place import AskedQuestion, Place
from toolsemble.review import Continue, Edit, ExitEarly, ReviewDecision, ReviewRequest
from toolsemble.review._asking.ask import ask
from toolsemble.review._asking.open_question import Check, find_stored, watch_stored
from toolsemble.review._asking.question import Question
from toolsemble.review._gate import Gate, Predicate
from toolsemble.review._request import Reviewer, digest, fit_to_deadline, is_reviewer, to_reviewer
from toolsemble.review._store.rows import binding

_MAX_ROUNDS = 3
_ANOTHER_READING = "The edit was read as what is shown here; continue if that is what you mean"


def ask_reviewers(
    definition: ToolDefinition, gate: Gate, read: Decoded, given: Any, steps: frozenset[str], context: ToolContext
) -> Generator[Work, Any, tuple[Decoded, EditedArguments | None]]:
    """Return the input that every gate approves, with its repairs and the edit; raise RejectedError otherwise.

    After an edit by one reviewer, the others are asked again: each approves exactly what runs.
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
    """Return the input that one gate approves, as decoded or as edited; raise RejectedError otherwise."""
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
    handler: Reviewer, request: ReviewRequest, check: Check, context: ToolContext
) -> Generator[Work, Any, Any]:
    """Return the decision of a reviewer."""
    if context.place is None:
        return (yield Question(handler, request, check))
    review, request, is_over, known = yield from prepare_question(handler, request, context.place)
    if known is not None:
        return known
    question = Question(review, request, check, is_known=review.is_known)
    return question.expire() if is_over else (yield question)


def _find_edit_problem(definition: ToolDefinition, value: Any, given: Any, steps: frozenset[str], revised: str) -> str:
    """Return the problem with an edit before the reviewer submits it; "" if it is valid."""
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


def _find_handler(definition: ToolDefinition, gate: Gate | None, context: ToolContext) -> Reviewer:
    review = context.review if gate is None or gate.review is None else gate.review
    if review is None:
        raise ToolConfigurationError(f"Tool '{definition.name}' requires approval but no ReviewHandler is configured")
    if not is_reviewer(review):
        raise ToolConfigurationError(
            f"Tool '{definition.name}' requires approval but {review!r:.80} is not a ReviewHandler: pass an object "
            "with a method review(request)"
        )
    return to_reviewer(review)


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
    """Return a digest of all that a reviewer relies on: a changed definition invalidates an approval."""
    hints = {} if definition.policy is None else definition.policy.hints
    return digest([definition.schema(), definition.description, {**hints, **definition.metadata}, definition.pinned])


def _check_unchanged(definition: ToolDefinition, value: Any, request: ReviewRequest, sealed: str) -> None:
    """Raise RejectedError if what the reviewer saw, or what would run, has changed since."""
    if sealed != exact_digest(definition, value):
        raise RejectedError("Rejected by reviewer: the arguments were changed while the reviewer was asked")
    if request.arguments_digest != replace(request, arguments=mask_value(definition.present(value))).arguments_digest:
        raise RejectedError("Rejected by reviewer: the arguments were changed on their way to the reviewer")


def _format_call(request: ReviewRequest) -> str:
    arguments = request.arguments
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"{request.tool_name}({preview(text)})"


def prepare_question(
    handler: Reviewer, request: ReviewRequest, place: Place
) -> Generator[Work, Any, tuple[ParkingReview, ReviewRequest, bool, ReviewDecision | None]]:
    """Return a journaled call's reviewer and request, whether it has expired, and the recorded decision.

    The timeout counts from the first question, even if the process that asked has ended.
    """
    note = partial(place.run.note_question, place.path, binding(request))
    asked: AskedQuestion = yield RunInThread(note, in_place=place.run.in_place)
    if asked.outdated:
        yield RunInThread(partial(handler.withdraw, [asked.outdated]))
    review, request = ParkingReview(handler, place, asked), replace(request, id=asked.id)
    answer = None if handler.has_store else read_answer(asked.answer)
    if answer is not None or not request.timeout:
        return review, request, False, answer
    left = asked.at + request.timeout - time.time()
    return (review, replace(request, timeout=left), False, None) if left > 0 else (review, request, True, None)


class ParkingReview(Reviewer):
    """A journaled call's reviewer: it waits for the wrapped reviewer, and parks the run if that takes too long."""

    sends_event = True
    """The event is sent when the wrapped reviewer is asked."""

    def __init__(self, handler: Reviewer, place: Place, asked: AskedQuestion) -> None:
        self._handler = handler
        self._place = place
        self._asked = asked
        self.is_known = asked.is_known
        """Whether the question was asked before: the run was parked with it."""

    async def review(self, request: ReviewRequest) -> Any:
        """Return the answer, or raise :class:`CallPausedError` to leave the question open."""
        asking = ask(self._handler, request)
        if not self._handler.has_store:
            answer = await asking
            if (written := write_answer(answer)) is not None:
                await RunInThread(partial(self._place.run.record_answer, self._asked, written)).ado()
            return answer
        stored = asyncio.Event()
        watch_stored(stored.set)
        answering, run = asyncio.ensure_future(asking), self._place.run
        try:
            await _wait_for_one(answering, stored.wait())  # an earlier answer counts, however short the timeout
            run.note_asking(find_stored(request).id, self._handler)
            await _wait_for_one(answering, run.wait_for_drain(), seconds=run.park_after)
            if answering.done():
                run.note_answer(find_stored(request).id)
                return answering.result()
        finally:
            answering.cancel()  # a pending request stays in the store: the resumed run asks again
            await asyncio.wait([answering])
        paused = CallPausedError(f"Tool '{request.tool_name}' waits for approval", request=find_stored(request))
        paused.reviewer = self._handler
        raise paused


def write_answer(answer: object) -> dict[str, Any] | None:
    """Return a decision as JSON values; None for anything else, and for a request that expired.

    >>> write_answer(Continue())
    {'decision': 'continue'}
    """
    if type(answer) is Continue:
        return {"decision": "continue"}
    if type(answer) is Edit and type(answer.revised) is str:
        return {"decision": "edit", "revised": answer.revised}
    if type(answer) is ExitEarly and not answer.timed_out:
        return {"decision": "reject", "reason": str(answer.reason or "")}
    return None


def read_answer(values: Any) -> ReviewDecision | None:
    """Return the decision that :func:`write_answer` wrote; None for anything else.

    >>> read_answer({"decision": "reject", "reason": "too much"})
    ExitEarly(reason='too much', timed_out=False)
    """
    match values:
        case {"decision": "continue"}:
            return Continue()
        case {"decision": "edit", "revised": str(revised)}:
            return Edit(revised)
        case {"decision": "reject", "reason": str(reason)}:
            return ExitEarly(reason)
    return None


async def _wait_for_one(
    answering: asyncio.Future[Any], event: Coroutine[Any, Any, Any], seconds: float | None = None
) -> None:
    """Wait until there is an answer, an event happens, or the timeout expires."""
    happening = asyncio.ensure_future(event)
    try:
        await asyncio.wait([answering, happening], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if happening.done() and not answering.done():
            happening.result()
    finally:
        happening.cancel()


def apply_edit(definition: ToolDefinition, value: Any, given: Any, revised: str, steps: frozenset[str]) -> Any:
    """Return the input after an edit; raise ToolArgumentsError for an invalid edit.

    :param value: the input that the edit replaces
    :param given: what the model sent; it was read with the repair steps in ``steps``
    """
    shown = mask_value(definition.present(value))
    if definition.editable:
        return _replace_field(definition, value, given, revised, steps)
    if not isinstance(shown, dict):
        return value if revised == shown else definition.accept(revised, frozenset())[0]
    if not revised.strip():
        raise ToolArgumentsError("it is empty; write all arguments as a JSON object")
    exact, written = definition.present(value, reveal=True), _parse_object(revised)
    # Masked values that the reviewer did not edit keep their real value.
    kept = {key: exact[key] for key in shown if exact[key] != shown[key] and (written or {}).get(key) == shown[key]}
    return definition.accept({**(written or {}), **kept} if kept else revised, frozenset())[0]


def matches_edit(definition: ToolDefinition, revised: str, edited: Any) -> bool:
    """Return whether the input equals what the reviewer wrote: a validator may have changed it."""
    shown = definition.present(edited)
    if definition.editable:
        return bool(shown[definition.editable] == revised)
    if not isinstance(shown, dict):
        return bool(shown == revised)
    exact, written = definition.present(edited, reveal=True), _parse_object(revised) or {}
    return all(
        _digest_meaning(each) in (_digest_meaning(shown.get(key)), _digest_meaning(exact.get(key)))
        for key, each in written.items()
    )


def _digest_meaning(value: Any) -> str:
    """Return a digest of a JSON value in which 2 and 2.0 are equal: reviewers do not distinguish them."""
    return digest(_unify_numbers(value))


def _unify_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _unify_numbers(each) for key, each in value.items()}
    return [_unify_numbers(each) for each in value] if isinstance(value, list) else value


def _replace_field(definition: ToolDefinition, value: Any, given: Any, text: str, steps: frozenset[str]) -> Any:
    """Return the input with the one editable field replaced, and all other fields unchanged."""
    exact = definition.present(value, reveal=True)
    # Decoded again from what the model sent: a validator must not process its own output.
    # A pipeline step received values instead of arguments; there, only the decoded arguments exist.
    sent = _parse_object(given) if isinstance(given, str) else given
    base = sent if sent and isinstance(sent, Mapping) else exact
    edited = definition.accept({**base, definition.editable: text}, steps)[0]
    now = definition.present(edited, reveal=True)
    if digest({**now, definition.editable: ""}) != digest({**exact, definition.editable: ""}):
        raise ToolArgumentsError("with it, other arguments would change, too; refuse the call instead")
    return edited


def _parse_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object in a text, or None; raise ToolArgumentsError for a duplicate key."""
    try:
        value = json.loads(text, object_pairs_hook=_refuse_duplicates)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ToolArgumentsError(f"duplicate key {twice!r}")
    return found
