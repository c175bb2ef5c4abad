"""Calls assembled from pieces, in the format of chat completions, which many servers implement differently."""

from __future__ import annotations

from collections.abc import Iterator

from toolsemble.models._chat import ArgumentsDelta, CallDelta, Chunk


class _Call:
    """A call of a reply; some servers send its name after other parts of it."""

    def __init__(self, index: int, id: str | None) -> None:
        self.index = index
        self.id = id
        self.name = ""
        self.is_started = False
        self._early: list[str] = []

    def start(self, name: str) -> Iterator[Chunk]:
        """Set the name; yield the start of the call and the arguments received so far."""
        self.name, self.is_started = name, True
        yield CallDelta(self.index, name, self.id)
        yield from (ArgumentsDelta(self.index, piece) for piece in self._early)

    def add_arguments(self, piece: str) -> Iterator[Chunk]:
        """Add a piece of the arguments; yield it if the call has started."""
        if piece and self.is_started:
            yield ArgumentsDelta(self.index, piece)
        elif piece:
            self._early.append(piece)


class StreamedCalls:
    """The calls of one reply, assembled from pieces.

    Servers omit different parts of a piece, all of which are optional here: the index, the id, and the name after the
    first piece.

    >>> calls = StreamedCalls()
    >>> list(calls.add_piece(0, "c1", "weather", '{"city": '))
    [CallDelta(index=0, name='weather', id='c1'), ArgumentsDelta(index=0, text='{"city": ')]
    >>> list(calls.add_piece(0, None, "", '"Rome"}'))
    [ArgumentsDelta(index=0, text='"Rome"}')]
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, id: str | None, name: str, arguments: str) -> Iterator[Chunk]:
        """Add a whole call; yield its chunks."""
        call = self._create(id)
        yield from call.start(name)
        yield from call.add_arguments(arguments)

    def add_piece(self, index: object, id: str | None, name: str, arguments: str) -> Iterator[Chunk]:
        """Add a piece of a call; yield its chunks, except for those of a call whose name is not known yet."""
        place = index if isinstance(index, int) else None
        call = self._find(place, id, name) or self._create(id)
        if place is not None:
            self._by_index[place] = call
        if id:
            self._by_id[id] = call
        if name and not call.is_started:
            yield from call.start(name)
        yield from call.add_arguments(arguments)

    def finish(self) -> Iterator[Chunk]:
        """Yield the chunks of calls that got no name; the model is told later that there is no such tool."""
        for call in self._calls:
            if not call.is_started:
                yield from call.start("")

    def _create(self, id: str | None) -> _Call:
        self._calls.append(_Call(len(self._calls), id or None))
        return self._calls[-1]

    def _find(self, index: int | None, id: str | None, name: str) -> _Call | None:
        """Return the call that a piece continues, or None if it starts one.

        Some servers give all calls the same index or none, others the same id or none. A piece with neither belongs to
        the last call.
        """
        known = self._by_id.get(id) if id else None
        current = self._by_index.get(index) if index is not None else None
        if known is not None and (known is current or index is None or not name):
            return known
        if current is not None:
            starts = bool(name and current.name) and (bool(id) or name != current.name)
            return None if starts else current
        return None if id or name or not self._calls else self._calls[-1]
