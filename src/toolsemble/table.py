"""Who holds what while it runs, and who waits for it: counted places, and names that one call at a time may touch."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable
from concurrent.futures import Future

from toolsemble.claim import Claim, Queue, Seat, Seats, count_of


class EndlessWaitError(Exception):
    """A call would wait for something that is only given back when the call itself has ended."""


class Table:
    """Who holds what, and who waits for it; for threads and tasks of any event loop.

    Claims are served first come first served; one whose names are taken lets others have the places that are counted.
    Those of calls inside other calls go first: somebody may wait for what the calls around them hold. A seat is lent to
    the calls inside, one at a time; a wait that could never end is refused.

    >>> table, claim = Table(), Claim(["file:a", Seats(1)])
    >>> table.ask(claim)
    True
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        # Reentrant: the collector may close a dropped call anywhere, also in here, and that gives its claim back.
        self._lock = threading.RLock()
        self._held: dict[Hashable, list[Seat]] = {}
        self._queues: dict[Hashable, Queue] = {}
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
                self._queues.setdefault(name, Queue()).add(claim)

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
            return len(seats) < count_of(name) or any(claim.inside(seat[-1]) for seat in seats)
        if len(seats) >= count_of(name):
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
            return len(seats) < count_of(name) or any(
                all(claim.inside(holder) or ends(holder) for holder in seat) for seat in seats
            )

        return all(map(opens, claim.names))
