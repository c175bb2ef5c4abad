"""A lock table for calls: counted slots and exclusive resources, first come, first served, with deadlock detection."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from toolsemble._runtime.locks.claims import Body, Claim, Queue, Slot, Slots, capacity_of
from toolsemble._runtime.wakeup import Wakeup

if TYPE_CHECKING:
    import asyncio


class DeadlockError(Exception):
    """A call would wait for something that is released only after the call itself has ended."""


class Table:
    """The claims that are granted and those that wait, for threads and for tasks of any event loop.

    Claims are granted first come, first served; one that waits for a resource does not block slots. Claims of nested
    calls go first, because others may wait for what the enclosing calls hold. A slot is shared with nested calls, one
    at a time. A wait that would be a deadlock is refused.

    An interrupt may cut off a change anywhere. The claims themselves are the truth: which are in the table, which have
    slots, and which were released; each of these changes in one step. The rest is rebuilt by the next caller.

    >>> table, claim = Table(), Claim(["file:a", Slots(1)])
    >>> table.acquire(claim)
    True
    """

    def __init__(self) -> None:
        self._reset_all()

    def _reset_all(self) -> None:
        # Reentrant: the garbage collector may close a dropped call anywhere, even in here, and that releases its claim.
        self._lock = threading.RLock()
        # Locked during a change. The interpreter unlocks it, so that no interrupt can leave it locked.
        self._changing = threading.Lock()
        self._consistent = True  # whether the last change was completed
        self._claims: dict[Claim, None] = {}
        self._released: deque[Claim] = deque()
        # Derived from the claims, for fast lookup.
        self._held: dict[Hashable, list[Slot]] = {}
        self._queues: dict[Hashable, Queue] = {}
        self._nested: dict[Claim, None] = {}
        self._loops: dict[asyncio.AbstractEventLoop, dict[Claim, None]] = {}

    def acquire(self, claim: Claim) -> bool:
        """Grant a claim, or let it wait; return whether it is granted. Raise :class:`DeadlockError` for a deadlock.

        The caller must release the claim in a ``finally``, whatever is raised here.
        """
        with self._lock:
            if self._changing.locked():
                raise DeadlockError  # a finalizer makes a call in the middle of a change, which would wait for it
            with self._changing:
                self._start_change()
                deadlocked = self._add(claim)
                self._consistent = True
            if self._released:
                self._process_released()
        if deadlocked:
            raise DeadlockError
        return bool(claim.slots)

    def release(self, claim: Claim) -> None:
        """Release what a claim holds or waits for as soon as no body uses it; calling it twice is harmless."""
        claim.left = True
        self.release_if_unused(claim)

    def release_if_unused(self, claim: Claim) -> None:
        """Release what a claim holds if neither its call nor a body uses it any more."""
        with self._lock:
            self._released.append(claim)
            self._process_released()

    def keep(self, claim: Claim, body: Body) -> None:
        """Keep what a claim holds until a body has ended, as well."""
        with self._lock:
            claim.bodies = (*(each for each in claim.bodies if not each.ended), body)

    def release_closed_loops(self) -> None:
        """Release the claims of calls whose event loop is closed: they can never continue."""
        with self._lock:
            if not self._changing.locked():
                with self._changing:
                    self._start_change()
                    self._grant_waiting(self._remove_closed())
                    self._consistent = True
                self._process_released()

    def has_other_loops(self, claim: Claim) -> bool:
        """Return whether a claim may wait for a call of another event loop, which can be closed without notice."""
        with self._lock:
            return any(loop is not claim.loop for loop in self._loops)

    def reset(self) -> None:
        """Drop everything: in a forked child, the threads that would release a claim or the lock do not exist."""
        for claim in self._claims:
            claim.slots = {}
        self._reset_all()

    @property
    def waiting(self) -> int:
        """The number of waiting claims."""
        with self._lock:
            return sum(not claim.slots for claim in self._claims)

    def _start_change(self) -> None:
        if not self._consistent:
            self._repair()
        self._consistent = False

    def _process_released(self) -> None:
        """Process released claims, unless a change is in progress: that does it when it is complete."""
        while self._released and not self._changing.locked():
            with self._changing:
                while self._released:
                    self._start_change()
                    self._release(self._released[0])
                    self._consistent = True
                    self._released.popleft()  # not before: an interrupt must not lose it

    def _add(self, claim: Claim) -> bool:
        """Add a claim: grant it or let it wait. Return True for a deadlock; the claim is then not added."""
        self._claims[claim] = None
        if claim.loop is not None:
            self._loops.setdefault(claim.loop, {})[claim] = None
        blocked = self._find_blocking(claim)
        if blocked is not None and (freed := self._remove_closed()):
            self._grant_waiting(freed)
            blocked = self._find_blocking(claim)
        if blocked is None:
            self._grant(claim)
            return False
        claim.wakeup = Wakeup()
        if claim.parent is None:
            self._enqueue(claim, blocked)
            return False
        self._nested[claim] = None
        if deadlocked := self._is_deadlocked(claim):
            self._remove(claim)
        return deadlocked

    def _remove_closed(self) -> list[Hashable]:
        """Remove the calls of closed event loops, which can never continue; return what they held or waited for."""
        freed: list[Hashable] = []
        for claim in [claim for loop, claims in self._loops.items() if loop.is_closed() for claim in claims]:
            claim.left = True
            if claim.is_over:  # else a thread is still running for it
                self._remove(claim)
                freed += claim.names
        return freed

    def _enqueue(self, claim: Claim, blocked: Hashable) -> None:
        """Let a claim wait for all its resources at once, and for its slots one after the other."""
        for name in claim.names:
            if name is blocked or not isinstance(name, Slots):
                self._queues.setdefault(name, Queue()).add(claim)

    def _release(self, claim: Claim) -> None:
        if claim in self._claims and claim.is_over:
            self._remove(claim)
            if self._queues or self._nested:
                # Closed loops first: nothing is granted to a call that can never continue.
                self._grant_waiting([*claim.names, *self._remove_closed()])

    def _remove(self, claim: Claim) -> None:
        for name, slot in claim.slots.items():
            slot.remove(claim)
            if not slot:
                slots = self._held[name]
                slots.remove(slot)
                if not slots:
                    del self._held[name]
        if claim.wakeup is not None:
            self._leave_queues(claim)
        if claim.loop is not None:
            claims = self._loops[claim.loop]
            del claims[claim]
            if not claims:
                del self._loops[claim.loop]
        claim.slots = {}
        del self._claims[claim]

    def _repair(self) -> None:
        """Rebuild what is derived from the claims, and grant those that were missed."""
        self._held, self._queues, self._nested, self._loops = {}, {}, {}, {}
        for claim in [claim for claim in self._claims if claim.is_over]:
            claim.slots = {}
            del self._claims[claim]
        # By number: a claim that shares a slot came later than its holder.
        for claim in sorted(self._claims, key=lambda claim: claim.number):
            if claim.loop is not None:
                self._loops.setdefault(claim.loop, {})[claim] = None
            for name, slot in claim.slots.items():
                self._restore_slot(claim, name, slot)
            if claim.slots and claim.wakeup is not None:
                claim.wakeup.wake()
        self._requeue([claim for claim in self._claims if not claim.slots])

    def _restore_slot(self, claim: Claim, name: Hashable, slot: Slot) -> None:
        slots = self._held.setdefault(name, [])
        if not any(each is slot for each in slots):
            slots.append(slot)
            slot.clear()
        slot.append(claim)

    def _requeue(self, waiting: list[Claim]) -> None:
        for claim in sorted(waiting, key=lambda claim: (claim.parent is None, claim.number)):
            claim.wakeup = claim.wakeup or Wakeup()
            blocked = self._find_blocking(claim)
            if blocked is None:
                self._grant(claim)
            elif claim.parent is None:
                self._enqueue(claim, blocked)
            else:
                self._nested[claim] = None

    def _grant_waiting(self, names: Iterable[Hashable]) -> None:
        for claim in list(self._nested):
            if self._find_blocking(claim) is None:
                self._grant(claim)
        due = deque(names)  # resources come before slots: a claim that gets one queues for the other
        while due:
            name = due.popleft()
            if name not in self._queues:
                continue
            first = self._queues[name].first()
            blocked = self._find_blocking(first)
            if blocked is None:
                self._grant(first)
                due += first.names  # another claim is first now
            elif blocked is not name:
                if isinstance(name, Slots):  # it waits for something else and must not block this queue
                    self._leave_queue(first, name)
                    due.append(name)
                self._enqueue(first, blocked)

    def _grant(self, claim: Claim) -> None:
        if claim.wakeup is not None:
            self._leave_queues(claim)
        claim.slots = {name: self._find_slot(claim, name) for name in claim.names}  # granted from here on
        for name, slot in claim.slots.items():
            if not slot:
                self._held.setdefault(name, []).append(slot)
            slot.append(claim)
        if claim.wakeup is not None:
            claim.wakeup.wake()

    def _find_slot(self, claim: Claim, name: Hashable) -> Slot:
        """Return the slot of an enclosing call, or an empty one."""
        if claim.parent is not None:
            for slot in self._held.get(name, ()):
                if claim.is_inside(slot[-1]):
                    return slot
        return []

    def _leave_queues(self, claim: Claim) -> None:
        self._nested.pop(claim, None)
        for name in claim.names:
            self._leave_queue(claim, name)

    def _leave_queue(self, claim: Claim, name: Hashable) -> None:
        queue = self._queues.get(name)
        if queue is not None:
            queue.remove(claim)
            if not queue.members:
                del self._queues[name]

    def _find_blocking(self, claim: Claim) -> Hashable | None:
        """Return the first resource or slots that a claim has to wait for; None when there is none."""
        for name in claim.names:
            if not self._is_free(claim, name):
                return name
        return None

    def _is_free(self, claim: Claim, name: Hashable) -> bool:
        slots = self._held.get(name, ())
        if not slots and not self._queues:
            return True  # the common case
        if claim.parent is not None:
            return len(slots) < capacity_of(name) or any(claim.is_inside(slot[-1]) for slot in slots)
        if len(slots) >= capacity_of(name):
            return False
        return name not in self._queues or self._queues[name].first().number >= claim.number

    def _is_deadlocked(self, claim: Claim) -> bool:
        """Return whether a claim waits, directly or through other claims, for itself."""
        stuck = set(self._nested)
        while loose := {each for each in stuck if self._can_proceed(each, stuck)}:
            stuck -= loose
        return claim in stuck

    def _can_proceed(self, claim: Claim, stuck: set[Claim]) -> bool:
        def ends(holder: Claim) -> bool:
            return not any(each.is_inside(holder) for each in stuck)

        def opens(name: Hashable) -> bool:
            slots = self._held.get(name, ())
            return len(slots) < capacity_of(name) or any(
                all(claim.is_inside(holder) or ends(holder) for holder in slot) for slot in slots
            )

        return all(map(opens, claim.names))
