"""The base classes of reviewers, and the adapter for objects without them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from toolsemble._runtime.event_loops import is_awaitable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from toolsemble.review._request import ReviewDecision, ReviewHandler, ReviewRequest


class Reviewer(ABC):
    """The base class of reviewers; only :meth:`review` is needed, and the rest has defaults.

    Any object with a method ``review`` is also a reviewer, see :class:`~toolsemble.ReviewHandler`.

    >>> from toolsemble import Continue, ExitEarly
    >>> class Clerk(Reviewer):
    ...     def review(self, request):
    ...         return Continue() if request.arguments["amount"] < 10 else ExitEarly("too much")
    >>> from toolsemble import ReviewRequest
    >>> Clerk().review(ReviewRequest("Pays", "pay", {"amount": 50}))
    ExitEarly(reason='too much', timed_out=False)
    """

    __slots__ = ()

    sends_event: bool = False
    """Whether it causes the event ``review_requested`` itself, by passing requests on to another reviewer, for example.
    False: the event is sent before the reviewer is asked."""
    has_store: bool = False
    """Whether its questions are kept outside of this process. A run with a journal may then end while one is open, and
    continue with the answer; :meth:`find_open` and :meth:`withdraw` are used for that."""
    pauses: bool = False
    """Whether it may leave calls open by raising ``CallPausedError``, which ends the run of the agent."""
    decides: bool = False
    """Whether it answers in place of every reviewer that would leave the call open."""

    @abstractmethod
    def review(self, request: ReviewRequest) -> ReviewDecision | Awaitable[ReviewDecision]:
        """Return the decision about one call; sync methods run in a thread."""

    def find_open(self, ids: Iterable[str]) -> set[str]:
        """Return which of these requests still wait for an answer; none without a store."""
        _ = ids
        return set()

    def watch(self, changed: Callable[[], object]) -> Callable[[], None] | None:
        """Call a function, in another thread, when a request may be answered; return a function that ends this.

        Return None, as here, if changes are not reported: the answers are then polled for.
        """
        _ = changed
        return None

    def withdraw(self, ids: Iterable[str]) -> object:
        """Close requests whose answers would not be used; return False, as here, if it cannot."""
        _ = ids
        return False


class BatchReviewer(Reviewer):
    """The base class of reviewers that decide about all requests of a turn together.

    >>> from toolsemble import Continue, Toolbox, ToolCall, tool
    >>> class Desk(BatchReviewer):
    ...     def review_all(self, requests):
    ...         print([request.arguments for request in requests])
    ...         return {request.id: Continue() for request in requests}
    >>> @tool(requires_approval=True)
    ... def delete(path: str) -> str:
    ...     return f"deleted {path}"
    >>> box = Toolbox([delete], review=Desk())
    >>> replies = box.execute_all([ToolCall("delete", {"path": path}) for path in ("a.log", "b.log")])
    [{'path': 'a.log'}, {'path': 'b.log'}]
    """

    __slots__ = ()

    @abstractmethod
    def review_all(self, requests: Sequence[ReviewRequest]) -> Any:
        """Return a mapping from the ids of the requests to decisions, or to awaitables of decisions.

        It may be ``async def``; sync methods run in a thread. A request without a decision is rejected.
        """

    def review(self, request: ReviewRequest) -> Any:
        """Return the decision about a single request."""
        answers = self.review_all([request])
        return _await_answer(answers, request.id) if is_awaitable(answers) else answers.get(request.id)


async def _await_answer(answers: Awaitable[Mapping[str, Any]], id: str) -> Any:
    answer = (await answers).get(id)
    return await answer if is_awaitable(answer) else answer


def is_reviewer(value: object) -> bool:
    """Return whether an object can be asked.

    >>> from toolsemble.review import AutoApprove
    >>> is_reviewer(AutoApprove()), is_reviewer(AutoApprove), is_reviewer(print)
    (True, False, False)
    """
    return not isinstance(value, type) and callable(getattr(value, "review", None))


def to_reviewer(handler: ReviewHandler) -> Reviewer:
    """Return a reviewer of the base classes for any handler.

    The only place that looks for the methods of a reviewer by name: handlers need no base class, and one of a base
    class for single requests may have a method ``review_all`` all the same.

    >>> from toolsemble.review import AutoApprove
    >>> handler = AutoApprove()
    >>> to_reviewer(handler) is handler
    True
    """
    if isinstance(handler, BatchReviewer):
        return handler
    if callable(getattr(handler, "review_all", None)):
        return _AdaptedBatches(handler)
    return handler if isinstance(handler, Reviewer) else _Adapted(handler)


class _Adapted(Reviewer):
    """An object without the base class, as a reviewer."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler
        self.has_store = getattr(handler, "has_store", callable(getattr(handler, "find_open", None)))
        for flag in ("sends_event", "pauses", "decides"):
            setattr(self, flag, getattr(handler, flag, False) is True)
        # The methods themselves: the call path has to know which are async.
        for name in ("review", "review_all", "find_open", "watch", "withdraw"):
            if callable(method := getattr(handler, name, None)):
                setattr(self, name, method)

    def review(self, request: ReviewRequest) -> Any:
        """Return the decision; each instance has the method of its handler in its place."""

    def __repr__(self) -> str:
        return repr(self._handler)


class _AdaptedBatches(_Adapted, BatchReviewer):
    """An object with a method ``review_all``."""

    def review_all(self, requests: Sequence[ReviewRequest]) -> Any:
        """Return the decisions; each instance has the method of its handler in its place."""
