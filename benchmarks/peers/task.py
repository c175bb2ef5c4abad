"""The job that all participants do: one tool with five parameters, and the calls that a model writes for it."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from itertools import cycle
from typing import Annotated, Literal, NamedTuple, Protocol, TypeVar

try:
    from pydantic import Field
except ModuleNotFoundError:
    Score = float  # two libraries do without pydantic, and cannot say bounds
else:
    Score = Annotated[float, Field(ge=0, le=1)]

ARGUMENTS = '{"query": "weather in Rome", "limit": 5, "min_score": 0.5, "tags": ["news", "local"], "order": "asc"}'
"""What a careful model writes."""
COERCED = ARGUMENTS.replace("5,", '"5",', 1)
"""What a hasty one writes: a number as text, which can only mean one thing."""
BROKEN = ARGUMENTS.replace("}", ",}")
"""What a hastier one writes: a comma too many, which is not JSON."""
WRONG_TYPE = ARGUMENTS.replace("5,", '"abc",', 1)
"""Text where an integer is declared."""
OUT_OF_BOUNDS = ARGUMENTS.replace("0.5", "1.5")
"""A score above the declared maximum."""
FOUND = "5 results for weather in Rome above 0.5"
"""What the reply to a call holds exactly when the body ran, with numbers and not with their texts."""

TURNS = 20
"""How many calls the model of an agent's run makes, one after the other."""
PROMPT = "What is the weather in Rome?"
"""What an agent is asked."""
ANSWER = "That is all."
"""How its model ends a run."""
LINE = '{"text": "Rome"}'
"""What a pipeline is given."""
LINED = "Rome, first, second, third"
"""What it gives then."""

RAN: deque[object] = deque(maxlen=TURNS + 1)
"""The limits that the last bodies were given, by which a run proves what it did."""

Order = Literal["asc", "desc"]
Search = Callable[..., str]
AsyncSearch = Callable[..., Coroutine[None, None, str]]
AnySearch = TypeVar("AnySearch", Search, AsyncSearch)
Call = Callable[[], object] | Callable[[], Coroutine[None, None, object]]


class Asked(NamedTuple):
    """A call that a model asks for."""

    id: str
    """What its reply refers to."""
    arguments: str
    """The JSON text."""

    def to_openai(self) -> dict[str, object]:
        """Return it as OpenAI's interface has it, which some libraries took over."""
        return {"id": self.id, "type": "function", "function": {"name": "search", "arguments": self.arguments}}


Turn = Sequence[Asked]
"""The calls of one reply of a model."""


class Participant(Protocol):
    """What each module of this package offers, up to `many`; of the rest, what its library has."""

    NAME: str
    """How the library is called in the table."""
    DISTRIBUTION: str
    """Whose version is printed."""
    IMPORT: str
    """The statement by which a user gets what the other functions need."""
    VALIDATES: bool
    """Whether text for an integer is refused; the worker proves it."""

    def define(self) -> object:
        """Define the tool, and give its specification as it is sent to a model."""

    def make_call(self, arguments: str = ARGUMENTS) -> Call:
        """Return a function from the arguments' JSON text to the reply text, through the library's own execution."""

    def many(self, count: int) -> tuple[object, list[object]]:
        """Return one container of that many tools, and their specifications as they are sent to a model."""

    def make_refusal(self) -> Call:
        """Return what makes the text that the model gets for a wrong type, where that is not the raised error's own."""

    def make_look_up(self, count: int) -> Call:
        """Return what `make_call` gives, for the last of that many tools in the library's container, found by name."""

    def make_pipeline(self) -> Call:
        """Return a function from the JSON text of a pipeline's arguments to its reply text: three steps in a row."""

    def make_agent(self, turns: Sequence[Turn]) -> Call:
        """Return a run of an agent, whose model asks for the calls of each turn, to its final text."""

    def make_parallel(self, search: AsyncSearch, count: int) -> Call:
        """Return a turn of that many calls of an async tool, through what the library has for that."""

    def make_blocking(self, search: Search, count: int) -> Call:
        """Return a turn of that many calls of a blocking tool, where the library runs them in threads."""


