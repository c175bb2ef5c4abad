"""A run as a person wants to see it: calls, results, reviews, the answer, and what it took."""

from __future__ import annotations

import time
from typing import Any, Protocol

from toolsemble.agent.event import CallReplied, CallRequested, Event, Final, ModelRetried, TurnEnded
from toolsemble.agent.result import AgentResult
from toolsemble.call import ToolCall
from toolsemble.cli.screen import Screen
from toolsemble.cli.visible import one_line, progress_line, visible
from toolsemble.events import (
    CacheHit,
    CallAbandoned,
    CallEvent,
    CallProgress,
    CallRepaired,
    CallRetried,
    CallTimedOut,
    ReviewDecided,
    ReviewRequested,
)
from toolsemble.models.chat import ArgumentsDelta, CallDelta, TextDelta
from toolsemble.review import Continue, Edit
from toolsemble.review.request_view import wrap_text

_ARGUMENTS = 300
_LINES = 6
_LONGEST = 200
_REASON = 200
_SPINNER = "|/-\\"
_PAUSE = 1.0
_EARLY = {
    "loop": "the model went in circles",
    "max_cost": "it must not cost more",
    "max_iterations": "its calls were used up (--max-calls)",
    "max_tokens": "its tokens were used up (--max-tokens)",
    "max_seconds": "its time was up (--max-seconds)",
    "max_turns": "its turns were used up",
}


class Listener(Protocol):
    """Who is told of a run."""

    def take(self, event: Event) -> None:
        """Take what has happened."""
        ...

    def tick(self) -> None:
        """Show that time passes."""
        ...

    def end(self, error: BaseException | None, partial: AgentResult) -> str:
        """Close a run that did not come to its end; give the text that was said and is in no message yet."""
        ...


