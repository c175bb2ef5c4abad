"""Write a run's events as text, for people: calls, results, reviews, the answer and the usage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from io import StringIO
from typing import Any, Protocol

from toolsemble import events
from toolsemble._cli.screen import Screen, format_progress
from toolsemble._runtime.terminal import wrap_text
from toolsemble._runtime.text import escape_line, escape_prose
from toolsemble._vocabulary.call import ToolCall
from toolsemble.agent._event import CallReplied, CallRequested, Event, Final, ModelRetried, TurnEnded
from toolsemble.agent._result import AgentResult, ToolCallRecord
from toolsemble.models._chat import ArgumentsDelta, CallDelta, PromptProgress, TextDelta, ThoughtDelta
from toolsemble.review import Continue, Edit

_FENCES = ("```", "~~~")


class MarkdownBlocks:
    r"""A text split into blocks as it arrives: at blank lines, except inside a fenced block.

    >>> blocks = MarkdownBlocks()
    >>> list(blocks.add("# Rome\n\nAll ro")), list(blocks.add("ads\n\n")), blocks.finish()
    (['# Rome'], ['All roads'], '')
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._rest = ""
        self._fence = ""

    def add(self, text: str) -> Iterator[str]:
        """Add a piece of the text; yield the completed blocks."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._follow_fence(line.strip()[:3])
            if line.strip() or self._fence:
                self._lines.append(line)
            elif self._lines:
                yield self._take()

    def finish(self) -> str:
        """Return the last block; empty if there is none."""
        self._lines.append(self._rest)
        self._rest = self._fence = ""
        return self._take().strip("\n")

    def _follow_fence(self, start: str) -> None:
        if start in _FENCES and self._fence in {"", start}:
            self._fence = "" if self._fence else start

    def _take(self) -> str:
        block, self._lines = "\n".join(self._lines), []
        return block


class MarkdownWriter:
    """A writer of Markdown to a screen."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._blocks = MarkdownBlocks()

    def add(self, text: str) -> None:
        """Add a piece of the text; write the completed blocks."""
        for block in self._blocks.add(text):
            self._write(block)

    def finish(self) -> None:
        """Write the last block."""
        block = self._blocks.finish()
        if block.strip():
            self._write(block)

    def _write(self, block: str) -> None:
        self._screen.write(render(block, self._screen).strip("\n") + "\n")


def render(text: str, screen: Screen) -> str:
    """Return Markdown as screen text; the model's control characters are escaped first."""
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(
        file=StringIO(),
        width=screen.out.width,
        force_terminal=True,
        color_system="standard" if screen.out.colors else None,
        legacy_windows=False,
    )
    with console.capture() as captured:
        # A link is written with its address, so that its target is visible.
        console.print(Markdown(escape_prose(text), hyperlinks=False))
    lines = captured.get().split("\n")
    return "\n".join(line.rstrip() for line in lines)


_MAX_ARGUMENTS = 300
_REJECTED = "Error: Rejected by reviewer"
_MAX_LINES = 6
_MAX_LENGTH = 200
_MAX_REASON = 200
_MAX_THOUGHT = 60
_SPINNER = "|/-\\"
_PROGRESS_INTERVAL = 1.0
_EARLY_REASONS = {
    "loop": "the model repeated itself",
    "max_cost": "the cost limit was reached",
    "max_iterations": "the call limit was reached (--max-calls)",
    "max_tokens": "the token limit was reached (--max-tokens)",
    "max_seconds": "the time limit was reached (--max-seconds)",
    "max_turns": "the turn limit was reached",
    "paused": "a call is pending approval, and its reviewer does not wait",
}


class Listener(Protocol):
    """The protocol of objects that receive a run's events."""

    def take(self, event: Event) -> None:
        """Handle an event."""
        ...

    def tick(self) -> None:
        """Update the status; called regularly."""
        ...

    def end(self, error: BaseException | None, partial: AgentResult) -> str:
        """Handle the end of an unfinished run; return the unfinished reply's text."""
        ...


