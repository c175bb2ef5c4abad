"""Claims on resources and slots, and the queues in which they wait."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import TypeAlias

from toolsemble._runtime.wakeup import Wakeup, running_loop

_SPARE = 64
_numbers = count()
Slot: TypeAlias = "list[Claim]"  # a call, followed by the nested calls that share its slot


class Slots:
    """A limited number of slots, such as those of one toolbox or one tool.

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
        """Yield the claim and those of the enclosing calls, innermost first."""
        claim: Claim | None = self
        while claim is not None:
            yield claim
            claim = claim.parent

    def is_inside(self, other: Claim) -> bool:
        """Return whether the call is the one that holds the other claim, or is nested in it."""
        return any(each is other for each in self.chain())


class Queue:
    """A queue of claims that wait for the same resource, in order of arrival.

    >>> queue, first, second = Queue(), Claim(["a"]), Claim(["a"])
    >>> queue.add(second), queue.add(first)
    (None, None)
    >>> queue.first() is first
    True
    """

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
