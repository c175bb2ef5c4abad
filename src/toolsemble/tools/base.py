"""What a tool is: the smallest contract, and the instrumented base class."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import (
    TYPE_CHECKING,
    Any,
    Protocol,
    Unpack,
    final,
    runtime_checkable,
)

from toolsemble.call import new_id
from toolsemble.context import LOGGER, ToolContext, current_context
from toolsemble.definition.definition import ReturnBehavior, ToolDefinition, review_settings, string_definition
from toolsemble.definition.policy import Effects, Isolation, Policy
from toolsemble.errors import ToolConfigurationError, ToolDefinitionError
from toolsemble.execution.drivers import adrive, drive
from toolsemble.execution.path import Call, CallPath, call_path
from toolsemble.limits.cache import Cache
from toolsemble.limits.declared import NO_LIMITS, Kept, limits_of, limits_within, policy_of
from toolsemble.limits.idempotency import Idempotency
from toolsemble.limits.rate import RateLimit
from toolsemble.limits.retries import Retries
from toolsemble.metrics import ToolMetrics
from toolsemble.note import Note
from toolsemble.result import ToolResult
from toolsemble.review import OnTimeout, ReviewDecision
from toolsemble.review.gate import Predicate
from toolsemble.review.request import TIMEOUT, ReviewTerms
from toolsemble.schema.members import returned_by
from toolsemble.shape import describe_error
from toolsemble.tools.settings import BareSettings, ToolSettings, definition_fields

if TYPE_CHECKING:
    from toolsemble.pipeline.pipeline import ToolPipeline


MEMORY_ID_ONLY = frozenset({"memory_id"})
"""What the body of a tool with a context of its own can tell of the call: whose it is."""


@runtime_checkable
class AgentTool(Protocol):
    """The smallest contract: any object that has these three is a tool.

    >>> class Shout:
    ...     name = "shout"
    ...     description = "Says it louder"
    ...     def execute(self, input):
    ...         return ToolResult.success(input.upper())
    >>> isinstance(Shout(), AgentTool)
    True
    """

    @property
    def name(self) -> str:
        """The name by which a model calls the tool."""
        ...

    @property
    def description(self) -> str:
        """What the tool does, for the model to choose by."""
        ...

    def execute(self, input: str) -> ToolResult:
        """Do the work."""
        ...


class Tool(ABC):
    """The instrumented base class, for a tool whose input is one string.

    Give it a ``name`` and a ``description``, as class attributes or properties, and override :meth:`run`,
    which may be ``async def``. Whatever it returns becomes a result, whatever it raises a failed one.

    >>> class Shout(Tool):
    ...     name = "shout"
    ...     description = "Says it louder"
    ...     def run(self, input: str) -> str:
    ...         return input.upper()
    >>> Shout().execute("hello")
    ToolResult.success('HELLO')
    """

    name: str
    """The name by which a model calls the tool."""
    description: str
    """What the tool does, for the model to choose by."""
    requires_approval: bool | Predicate = False
    """Whether a reviewer must agree before each call; or a method ``(self, arguments, context)`` that tells it."""
    approval_timeout: float | None = TIMEOUT
    """How many seconds the reviewer has; 0 or None for any number."""
    approval_on_timeout: OnTimeout = OnTimeout.EXIT_EARLY
    """What becomes of the call when nobody answers in time."""
    approval_role: str | None = None
    """The role that the reviewer must have, where the handler knows who answers, as a store does; None for any."""
    approval_description: str = ""
    """What the reviewer is told the call does; empty for the tool's description."""
    editable: str = ""
    """The parameter whose plain text a reviewer may edit; empty when an edit replaces all arguments."""
    inline: bool = False
    """Whether :meth:`run` never blocks, so that async callers may run it without a thread."""
    return_behavior: ReturnBehavior = ReturnBehavior.TO_LLM
    """Who gets the result: the model, or the caller at once."""
    metadata: Mapping[str, Any] | None = None
    """What else a provider may want to know."""
    strict: bool | None = None
    """Whether the provider's strict mode is asked for."""
    timeout: float | None = None
    """How many seconds a call may take after its approval, with all waiting; None for any number."""
    isolation: Isolation = "thread"
    """Where a blocking :meth:`run` runs: ``"process"`` for a worker process, which is killed when time is up."""
    max_memory: int | None = None
    """Bytes of memory that the worker process of a call may have, with ``isolation="process"``; None: no limit."""
    retries: int | Retries = 0
    """How often a call that failed is made again, or a ``Retries`` that says more; for tools that may be repeated."""
    effects: Effects | None = None
    """What a call changes: ``"read"`` for nothing, ``"write"``, or ``"irreversible"``; None when nobody says."""
    idempotent: bool = False
    """Whether a second call with the same arguments changes nothing more."""
    max_concurrency: int | None = None
    """How many calls of the tool may run at the same time; None for any number."""
    resources: Callable[[Any], Any] | None = None
    """A method ``(self, arguments)`` that gives the names of what a call touches; such calls never overlap."""
    rate_limit: RateLimit | None = None
    """A ``RateLimit``: how many calls there may be in some time; shared by the tools that share the object."""
    cache: Cache | float | bool | None = None
    """Whether results are kept and given again: how many seconds, True for any number, or a ``Cache``; False for never,
    whatever the toolbox says."""
    max_output: int | None = None
    """How many characters of a result the model gets; None for what the toolbox says."""
    idempotency: bool | Callable[..., Any] | Idempotency = False
    """Whether the same call is made only once in a run: True, a function of the arguments, or an ``Idempotency``."""
    polling: bool = False
    """Whether the same call is meant to be made again and again, until its result changes."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for method in ("execute", "aexecute"):
            if getattr(cls, method) is not getattr(Tool, method):
                raise TypeError(f"{cls.__name__} overrides {method}, which is final; override run instead")

    def _apply(self, settings: BareSettings) -> None:
        """Set the attributes that settings by keyword mean; refuse a keyword that is none."""
        for name, value in settings.items():
            if name not in ToolSettings.__annotations__:
                raise TypeError(f"A tool has no setting {name!r}; known are {', '.join(ToolSettings.__annotations__)}")
            setattr(self, name, value)

    @abstractmethod
    def run(self, input: Any) -> Any:  # a text here; subclasses say what else it is
        """Do the work with a text; return text, a :class:`ToolResult`, None, or anything that JSON can hold."""

    @final
    def execute(self, input: str, context: ToolContext | None = None) -> ToolResult:
        """Give the result for one input; a tool's own failure is a result, never an exception.

        Inside another tool's call it inherits that call's context.
        """
        return drive(self._path(input, context))

    @final
    async def aexecute(self, input: str, context: ToolContext | None = None) -> ToolResult:
        """Give the result for one input, without blocking the event loop."""
        return await adrive(self._path(input, context))

    @property
    def context(self) -> ToolContext:
        """The context of the call that is being executed; outside of one, a default."""
        return current_context() or ToolContext(tool_name=self.name, logger=LOGGER.getChild(self.name))

    @property
    def log(self) -> logging.Logger:
        """The logger of this call."""
        return self.context.logger

    @property
    def metrics(self) -> ToolMetrics:
        """Where this call is counted, and the tool can count things of its own."""
        return self.context.metrics

    @property
    def executor(self) -> Executor:
        """Where the tool can do blocking work beside the call."""
        return self.context.executor

    def progress(self, fraction: float | None, message: str = "") -> None:
        """Tell whoever watches the run how far the call has come: see :meth:`ToolContext.progress`."""
        self.context.progress(fraction, message)

    def request_approval(self, description: str, **terms: Unpack[ReviewTerms]) -> ReviewDecision:
        """Ask the reviewer in the middle of the work, and wait: see :meth:`ToolContext.request_approval`.

        >>> from toolsemble.review import AutoReject, ExitEarly
        >>> class Deploy(Tool):
        ...     name = "deploy"
        ...     description = "Deploys a service"
        ...     def run(self, input: str) -> str:
        ...         decision = self.request_approval(f"Replace {input} in production?", timeout=60)
        ...         return "kept" if isinstance(decision, ExitEarly) else "deployed"
        >>> Deploy().execute("shop").output
        'deployed'
        >>> Deploy().execute("shop", ToolContext(review=AutoReject())).output
        'kept'
        """
        return self.context.request_approval(description, **terms)

    async def arequest_approval(self, description: str, **terms: Unpack[ReviewTerms]) -> ReviewDecision:
        """Ask the reviewer in the middle of the work, without blocking the event loop."""
        return await self.context.arequest_approval(description, **terms)

    def __or__(self, other: object) -> ToolPipeline:
        return pipeline_class().of(self, other)

    def __ror__(self, other: object) -> ToolPipeline:
        return pipeline_class().of(other, self)

    def explain(self, provider: str) -> list[Note]:
        """Give a note for every keyword that a provider's model does not see as it was declared.

        >>> from typing import Annotated
        >>> from pydantic import Field
        >>> from toolsemble import tool
        >>> @tool
        ... def forecast(days: Annotated[int, Field(ge=1, le=7)]) -> str:
        ...     return "sunny"
        >>> print(forecast.explain("anthropic")[0])
        $.days: minimum moved into the description: between 1 and 7
        """
        return _checked_definition(self).explain(provider)

    def _define(self) -> ToolDefinition:
        """Give the definition that the call path works with; refuse a tool that is defined wrongly."""
        return string_definition(
            getattr(self, "name", None),
            getattr(self, "description", None),
            self.run,
            returns=lambda: returned_by(self.run, {}),
            sees=MEMORY_ID_ONLY,
            holder=self,
            **self._declared(),
        )

    def _declared(self) -> dict[str, Any]:
        """Give what the tool's attributes say, as fields of a definition."""
        return {
            **definition_fields(f"Tool '{getattr(self, 'name', None)}'", self),
            "policy": self._policy(),
            **review_settings(getattr(self, "name", None), self),
        }

    def _policy(self) -> Policy | None:
        """Give what the tool's attributes say about limits; None when they say nothing."""
        said = limits_of(self)
        if said == NO_LIMITS:
            return None
        kept: Kept = vars(self).setdefault("_limits", Kept())
        return kept.policy(f"Tool '{getattr(self, 'name', None)}'", said, self.run)

    def _path(self, input: object, context: ToolContext | None) -> CallPath:
        if context is not None and not isinstance(context, ToolContext):
            raise ToolConfigurationError(f"The context of a call is a ToolContext, not {type(context).__name__}")
        definition = _checked_definition(self)
        return call_path(Call(definition, definition.accept, input, _own_context(definition, context)))