class Narrator:
    """Tells of a run on a screen.

    Where standard output is a terminal, the text appears there as it comes. Else the answer is written there once it
    is complete, so that a program that reads it gets the answer and nothing else.
    """

    def __init__(self, screen: Screen, *, quiet: bool = False) -> None:
        """Begin to tell.

        :param quiet: whether only the answer is shown
        """
        self._screen = screen
        self._quiet = quiet
        self._live = screen.out.is_terminal
        self._doing = "thinking"
        self._begun = time.monotonic()
        self._told = self._begun - _PAUSE
        self._ticks = 0
        self._said: list[str] = []
        self._fresh = True
        self._waiting = 0
        self._several = False
        self._arguments: dict[int, str] = {}

    def take(self, event: Event) -> None:
        """Show what has happened."""
        show: Any = getattr(self, f"_{event.kind}", None)
        if show is not None:  # of the rest, such as calls inside of calls, a person need not know
            show(event)

    def tick(self) -> None:
        """Show what is going on, and for how long."""
        if not self._quiet:
            self._ticks += 1
            sign = _SPINNER[self._ticks % len(_SPINNER)]
            self._screen.status(f"{sign} {time.monotonic() - self._begun:.0f} s {self._doing}")

    def end(self, error: BaseException | None, partial: AgentResult) -> str:
        """Show how far it came; the text so far is not lost."""
        left = "" if self._fresh else "".join(self._said).rstrip()
        if left and not self._live:
            self._screen.answer(left)
        self._screen.close_line()
        why = "interrupted" if error is None else "failed"
        self._say("warning", f"{why} after {self._spent(partial)}")
        self._screen.clear_status()
        return left

    def _text_delta(self, event: TextDelta) -> None:
        if self._fresh:
            self._said, self._fresh = [], False
        self._said.append(event.text)
        if self._live:
            self._screen.answer(event.text, end="")

    def _call_delta(self, event: CallDelta) -> None:
        self._arguments[event.index] = f"{event.name} "
        self._doing = event.name

    def _arguments_delta(self, event: ArgumentsDelta) -> None:
        # However much there is to come, only its beginning fits on a line.
        self._doing = f"{self._arguments.get(event.index, '')}{event.text}"[:_ARGUMENTS]
        self._arguments[event.index] = self._doing

    def _call_requested(self, event: CallRequested) -> None:
        if self._said and not (self._live or self._fresh):
            self._say("dim", visible("".join(self._said)))
        self._said = []
        self._waiting += 1
        self._several = self._waiting > 1
        self._say_call(event.call)
        self._doing = f"running {event.call.name}"

    def _call_progress(self, event: CallProgress) -> None:
        told = self._doing = f"{event.tool_name} {progress_line(event.fraction, event.message)}".rstrip()
        now = time.monotonic()
        if not self._screen.err.moves and now - self._told >= _PAUSE:
            self._told = now
            self._say("dim", f"  .. {one_line(told, _LONGEST)}")

    def _call_repaired(self, event: CallRepaired) -> None:
        places = dict.fromkeys("the JSON text" if each["path"] == "$" else str(each["path"]) for each in event.repairs)
        self._note(event, f"arguments repaired: {', '.join(places)}")

    def _call_retried(self, event: CallRetried) -> None:
        self._note(event, f"failed and is tried again in {event.wait:.1f} s{_because(event.error)}")

    def _call_timed_out(self, event: CallTimedOut) -> None:
        self._note(event, f"took longer than {event.seconds:g} s")

    def _call_abandoned(self, event: CallAbandoned) -> None:
        self._note(event, "works on, though nobody waits for it")

    def _cache_hit(self, event: CacheHit) -> None:
        self._note(event, "answered from the cache")

    def _review_requested(self, event: ReviewRequested) -> None:
        self._doing = f"waiting for approval of {event.request.tool_name}"

    def _review_decided(self, event: ReviewDecided) -> None:
        decision, name = event.decision, one_line(event.request.tool_name, _LONGEST)
        if isinstance(decision, Continue):
            self._say("good", f"  ok {name}: approved")
        elif isinstance(decision, Edit):
            self._say("warning", f"  ok {name}: approved with {one_line(decision.revised, _REASON)}")
        else:
            self._say("bad", f"  no {name}: refused{_because(decision.reason)}")

    def _call_replied(self, event: CallReplied) -> None:
        reply = event.record.reply
        if not self._waiting:  # it was answered without being run
            self._say_call(reply.call)
        label = f"{one_line(event.record.name, _LONGEST)} " if self._several else ""
        first, *rest = self._excerpt(reply.text) or ["(nothing)"]
        style = "bad" if reply.is_error else ""
        self._say(style, f"  {label}-> {first}")
        for line in rest:
            self._say(style, f"     {line}")
        for content in reply.result.contents:
            self._say("dim", f"     and a {type(content).__name__}")
        self._waiting = max(self._waiting - 1, 0)
        self._doing = f"running {self._waiting} more" if self._waiting else "thinking"

    def _model_retried(self, event: ModelRetried) -> None:
        self._fresh = True
        reason = one_line(event.reason, _REASON)
        self._say("warning", f"the model failed and is asked again in {event.seconds:.1f} s: {reason}")

    def _turn_ended(self, _: TurnEnded) -> None:
        self._screen.close_line()
        self._fresh, self._waiting, self._arguments = True, 0, {}
        self._doing = "thinking"

    def _final(self, event: Final) -> None:
        result = event.result
        if not self._live or "".join(self._said) != result.text:
            self._screen.answer(result.text.rstrip("\n"))
        if result.stop_reason not in {"answer", "immediate"}:
            why = _EARLY.get(result.stop_reason, one_line(result.stop_reason, _REASON))
            self._say("warning", f"the answer had to be given early: {why}")
        self._say("dim", self._spent(result))

    def _excerpt(self, text: str) -> list[str]:
        """Give the first lines of a text, none wider than the screen, and how many there are besides."""
        width = min(self._screen.err.width - 8, _LONGEST) if self._screen.err.is_terminal else _LONGEST
        text = text.rstrip("\n")
        count = text.count("\n") + 1
        most = count if count <= _LINES + 1 else _LINES  # saying that there is one more line takes a line, too
        # A result can be huge, so only what may be shown of it is looked at.
        lines = [visible(line[: 2 * _LONGEST]).expandtabs(4) for line in text.split("\n", most)[:most]]
        pieces = [next(wrap_text(line, max(width, 10))) for line in lines]
        shown = [piece if piece == line else f"{piece}..." for piece, line in zip(pieces, lines, strict=True)]
        return [*shown, f"... {count - most:,} more lines"] if most < count else shown

    def _spent(self, result: AgentResult) -> str:
        usage, count = result.usage, len(result.tool_calls)
        parts = [f"{count} call{'' if count == 1 else 's'}"] if count else []
        parts.append(f"{time.monotonic() - self._begun:.1f} s")
        if usage.total_tokens:
            parts.append(f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out")
        return ", ".join(parts)

    def _say_call(self, call: ToolCall) -> None:
        name = self._screen.err.painted("name", one_line(call.name, _LONGEST))
        self._say("", f"{name} {one_line(call.json, _ARGUMENTS)}")

    def _note(self, event: CallEvent, text: str) -> None:
        """Tell, in one line that does not stand out, what happened to a call on its way."""
        self._say("dim", f"  .. {one_line(f'{event.tool_name}: {text}', _LONGEST)}")

    def _say(self, style: str, text: str) -> None:
        if not self._quiet:
            self._screen.tell(self._screen.err.painted(style, text) if style else text)


def _because(reason: str) -> str:
    return f": {one_line(reason, _REASON)}" if reason else ""