def new_search(name: str = "search", pause: Callable[[], None] | None = None) -> Search:
    """Return a function that no library has seen, so that none answers from a cache."""

    def search(query: str, limit: int, min_score: Score, tags: list[str], order: Order = "desc") -> str:
        """Search the documents.

        Args:
            query: The words to look for.
            limit: How many results to give at most.
            min_score: The least score that a result needs.
            tags: The tags that a result must carry.
            order: How the results are sorted.

        """
        if pause is not None:
            pause()
        RAN.append(limit)
        return f"{limit!r} results for {query} above {min_score!r} in {tags}, {order}"

    search.__name__ = search.__qualname__ = name
    return search


def new_async_search(name: str = "search", pause: Callable[[], Awaitable[None]] | None = None) -> AsyncSearch:
    """Return the same as a coroutine function, which spares some libraries a hop to a thread."""

    async def search(query: str, limit: int, min_score: Score, tags: list[str], order: Order = "desc") -> str:
        """Search the documents.

        Args:
            query: The words to look for.
            limit: How many results to give at most.
            min_score: The least score that a result needs.
            tags: The tags that a result must carry.
            order: How the results are sorted.

        """
        if pause is not None:
            await pause()
        RAN.append(limit)
        return f"{limit!r} results for {query} above {min_score!r} in {tags}, {order}"

    search.__name__ = search.__qualname__ = name
    return search


def numbered(count: int) -> list[str]:
    """Return the names of that many tools."""
    return [f"search_{number}" for number in range(count)]


def described(search: AnySearch) -> AnySearch:
    """Move the descriptions into the annotations, for libraries that take plain text there and nothing else."""
    search.__annotations__ = {
        "query": Annotated[str, "The words to look for."],
        "limit": Annotated[int, "How many results to give at most."],
        "min_score": Annotated[float, "The least score that a result needs, 0 to 1."],
        "tags": Annotated[list[str], "The tags that a result must carry."],
        "order": Annotated[Order, "How the results are sorted."],
        "return": str,
    }
    return search


def new_step(name: str) -> Callable[[str], str]:
    """Return a step of a pipeline, which adds its name to the text."""

    def step(text: str) -> str:
        """Add a word.

        Args:
            text: What to add it to.

        """
        return f"{text}, {name}"

    step.__name__ = step.__qualname__ = name
    return step


def one_by_one(number: int = TURNS) -> list[Turn]:
    """Return turns of one call each, each with another limit: loop guards stop repeated calls."""
    return [[Asked(f"call_{limit}", ARGUMENTS.replace("5,", f"{limit},", 1))] for limit in range(1, number + 1)]


def all_at_once(count: int) -> list[Turn]:
    """Return one turn of that many calls."""
    return [[Asked(f"call_{number}", ARGUMENTS) for number in range(count)]]


def script(turns: Sequence[Turn]) -> Iterator[Turn]:
    """Return the turns of a model that is asked over and over; a turn without calls is the end of a run."""
    return cycle([*turns, []])


def by_agent(run: Callable[[Search | AsyncSearch, Sequence[Turn]], Call]) -> tuple[Callable[..., Call], ...]:
    """Return `make_agent`, `make_parallel` and `make_blocking` where agents make all calls of a turn at once.

    What is handed over runs an agent with one tool, whose model asks for the calls of some turns.
    """

    def make_agent(turns: Sequence[Turn]) -> Call:
        return run(new_async_search(), turns)

    def make_turn(search: Search | AsyncSearch, count: int) -> Call:
        return run(search, all_at_once(count))

    return make_agent, make_turn, make_turn


def gathered(call: Callable[[], Coroutine[None, None, object]], count: int) -> Call:
    """Return that many concurrent calls, for libraries that leave this to their users."""

    async def turn() -> list[object]:
        return await asyncio.gather(*(call() for _ in range(count)))

    return turn
