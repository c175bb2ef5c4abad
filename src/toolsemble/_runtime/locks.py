"""Locks for calls: counted slots and exclusive resources, first come, first served, with deadlock detection."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from toolsemble._runtime.threads import Wakeup, running_loop

if TYPE_CHECKING:
    import asyncio


_SPARE = 64
_numbers = count()
Slot: TypeAlias = "list[Claim]"  # a call, followed by the nested calls that share its slot


class Slots:
    """A limited number of slots, such as the slots of a toolbox or a tool.

    >>> Slots(3).count
    3
    """

    __slots__ = ("box", "count")

    def __init__(self, count: int, *, box: bool = False) -> None:
        self.count = count
        self.box = box  # whether they belong to a toolbox: a call and its nested calls then share one slot


class Body:
    """A running body that keeps the claims of its call alive.

    >>> Body().ended
    False
    """

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended = False


class Claim:
    """The resources and slots that one call needs; it gets all of them or none.

    >>> Claim([Slots(1), "file:a"]).names[0]
    'file:a'
    """

    __slots__ = ("bodies", "left", "loop", "names", "number", "parent", "slots", "wakeup")

    def __init__(self, names: Sequence[Hashable], parent: Claim | None = None) -> None:
        # Resource names before slots: a call that waits for a name must not block a slot.
        self.names = tuple(names if len(names) == 1 else sorted(names, key=lambda name: isinstance(name, Slots)))
        self.parent = parent
        self.number = next(_numbers)
        self.loop = running_loop()  # the event loop of the call; once it is closed, the call can never continue
        self.wakeup: Wakeup | None = None
        self.left = False  # whether the call has released it
        self.bodies: tuple[Body, ...] = ()
        # Either all of its slots or none; a claim is granted exactly when this is not empty, without a second flag.
        self.slots: dict[Hashable, Slot] = {}

    @property
    def is_over(self) -> bool:
        """Whether it is no longer in use, neither by the call nor by a body that outlives the call."""
        return self.left and all(body.ended for body in self.bodies)

    def chain(self) -> Iterator[Claim]:
        """Yield this claim and the enclosing calls' claims, innermost first."""
        claim: Claim | None = self
        while claim is not None:
            yield claim
            claim = claim.parent

    def is_inside(self, other: Claim) -> bool:
        """Return whether the call holds the other claim, or is nested in the call that does."""
        return any(each is other for each in self.chain())


class Queue:
    """A queue of claims that wait for the same resource, in order of arrival."""

    __slots__ = ("_entries", "_heap", "members")

    def __init__(self) -> None:
        self.members: set[Claim] = set()
        self._heap: list[tuple[int, int, Claim]] = []  # by number; the id distinguishes claims of the same number
        self._entries: set[Claim] = set()

    def add(self, claim: Claim) -> None:
        """Add a claim at the position of its number."""
        self.members.add(claim)
        if claim not in self._entries:
            self._entries.add(claim)
            heappush(self._heap, (claim.number, id(claim), claim))

    def remove(self, claim: Claim) -> None:
        """Remove a claim."""
        self.members.discard(claim)
        if len(self._heap) > 2 * len(self.members) + _SPARE:  # most entries are claims that were removed
            self._entries = set(self.members)
            self._heap = sorted((each.number, id(each), each) for each in self.members)

    def first(self) -> Claim:
        """Return the claim that arrived first."""
        while self._heap[0][2] not in self.members:  # removed since: a heap cannot be searched
            self._entries.discard(heappop(self._heap)[2])
        return self._heap[0][2]


def capacity_of(name: Hashable) -> int:
    """Return how many claims may hold something at the same time: the number of slots, or 1 for a resource.

    >>> capacity_of(Slots(3)), capacity_of("file:a")
    (3, 1)
    """
    return name.count if isinstance(name, Slots) else 1


class DeadlockError(Exception):
    """A call would wait for a resource that is released only after the call itself has ended."""


