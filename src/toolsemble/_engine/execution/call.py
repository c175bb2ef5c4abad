"""One call on its path, the settings that calls share, and the report of a sub-call to its parent."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import Need, ToolDefinition
from toolsemble._engine.execution.failure import find_fatal_error, to_failure, to_refusal
from toolsemble._engine.record import LOG_LIMIT
from toolsemble._engine.work.body import Work
from toolsemble._runtime.event_loops import unwrap_stop_iteration
from toolsemble._runtime.locks import Slots
from toolsemble._runtime.threads import THREADS
from toolsemble._schema.decode import Read, Repair
from toolsemble._schema.masking import mask_value, read_with_secrets, start_masking, stop_masking
from toolsemble._schema.repair import STEPS
from toolsemble._schema.result_shape import UnsupportedResultError, to_intermediate_result, to_result
from toolsemble._vocabulary.errors import CallPausedError, ToolConfigurationError
from toolsemble._vocabulary.result import ToolResult

if TYPE_CHECKING:
    from toolsemble._engine.execution.edits import EditedArguments
    from toolsemble._engine.execution.hooks import CallHooks
    from toolsemble._engine.execution.instrumentation import Instrumentation


CallPath: TypeAlias = Generator[Work, Any, ToolResult]
"""The path of a call: yields work to the driver, receives its outcome, and returns the result."""


class SubCallReport:
    """The outcome of a sub-call, reported to its parent."""

    # Class attributes: a report is created for every step, and most fields keep their default.
    given: Any = None
    """The body's input; for invalid input, the value as received."""
    raised_by: str = ""
    """The tool whose body raised instead of returning a failed result; empty for none."""
    duration: float = 0.0
    """Seconds of work."""
    undos: tuple[Any, ...] = ()
    """How to undo what was done, oldest first."""
    undone: tuple[Any, ...] = ()
    """The records of the undos, if an exception ended the call and no result holds them."""
    is_intermediate: bool = False
    """Whether only the next pipeline step gets the result, not a model."""

    def begin(self, given: Any) -> None:
        """Receive the body's input before it runs; most reports ignore it."""

    def end(self, name: str, given: Any, result: ToolResult | None, raised: BaseException | None, took: float) -> None:
        """Store how the call ended."""
        self.given, self.duration = given, took
        if raised is not None and (result is None or result.error_message is not None):
            self.raised_by = name


class ArgumentsReport(SubCallReport):
    """A report that keeps the arguments of a call as JSON values, from before the body can change them.

    >>> report = ArgumentsReport()
    >>> report.arguments is None
    True
    """

    definition: ToolDefinition | None = None
    """The tool, set when the call starts."""
    arguments: dict[str, Any] | None = None
    """The arguments that ran, with secrets masked; for a refused call, the decoded ones; None if decoding failed."""

    def begin(self, given: Any) -> None:
        """Keep the arguments."""
        assert self.definition is not None  # noqa: S101 - set when the call starts
        try:
            shown = mask_value(self.definition.present(given, best_effort=True))
        except Exception:  # a foreign object that cannot be shown; its call runs anyway
            return
        if self.definition.arguments is None:
            self.arguments = {"input": shown}
        elif isinstance(shown, dict):
            self.arguments = shown

    def end(
        self, name: str, given: Any, result: ToolResult | None, raised: BaseException | None, took: float
    ) -> None:  # used for parts only
        """Store how the call ended, and the arguments if the call was refused after decoding."""
        # The rest is not needed: this is the report of a whole call, not of a part.
        if self.arguments is not None or self.definition is None:
            return
        if not isinstance(given, str):
            self.begin(given)
        elif self.definition.secret:
            self.arguments = {}  # decoding failed, so it is unknown which of them are secret


@dataclass(frozen=True, slots=True)
class CallSettings:
    """Settings that the calls of a toolbox and their sub-calls share."""

    steps: frozenset[str] = STEPS
    """The repair steps that are allowed."""
    slots: Slots | None = None
    """The slots for bodies; None: no limit."""
    workers: Executor = THREADS
    """The executor for blocking bodies."""
    log_limit: int = LOG_LIMIT
    """The maximum number of characters of input and output in a log line."""
    hooks: CallHooks | None = None
    """The hooks before and after each call."""
    approved: bool = False
    """Whether a reviewer approved the parts' input, so that no part may change another's."""

    def for_parts_of(self, definition: ToolDefinition) -> CallSettings:
        """Return the settings for the sub-calls of a tool."""
        return self if definition.gate is None or self.approved else replace(self, approved=True)


