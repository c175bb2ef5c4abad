"""Failed results from exceptions: how much of an error the model sees."""

from __future__ import annotations

from toolsemble._engine.context import ToolContext
from toolsemble._engine.record import count
from toolsemble._engine.work.body import TimedOutError
from toolsemble._runtime.text import describe_error, describe_with_class
from toolsemble._schema.masking import mask_error, mask_text
from toolsemble._vocabulary import errors
from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.result import ErrorKind, ToolResult

_FATAL = errors.PassThroughError
_CODED = (errors.ToolArgumentsError, errors.ToolExecutionError)
_DECLARED = (*_CODED, errors.RejectedError, errors.ReviewTimeoutError)
# The first that fits: subclasses come before their base classes.
_KINDS: tuple[tuple[tuple[type[BaseException], ...], ErrorKind], ...] = (
    ((errors.UnknownToolError,), "unknown_tool"),
    ((errors.InvalidJsonError,), "json"),
    ((errors.ToolArgumentsError,), "arguments"),
    ((errors.RejectedError, errors.ReviewTimeoutError), "rejected"),
    ((errors.LostError,), "unknown_outcome"),
    ((errors.LimitReachedError, errors.BudgetExceededError), "limit"),
    ((TimeoutError, TimedOutError), "timeout"),
)


def find_fatal_error(error: BaseException) -> BaseException | None:
    """Return the exception that must reach the caller, also from inside an exception group; None for a failed call."""
    if not isinstance(error, Exception) or isinstance(error, _FATAL):
        return error
    while isinstance(error, ExceptionGroup):
        inner = error.subgroup(_FATAL)
        if inner is None:
            return None
        error = inner.exceptions[0]
        if isinstance(error, _FATAL):
            return error
    return None


def to_failure(error: BaseException, context: ToolContext, about: str = "") -> ToolResult:
    """Return the failed result for an exception, with the tool's error code; secrets are masked.

    With ``expose_errors="declared"``, other errors become a reference, under which the log has the cause.

    :param about: what failed, if it was not the tool itself

    >>> to_failure(errors.ToolExecutionError("no such city", error_code="city"), ToolContext()).attributes["error_code"]
    'city'
    >>> to_failure(KeyError("user_17"), ToolContext(expose_errors="declared")).text[:33]
    'Error: internal error (reference '
    """
    cause = error.__cause__ if isinstance(error, errors.UnclearError) else None
    declared = isinstance(cause or error, _DECLARED)
    if context.expose_errors == "declared" and not declared:
        reference = new_id()
        hidden, facts = f"internal error (reference {reference})", {"reference": reference}
        return ToolResult.failure(hidden, attributes=facts, error_kind=error_kind_of(error))
    # From the instance dict: a property of a subclass could raise.
    code = vars(error).get("error_code") if isinstance(error, _CODED) else None
    facts = {} if code is None else {"error_code": code}
    if isinstance(error, errors.LostError):
        facts["outcome"] = "unknown"
    said = describe_error(error) if declared or not about else f"{about} failed: {describe_with_class(error)}"
    return ToolResult.failure(mask_text(said), attributes=facts or None, error_kind=error_kind_of(error))


def error_kind_of(error: BaseException) -> ErrorKind:
    """Return the kind of failure that an exception stands for.

    >>> error_kind_of(errors.ToolArgumentsError("city: unknown")), error_kind_of(KeyError("rome"))
    ('arguments', 'execution')
    """
    if isinstance(error, errors.AgentExecutionError) and isinstance(error.__cause__, errors.LimitReachedError):
        return "limit"  # agents are nested too deep
    return next((kind for classes, kind in _KINDS if isinstance(error, classes)), "execution")


def to_refusal(refusal: BaseException, context: ToolContext) -> ToolResult:
    """Return the failed result of a call whose body did not run, for invalid arguments or a rejection.

    >>> to_refusal(errors.RejectedError("Rejected by reviewer: too late"), ToolContext()).error_message
    'Rejected by reviewer: too late'
    """
    if isinstance(refusal, errors.RejectedError):
        count(context, "denials")
    return to_failure(refusal, context)


def to_logged_failure(error: BaseException, context: ToolContext, about: str) -> ToolResult:
    """Return the failed result for an exception outside the tool itself, and log it.

    >>> to_logged_failure(ValueError("no such key"), ToolContext(), "The adapter of step 'search'").error_message
    'no such key'
    """
    result = to_failure(error, context)
    _log(error, context, about, result)
    return result


def to_hook_failure(error: BaseException, context: ToolContext, hook: str) -> ToolResult:
    """Return the failed result of a call whose hook raised, and log it.

    >>> to_hook_failure(ValueError("no such key"), ToolContext(), "before_call").error_message
    'The before_call hook failed: ValueError: no such key'
    """
    result = to_failure(error, context, f"The {hook} hook")
    _log(error, context, f"The {hook} hook of '{context.tool_name}'", result)
    return result


def _log(error: BaseException, context: ToolContext, about: str, result: ToolResult) -> None:
    reference = result.attributes.get("reference")
    known = f" (reference {reference})" if reference is not None else ""
    context.logger.warning("%s failed%s", about, known, exc_info=mask_error(error))
