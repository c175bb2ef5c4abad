"""Loop detection: notice that a run repeats itself, warn the model, and end the run if it goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, count

from toolsemble._vocabulary.call import ToolCall, ToolReply
from toolsemble.agent._budget import Stop
from toolsemble.agent._loop_guard import LoopGuard

_ROUNDS = 2  # how often a sequence of turns must occur to count as a pattern
_ADVICE = "try something else, or answer with what you know."


class _SameResult:
    """The calls of one turn that had the same result, each with its counts so far.

    Their arguments are only compared if another turn has the same result, which is rare, because it is slow.
    """

    __slots__ = ("_known", "_new")

    def __init__(self) -> None:
        self._new: list[tuple[ToolCall, list[int]]] = []
        self._known: dict[str, list[int]] = {}

    def add(self, call: ToolCall, canonical: str | None, counts: list[int]) -> None:
        """Add a call, with its canonical arguments if they are known already."""
        if canonical is None:
            self._new.append((call, counts))
        else:
            self._known[canonical] = counts

    def find(self, canonical: str) -> list[int] | None:
        """Return the counts of the call with these arguments, or None."""
        for call, counts in self._new:
            self._known[call.canonical] = counts
        self._new.clear()
        return self._known.get(canonical)

    def __iter__(self) -> Iterator[list[int]]:
        return chain(self._known.values(), (counts for _, counts in self._new))


class LoopDetector:
    """A detector of repetition in the turns of one run; it keeps the calls of the last turns, with counts.

    >>> from toolsemble import ToolCall, ToolResult
    >>> detector = LoopDetector(LoopGuard(repeats=2))
    >>> for turn in range(2):
    ...     detector.begin(1)
    ...     reply = detector.check(ToolReply(ToolCall("now"), ToolResult.success("noon")))
    >>> print(reply.text)
    noon
    <BLANKLINE>
    Note: this call has given the same result 2 turns in a row: try something else, or answer with what you know.
    """

    def __init__(self, guard: LoopGuard) -> None:
        self.stop: Stop | None = None
        """Why the run has to end; None if it need not."""
        self._guard = guard
        self._periods = range(2, guard.longest + 1)
        # For each turn, by tool and result: how often a call occurred every turn, every second turn, and so on.
        self._turns: deque[dict[int, _SameResult]] = deque(maxlen=guard.longest)
        self._turn: dict[int, _SameResult] = {}
        self._errors: dict[int, int] = {}
        self._errors_before: dict[int, int] = {}
        self._waiting = 0
        self._is_stale = False
        self._stale = 0
        self._unique_keys = count()

    def begin(self, calls: int) -> None:
        """Begin a turn with a number of calls."""
        self._turns.append(self._turn)
        self._turn = {}
        self._errors_before, self._errors = self._errors, {}
        self._waiting = calls
        self._is_stale = True

    def check(self, reply: ToolReply, *, exempt: bool = False) -> ToolReply:
        """Return the reply to a call of the turn, with a note if the run repeats itself."""
        note = "" if exempt else self._find_note(reply)
        self._waiting -= 1
        self._is_stale = self._is_stale and bool(note)
        if not self._waiting:
            self._stale = self._stale + 1 if self._is_stale else 0
            if self._stale > self._guard.patience:
                self.stop = Stop("loop", f"Maximum turns without progress ({self._guard.patience + 1})")
                note = self.stop.text
        return replace(reply, note=note) if note else reply

    def _find_note(self, reply: ToolReply) -> str:
        """Return the note to the model about a call; "" if the call is new."""
        failed = self._count_error(reply)
        counts = self._count(reply)
        if failed >= self._guard.repeats:
            return f"Note: '{reply.name:.64}' has failed with the same error {failed} turns in a row: {_ADVICE}"
        if counts[0] >= self._guard.repeats:
            return f"Note: this call has given the same result {counts[0]} turns in a row: {_ADVICE}"
        if max(counts) >= _ROUNDS and any(self._is_pattern(counts, period) for period in self._periods):
            return f"Note: the same calls come again and again, with the same results: {_ADVICE}"
        return ""

    def _count(self, reply: ToolReply) -> list[int]:
        """Return how often a call occurred with its result, for each distance in turns."""
        key, counts, canonical = self._key(reply), [1] * self._guard.longest, None
        for place, turn in enumerate(reversed(self._turns)):
            if key in turn:
                canonical = reply.call.canonical if canonical is None else canonical
                before = turn[key].find(canonical)
                counts[place] += 0 if before is None else before[place]
        if key not in self._turn:
            self._turn[key] = _SameResult()
        self._turn[key].add(reply.call, canonical, counts)
        return counts

    def _count_error(self, reply: ToolReply) -> int:
        if not reply.is_error:
            return 0
        error = hash((reply.name, _comparable_text(reply)))
        times = self._errors[error] = self._errors_before.get(error, 0) + 1
        return times

    def _is_pattern(self, counts: list[int], period: int) -> bool:
        """Whether a call belongs to a pattern of ``period`` turns; a call that never changes is not a pattern."""
        place = period - 1
        if counts[place] < _ROUNDS or counts[0] >= period:
            return False
        between = list(self._turns)[-place:]
        return all(any(each[place] >= _ROUNDS for same in turn.values() for each in same) for turn in between)

    def _key(self, reply: ToolReply) -> int:
        try:
            return hash((reply.name, _comparable_text(reply), reply.contents))
        except TypeError:
            return next(self._unique_keys)  # custom contents that cannot be hashed


def _comparable_text(reply: ToolReply) -> str:
    """Return the text of a result without its log reference, which is always different."""
    result = reply.result
    reference = result.attributes.get("reference") if result.attributes else None
    text = result.text
    return text.replace(reference, "") if isinstance(reference, str) and reference else text
