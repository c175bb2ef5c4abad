"""What calls need while they run, and the lines in which they wait for it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import TypeAlias

from toolsemble.runtime.wakeup import Wakeup, running_loop

_SPARE = 64
_numbers = count()
Slot: TypeAlias = "list[Claim]"  # a call, and above it the calls inside it that sit on the same seat


class Slots:
    """A counted number of places, such as those of one toolbox or one tool.

    >>> Slots(3).count
    3
    """

    __slots__ = ("box", "count")

    def __init__(self, count: int, *, box: bool = False) -> None:
        self.count = count
        self.box = box  # whether they are a toolbox's, so that one is enough for a call and all calls inside it


class Body:
    """A body for which the claims of its call are kept.

    >>> Body().over
    False
    """

    __slots__ = ("over",)

    def __init__(self) -> None:
        self.over = False  # whether it has ended


class Claim:
    """What one call needs, all of it or nothing.

    >>> Claim([Slots(1), "file:a"]).names[0]
    'file:a'
    """

    __slots__ = ("bodies", "left", "loop", "names", "number", "parent", "slots", "wakeup")

    def __init__(self, names: Sequence[Hashable], parent: Claim | None = None) -> None:
        # Names before places: a call that waits for a name is in nobody's way where places are counted.
        self.names = tuple(names if len(names) == 1 else sorted(names, key=lambda name: isinstance(name, Slots)))
        self.parent = parent
        self.number = next(_numbers)
        self.loop = running_loop()  # the one whose task the call is; when it is closed, the call can never go on
        self.wakeup: Wakeup | None = None
        self.left = False  # whether the call has given it back
        self.bodies: tuple[Body, ...] = ()
        # What it sits on, all of it or nothing; whether a claim is served is asked here, and not of a flag beside it.
        self.slots: dict[Hashable, Slot] = {}

    @property
    def over(self) -> bool:
        """Whether nobody uses it any more: neither the call nor a body that outlives the call."""
        return self.left and all(body.over for body in self.bodies)

    def chain(self) -> Iterator[Claim]:
        """Give the claim and those of the calls around it, inside out."""
        claim: Claim | None = self
        while claim is not None:
            yield claim
            claim = claim.parent

    def inside(self, other: Claim) -> bool:
        """Whether the call is, or is made inside, the one that holds the other claim."""
        return any(each is other for each in self.chain())


class Queue:
    """Claims that wait for one thing, in the order in which they came.

    >>> queue, first, second = Queue(), Claim(["a"]), Claim(["a"])
    >>> queue.add(second), queue.add(first)
    (None, None)
    >>> queue.first() is first
    True
    """

    __slots__ = ("_entries", "_heap", "members")

    def __init__(self) -> None:
        self.members: set[Claim] = set()
        self._heap: list[tuple[int, int, Claim]] = []  # by number; the identity tells claims of one call apart
        self._entries: set[Claim] = set()

    def add(self, claim: Claim) -> None:
        """Let a claim wait, in the place that its number gives it."""
        self.members.add(claim)
        if claim not in self._entries:
            self._entries.add(claim)
            heappush(self._heap, (claim.number, id(claim), claim))

    def remove(self, claim: Claim) -> None:
        """Let a claim wait no longer."""
        self.members.discard(claim)
        if len(self._heap) > 2 * len(self.members) + _SPARE:  # most of it are claims that have left
            self._entries = set(self.members)
            self._heap = sorted((each.number, id(each), each) for each in self.members)

    def first(self) -> Claim:
        """Give the claim that came first."""
        while self._heap[0][2] not in self.members:  # it has left, and a heap cannot be searched
            self._entries.discard(heappop(self._heap)[2])
        return self._heap[0][2]


def capacity_of(name: Hashable) -> int:
    """Give how many claims may hold something at the same time: as many as there are seats, and one of anything else.

    >>> capacity_of(Slots(3)), capacity_of("file:a")
    (3, 1)
    """
    return name.count if isinstance(name, Slots) else 1
