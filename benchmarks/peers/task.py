"""The job that all participants do: one tool with five parameters, and the calls that a model writes for it."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Literal, Protocol, TypeVar

try:
    from pydantic import Field
except ModuleNotFoundError:
    Score = float  # two libraries do without pydantic, and cannot say bounds
else:
    Score = Annotated[float, Field(ge=0, le=1)]

ARGUMENTS = '{"query": "weather in Rome", "limit": 5, "min_score": 0.5, "tags": ["news", "local"], "order": "asc"}'
"""What a careful model writes."""
WRONG_TYPE = ARGUMENTS.replace("5,", '"abc",', 1)
"""Text where an integer is declared."""
OUT_OF_BOUNDS = ARGUMENTS.replace("0.5", "1.5")
"""A score above the declared maximum."""
FOUND = "results for weather in Rome"
"""What the reply to a call holds exactly when the body ran."""

Order = Literal["asc", "desc"]
Search = Callable[..., str]
AsyncSearch = Callable[..., Coroutine[None, None, str]]
AnySearch = TypeVar("AnySearch", Search, AsyncSearch)
Call = Callable[[], str] | Callable[[], Coroutine[None, None, str]]


class Participant(Protocol):
    """What each module of this package offers."""

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
        """Give a function from the arguments' JSON text to the reply text, through the library's own execution."""

    def many(self, count: int) -> tuple[object, list[object]]:
        """Give one container of that many tools, and their specifications as they are sent to a model."""


def new_search(name: str = "search") -> Search:
    """Give a function that no library has seen, so that none answers from a cache."""

    def search(query: str, limit: int, min_score: Score, tags: list[str], order: Order = "desc") -> str:
        """Search the documents.

        Args:
            query: The words to look for.
            limit: How many results to give at most.
            min_score: The least score that a result needs.
            tags: The tags that a result must carry.
            order: How the results are sorted.

        """
        return f"{limit} results for {query} above {min_score} in {tags}, {order}"

    search.__name__ = search.__qualname__ = name
    return search


def new_async_search(name: str = "search") -> AsyncSearch:
    """Give the same as a coroutine function, which spares some libraries a hop to a thread."""

    async def search(query: str, limit: int, min_score: Score, tags: list[str], order: Order = "desc") -> str:
        """Search the documents.

        Args:
            query: The words to look for.
            limit: How many results to give at most.
            min_score: The least score that a result needs.
            tags: The tags that a result must carry.
            order: How the results are sorted.

        """
        return f"{limit} results for {query} above {min_score} in {tags}, {order}"

    search.__name__ = search.__qualname__ = name
    return search


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
