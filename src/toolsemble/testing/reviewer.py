"""A reviewer that answers by a script."""

from __future__ import annotations

import threading
from typing import Any

from toolsemble.review import Continue, ReviewRequest


class FakeReviewer:
    """Gives one answer after the other, the last one for ever, and keeps what it was asked; without any it agrees.

    An answer is a decision, an exception to raise, or a function of the request that gives a decision. Anything else is
    given as it is, to see that calls are refused then.

    >>> from toolsemble import ExitEarly, Toolbox, ToolCall, tool
    >>> @tool(requires_approval=True)
    ... def delete(path: str) -> str:
    ...     return f"deleted {path}"
    >>> reviewer = FakeReviewer(Continue(), ExitEarly("not that one"))
    >>> box = Toolbox([delete], review=reviewer)
    >>> [box.execute(ToolCall("delete", {"path": path})).text for path in ("a.log", "b.log")]
    ['deleted a.log', 'Error: Rejected by reviewer: not that one']
    >>> [request.arguments for request in reviewer.requests]
    [{'path': 'a.log'}, {'path': 'b.log'}]
    """

    def __init__(self, *answers: Any) -> None:
        self.requests: list[ReviewRequest] = []
        """What it was asked, in order."""
        self._answers = answers or (Continue(),)
        self._lock = threading.Lock()

    # Not async: the call path then keeps the time for it in a worker thread, as for a person.
    def review(self, request: ReviewRequest) -> Any:
        """Give the next answer."""
        with self._lock:
            self.requests.append(request)
            answer = self._answers[min(len(self.requests), len(self._answers)) - 1]
        if isinstance(answer, BaseException) or (isinstance(answer, type) and issubclass(answer, BaseException)):
            raise answer
        # A class is no function: whoever forgot to call it is to see that it is no decision.
        return answer(request) if callable(answer) and not isinstance(answer, type) else answer
