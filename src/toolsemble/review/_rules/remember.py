"""A reviewer that remembers approvals for the rest of a run."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from toolsemble._runtime.threads import fork_safe_lock
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.review._asking.ask import OuterReviewer
from toolsemble.review._request import Continue, ReviewDecision, ReviewHandler, ReviewRequest, is_reviewer
from toolsemble.review._terms import ReviewTiming

Scope: TypeAlias = Literal["arguments", "tool"]
_Approval: TypeAlias = tuple[object, ...]  # the properties of an approved call that a later call must share
_SCOPES = ("tool", "arguments")
_MAX_RUNS = 1024
_MAX_APPROVALS = 1024  # in one run


class RememberReview(OuterReviewer):
    """A reviewer that asks another handler once, and repeats its approval for the rest of the run.

    Only approvals are remembered, never edits or rejections, and only for calls of the same run. The scope is the tool
    with the same arguments, or the tool. The reviewer can choose it, too, with ``Continue(always="arguments")`` or
    ``Continue(always="tool")``. The handler is asked again if the schema or description of the tool, the agent or the
    required role differs, or if the request has a prompt. A question during a call is always asked, and its answer is
    not remembered.

    >>> from toolsemble.review._automatic import CallbackReview
    >>> from toolsemble._runtime.event_loops import finish
    >>> asked = []
    >>> review = RememberReview(CallbackReview(lambda request: asked.append(request.arguments) or Continue()))
    >>> for path in ("a", "b", "a"):
    ...     _ = finish(review.review(ReviewRequest("Reads a file", "read", {"path": path}, run_id="r1")))
    >>> asked
    [{'path': 'a'}, {'path': 'b'}]
    """

    def __init__(self, handler: ReviewHandler, scope: Scope = "arguments") -> None:
        """Create a reviewer that remembers nothing yet.

        :param handler: the reviewer that is asked
        :param scope: the default scope of approvals
        """
        if not is_reviewer(handler):
            raise TypeError(f"RememberReview needs an object with a method 'review'; {type(handler).__name__} has none")
        if scope not in _SCOPES:
            raise ToolDefinitionError(f"RememberReview: unknown scope {scope!r:.80}; expected {', '.join(_SCOPES)}")
        super().__init__(handler)
        self._scope = scope
        self._lock = fork_safe_lock(self)
        self._runs: OrderedDict[str, OrderedDict[_Approval, None]] = OrderedDict()

    def forget(self, run_id: str) -> None:
        """Forget the approvals of a run, if any.

        >>> from toolsemble.review._automatic import AutoApprove
        >>> RememberReview(AutoApprove()).forget("r1")
        """
        with self._lock:
            self._runs.pop(run_id, None)

    async def review(self, request: ReviewRequest) -> ReviewDecision:
        """Return the decision on one call; the handler's answer is not changed."""
        if request.timing is ReviewTiming.DURING_EXECUTION:
            return await self.pass_on(request)
        # Computed before the handler is asked: the objects may change meanwhile.
        approvals = _by_scope(request)
        if not request.prompt and self._is_approved(request, approvals):
            return Continue()
        answer = await self.pass_on(_with_scopes(request))
        if _by_scope(request) == approvals:
            self._remember(request, approvals, answer)
        return answer

    def _is_approved(self, request: ReviewRequest, approvals: dict[str, _Approval]) -> bool:
        with self._lock:
            run = self._runs.get(request.run_id, ())
            known = next((approval for approval in approvals.values() if approval in run), None)
            if known is not None:
                self._touch(request.run_id, known)
        return known is not None

    def _remember(self, request: ReviewRequest, approvals: dict[str, _Approval], answer: Any) -> None:
        if type(answer) is not Continue or not request.run_id:
            return
        scope = answer.always or (self._scope if request.timing is ReviewTiming.BEFORE_EXECUTION else "")
        if (approval := approvals.get(scope)) is not None:
            with self._lock:
                self._touch(request.run_id, approval)

    def _touch(self, run_id: str, approval: _Approval) -> None:
        """Mark an approval and its run as most recently used; evict the least recently used."""
        run = self._runs.setdefault(run_id, OrderedDict())
        self._runs.move_to_end(run_id)
        run[approval] = None
        run.move_to_end(approval)
        if len(self._runs) > _MAX_RUNS:
            self._runs.popitem(last=False)
        if len(run) > _MAX_APPROVALS:
            run.popitem(last=False)


def _by_scope(request: ReviewRequest) -> dict[str, _Approval]:
    """Return the approval of a request, by scope."""
    tool = (
        request.tool_name,
        request.schema_digest,
        request.required_role,
        request.agent_role,
        request.timing,
        request.description,
    )
    return {"tool": tool, "arguments": (*tool, request.arguments_digest)}


def _with_scopes(request: ReviewRequest) -> ReviewRequest:
    """Return the request with the scopes that can be remembered; none without a run."""
    return replace(request, scopes=_SCOPES) if request.run_id else request
