"""The commands ``approvals`` and ``ledger``: list and settle a store's entries."""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from toolsemble import review
from toolsemble._cli.json_output import json_line
from toolsemble._cli.options import Exit, format_age
from toolsemble._cli.screen import Screen
from toolsemble._cli.table import Column, find_short_ids, shorten_ids, show_list
from toolsemble._engine.context import ToolContext
from toolsemble._engine.limits.effect_ledger import Effect, EffectLedger
from toolsemble._runtime.text import escape_line
from toolsemble._vocabulary import errors
from toolsemble.review._console import RequestView

_CALL = (Column("id"), Column("tool", is_cut=True), Column("arguments", is_cut=True))
_WHERE = (Column("agent", is_optional=True), Column("run", is_optional=True), Column("asked"))
_COLUMNS = (*_CALL, Column("memory", is_optional=True), *_WHERE, Column("left"))
_ALL_COLUMNS = (*_CALL, *_WHERE, Column("state"), Column("by", is_optional=True))
_MAX_ARGUMENTS = 200
_MAX_NAMED = 5
_MAX_LISTED = 100
_KINDS = {"continue": "approved", "edit": "edited", "exit_early": "rejected"}
_DONE = {"approve": "approved", "reject": "rejected", "edit": "approved with other arguments"}
_UNCHECKED = "The waiting run validates the new arguments, and asks again if they do not fit."


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it was given at the command line.

    >>> Answer("reject", "4f1c", reason="not today").decision(review.ReviewRequest("Pays", "pay", {"order": 7}))
    ExitEarly(reason='not today', timed_out=False)
    """

    action: str
    """approve, reject or edit."""
    request_id: str
    """The id of the request, or its beginning."""
    revised: str | None = None
    """The text of an edit."""
    reason: str | None = None
    """The reason for a rejection."""
    person: str | None = None
    """The person who answers; None: the user."""
    role: str = ""
    """The person's role."""
    always: Literal["tool", "arguments"] | None = None
    """The scope to approve for the rest of the run."""

    def decision(self, request: review.ReviewRequest) -> review.ReviewDecision:
        """Return the decision; raise ToolDefinitionError if it cannot be parsed or remembered."""
        if self.action == "approve":
            if self.always is not None and self.always not in request.scopes:
                raise errors.ToolDefinitionError(
                    "--always needs a reviewer that remembers answers: wrap it in RememberReview(...)"
                )
            return review.Continue(self.always)
        if self.action == "reject":
            return review.ExitEarly(self.reason or "")
        revised = self.revised or ""
        if isinstance(request.arguments, dict) and not request.editable:
            _check_object(revised)
        return review.Edit(revised)


def list_reviews(store: review.ReviewStore, screen: Screen, *, as_json: bool, everything: bool = False) -> Exit:
    """Write the pending requests, oldest first; or the latest ones in any state, newest first."""
    if everything:
        return _list_all(store, screen, as_json=as_json)
    waiting = store.pending()
    if as_json:
        for request in waiting:
            screen.write(json_line(_to_fields(request)))
    elif waiting:
        ids = shorten_ids(screen, [each.id for each in waiting])
        show_list(screen, _COLUMNS, [(ids[each.id], *_to_row(each, time.time())) for each in waiting])
    else:
        screen.report("No call is pending approval.")
    return Exit.DONE


def _list_all(store: review.ReviewStore, screen: Screen, *, as_json: bool) -> Exit:
    found = store.requests(limit=_MAX_LISTED)
    if as_json:
        for each in found:
            screen.write(json_line({**_to_fields(each.request), "state": each.state, **_to_answer(each.receipt)}))
    else:
        known = [*store.pending(), *(each.request for each in found)]
        ids = shorten_ids(screen, [each.id for each in known])
        show_list(screen, _ALL_COLUMNS, [(ids[each.request.id], *_to_full_row(each, time.time())) for each in found])
    return Exit.DONE


def show_review(store: review.ReviewStore, request_id: str, screen: Screen, *, as_json: bool) -> Exit:
    """Write one request in full, with its history."""
    request = _find(store, request_id)
    events = store.audit(request.id)
    if as_json:
        screen.write(json_line({**_to_fields(request), "events": [asdict(event) for event in events]}))
    else:
        screen.write(RequestView(request, whole=True).text(screen.out.width, screen.out.paint).rstrip("\n"))
        for event in events[1:]:  # the first event is the request itself
            screen.write(f"| {escape_line(_describe_event(event, time.time()))}")
    return Exit.DONE


def send_answer(store: review.ReviewStore, answer: Answer, screen: Screen, *, as_json: bool) -> Exit:
    """Answer a request; raise ReviewRefusedError if the store rejects the answer."""
    request = _find(store, answer.request_id)
    person = _find_user() if answer.person is None else answer.person
    receipt = store.answer(request, answer.decision(request), person=person, role=answer.role)
    if as_json:
        fields = {"request_id": receipt.request_id, "decision": receipt.kind, "person": receipt.person}
        screen.write(json_line({**fields, "expires_at": receipt.expires_at}))
    else:
        screen.answer(f"{_DONE[answer.action]}: {_format_answered(request, answer.revised)}")
        if answer.action == "edit":
            screen.report(_UNCHECKED)
    return Exit.DONE


def _find(store: review.ReviewStore, request_id: str) -> review.ReviewRequest:
    """Return the request with an id or unique id prefix: a pending one, else one of the latest."""
    request = store.find(request_id)
    if request is not None:
        return request
    waiting = [each for each in store.pending() if each.id.startswith(request_id)]
    found = waiting or [
        each.request for each in store.requests(limit=_MAX_LISTED) if each.request.id.startswith(request_id)
    ]
    if not found:
        raise errors.ReviewRefusedError(f"the store has no request with the id {request_id!r:.80}; see the list")
    if len(found) > 1:
        raise errors.ReviewRefusedError(
            f"ambiguous id {request_id!r:.80}, which matches {len(found)} requests: {_name_requests(found)}"
        )
    return found[0]


