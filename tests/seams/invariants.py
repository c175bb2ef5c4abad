"""What holds in every case, whatever was combined; each function is a sentence."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from seams.shop import (
    APPROVAL_TIMEOUT,
    RESULTS,
    SECRET,
    UNKNOWN,
    USAGE,
    count_calls,
    count_turns,
    make_outcome,
)
from seams.stage import Exited, Observed

INVARIANTS: list[Callable[[Observed], None]] = []
"""All invariants, in the order in which they are checked."""


def invariant(check: Callable[[Observed], None]) -> Callable[[Observed], None]:
    INVARIANTS.append(check)
    return check


@invariant
def the_process_ends_when_told_to(seen: Observed) -> None:
    for each in seen.processes:
        allowed = {-9} if each.killed else {0, -15, 143, -2, 130} if each.told else {0}
        assert each.code in allowed, f"exit code {each.code}:\n{each.log}"


@invariant
def a_normal_outcome_writes_no_traceback(seen: Observed) -> None:
    for each in seen.processes:
        assert "Traceback" not in each.log, each.log
        assert "ERROR" not in each.log, each.log


@invariant
def the_answer_is_right_wherever_it_can_be_read(seen: Observed) -> None:
    right = find_answer(seen)
    assert find_answers(seen) == dict.fromkeys(find_answers(seen), right)


@invariant
def a_typed_answer_is_its_object_wherever_it_can_be_read(seen: Observed) -> None:
    if seen.case.output == "typed" and seen.case.ends == "answered":
        right = make_outcome(find_detail(seen))
        outputs = find_outputs(seen)
        assert outputs == dict.fromkeys(outputs, right)


@invariant
def each_effect_happens_once_or_is_listed_as_unknown(seen: Observed) -> None:
    case = seen.case
    done = {each["key"] for each in seen.effects} if case.effects == "repeatable" else seen.effects
    if case.decision == "reject" or (case.ends == "cancelled" and case.moment == "question"):
        assert seen.effects == []
    else:
        assert len(done) == 1, seen.effects
        assert {each["amount"] for each in seen.effects} == {30 if case.decision == "edit" else 40}
    assert not seen.unknown or (case.may_be_unknown and len(seen.unknown) == 1), seen.unknown


@invariant
def each_person_is_asked_once(seen: Observed) -> None:
    case, asked, answered = seen.case, seen.world.read("asked"), seen.world.read("answered")
    if case.review == "callback":
        was_left = case.moment == "question" and case.continues  # the function was gone before it had decided
        assert len(asked) <= 1 + was_left, asked
        is_cancelled = case.ends == "cancelled" and case.moment == "question"  # then it may have decided all the same
        assert len(answered) in ({0, 1} if is_cancelled else {1}), answered
    if case.review in ("queue", "parked"):
        first = [each for each in seen.audit if each.kind == "asked" and not each.detail.startswith("again")]
        assert len(first) == 1, seen.audit
        assert len(seen.questions) == 1, seen.questions
        answers = [each for each in seen.audit if each.kind == "answered"]
        assert len(answers) == (case.ends == "answered" or case.moment == "body"), seen.audit


@invariant
def no_question_of_an_ended_run_stays_open(seen: Observed) -> None:
    if seen.case.ends == "answered" or seen.case.is_durable:  # else the same run may be repeated
        assert [each for each in seen.questions if each.state == "open"] == []
        if seen.history:
            assert seen.history["run"].waiting == 0
        if seen.page and seen.case.journal != "postgres":
            assert seen.page["run"]["waiting"] == 0


@invariant
def states_agree(seen: Observed) -> None:
    right = {"answered": "done", "cancelled": "cancelled", "lost": "lost"}[seen.case.ends]
    states = find_states(seen)
    assert states == dict.fromkeys(states, right)


@invariant
def streams_end_with_what_happened(seen: Observed) -> None:
    for exited in seen.processes:
        frames = seen.streams.get(exited.pid)
        if frames is None or exited.killed:
            continue
        said = [kind for kind in map(read_kind, frames) if kind]
        assert "error" not in said, frames
        if (expected := find_lasts(seen, exited)) is not None:
            assert said, frames
            assert said[0] in expected, frames[-3:]
            assert {"vercel": "data: [DONE]", "ag_ui": "RUN_FINISHED"}.get(seen.case.driver, "") in frames[-1]


@invariant
def the_deadline_of_a_question_is_the_deadline_of_its_tool(seen: Observed) -> None:
    allowed = [each["timeout"] for each in seen.world.read("asked")]
    allowed += [each.request.timeout for each in seen.questions]
    assert [each for each in allowed if not APPROVAL_TIMEOUT - 60 <= each <= APPROVAL_TIMEOUT] == []


@invariant
def counts_agree(seen: Observed) -> None:
    if is_whole(seen) and seen.case.has_history:
        assert count_in_history(seen) == count_expected(seen)
        page = seen.page["run"]
        assert {name: page[name] for name in ("calls", "turns", "reviews", "nested")} == {
            name: getattr(seen.history["run"], name) for name in ("calls", "turns", "reviews", "nested")
        }


@invariant
def the_journal_has_each_turn_and_each_call_once(seen: Observed) -> None:
    if seen.case.is_durable and seen.case.ends == "answered":
        steps = [each for each in seen.steps if each.place != "/0"]  # which says where the memory began
        kinds = Counter(each.kind for each in steps if each.kind != "question")
        inside = {"pipeline": 2}.get(seen.case.tool, 0)
        assert kinds == {"reply": count_turns(seen.case), "call": count_calls(seen.case) + inside}


@invariant
def the_model_is_asked_once_for_each_turn(seen: Observed) -> None:
    if is_whole(seen) or seen.case.is_durable:
        asked = Counter((each["agent"], each["turn"]) for each in seen.world.read("model"))
        assert set(asked.values()) == {1}, asked
    if seen.case.ends == "answered" and seen.case.is_durable:
        assert len(seen.world.read("model")) == count_turns(seen.case)


@invariant
def memory_has_each_message_once(seen: Observed) -> None:
    if seen.case.memory == "none" or not (is_whole(seen) or seen.case.is_durable):
        return
    texts = Counter((each.role, each.text, getattr(each, "calls", ())) for each in seen.memory if each.role != "tool")
    assert all(count == 1 for count in texts.values()), texts
    if seen.case.ends == "answered":
        roles = Counter(each.role for each in seen.memory)
        inner = 2 if seen.case.tool == "agent" else 0
        typed = seen.case.output == "typed"
        calls = count_calls(seen.case) - (seen.case.tool == "agent") + typed
        assert roles == {"user": 1, "assistant": count_turns(seen.case) - inner, "tool": calls}


@invariant
def deps_are_left_as_often_as_they_are_entered(seen: Observed) -> None:
    if seen.case.deps == "make":
        killed = {each.pid for each in seen.processes if each.killed}
        did = Counter(each["did"] for each in seen.world.read("deps") if each["pid"] not in killed)
        assert did["enter"] == did["leave"], did
        assert seen.world.read("deps"), "the deps were never made"


@invariant
def no_secret_of_the_deps_is_in_any_file(seen: Observed) -> None:
    found = [
        path.name for path in seen.world.folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert found == []


@invariant
def spans_of_normal_outcomes_have_no_error(seen: Observed) -> None:
    spans = seen.world.read("spans")
    failed = [each["name"] for each in spans if each["status"] == "ERROR"]
    assert [name for name in failed if name.startswith("invoke_agent")] == []
    if seen.case.decision != "reject" and not seen.case.may_be_unknown and seen.case.ends == "answered":
        assert [name for name in failed if name.startswith("execute_tool")] == []


@invariant
def a_run_within_its_budget_ends_with_an_answer(seen: Observed) -> None:
    for each in seen.ends:
        if each["end"] == "answered" and "stop_reason" in each:
            assert each["stop_reason"] == "answer"
            assert each["usage"] == [USAGE.input * count_turns(seen.case), USAGE.output * count_turns(seen.case),
                                     count_turns(seen.case)]  # fmt: skip


def is_whole(seen: Observed) -> bool:
    """Return whether there was one run, and it was not cut off: a run without a journal that is repeated is another."""
    return seen.case.ends == "answered" and (seen.case.is_durable or not seen.case.continues)


def find_detail(seen: Observed) -> str:
    """Return the refund's amount from the reply to the model."""
    return UNKNOWN if seen.unknown else RESULTS[seen.case.decision]