def pipeline_class() -> type[ToolPipeline]:
    """Give the class of pipelines, for those operands of ``|`` that pipelines are made of.

    >>> pipeline_class().__name__
    'ToolPipeline'
    """
    from toolsemble.pipeline.pipeline import ToolPipeline  # noqa: PLC0415 - the one import upwards: a pipeline is a tool

    return ToolPipeline


def define(source: object) -> ToolDefinition | None:
    """Give the definition of a tool object, or None when it is no tool.

    >>> define("not a tool") is None
    True
    """
    if isinstance(source, Tool):
        return _checked_definition(source)
    execute = getattr(source, "execute", None)
    if callable(execute) and all(
        hasattr(type(source), name) or hasattr(source, name) for name in ("name", "description")
    ):
        return string_definition(
            source.name,  # type: ignore[attr-defined]  # asked for above
            source.description,  # type: ignore[attr-defined]  # as above
            execute,
            inline=getattr(source, "inline", False),
            policy=_foreign_policy(source),
            **review_settings(source.name, source),  # type: ignore[attr-defined]  # as above
        )
    return None


def _foreign_policy(source: object) -> Policy | None:
    """Give what an object that is no :class:`Tool` says about limits."""
    said = limits_within(source)
    name = getattr(source, "name", None)
    return policy_of(f"Tool '{name}'", NO_LIMITS._replace(**said)) if said else None


