"""The exceptions of this library.

::

    ToolsembleError
    ├── ToolDefinitionError(ValueError)   a tool or a toolbox is defined wrongly; raised while it is built
    ├── ToolConfigurationError            set up wrongly; always raised to the caller
    │   ├── CallPausedError               a call waits for approval, and nothing around it is resumable
    │   └── RunChangedError               a recorded run was started with another agent
    ├── ToolArgumentsError                the model's arguments do not fit
    ├── ToolExecutionError                the tool failed
    │   └── LostError                     its work began, and its outcome is unknown
    ├── ExitEarlyError                    a reviewer stopped the run
    ├── ReviewTimeoutError                no answer in time, and the request said to fail
    ├── ReviewRefusedError                an answer to a request for approval was not accepted
    ├── ModelError                        a model did not answer
    ├── RunError                          a run ended without an answer, and nothing is wrong with it
    │   ├── RunParkedError                it waits for a person
    │   ├── RunBusyError                  another process drives it
    │   ├── RunCancelledError             it was cancelled
    │   └── RunInterruptedError           the process is ending; the run continues elsewhere
    ├── AgentExecutionError               a run failed; ``partial`` holds the work so far
    └── BudgetExceededError               a budget of a run was used up, and there is no answer

Errors that a model can cause become failed results. Errors of the programmer are raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolsemble._vocabulary.call import ToolReply


class ToolsembleError(Exception):
    """The base class of all exceptions of this library.

    >>> issubclass(ToolDefinitionError, ToolsembleError)
    True
    """


class PassThroughError(ToolsembleError):
    """An error that ends a call or a run, and always reaches the caller; models never see it.

    >>> issubclass(RunParkedError, PassThroughError)
    True
    """

    #: The replies of the sibling calls, when several calls were executed together.
    replies: Sequence[ToolReply] = ()
    #: The work so far, if it ended the run of an agent.
    partial: Any = None


class ToolDefinitionError(ToolsembleError, ValueError):
    """A tool or a toolbox is defined wrongly; raised while it is built.

    >>> from toolsemble import Toolbox
    >>> Toolbox([None])
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Tool at index 0 is None; pass a tool object
    """


class ToolConfigurationError(PassThroughError):
    """A call is set up wrongly, for example without a reviewer to approve it; always raised to the caller.

    >>> raise ToolConfigurationError("Tool 'deploy' needs a region; set REGION")
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: Tool 'deploy' needs a region; set REGION
    """


class CallPausedError(ToolConfigurationError):
    """A reviewer left a call pending; an agent run pauses with it, anything else is not resumable and raises it.

    >>> str(CallPausedError("Tool 'pay' waits for approval"))
    "Tool 'pay' waits for approval"
    """

    def __init__(self, message: str = "", *, request: Any = None) -> None:
        super().__init__(message)
        #: The :class:`~toolsemble.ReviewRequest` that waits for a decision.
        self.request = request
        #: The reviewer that was asked and knows whether the request is still pending; None if there is none.
        self.reviewer: Any = None
        #: The context of the call; None if it cannot be left pending, because it is already running.
        self.context: Any = None
        #: The index of the call among the calls that were executed together.
        self.place = 0
        #: The turn's other waiting calls.
        self.others: Sequence[CallPausedError] = ()
        #: The paused run of the agent in the call; None if the call itself waits.
        self.inner: Any = None
        #: The arguments of a call with a paused run in it, if a reviewer had changed them.
        self.edited: Any = None


class RunChangedError(ToolConfigurationError):
    """The recorded run does not match the current agent; it continues with the earlier version.

    >>> str(RunChangedError("Run 'order-7' recorded 'pay' at /3.1.2, where 'check' is now"))
    "Run 'order-7' recorded 'pay' at /3.1.2, where 'check' is now"
    """

    def __init__(self, message: str = "", *, run_id: str = "") -> None:
        super().__init__(message)
        #: The id of the run.
        self.run_id = run_id


class RunError(PassThroughError):
    """A run ended in this process without an answer, and nothing is wrong with it or its setup.

    Its work so far is in the journal. Catch this class to treat the four outcomes alike.

    >>> RunError("Run 'order-7' stopped", run_id="order-7").run_id
    'order-7'
    """

    def __init__(self, message: str = "", *, run_id: str = "") -> None:
        super().__init__(message)
        #: The id of the run.
        self.run_id = run_id


class RunParkedError(RunError):
    """The run waits for a person; it continues when the person has answered.

    >>> RunParkedError("Run 'order-7' waits for approval", run_id="order-7").run_id
    'order-7'
    """

    #: The requests that wait for a decision; empty if a call with unknown outcome has to be settled.
    pending: Sequence[Any] = ()


class RunBusyError(RunError):
    """Another process drives the run.

    >>> str(RunBusyError("Run 'order-7' is driven by process 4711"))
    "Run 'order-7' is driven by process 4711"
    """


class RunCancelledError(RunError):
    """The run was cancelled, and is not continued.

    >>> str(RunCancelledError("Run 'order-7' was cancelled"))
    "Run 'order-7' was cancelled"
    """


class RunInterruptedError(RunError):
    """The process is ending; the run is queued, and continues elsewhere or later.

    >>> str(RunInterruptedError("Run 'order-7' goes back to the queue"))
    "Run 'order-7' goes back to the queue"
    """


class JournalError(PassThroughError):
    """The journal of a run cannot be read or written, so that the run must not continue.

    A run raises :class:`AgentExecutionError` with its message.

    >>> issubclass(JournalError, RunError)
    False
    """


class _CodedError(ToolsembleError):
    """An error with an optional code that the tool's author defines."""

    def __init__(self, message: str = "", *, error_code: int | None = None) -> None:
        super().__init__(message)
        self.error_code = error_code


