"""Who holds what while it runs, and who waits for it: counted places, and names that one call at a time may touch."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from heapq import heappop, heappush
from itertools import count
from typing import TypeAlias

_SPARE = 64
_numbers = count()
_Seat: TypeAlias = "list[Claim]"  # a call, and above it the calls inside it that sit on the same seat


class Seats:
    """A counted number of places, such as those of one toolbox or one tool.

    >>> Seats(3).count
    3
    """

    __slots__ = ("box", "count")

    def __init__(self, count: int, *, box: bool = False) -> None:
        self.count = count
        self.box = box  # whether they are a toolbox's, so that one is enough for a call and all calls inside it


class EndlessWaitError(Exception):
    """A call would wait for something that is only given back when the call itself has ended."""


class Claim:
    """What one call needs, all of it or nothing.

    >>> claim = Claim(["file:a", Seats(1)])
    >>> Table().ask(claim)
    True
    """

    __slots__ = ("names", "number", "parent", "seats", "turn", "users")

    def __init__(self, names: Sequence[Hashable], parent: Claim | None = None) -> None:
        # Names before places: a call that waits for a name is in nobody's way where places are counted.
        self.names = tuple(names if len(names) == 1 else sorted(names, key=lambda name: isinstance(name, Seats)))
        self.parent = parent
        self.number = next(_numbers)
        self.turn: Future[None] | None = None
        self.users = 1
        self.seats: dict[Hashable, _Seat] = {}

    def chain(self) -> Iterator[Claim]:
        """Give the claim and those of the calls around it, inside out."""
        claim: Claim | None = self
        while claim is not None:
            yield claim
            claim = claim.parent

    def inside(self, other: Claim) -> bool:
        """Whether the call is, or is made inside, the one that holds the other claim."""
        return any(each is other for each in self.chain())


class _Queue:
    """Claims that wait for one thing, in the order in which they came."""

    __slots__ = ("_entries", "_heap", "members")

    def __init__(self) -> None:
        self.members: set[Claim] = set()
        self._heap: list[tuple[int, Claim]] = []
        self._entries: set[Claim] = set()

    def add(self, claim: Claim) -> None:
        self.members.add(claim)
        if claim not in self._entries:
            self._entries.add(claim)
            heappush(self._heap, (claim.number, claim))

    def remove(self, claim: Claim) -> None:
        self.members.discard(claim)
        if len(self._heap) > 2 * len(self.members) + _SPARE:  # most of it are claims that have left
            self._entries = set(self.members)
            self._heap = sorted((each.number, each) for each in self.members)

    def first(self) -> Claim:
        while self._heap[0][1] not in self.members:  # it has left, and a heap cannot be searched
            self._entries.discard(heappop(self._heap)[1])
        return self._heap[0][1]


class Table:
    """Who holds what, and who waits for it; for threads and tasks of any event loop.

    Claims are served first come first served; one whose names are taken lets others have the places that are counted.
    Those of calls inside other calls go first: somebody may wait for what the calls around them hold. A seat is lent to
    the calls inside, one at a time; a wait that could never end is refused.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        # Reentrant: the collector may close a dropped call anywhere, also in here, and that gives its claim back.
        self._lock = threading.RLock()
        self._held: dict[Hashable, list[_Seat]] = {}
        self._queues: dict[Hashable, _Queue] = {}
        self._inner: OrderedDict[Claim, None] = OrderedDict()
        self._returned: deque[Claim] = deque()
        self._busy = False

    def ask(self, claim: Claim) -> bool:
        """Seat a claim, or let it wait for its turn; tell whether it is seated. Refuse one that would wait for ever."""
        with self._lock:
            self._busy = True
            try:
                return self._ask(claim)
            finally:
                self._busy = False
                if self._returned:
                    self._settle()

    def give_back(self, claim: Claim) -> None:
        """Free what a claim holds, for those who wait, when nobody uses it any more."""
        with self._lock:
            claim.users -= 1
            if not claim.users:
                self._returned.append(claim)
                self._settle()

    def keep(self, claim: Claim) -> None:
        """Have a claim given back once more before anything of it is freed."""
        with self._lock:
            claim.users += 1

    def withdraw(self, claim: Claim) -> None:
        """Take a claim out of its queues, or back when it was served in this very moment."""
        assert claim.turn is not None  # noqa: S101 - only those who wait can go away
        claim.turn.cancel()
        self.give_back(claim)

    def forget(self) -> None:
        """Let everything go: in a fork, the others do not exist who would give something back, or free the lock."""
        for claim in [claim for seats in self._held.values() for seat in seats for claim in seat]:
            claim.seats = {}
        self._begin()

    @property
    def waiting(self) -> int:
        """How many claims wait."""
        with self._lock:
            return len(self._inner) + len({claim for queue in self._queues.values() for claim in queue.members})

    def _ask(self, claim: Claim) -> bool:
        blocked = self._blocked(claim)
        if blocked is None:
            self._seat(claim)
            return True
        claim.turn = Future()
        if claim.parent is None:
            self._queue(claim, blocked)
        else:
            self._inner[claim] = None
            if self._hopeless(claim):
                del self._inner[claim]
                raise EndlessWaitError
        return False

    def _queue(self, claim: Claim, blocked: Hashable) -> None:
        """Let a claim wait for all its names at once, and for the places one after the other."""
        for name in claim.names:
            if name is blocked or not isinstance(name, Seats):
                self._queues.setdefault(name, _Queue()).add(claim)

    def _settle(self) -> None:
        """Do what was given back; not in the middle of something else, which comes to it when it is done."""
        while self._returned and not self._busy:
            self._busy = True
            try:
                self._free(self._returned.popleft())
            finally:
                self._busy = False

    def _free(self, claim: Claim) -> None:
        for name, seat in claim.seats.items():
            seat.remove(claim)
            if not seat:
                seats = self._held[name]
                seats.remove(seat)
                if not seats:
                    del self._held[name]
        claim.seats = {}
        if claim.turn is not None:
            self._forget(claim)
        if self._queues or self._inner:
            self._serve(claim.names)

    def _serve(self, names: Iterable[Hashable]) -> None:
        for claim in list(self._inner):
            if self._blocked(claim) is None:
                self._seat(claim)
        due = deque(names)  # names come before places, so that whoever gets one stands in line for the other
        while due:
            name = due.popleft()
            if name not in self._queues:
                continue
            first = self._queues[name].first()
            blocked = self._blocked(first)
            if blocked is None:
                self._seat(first)
                due += first.names  # others are first now
            elif blocked is not name:
                if isinstance(name, Seats):  # where it is not what it waits for, it is in the way
                    self._leave(first, name)
                    due.append(name)
                self._queue(first, blocked)

    def _seat(self, claim: Claim) -> None:
        if claim.turn is not None:
            self._forget(claim)
            if not claim.turn.set_running_or_notify_cancel():
                return
        for name in claim.names:
            seats = self._held.setdefault(name, [])
            seat = None if claim.parent is None else next((each for each in seats if claim.inside(each[-1])), None)
            if seat is None:
                seat = [claim]
                seats.append(seat)
            else:
                seat.append(claim)
            claim.seats[name] = seat
        if claim.turn is not None:
            claim.turn.set_result(None)

    def _forget(self, claim: Claim) -> None:
        self._inner.pop(claim, None)
        for name in claim.names:
            self._leave(claim, name)

    def _leave(self, claim: Claim, name: Hashable) -> None:
        queue = self._queues.get(name)
        if queue is not None:
            queue.remove(claim)
            if not queue.members:
                del self._queues[name]

    def _blocked(self, claim: Claim) -> Hashable | None:
        """Give the first name or place that a claim has to wait for; None when there is none."""
        for name in claim.names:
            if not self._free_for(claim, name):
                return name
        return None

    def _free_for(self, claim: Claim, name: Hashable) -> bool:
        seats = self._held.get(name, ())
        if not seats and not self._queues:
            return True  # as most are
        if claim.parent is not None:
            return len(seats) < _count(name) or any(claim.inside(seat[-1]) for seat in seats)
        if len(seats) >= _count(name):
            return False
        return name not in self._queues or self._queues[name].first().number >= claim.number

    def _hopeless(self, claim: Claim) -> bool:
        """Whether a claim would wait for ever: whatever it waits for waits, over some corners, for the claim."""
        stuck = set(self._inner)
        while loose := {each for each in stuck if self._has_hope(each, stuck)}:
            stuck -= loose
        return claim in stuck

    def _has_hope(self, claim: Claim, stuck: set[Claim]) -> bool:
        def ends(holder: Claim) -> bool:
            return not any(each.inside(holder) for each in stuck)

        def opens(name: Hashable) -> bool:
            seats = self._held.get(name, ())
            return len(seats) < _count(name) or any(
                all(claim.inside(holder) or ends(holder) for holder in seat) for seat in seats
            )

        return all(map(opens, claim.names))


def _count(name: Hashable) -> int:
    return name.count if isinstance(name, Seats) else 1