def _checked_definition(tool: Tool) -> ToolDefinition:
    """Give a tool's definition; whatever goes wrong while its attributes are read is a problem of the definition."""
    if not callable(tool.run):
        raise ToolDefinitionError(f"{type(tool).__name__}.run must be a method, not {type(tool.run).__name__}")
    try:
        return tool._define()  # noqa: SLF001 - the classes of this module and their subclasses share it
    except ToolDefinitionError:
        raise
    except Exception as problem:
        raise ToolDefinitionError(f"{type(tool).__name__}: {describe_error(problem)}") from problem


def _own_context(definition: ToolDefinition, given: ToolContext | None) -> ToolContext:
    """Give the context of a call that no toolbox makes: what was given or is around it, with its own names."""
    outer = current_context()
    base = given or outer or ToolContext()
    inherited = base is outer
    return base.derive(
        {
            "tool_name": definition.name,
            "call_id": new_id() if inherited or not base.call_id else base.call_id,
            "run_id": base.run_id or new_id(),
            "parent_id": base.parent_id if outer is None else outer.call_id,
            # A context that a program makes inside of a call does not get around the gates of that call.
            "gates": base.gates if outer is None else outer.gates,
            "logger": definition.logger if inherited or base.logger is LOGGER else base.logger,
        }
    )