def find_answer(seen: Observed) -> str:
    """Return the right answer; empty if the run did not end with one."""
    if seen.case.ends != "answered":
        return ""
    values = make_outcome(find_detail(seen))
    return json.dumps(values, separators=(",", ":")) if seen.case.output == "typed" else find_detail(seen)


def find_answers(seen: Observed) -> dict[str, str]:
    """Return the answer at each place where it can be read."""
    answers = {f"process {number}": each["text"] for number, each in enumerate(seen.ends, 1) if "text" in each}
    if seen.case.ends == "answered" and seen.case.review == "pause":
        answers.pop("process 1", None)
    if seen.record is not None:
        answers["journal"] = seen.record.text
    for pid, frames in seen.streams.items():
        if (text := find_text_in(seen, frames)) is not None:
            answers[f"stream of {pid}"] = text
    if seen.history:
        answers["history"] = seen.history["run"].answer
        answers["page"] = seen.page["run"]["answer"]
    # The text of an unknown outcome goes on, and a history has only the start of an answer.
    return {place: find_answer(seen) if UNKNOWN in text and seen.unknown else text for place, text in answers.items()}


def shorten(values: dict[str, str]) -> dict[str, str]:
    """Return a typed answer without what the text of an unknown outcome goes on with."""
    return {**values, "detail": UNKNOWN if values["detail"].startswith(UNKNOWN) else values["detail"]}


