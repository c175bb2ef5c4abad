"""Who holds what while it runs, and who waits for it: counted places, and names that one call at a time may touch."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from toolsemble.locks.claims import Body, Claim, Queue, Seat, Seats, count_of
from toolsemble.runtime.wakeup import Wakeup

if TYPE_CHECKING:
    import asyncio


class EndlessWaitError(Exception):
    """A call would wait for something that is only given back when the call itself has ended."""


class Table:
    """Who holds what, and who waits for it; for threads and tasks of any event loop.

    Claims are served first come first served; one whose names are taken lets others have the places that are counted.
    Those of calls inside other calls go first: somebody may wait for what the calls around them hold. A seat is lent to
    the calls inside, one at a time; a wait that could never end is refused.

    An interrupt may cut a change off anywhere. What holds is told by the claims: which are in the table, which have
    seats, and which were left; each of that changes in one step. The rest is made anew by whoever comes next.

    >>> table, claim = Table(), Claim(["file:a", Seats(1)])
    >>> table.ask(claim)
    True
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        # Reentrant: the collector may close a dropped call anywhere, also in here, and that gives its claim back.
        self._lock = threading.RLock()
        # Taken while a change is made. It is let go by the interpreter, so that no interrupt can leave it taken.
        self._changing = threading.Lock()
        self._whole = True  # whether the last change was made to its end
        self._claims: dict[Claim, None] = {}
        self._returned: deque[Claim] = deque()
        # What follows from the claims, for a quick look.
        self._held: dict[Hashable, list[Seat]] = {}
        self._queues: dict[Hashable, Queue] = {}
        self._inner: dict[Claim, None] = {}
        self._loops: dict[asyncio.AbstractEventLoop, dict[Claim, None]] = {}

    def ask(self, claim: Claim) -> bool:
        """Seat a claim, or let it wait for its turn; tell whether it is seated. Refuse one that would wait for ever.

        Whoever asks gives the claim back in a ``finally``, whatever is raised here.
        """
        with self._lock:
            if self._changing.locked():
                raise EndlessWaitError  # a finalizer makes a call in the middle of a change, which waits for it
            with self._changing:
                self._begin_change()
                hopeless = self._enter(claim)
                self._whole = True
            if self._returned:
                self._settle()
        if hopeless:
            raise EndlessWaitError
        return bool(claim.seats)

    def give_back(self, claim: Claim) -> None:
        """Free what a claim holds or waits for, as soon as no body uses it; a second time does no harm."""
        claim.left = True
        self.settle(claim)

    def settle(self, claim: Claim) -> None:
        """Free what a claim holds if nobody uses it any more."""
        with self._lock:
            self._returned.append(claim)
            self._settle()

    def keep(self, claim: Claim, body: Body) -> None:
        """Keep what a claim holds until a body has ended, too."""
        with self._lock:
            claim.bodies = (*(each for each in claim.bodies if not each.over), body)

    def sweep(self) -> None:
        """Free what calls hold or wait for whose event loop is closed: they can never go on."""
        with self._lock:
            if not self._changing.locked():
                with self._changing:
                    self._begin_change()
                    self._serve(self._drop_closed())
                    self._whole = True
                self._settle()

    def has_other_loops(self, claim: Claim) -> bool:
        """Whether a claim may wait for a call of another event loop, which can be closed without a word."""
        with self._lock:
            return any(loop is not claim.loop for loop in self._loops)

    def forget(self) -> None:
        """Let everything go: in a fork, the others do not exist who would give something back, or free the lock."""
        for claim in self._claims:
            claim.seats = {}
        self._begin()

    @property
    def waiting(self) -> int:
        """How many claims wait."""
        with self._lock:
            return sum(not claim.seats for claim in self._claims)

    def _begin_change(self) -> None:
        if not self._whole:
            self._repair()
        self._whole = False

    def _settle(self) -> None:
        """Do what was given back; not in the middle of something else, which comes to it when it is done."""
        while self._returned and not self._changing.locked():
            with self._changing:
                while self._returned:
                    self._begin_change()
                    self._free(self._returned[0])
                    self._whole = True
                    self._returned.popleft()  # not before: an interrupt must not lose it

    def _enter(self, claim: Claim) -> bool:
        """Take a claim in: seat it or let it wait. Return whether it would wait for ever, and is not taken in."""
        self._claims[claim] = None
        if claim.loop is not None:
            self._loops.setdefault(claim.loop, {})[claim] = None
        blocked = self._blocked(claim)
        if blocked is not None and (freed := self._drop_closed()):
            self._serve(freed)
            blocked = self._blocked(claim)
        if blocked is None:
            self._seat(claim)
            return False
        claim.turn = Wakeup()
        if claim.parent is None:
            self._queue(claim, blocked)
            return False
        self._inner[claim] = None
        if hopeless := self._hopeless(claim):
            self._remove(claim)
        return hopeless

    def _drop_closed(self) -> list[Hashable]:
        """Take out the calls of closed event loops, which can never go on; return what they held or waited for."""
        freed: list[Hashable] = []
        for claim in [claim for loop, claims in self._loops.items() if loop.is_closed() for claim in claims]:
            claim.left = True
            if claim.over:  # else a thread works on for it
                self._remove(claim)
                freed += claim.names
        return freed

    def _queue(self, claim: Claim, blocked: Hashable) -> None:
        """Let a claim wait for all its names at once, and for the places one after the other."""
        for name in claim.names:
            if name is blocked or not isinstance(name, Seats):
                self._queues.setdefault(name, Queue()).add(claim)

    def _free(self, claim: Claim) -> None:
        if claim in self._claims and claim.over:
            self._remove(claim)
            if self._queues or self._inner:
                self._serve([*claim.names, *self._drop_closed()])  # nobody is served who can never go on

    def _remove(self, claim: Claim) -> None:
        for name, seat in claim.seats.items():
            seat.remove(claim)
            if not seat:
                seats = self._held[name]
                seats.remove(seat)
                if not seats:
                    del self._held[name]
        if claim.turn is not None:
            self._leave_queues(claim)
        if claim.loop is not None:
            claims = self._loops[claim.loop]
            del claims[claim]
            if not claims:
                del self._loops[claim.loop]
        claim.seats = {}
        del self._claims[claim]

    def _repair(self) -> None:
        """Make anew what follows from the claims, and serve whom nobody has served."""
        self._held, self._queues, self._inner, self._loops = {}, {}, {}, {}
        for claim in [claim for claim in self._claims if claim.over]:
            claim.seats = {}
            del self._claims[claim]
        for claim in sorted(self._claims, key=lambda claim: claim.number):  # who sits above another came later
            if claim.loop is not None:
                self._loops.setdefault(claim.loop, {})[claim] = None
            for name, seat in claim.seats.items():
                self._reseat(claim, name, seat)
            if claim.seats and claim.turn is not None:
                claim.turn.wake()
        self._requeue([claim for claim in self._claims if not claim.seats])

    def _reseat(self, claim: Claim, name: Hashable, seat: Seat) -> None:
        seats = self._held.setdefault(name, [])
        if not any(each is seat for each in seats):
            seats.append(seat)
            seat.clear()
        seat.append(claim)

    def _requeue(self, waiting: list[Claim]) -> None:
        for claim in sorted(waiting, key=lambda claim: (claim.parent is None, claim.number)):
            claim.turn = claim.turn or Wakeup()
            blocked = self._blocked(claim)
            if blocked is None:
                self._seat(claim)
            elif claim.parent is None:
                self._queue(claim, blocked)
            else:
                self._inner[claim] = None

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
                    self._leave_queue(first, name)
                    due.append(name)
                self._queue(first, blocked)

    def _seat(self, claim: Claim) -> None:
        if claim.turn is not None:
            self._leave_queues(claim)
        claim.seats = {name: self._seat_for(claim, name) for name in claim.names}  # from here on it is served
        for name, seat in claim.seats.items():
            if not seat:
                self._held.setdefault(name, []).append(seat)
            seat.append(claim)
        if claim.turn is not None:
            claim.turn.wake()

    def _seat_for(self, claim: Claim, name: Hashable) -> Seat:
        """Return the seat of a call around this one, or an empty one."""
        if claim.parent is not None:
            for seat in self._held.get(name, ()):
                if claim.inside(seat[-1]):
                    return seat
        return []

    def _leave_queues(self, claim: Claim) -> None:
        self._inner.pop(claim, None)
        for name in claim.names:
            self._leave_queue(claim, name)

    def _leave_queue(self, claim: Claim, name: Hashable) -> None:
        queue = self._queues.get(name)
        if queue is not None:
            queue.remove(claim)
            if not queue.members:
                del self._queues[name]

    def _blocked(self, claim: Claim) -> Hashable | None:
        """Return the first name or place that a claim has to wait for; None when there is none."""
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