class Call:
    """One call on its path: its input, context, settings, and outcome so far."""

    __slots__ = (
        "context",
        "definition",
        "edited",
        "given",
        "instrumentation",
        "raised",
        "read",
        "repairs",
        "report",
        "result",
        "settings",
        "started",
    )

    def __init__(
        self,
        definition: ToolDefinition,
        read: Read,
        given: Any,
        context: ToolContext,
        settings: CallSettings = CallSettings(),  # frozen
        report: SubCallReport | None = None,
    ) -> None:
        self.definition = definition
        self.read = read
        self.given = given
        """The input as sent; later, the body's input."""
        self.context = context
        self.settings = settings
        self.report = report
        self.repairs: Sequence[Repair] = ()
        self.edited: EditedArguments | None = None
        """The arguments after a reviewer changed them; None without an edit."""
        self.result: ToolResult | None = None
        self.raised: BaseException | None = None
        self.instrumentation: Instrumentation | None = None
        """None for most calls: they have no sinks, no secrets and no hooks."""
        self.started = 0.0
        """When the work began: time in a review or a queue is not counted."""

    def refuse(self, refusal: BaseException) -> None:
        """Set the refusal as the result: the body does not run."""
        self.result = to_refusal(refusal, self.context)
        if self.instrumentation is not None:
            self.instrumentation.refusal = refusal

    def fail(self, error: BaseException) -> bool:
        """Set an exception as the result; return False for one that must reach the caller."""
        self.raised = error = unwrap_stop_iteration(error)
        through = find_fatal_error(error)
        if self.edited is not None and isinstance(through, CallPausedError):
            through.edited = self.edited
        if through is None:
            self.result = self.add_facts(to_failure(error, self.context))
        elif through is not error:
            self.raised = through
            raise through from error
        return through is None

    def succeed(self, returned: object) -> None:
        """Set what the body returned as the result."""
        try:
            result = to_result(returned)
        except UnsupportedResultError:
            if self.report is None or not self.report.is_intermediate:
                raise
            result = to_intermediate_result(returned)
        self.result = self.add_facts(result) if self.repairs or self.edited is not None else result

    def add_facts(self, result: ToolResult) -> ToolResult:
        """Return a result with the argument repairs and the edit as attributes."""
        facts: dict[str, Any] = {"repairs": tuple(self.repairs)} if self.repairs else {}
        if self.edited is not None:
            facts["edited"] = self.edited
        if not facts:
            return result
        attributes = MappingProxyType({**result.attributes, **facts})
        # dataclasses.replace would take four times as long, in every repaired call.
        kind = type(result)
        parts = (result.output, result.error_message, result.structured_output, result.contents)
        return kind(*parts, attributes, result.error_kind)


def check_deps(call: Call) -> None:
    """Raise :class:`ToolConfigurationError` if the tool, or one of its parts, needs deps and the call has none."""
    need = call.definition.deps_need
    if need is not None and call.context.deps is None:
        raise missing_deps(need)


def missing_deps(need: Need) -> ToolConfigurationError:
    """Return the error of a call without the deps that its tool needs.

    >>> missing_deps(Need("find_order", "ToolContext[Shop]"))
    ToolConfigurationError("Tool 'find_order' needs deps (ToolContext[Shop]); pass deps=…")
    """
    return ToolConfigurationError(f"Tool '{need.tool}' needs deps ({need.declared}); pass deps=…")


def mask_arguments(definition: ToolDefinition, text: str) -> dict[str, Any]:
    """Return the arguments in a text as JSON values, with the tool's secrets masked; {} if they are invalid.

    :param definition: a tool that takes secrets
    """
    report, masking = ArgumentsReport(), start_masking()
    report.definition = definition
    try:
        report.begin(read_with_secrets(definition, definition.decode, text, STEPS)[0])
    except Exception:  # a validator may raise anything; which arguments are secret is unknown
        return {}
    finally:
        stop_masking(masking)
    return report.arguments or {}