def find_outputs(seen: Observed) -> dict[str, dict[str, str]]:
    """Return the typed answer at each place where it can be read."""
    outputs = {
        f"process {number}": each["output"]
        for number, each in enumerate(seen.ends, 1)
        if each["end"] == "answered" and "output" in each
    }
    if hasattr(seen.record, "output"):
        outputs["journal"] = seen.record.output
    for exited in seen.processes:
        frames = seen.streams.get(exited.pid, [])
        if frames and (output := find_output_in(seen, frames)) is not None:
            outputs[f"stream of {exited.pid}"] = output
    return {place: shorten(output) for place, output in outputs.items()}


def find_output_in(seen: Observed, frames: list[str]) -> dict[str, str] | None:
    """Return the typed answer that a stream ended with; None if it has none."""
    for values in map(read_frame, frames):
        if values.get("kind") == "final":
            return values.get("output")
        if values.get("type") == "RUN_FINISHED":
            return (values.get("result") or {}).get("output")
        if values.get("type") == "data-result":
            return values["data"].get("output")
    return None


def find_text_in(seen: Observed, frames: list[str]) -> str | None:
    """Return the text that a stream has shown; None if it did not end with an answer, or with one that is no text."""
    values = [read_frame(frame) for frame in frames]
    finals = [each["text"] for each in values if each.get("kind") == "final" and not each.get("pending")]
    if finals:
        return finals[-1]
    if seen.case.output == "typed" or not any(read_kind(frame) == "final" for frame in frames):
        return None
    kinds = ("text-delta", "TEXT_MESSAGE_CONTENT")
    return "".join(each["delta"] for each in values if each.get("type") in kinds) or None


def find_states(seen: Observed) -> dict[str, str]:
    """Return the state of the run at each place where it can be read."""
    states = {}
    if seen.record is not None:
        states["journal"] = seen.record.state
    if seen.history:
        states["history"] = seen.history["run"].state
        if seen.case.journal != "postgres":  # which is not in the data folder of the page
            states["page"] = seen.page["run"]["state"]
    if seen.durable:
        states["durable page"] = seen.durable["run"]["state"]
    return states


def find_lasts(seen: Observed, exited: Exited) -> set[str] | None:
    """Return what the stream of a process may end with; None if its client has left, or its task was cancelled."""
    case, number = seen.case, seen.processes.index(exited)
    if case.review == "pause" and number == 0:
        return {"final"}
    if number > (case.review == "pause") or case.interruption == "none":
        return {"parked"} if case.review == "parked" and number == 0 else {"final"}
    if not case.is_durable or case.interruption == "client_gone":
        return None
    if case.review == "parked":
        return {"parked"}
    if case.interruption == "sigterm":  # the body of a worker may have ended before; a run that waits goes on waiting
        return {"interrupted", "parked" if case.moment == "question" else "final"}
    return {"cancelled"}


def read_frame(frame: str) -> dict[str, Any]:
    """Return the JSON of a frame; empty for one that has none."""
    text = frame.removeprefix("data: ").strip()
    return json.loads(text) if text.startswith("{") else {}


def read_kind(frame: str) -> str:
    """Return the last event that a frame describes, in the words of ``agent.stream``; empty if it is not the last."""
    values = read_frame(frame) or {"kind": frame}
    kind = values.get("kind") or ENDS.get(values["type"]) or values["type"].removeprefix("data-")
    reason = (values.get("result") or {}).get("stop_reason") if kind == "final" else None
    return reason if reason in LASTS else kind if kind in (*LASTS, "error") else ""


LASTS = ("final", "parked", "interrupted", "cancelled")
"""What a stream can end with."""
ENDS = {"RUN_ERROR": "error", "RUN_FINISHED": "final", "finish": "final"}
"""What frames of other protocols say."""


def count_expected(seen: Observed) -> dict[str, int]:
    """Return the counts of a run that was not interrupted."""
    case = seen.case
    nested = int(case.tool == "agent")
    return {
        "calls": count_calls(case) + 2 * (case.tool == "pipeline"),
        "turns": count_turns(case),
        "agents": 1 + nested,
        "nested": nested,
        "reviews": int(case.review != "none"),
        "waiting": 0,
        "repairs": 0,
        "input_tokens": USAGE.input * count_turns(case),
        "output_tokens": USAGE.output * count_turns(case),
        "started": count_calls(case) + 2 * (case.tool == "pipeline"),
        "listed calls": count_calls(case) + 2 * (case.tool == "pipeline"),
        "listed turns": count_turns(case),
        "listed reviews": int(case.review != "none"),
    }


def count_in_history(seen: Observed) -> dict[str, int]:
    """Return the same counts, as the history has them."""
    history, run = seen.history, seen.history["run"]
    names = ("calls", "turns", "nested", "reviews", "waiting", "repairs", "input_tokens", "output_tokens")
    events = [each for each in history["events"] if each.kind == "call_started"]
    was_killed = seen.case.interruption.startswith("kill")  # then events of other calls may be lost, or come again
    return {
        **{name: getattr(run, name) for name in names},
        "agents": len(history["agents"]),
        "started": len(history["calls"] if was_killed else events),
        "listed calls": len(history["calls"]),
        "listed turns": len(history["turns"]),
        "listed reviews": len(history["reviews"]),
    }
