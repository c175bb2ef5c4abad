"""A reviewer for tests with scripted answers."""

from __future__ import annotations

import threading
from typing import Any

from toolsemble.review import Continue, Reviewer, ReviewRequest


class FakeReviewer(Reviewer):
    """A reviewer that returns its answers in order, repeats the last one, and records the requests.

    An answer is a decision, an exception to raise, or a function of the request that returns a decision. Any other
    value is returned unchanged, to test that the call is rejected. Without answers it always approves.

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
        """The requests so far, in order."""
        self._answers = answers or (Continue(),)
        self._lock = threading.Lock()

    # Not async, so that the call path runs it in a worker thread and enforces the timeout.
    def review(self, request: ReviewRequest) -> Any:
        """Return the next answer."""
        with self._lock:
            self.requests.append(request)
            answer = self._answers[min(len(self.requests), len(self._answers)) - 1]
        if isinstance(answer, BaseException) or (isinstance(answer, type) and issubclass(answer, BaseException)):
            raise answer
        # A class is not called: a decision class that was passed by mistake must be rejected.
        return answer(request) if callable(answer) and not isinstance(answer, type) else answer