class Table:
    """The granted and the waiting claims, for threads and for tasks of any event loop.

    Claims are granted first come, first served; claims that wait for a resource do not block slots. Claims of nested
    calls go first, because others may wait for what the enclosing calls hold. A slot is shared with nested calls, one
    at a time. A wait that would be a deadlock is refused.

    An interrupt may cut off a change anywhere. The claims are the source of truth: which are in the table, which have
    slots, and which were released; each of these changes in one step. The rest is rebuilt by the next caller.

    >>> table, claim = Table(), Claim(["file:a", Slots(1)])
    >>> table.acquire(claim)
    True
    """

    def __init__(self) -> None:
        self._reset_all()

    def _reset_all(self) -> None:
        # Reentrant: the garbage collector may close a dropped call anywhere, even here, and that releases its claim.
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

        The caller must release the claim in a ``finally``, even if this raises.
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
        """Release everything a claim holds or waits for as soon as no body uses it; a second call does nothing."""
        claim.left = True
        self.release_if_unused(claim)

    def release_if_unused(self, claim: Claim) -> None:
        """Release what a claim holds if neither its call nor a body uses it any more."""
        with self._lock:
            self._released.append(claim)
            self._process_released()

    def keep(self, claim: Claim, body: Body) -> None:
        """Keep everything a claim holds until a body has ended, too."""
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
        """Process released claims, unless a change is in progress, which does this at its end."""
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
        """Rebuild the state derived from the claims, and grant the claims that were missed."""
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


TABLE = Table()
"""The lock table of the process: a resource name means the same in every toolbox."""

getattr(os, "register_at_fork", lambda **_: None)(after_in_child=TABLE.reset)

_current: ContextVar[Hold | None] = ContextVar("toolsemble.hold", default=None)


class Hold(Claim):
    """A claim held until its call, and every body that outlives the call, has ended; a brief hold waits for no body."""

    __slots__ = ("_before", "_brief")

    def __init__(self, names: Sequence[Hashable], parent: Hold | None = None, *, brief: bool = False) -> None:
        super().__init__(names, parent)
        self._brief = brief
        self._before: Hold | None = None

    def enter(self) -> None:
        """Make this the hold that nested calls inherit."""
        self._before = _current.get()
        _current.set(self)

    def leave(self) -> None:
        """Release everything, now or when a body that outlives the call has ended; a second call does nothing."""
        TABLE.release(self)
        # Compared, not remembered: an interrupt may come before a flag is set. A generator closed by the garbage
        # collector may run in another context, where there is nothing to undo.
        if _current.get() is self:
            _current.set(self._before)

    def keep_for(self, body: Future[Any]) -> None:
        """Hold everything until a body has ended, even when the call ends first."""
        if not self._brief:
            running = Body()
            # The callback comes first: an interrupt may come before the next line.
            body.add_done_callback(partial(self._body_ended, running))
            TABLE.keep(self, running)

    def _body_ended(self, running: Body, _: Future[Any]) -> None:
        running.ended = True
        TABLE.release_if_unused(self)

    def has_box_slot(self) -> bool:
        """Return whether the call, or an enclosing one, holds a slot of a toolbox."""
        return any(isinstance(name, Slots) and name.box for each in self.chain() for name in each.slots)


def current_hold() -> Hold | None:
    """Return the hold of the enclosing call; None outside a call that holds something.

    >>> current_hold() is None
    True
    """
    hold: Any = _current.get()
    while hold is not None and not hold.slots:  # a task that outlived the call in which it was started
        hold = hold.parent
    return hold  # type: ignore[no-any-return]  # the parent of a Hold is a Hold


def keep_until_done(body: Future[Any]) -> None:
    """Keep the holds of this call and the enclosing calls until a body has ended, even if the calls end first."""
    hold: Any = current_hold()
    for each in () if hold is None else hold.chain():
        each.keep_for(body)