class ToolArgumentsError(_CodedError):
    """The arguments are invalid; the message tells the model what to send instead.

    >>> ToolArgumentsError("city: unknown", error_code=422).error_code
    422
    """


class UnknownToolError(ToolArgumentsError):
    """The model called a tool that does not exist.

    >>> issubclass(UnknownToolError, ToolArgumentsError)
    True
    """


class InvalidJsonError(ToolArgumentsError):
    """The arguments are not JSON.

    >>> issubclass(InvalidJsonError, ToolArgumentsError)
    True
    """


class ToolExecutionError(_CodedError):
    """The tool failed, and the message is meant for the model.

    >>> ToolExecutionError("The service is down; try again later", error_code=503).error_code
    503
    """


class UnclearError(ToolExecutionError):
    """A function of the tool's settings, such as ``resources``, failed or returned an invalid value.

    The model sees the message only if it may see the cause.

    >>> issubclass(UnclearError, ToolExecutionError)
    True
    """


class LimitReachedError(ToolExecutionError):
    """A limit of rate, concurrency or depth refused the call.

    >>> issubclass(LimitReachedError, ToolExecutionError)
    True
    """


class ToolTimeoutError(ToolExecutionError, TimeoutError):
    """The tool's own time limit has passed.

    >>> issubclass(ToolTimeoutError, TimeoutError)
    True
    """


class LostError(ToolExecutionError):
    """The tool's work began, and its outcome is unknown, for example because its process died.

    >>> issubclass(LostError, ToolExecutionError)
    True
    """


class RejectedError(Exception):
    """A reviewer did not approve the call; the message is for the model.

    >>> issubclass(RejectedError, ToolsembleError)  # it becomes a failed result, and never reaches a program
    False
    """


class ExitEarlyError(PassThroughError):
    """A reviewer stopped the run; always raised to the caller.

    >>> ExitEarlyError("enough", timed_out=True).timed_out
    True
    """

    def __init__(self, message: str = "", *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class ReviewTimeoutError(ToolsembleError):
    """No answer came in time, and the request said to fail.

    >>> str(ReviewTimeoutError("no answer in 300 s"))
    'no answer in 300 s'
    """


class ReviewRefusedError(ToolsembleError):
    """An answer to a request for approval was not accepted; the message has the reason.

    >>> str(ReviewRefusedError("already answered by ada"))
    'already answered by ada'
    """


class ModelError(ToolsembleError):
    """A model request failed; the message is the provider's.

    >>> error = ModelError("Too many requests", retryable=True, retry_after=2.5)
    >>> error.retryable, error.retry_after
    (True, 2.5)
    """

    def __init__(self, message: str = "", *, retryable: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        #: Whether the same request may succeed if it is sent again.
        self.retryable = retryable
        #: Seconds to wait before a retry, as the provider asks; None: not specified.
        self.retry_after = retry_after


class AgentExecutionError(ToolsembleError):
    """A run failed; ``partial`` holds the work so far.

    >>> AgentExecutionError("the model is down", partial=["a message"]).partial
    ['a message']
    """

    def __init__(self, message: str = "", *, partial: Any = None) -> None:
        super().__init__(message)
        self.partial = partial


class BudgetExceededError(ToolsembleError):
    """A budget of a run was used up, and there is no answer; ``partial`` holds the work so far.

    >>> str(BudgetExceededError("Maximum tokens (300) reached, and the model returned no final answer"))
    'Maximum tokens (300) reached, and the model returned no final answer'
    """

    def __init__(self, message: str = "", *, partial: Any = None) -> None:
        super().__init__(message)
        #: The work so far.
        self.partial = partial


# A traceback shows the name with which a program catches an error.
for _error in (
    AgentExecutionError,
    ExitEarlyError,
    BudgetExceededError,
    ModelError,
    ReviewRefusedError,
    ReviewTimeoutError,
    RunBusyError,
    RunCancelledError,
    RunChangedError,
    RunError,
    RunInterruptedError,
    RunParkedError,
    ToolArgumentsError,
    ToolConfigurationError,
    ToolDefinitionError,
    ToolExecutionError,
    ToolsembleError,
):
    _error.__module__ = "toolsemble"