def _find_begun(requests: Iterable[review.ReviewRequest], start: str) -> list[review.ReviewRequest]:
    return [each for each in requests if each.id.startswith(start)]


def _name_requests(found: Sequence[review.ReviewRequest]) -> str:
    """Return the shortest unambiguous ids of the first few requests, with their tools."""
    ids = find_short_ids([each.id for each in found])
    named = [f"{escape_line(ids[each.id])} ({escape_line(each.tool_name)})" for each in found[:_MAX_NAMED]]
    return ", ".join([*named, *(["..."] if len(found) > _MAX_NAMED else [])])


def _check_object(text: str) -> None:
    try:
        is_object = isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise errors.ToolDefinitionError(f"An edit must be all arguments as a JSON object, not {text!r:.80}")


def _to_fields(request: review.ReviewRequest) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(request.to_json())
    return {**values, "deadline": request.deadline, "arguments_digest": request.arguments_digest}


def _to_row(request: review.ReviewRequest, now: float) -> Sequence[str]:
    left = "" if request.deadline is None else format_age(request.deadline - now)
    return (
        request.tool_name,
        _format_arguments(request),
        "" if request.memory_id == ToolContext.memory_id else request.memory_id,
        request.agent_role,
        request.run_id if request.resumable else "",
        f"{format_age(now - request.asked_at)} ago",
        left,
    )


def _to_full_row(stored: review.StoredRequest, now: float) -> Sequence[str]:
    request, receipt = stored.request, stored.receipt
    return (
        request.tool_name,
        _format_arguments(request),
        request.agent_role,
        request.run_id if request.resumable else "",
        f"{format_age(now - request.asked_at)} ago",
        stored.state if receipt is None else f"{stored.state}: {_KINDS[receipt.kind]}",
        "" if receipt is None else receipt.person,
    )


def _to_answer(receipt: review.Receipt | None) -> dict[str, Any]:
    if receipt is None:
        return {}
    return {"decision": receipt.kind, "person": receipt.person, "role": receipt.role, "answered_at": receipt.issued_at}


def _describe_event(event: review.ReviewEvent, now: float) -> str:
    by = f" by {event.person}" if event.person else ""
    role = f" ({event.role})" if event.role else ""
    detail = f": {event.detail}" if event.detail else ""
    return f"{event.kind} {format_age(now - event.at)} ago{by}{role}{detail}"


def _format_answered(request: review.ReviewRequest, revised: str | None) -> str:
    """Return the call with the answer's arguments; hide an edit that may contain secrets."""
    name = escape_line(request.tool_name)
    if revised is None:
        return f"{name} {escape_line(_format_arguments(request), _MAX_ARGUMENTS)}"
    return (
        f"{name} (not shown: the call has secrets)"
        if request.hidden_digest
        else (f"{name} {escape_line(revised, _MAX_ARGUMENTS)}")
    )


def _format_arguments(request: review.ReviewRequest) -> str:
    arguments = request.arguments
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _find_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may have a user without a name
        return ""


_ENTRY_COLUMNS = (
    Column("key"),
    Column("tool", is_cut=True),
    Column("arguments", is_cut=True),
    Column("run", is_optional=True),
    Column("state"),
    Column("began", is_optional=True),
)


def open_ledger(file: str) -> EffectLedger:
    """Return the ledger at a path or URL; raise ToolConfigurationError if a file has no key."""
    if "://" not in file and not Path(f"{file}.key").exists():
        raise errors.ToolConfigurationError(f"The effect ledger '{file}' has no file '{file}.key'; restore it")
    return EffectLedger(file)


def list_effects(ledger: EffectLedger, screen: Screen, *, everything: bool, as_json: bool) -> Exit:
    """Write the entries with unknown outcome, or all entries, oldest first."""
    entries = ledger.entries() if everything else ledger.unknown()
    if as_json:
        for effect in entries:
            screen.write(json_line(_to_entry_fields(effect)))
    elif entries:
        keys = shorten_ids(screen, [effect.key for effect in entries])
        show_list(screen, _ENTRY_COLUMNS, [(keys[effect.key], *_to_entry_row(effect)) for effect in entries])
    else:
        screen.report("The ledger is empty." if everything else "No call has an unknown outcome.")
    return Exit.DONE


def resolve(ledger: EffectLedger, key: str, screen: Screen, *, happened: bool, result: str) -> Exit:
    """Settle an entry with unknown outcome; raise ToolsembleError if there is none."""
    found = [effect for effect in ledger.unknown() if effect.key.startswith(key)]
    if len(found) != 1:
        what = "no call" if not found else f"{len(found)} calls"
        raise errors.ToolsembleError(f"{what} of unknown outcome with the key {key!r:.80}; see the list")
    (effect,) = found
    ledger.resolve(effect.key, happened=happened, result=result)
    outcome = "done" if happened else "not done; the call may be repeated"
    screen.answer(f"{outcome}: {escape_line(effect.tool_name)} {escape_line(effect.arguments, _MAX_ARGUMENTS)}")
    return Exit.DONE


def _to_entry_fields(effect: Effect) -> dict[str, object]:
    names = ("key", "tool_name", "run_id", "call_id", "arguments", "state", "began", "ended")
    result = None if effect.result is None else effect.result.text
    return {**{name: getattr(effect, name) for name in names}, "result": result}


def _to_entry_row(effect: Effect) -> tuple[str, ...]:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(effect.began))
    return effect.tool_name, effect.arguments, effect.run_id, effect.state, began