class TextOutput:
    """A listener that writes events to a screen.

    If standard output is a terminal, text is written as it is generated. Otherwise the answer is written when it is
    complete, so that a program that reads it gets only the answer.
    """

    def __init__(self, screen: Screen, *, quiet: bool = False, markdown: bool = False) -> None:
        """Start the clock.

        :param quiet: whether to write only the answer
        :param markdown: whether to render Markdown, if standard output is a terminal
        """
        self._screen = screen
        self._quiet = quiet
        self._live = screen.out.is_terminal
        self._markdown = MarkdownWriter(screen) if markdown and self._live else None
        self._activity = "thinking"
        self._started = time.monotonic()
        self._last_progress = self._started - _PROGRESS_INTERVAL
        self._ticks = 0
        self._pieces: list[str] = []
        self._is_new_text = True
        self._thought = ""
        self._waiting = 0
        self._has_several_calls = False
        self._arguments: dict[int, str] = {}
        self._edits: list[events.ReviewDecided] = []

    def take(self, event: Event) -> None:
        """Write an event."""
        show: Any = getattr(self, f"_{event.kind}", None)
        if show is not None:  # other events, such as sub-call events, are not shown
            show(event)

    def tick(self) -> None:
        """Show the current activity and the elapsed time."""
        if not self._quiet:
            self._ticks += 1
            sign = _SPINNER[self._ticks % len(_SPINNER)]
            self._screen.show_status(f"{sign} {time.monotonic() - self._started:.0f} s {self._activity}")

    def end(self, error: BaseException | None, partial: AgentResult) -> str:
        """Write the unfinished text and the usage."""
        left = "" if self._is_new_text else "".join(self._pieces).rstrip()
        if left and not self._live:
            self._screen.answer(left)
        self._close_text()
        why = "interrupted" if error is None else "failed"
        self._print("warning", f"{why} after {self._format_usage(partial)}")
        self._screen.clear_status()
        return left

    def _text_delta(self, event: TextDelta) -> None:
        if self._is_new_text:
            self._pieces, self._is_new_text = [], False
        self._pieces.append(event.text)
        if self._markdown is not None:
            self._markdown.add(event.text)
        elif self._live:
            self._screen.answer(event.text, end="")

    def _prompt_progress(self, event: PromptProgress) -> None:
        self._activity = f"reading the prompt, {event.fraction:.0%}"

    def _thought_delta(self, event: ThoughtDelta) -> None:
        self._thought = f"{self._thought}{event.text}"[-_MAX_THOUGHT:]
        self._activity = f"thinking: {escape_line(self._thought)}"

    def _call_delta(self, event: CallDelta) -> None:
        self._arguments[event.index] = f"{event.name} "
        self._activity = event.name

    def _arguments_delta(self, event: ArgumentsDelta) -> None:
        # Arguments may be long, and only their beginning fits on a line.
        self._activity = f"{self._arguments.get(event.index, '')}{event.text}"[:_MAX_ARGUMENTS]
        self._arguments[event.index] = self._activity

    def _call_requested(self, event: CallRequested) -> None:
        if self._pieces and not (self._live or self._is_new_text):
            self._print("dim", escape_prose("".join(self._pieces)))
        self._close_text()
        self._pieces = []
        self._waiting += 1
        self._has_several_calls = self._waiting > 1
        self._print_call(event.call)
        self._activity = f"running {event.call.name}"

    def _call_progress(self, event: events.CallProgress) -> None:
        progress = self._activity = f"{event.tool_name} {format_progress(event.fraction, event.message)}".rstrip()
        now = time.monotonic()
        if not self._screen.err.can_overwrite and now - self._last_progress >= _PROGRESS_INTERVAL:
            self._last_progress = now
            self._print("dim", f"  .. {escape_line(progress, _MAX_LENGTH)}")

    def _call_repaired(self, event: events.CallRepaired) -> None:
        places = dict.fromkeys("the JSON text" if each["path"] == "$" else str(each["path"]) for each in event.repairs)
        self._print_note(event, f"arguments repaired: {', '.join(places)}")

    def _call_retried(self, event: events.CallRetried) -> None:
        self._print_note(event, f"failed; retry in {event.wait:.1f} s{_format_reason(event.error)}")

    def _call_timed_out(self, event: events.CallTimedOut) -> None:
        self._print_note(event, f"took longer than {event.seconds:g} s")

    def _call_abandoned(self, event: events.CallAbandoned) -> None:
        self._print_note(event, "still running in the background")

    def _cache_hit(self, event: events.CacheHit) -> None:
        self._print_note(event, "answered from the cache")

    def _review_requested(self, event: events.ReviewRequested) -> None:
        self._activity = f"waiting for approval of {event.request.tool_name}"
        for edit in self._take_edits(event.request.call_id, event.tool_name):
            # The same call is sent for review again: its edit was invalid.
            revised = escape_line(edit.revised, _MAX_REASON)
            self._print(
                "warning", f"  .. {escape_line(event.tool_name, _MAX_LENGTH)}: {revised} does not fit; asked again"
            )

    def _review_decided(self, event: events.ReviewDecided) -> None:
        decision, name = event.decision, escape_line(event.request.tool_name, _MAX_LENGTH)
        if isinstance(decision, Continue):
            self._print("good", f"  ok {name}: approved")
        elif isinstance(decision, Edit):
            self._edits.append(event)  # it is not validated yet
        else:
            self._print("bad", f"  no {name}: rejected{_format_reason(decision.reason)}")

    def _take_edits(self, call_id: str | None, name: str) -> list[Edit]:
        """Pop a call's edits that were not shown yet; without an id, match by name."""
        mine = [
            each for each in self._edits if (each.tool_name == name if call_id is None else each.call_id == call_id)
        ]
        self._edits = [each for each in self._edits if each not in mine]
        return [each.decision for each in mine if isinstance(each.decision, Edit)]

    def _print_edits(self, record: ToolCallRecord) -> None:
        """Report edits as approved: the call was made with them."""
        edits = self._take_edits(record.call.id, record.name)
        if not record.reply.text.startswith(_REJECTED):
            for edit in edits:
                name = escape_line(record.name, _MAX_LENGTH)
                self._print("warning", f"  ok {name}: approved with {escape_line(edit.revised, _MAX_REASON)}")

    def _call_replied(self, event: CallReplied) -> None:
        reply = event.record.reply
        if not self._waiting:  # it was answered without a request event
            self._print_call(reply.call)
        self._print_edits(event.record)
        label = f"{escape_line(event.record.name, _MAX_LENGTH)} " if self._has_several_calls else ""
        first, *rest = self._excerpt(reply.text) or ["(empty)"]
        style = "bad" if reply.is_error else ""
        self._print(style, f"  {label}-> {first}")
        for line in rest:
            self._print(style, f"     {line}")
        for content in reply.result.contents:
            self._print("dim", f"     and a {type(content).__name__}")
        self._waiting = max(self._waiting - 1, 0)
        self._activity = f"running {self._waiting} more" if self._waiting else "thinking"

    def _model_retried(self, event: ModelRetried) -> None:
        self._close_text()
        self._is_new_text = True
        reason = escape_line(event.reason, _MAX_REASON)
        self._print("warning", f"the model failed; retry in {event.seconds:.1f} s: {reason}")

    def _turn_ended(self, _: TurnEnded) -> None:
        self._close_text()
        self._is_new_text, self._waiting, self._arguments, self._thought = True, 0, {}, ""
        self._activity = "thinking"

    def _final(self, event: Final) -> None:
        result = event.result
        if not self._live or "".join(self._pieces) != result.text:
            self._screen.answer(result.text.rstrip("\n"))
        if result.stop_reason not in {"answer", "immediate"}:
            why = _EARLY_REASONS.get(result.stop_reason, escape_line(result.stop_reason, _MAX_REASON))
            self._print("warning", f"stopped early: {why}")
        self._print("dim", self._format_usage(result))

    def _close_text(self) -> None:
        """Write the rest of the text, and end its line."""
        if self._markdown is not None:
            self._markdown.finish()
        self._screen.close_line()

    def _excerpt(self, text: str) -> list[str]:
        """Return a text's first lines, truncated to the width, and a line with the number of omitted lines."""
        width = min(self._screen.err.width - 8, _MAX_LENGTH) if self._screen.err.is_terminal else _MAX_LENGTH
        text = text.rstrip("\n")
        count = text.count("\n") + 1
        most = count if count <= _MAX_LINES + 1 else _MAX_LINES  # a note about one more line would take as much space
        # A result can be huge, so only the visible part is processed.
        lines = [escape_prose(line[: 2 * _MAX_LENGTH]).expandtabs(4) for line in text.split("\n", most)[:most]]
        pieces = [next(wrap_text(line, max(width, 10))) for line in lines]
        shown = [piece if piece == line else f"{piece}..." for piece, line in zip(pieces, lines, strict=True)]
        return [*shown, f"... {count - most:,} more lines"] if most < count else shown

    def _format_usage(self, result: AgentResult) -> str:
        usage, count = result.usage, len(result.tool_calls)
        parts = [f"{count} call{'' if count == 1 else 's'}"] if count else []
        parts.append(f"{time.monotonic() - self._started:.1f} s")
        if usage.total_tokens:
            cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
            thought = f" ({usage.reasoning_tokens:,} reasoning)" if usage.reasoning_tokens else ""
            parts.append(f"{usage.input_tokens:,} tokens in{cached}, {usage.output_tokens:,} out{thought}")
        return ", ".join(parts)

    def _print_call(self, call: ToolCall) -> None:
        name = self._screen.err.paint("title", escape_line(call.name, _MAX_LENGTH))
        self._print("", f"{name} {escape_line(call.json, _MAX_ARGUMENTS)}")

    def _print_note(self, event: events.CallEvent, text: str) -> None:
        """Write a dimmed line about a call."""
        self._print("dim", f"  .. {escape_line(f'{event.tool_name}: {text}', _MAX_LENGTH)}")

    def _print(self, style: str, text: str) -> None:
        if not self._quiet:
            self._screen.report(self._screen.err.paint(style, text) if style else text)


def _format_reason(reason: str) -> str:
    return f": {escape_line(reason, _MAX_REASON)}" if reason else ""
