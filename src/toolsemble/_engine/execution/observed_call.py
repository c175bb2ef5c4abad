"""The steps of a call that is observed or needs approval: hooks, masking, events, and the reviewer.

Most calls have none of them, and do not load this.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from toolsemble._engine.execution.approval import ask_reviewers
from toolsemble._engine.execution.call import Call, check_deps
from toolsemble._engine.execution.hooks import AnsweredError
from toolsemble._engine.execution.instrumentation import Instrumentation
from toolsemble._engine.work.body import Work
from toolsemble._runtime.event_loops import unwrap_stop_iteration
from toolsemble._runtime.watchers import Watcher
from toolsemble._runtime.work_clock import update_deadline
from toolsemble._vocabulary.errors import CallPausedError, RejectedError, ToolArgumentsError
from toolsemble._vocabulary.result import ToolResult


def instrument(call: Call, watched: tuple[Watcher, ...]) -> None:
    """Create the instrumentation of a call."""
    made = Instrumentation(call.definition, call.context, call.given, call.settings.hooks, watched)
    call.instrumentation, call.context = made, made.context


def read_and_approve(call: Call) -> Generator[Work, Any, bool]:
    """Ask the hooks, read the arguments, and ask the reviewer; return whether the call continues."""
    sent, instrumentation = call.given, call.instrumentation
    try:
        if instrumentation is None:
            call.given, call.repairs = call.read(sent, call.settings.steps)
        else:
            instrumentation.enter()
            call.given = instrumentation.unread
            read, sent = yield from instrumentation.ask_hooks(call.read, sent, call.settings.steps)
            call.given, call.repairs = instrumentation.read(read, sent, call.settings.steps)
        check_deps(call)
        if call.definition.gate is not None:
            if (known := (yield from find_earlier_answer(call))) is not None:
                call.succeed(known)
                return False
            yield from approve(call, sent)
    except (ToolArgumentsError, RejectedError) as refusal:
        call.refuse(refusal)
        return False
    except AnsweredError as answered:
        call.result = answered.result
        return False
    return True


def find_earlier_answer(call: Call) -> Generator[Work, Any, ToolResult | None]:
    """Return the recorded answer if the call's effect has happened, so that no reviewer is asked; else None."""
    policy = call.definition.policy
    for layer in () if policy is None else policy.layers:
        answer = yield from layer.find_answer(call.definition, call.given, call.context)
        if answer is not None:
            return answer
    return None


def approve(call: Call, sent: Any) -> Generator[Work, Any, None]:
    """Ask the reviewer, who may change the arguments; time in review does not count for the tool."""
    definition, gate = call.definition, call.definition.gate
    assert gate is not None  # noqa: S101 - only calls with a gate come here
    try:
        was = call.given, call.repairs
        agreed, call.edited = yield from ask_reviewers(definition, gate, was, sent, call.settings.steps, call.context)
        call.given, call.repairs = agreed
    except CallPausedError as paused:
        paused.context = call.context
        raise
    finally:
        call.started = time.perf_counter()
    if call.context.deadline is not None:
        call.context = call.context.derive({"deadline": update_deadline(call.context.deadline)})


def answer(call: Call) -> Generator[Work, Any, None]:
    """Run the hooks after the call, which may replace the result."""
    assert call.instrumentation is not None and call.result is not None  # noqa: S101, PT018 - calls with hooks have one
    try:
        call.result = call.add_facts((yield from call.instrumentation.answer(call.result)))
    except BaseException as error:
        call.raised, call.result = unwrap_stop_iteration(error), None
        raise
