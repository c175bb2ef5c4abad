"""Approvals that hold for the rest of a run."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from toolsemble.errors import ToolDefinitionError
from toolsemble.review.decision import Continue, ReviewDecision
from toolsemble.review.question import ask
from toolsemble.review.request import ReviewHandler, ReviewRequest, ReviewTiming
from toolsemble.runtime.fork_locks import fork_safe_lock

Scope: TypeAlias = Literal["arguments", "tool"]

_SCOPES = ("tool", "arguments")
_MOST_RUNS = 1024
_MOST_APPROVALS = 1024  # in one run


@dataclass(frozen=True, slots=True)
class _Approval:
    """What was approved: what a reviewer was shown of a call, and so what a later one must be equal in."""

    tool_name: str
    """The tool."""
    schema_digest: str
    """The form of the tool."""
    required_role: str | None
    """The role that whoever approved had to have."""
    agent_role: str
    """The role of the agent that called."""
    timing: ReviewTiming
    """When it was asked."""
    description: str
    """What the tool said of itself, or asked."""
    arguments_digest: str | None
    """The arguments; None for any."""


class RememberReview:
    """Asks another handler once, and lets what it approved pass for the rest of the run.

    Only a plain approval is remembered, never an edit or a refusal, and only for calls of the same run. The scope says
    for what: for the tool with the same arguments, or for the tool. Whoever answers can say it, too, with
    ``Continue(always="arguments")`` or ``Continue(always="tool")``. A tool whose schema or description has changed, an
    agent or a required role that is another, and a request with something new to know in its prompt are asked again.

    >>> from toolsemble.review.automatic import CallbackReview
    >>> from toolsemble.runtime.concurrency import finish
    >>> asked = []
    >>> review = RememberReview(CallbackReview(lambda request: asked.append(request.arguments) or Continue()))
    >>> for path in ("a", "b", "a"):
    ...     _ = finish(review.review(ReviewRequest("Reads a file", "read", {"path": path}, run_id="r1")))
    >>> asked
    [{'path': 'a'}, {'path': 'b'}]
    """

    def __init__(self, handler: ReviewHandler, scope: Scope = "arguments") -> None:
        """Begin with nothing remembered.

        :param handler: who is asked
        :param scope: what an approval that does not say it itself is remembered for
        """
        if not callable(getattr(handler, "review", None)):
            raise TypeError(f"RememberReview needs an object with a method 'review'; {type(handler).__name__} has none")
        if scope not in _SCOPES:
            raise ToolDefinitionError(f"RememberReview: unknown scope {scope!r:.80}; known are {', '.join(_SCOPES)}")
        self._handler = handler
        self._scope = scope
        self._lock = fork_safe_lock(self)
        self._runs: OrderedDict[str, OrderedDict[_Approval, None]] = OrderedDict()

    def forget(self, run_id: str) -> None:
        """Forget what was approved in a run; nothing happens when that is nothing.

        >>> from toolsemble.review.automatic import AutoApprove
        >>> RememberReview(AutoApprove()).forget("r1")
        """
        with self._lock:
            self._runs.pop(run_id, None)

    async def review(self, request: ReviewRequest) -> ReviewDecision:
        """Give the decision about one call; what the handler answers is passed on as it came."""
        # Taken down before anybody is asked: what is remembered is what was shown, whatever becomes of the objects.
        approvals = _by_scope(request)
        if not request.prompt and self._knows(request, approvals):
            return Continue()
        answer: ReviewDecision = await ask(self._handler, _offering(request))
        if _by_scope(request) == approvals:
            self._remember(request, approvals, answer)
        return answer

    def _knows(self, request: ReviewRequest, approvals: dict[str, _Approval]) -> bool:
        with self._lock:
            run = self._runs.get(request.run_id, ())
            known = next((approval for approval in approvals.values() if approval in run), None)
            if known is not None:
                self._touch(request.run_id, known)
        return known is not None

    def _remember(self, request: ReviewRequest, approvals: dict[str, _Approval], answer: Any) -> None:
        if type(answer) is not Continue or not request.run_id:
            return
        # A question in the middle of the work does not show all of its call; only an explicit word holds for others.
        scope = answer.always or (self._scope if request.timing is ReviewTiming.BEFORE_EXECUTION else "")
        if (approval := approvals.get(scope)) is not None:
            with self._lock:
                self._touch(request.run_id, approval)

    def _touch(self, run_id: str, approval: _Approval) -> None:
        """Make an approval and its run the ones used last, and forget those that were not used for longest."""
        run = self._runs.setdefault(run_id, OrderedDict())
        self._runs.move_to_end(run_id)
        run[approval] = None
        run.move_to_end(approval)
        if len(self._runs) > _MOST_RUNS:
            self._runs.popitem(last=False)
        if len(run) > _MOST_APPROVALS:
            run.popitem(last=False)


def _by_scope(request: ReviewRequest) -> dict[str, _Approval]:
    """Give what an approval of the request would be, by scope."""
    shown = _Approval(
        request.tool_name,
        request.schema_digest,
        request.required_role,
        request.agent_role,
        request.timing,
        request.description,
        request.arguments_digest,
    )
    return {"tool": replace(shown, arguments_digest=None), "arguments": shown}


def _offering(request: ReviewRequest) -> ReviewRequest:
    """Give the request with what can be remembered; without a run there is nothing."""
    return replace(request, scopes=_SCOPES) if request.run_id else request
