"""``Place``: the position of a call in a journaled run."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class RecordedCall(Protocol):
    """A call recorded in a journal."""

    @property
    def is_done(self) -> bool:
        """Whether it has a result; False if it was started and its outcome is unknown."""
        ...

    @property
    def repeatable(self) -> bool:
        """Whether it may be retried: its tool only reads, or is idempotent."""
        ...

    @property
    def tool(self) -> str:
        """The name of the tool."""
        ...

    @property
    def data(self) -> Any:
        """The data recorded with its result, as JSON values."""
        ...


class AskedQuestion(NamedTuple):
    """A question to a reviewer about a call, as recorded in a journal."""

    at: float
    """When it was first asked, in seconds since the epoch."""
    id: str
    """The id of the request."""
    is_known: bool
    """Whether it was shown before: the run was parked with it."""
    outdated: str
    """The id of the request that it replaces, because the call or its tool has changed; empty for none."""
    place: str = ""
    """The place of the question in the run."""
    answer: Any = None
    """The recorded decision as JSON values; None if there is none, or if the reviewer's store has it."""


class JournaledRun(Protocol):
    """A journaled run that this process drives."""

    in_place: bool
    """Whether the record of a repeatable call is fast enough to be written in the event loop."""
    park_after: float | None
    """Seconds after which a call that waits for a person parks the run; None: never."""

    def find(self, path: str) -> RecordedCall | None:
        """Return a call's record; None if there is none."""
        ...

    def has_begun(self, path: str, *, asked: bool = True) -> bool:
        """Return whether an earlier driver of the run began a call: it asked about the call, or began a body in it.

        :param asked: whether a question about the call itself counts
        """
        ...

    def begin(self, path: str, tool: str, arguments: str, *, repeatable: bool) -> None:
        """Record that the body of a call is about to run; raise if this process may not continue."""
        ...

    def end(self, path: str, tool: str, data: dict[str, Any]) -> None:
        """Record the result of a call; raise if this process may not continue."""
        ...

    def note_replay(self, data: Any) -> None:
        """Count the recorded usage of a replayed call."""
        ...

    def find_changes(self, parameters: Any) -> dict[str, Any] | None:
        """Return the shared parameters of the run as JSON values, if a call has changed them; else None."""
        ...

    def refuse_tool(self, path: str, recorded: str, tool: str) -> None:
        """Raise because another tool is recorded for a call: its pipeline has changed."""
        ...

    def handle_unknown(self, path: str, tool: str) -> None:
        """Raise if the run has to wait until a person settles a call with unknown outcome."""
        ...

    def note_question(self, path: str, subject: str) -> AskedQuestion:
        """Return the next question of a call, which is recorded once; ``subject`` is a digest of what is asked."""
        ...

    def record_answer(self, question: AskedQuestion, answer: Any) -> None:
        """Record a decision that no store has, as JSON values; the same question is not asked again."""
        ...

    def note_asking(self, id: str, reviewer: Any) -> None:
        """Store the reviewer that was asked, to close the question if the run ends without its answer."""
        ...

    def note_answer(self, id: str) -> None:
        """Forget an answered question."""
        ...

    async def wait_for_drain(self) -> None:
        """Wait until this process has to stop driving runs; raise if the run was cancelled or taken over."""
        ...


class Place:
    """The place of a call or a turn in a journaled run, such as ``/3.1`` for the first call of the third turn.

    In a worker process, which cannot write to the journal, only the path is there.

    >>> turn = Place(None, "/3")
    >>> turn.inner(1).path, turn.inner(1).inner(2).path, turn.inner(1).turn(1).path
    ('/3.1', '/3.1.2', '/3.1/1')
    >>> turn
    Place('/3')
    """

    __slots__ = ("is_scope", "path", "run")

    def __init__(self, run: JournaledRun | None, path: str, *, is_scope: bool = False) -> None:
        self.run: Any = run
        self.path = path
        self.is_scope = is_scope
        """Whether nested runs and calls are also recorded: an agent's run, or a call to an agent."""

    def turn(self, number: int) -> Place:
        """Return the place of a turn of this run's agent."""
        return Place(self.run, f"{self.path}/{number}", is_scope=True)

    def inner(self, number: int | str, *, is_scope: bool = False) -> Place:
        """Return the place of a call in a turn, or of a part of a call."""
        return Place(self.run, f"{self.path}.{number}", is_scope=is_scope)

    def __reduce__(self) -> tuple[Any, ...]:
        return Place, (None, self.path)

    def __repr__(self) -> str:
        return f"Place({self.path!r})"
