"""The base class ``Tool``."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import (
    TYPE_CHECKING,
    Any,
    Unpack,
    final,
)

from toolsemble._engine.context import LOGGER, ToolContext, current_context
from toolsemble._engine.definition import (
    Effects,
    Isolation,
    Policy,
    ReturnBehavior,
    ToolDefinition,
    check_description,
    review_settings,
    string_definition,
)
from toolsemble._engine.execution.call import Call, CallPath
from toolsemble._engine.execution.call_path import adrive, call_path, drive
from toolsemble._engine.limits.settings import NO_LIMITS, Limits, PolicyCache, find_limits, read_limits
from toolsemble._runtime.checks import check_setting
from toolsemble._runtime.metrics import ToolMetrics
from toolsemble._runtime.text import describe_error
from toolsemble._tools.settings import BareSettings, ToolSettings, definition_fields
from toolsemble._vocabulary.call import new_id, new_run_id
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble._vocabulary.specification import check_name
from toolsemble.review._terms import TIMEOUT, OnTimeout, ReviewTerms

if TYPE_CHECKING:
    from toolsemble._engine.limits.cache import Cache
    from toolsemble._engine.limits.idempotency import Idempotency
    from toolsemble._engine.limits.rate import RateLimit
    from toolsemble._engine.limits.retries import Retries
    from toolsemble._tools.pipeline.pipeline import ToolPipeline
    from toolsemble._vocabulary.specification import Note
    from toolsemble.review._gate import Predicate
    from toolsemble.review._request import ReviewDecision


MEMORY_ID_ONLY = frozenset({"memory_id"})
"""The context fields that can affect the result of a tool class's body."""


class Tool(ABC):
    """The base class of tools whose input is one string.

    Define ``name`` and ``description`` as class attributes or properties, and override :meth:`run`, which may be
    ``async def``. Its return value becomes a result, an exception a failed result.

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
    """What the tool does; models choose tools by it."""
    requires_approval: bool | Predicate = False
    """Whether a reviewer must approve each call; or a predicate method ``(self, arguments, context)``."""
    approval_timeout: float | None = TIMEOUT
    """Seconds to wait for the reviewer; 0 or None: no limit."""
    approval_on_timeout: OnTimeout = OnTimeout.EXIT_EARLY
    """What happens to the call on a review timeout."""
    approval_role: str | None = None
    """The role that the reviewer must have, if the review handler knows roles, as stores do; None: any role."""
    approval_description: str = ""
    """The description that the reviewer sees; empty: the description of the tool."""
    editable: str = ""
    """The parameter whose text a reviewer may edit; empty: an edit replaces all arguments."""
    inline: bool = False
    """Whether :meth:`run` never blocks, so that async callers run it without a thread."""
    return_behavior: ReturnBehavior = ReturnBehavior.TO_LLM
    """The recipient of the result: the model, or the caller immediately."""
    metadata: Mapping[str, Any] | str | None = None
    """Additional data, as a mapping or the JSON text of an object. Data under a provider's name, such as
    ``{"anthropic": {"defer_loading": True}}``, is sent to that provider."""
    strict: bool | None = None
    """Whether to request the provider's strict mode; None: not set."""
    timeout: float | None = None
    """Timeout of a call in seconds after its approval, including all waiting; None: no limit."""
    isolation: Isolation = "thread"
    """Where a blocking :meth:`run` runs: ``"thread"``, or ``"process"`` for a worker process, killed at the timeout."""
    max_memory: int | None = None
    """The memory limit of the worker process in bytes, with ``isolation="process"``; None: no limit."""
    retries: int | Retries = 0
    """The number of retries of a failed call, or a ``Retries``; for tools that may be repeated."""
    effects: Effects | None = None
    """What a call changes: ``"read"`` (nothing), ``"write"``, or ``"irreversible"``; None: not declared."""
    idempotent: bool = False
    """Whether a second call with the same arguments has no further effect."""
    max_concurrency: int | None = None
    """The maximum number of concurrent calls of the tool; None: no limit."""
    resources: Callable[[Any], Any] | None = None
    """A method ``(self, arguments)`` that returns the names of a call's resources; calls that share a resource never
    overlap."""
    rate_limit: RateLimit | None = None
    """The rate limit of call starts; tools with the same object share the limit."""
    cache: Cache | float | bool | None = None
    """Caches results: seconds, True for no expiry, or a ``Cache``; False: never, even if the toolbox has a cache."""
    max_output: int | None = None
    """The maximum length of a result for the model; None: the toolbox's limit."""
    idempotency: bool | Callable[..., Any] | Idempotency = False
    """Whether identical calls run only once per run: True, a function of the arguments, or an ``Idempotency``."""
    polling: bool = False
    """Whether repeated identical calls are expected, until the result changes."""
    cpus: float | None = None
    """The CPUs that a cluster reserves for a call; None: its default."""
    gpus: float | None = None
    """The The GPUs that a cluster reserves for a call; None: none."""
    memory: int | None = None
    """The memory in bytes that a cluster reserves for a call; None: its default."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for method in ("execute", "aexecute"):
            if getattr(cls, method) is not getattr(Tool, method):
                raise TypeError(f"{cls.__name__} overrides {method}, which is final; override run instead")

    def _apply(self, settings: BareSettings) -> None:
        """Set the attributes for keyword settings; raise TypeError for an unknown one."""
        for name, value in settings.items():
            check_setting("A tool", name, ToolSettings.__annotations__)
            setattr(self, name, value)

    def _set_names(self, name: str | None, description: str | None) -> None:
        """Set the name and description of a tool; None keeps the class's value."""
        if name is not None:
            self.name = check_name(name)
        if description is not None:
            self.description = check_description(self.name, description)

    @abstractmethod
    def run(self, input: Any) -> Any:  # a str here; subclasses narrow it
        """Execute the tool with a str; return a str, a :class:`ToolResult`, None, or any JSON-serializable value."""

    @final
    def execute(self, input: str | Mapping[str, Any], context: ToolContext | None = None) -> ToolResult:
        """Execute the tool and return the result; the tool's exceptions become failed results.

        Inside another tool's call it inherits that call's context.

        :param input: the arguments, as a mapping or as JSON text; for a string tool, also the plain string
        """
        return drive(self._path(input, context))

    @final
    async def aexecute(self, input: str | Mapping[str, Any], context: ToolContext | None = None) -> ToolResult:
        """Execute the tool and return the result, without blocking the event loop."""
        return await adrive(self._path(input, context))

    @property
    def context(self) -> ToolContext:
        """The context of the current call; a default context outside a call."""
        return current_context() or ToolContext(tool_name=self.name, logger=LOGGER.getChild(self.name))

    @property
    def log(self) -> logging.Logger:
        """The logger of the current call."""
        return self.context.logger

    @property
    def metrics(self) -> ToolMetrics:
        """The metrics of the current call; the tool can add its own counters and values."""
        return self.context.metrics

    @property
    def executor(self) -> Executor:
        """An executor for the tool's blocking work."""
        return self.context.executor

    def progress(self, fraction: float | None, message: str = "") -> None:
        """Report the progress of the call to sinks and streams: see :meth:`ToolContext.progress`."""
        self.context.progress(fraction, message)

    def request_approval(self, description: str, **terms: Unpack[ReviewTerms]) -> ReviewDecision:
        """Ask the reviewer during the call, and wait for the decision: see :meth:`ToolContext.request_approval`.

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
        """Ask the reviewer during the call, without blocking the event loop."""
        return await self.context.arequest_approval(description, **terms)

    def __or__(self, other: object) -> ToolPipeline:
        return pipeline_class().of(self, other)

    def __ror__(self, other: object) -> ToolPipeline:
        return pipeline_class().of(other, self)

    def renamed(self, name: str, description: str | None = None) -> Tool:
        """Return the same tool under another name, and with another description if one is passed.

        Models, events, records and errors show the new name. Everything else stays the same, including limits: both
        share rates, caches and slots.

        >>> from toolsemble import tool
        >>> @tool
        ... def search(query: str) -> str:
        ...     '''Search the archive.'''
        ...     return f"nothing about {query}"
        >>> search.renamed("search_archive").execute("{}").text
        "Error: Missing required parameter(s) for 'search_archive': query"
        """
        from toolsemble._tools.renamed import RenamedTool  # a subclass of this class

        return RenamedTool(self, name, description)

    def __repr__(self) -> str:
        try:
            name = getattr(self, "name", None)
        except Exception:  # a property can raise anything, and a repr is shown in errors
            name = None
        # Not the repr of other values: a bound method's repr contains this object's repr.
        shown = name if isinstance(name, str) else None
        return f"{type(self).__name__}({shown!r:.80})"

    def explain(self, provider: str) -> list[Note]:
        """Return a note for every schema keyword that a provider's format cannot express as declared.

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
        """Return the definition for the call path; raise if it is invalid."""
        return string_definition(
            getattr(self, "name", None),
            getattr(self, "description", None),
            self.run,
            returns=lambda: self._find_return_type(self.run, {}),
            sees=MEMORY_ID_ONLY,
            holder=self,
            **self._declared(),
        )

    def _find_return_type(self, function: object, names: Mapping[str, Any]) -> Any:
        from toolsemble._schema.members import find_return_type

        return find_return_type(function, names)

    def _declared(self) -> dict[str, Any]:
        """Return the tool's settings as definition fields."""
        return {
            **definition_fields(f"Tool '{getattr(self, 'name', None)}'", self),
            "policy": self._policy(),
            **review_settings(getattr(self, "name", None), self),
        }

    def _policy(self) -> Policy | None:
        """Return the limits of the tool; None if it declares none."""
        limits = read_limits(self)
        if limits == NO_LIMITS:
            return None
        from toolsemble._engine.limits.policy import build_policy_for

        kept: PolicyCache = vars(self).setdefault("_limits", PolicyCache())
        owner = f"Tool '{getattr(self, 'name', None)}'"
        return kept.policy(limits, lambda: build_policy_for(owner, Limits(*limits), self.run))

    def _path(self, input: object, context: ToolContext | None) -> CallPath:
        if context is not None and not isinstance(context, ToolContext):
            raise ToolConfigurationError(f"The context of a call must be a ToolContext, not {type(context).__name__}")
        definition = _checked_definition(self)
        return call_path(Call(definition, definition.accept, input, _own_context(definition, context)))


def pipeline_class() -> type[ToolPipeline]:
    """Return the class ``ToolPipeline``, for the operator ``|``.

    >>> pipeline_class().__name__
    'ToolPipeline'
    """
    from toolsemble._tools.pipeline.pipeline import (
        ToolPipeline,
    )  # the only import of a higher layer: a pipeline is a tool

    return ToolPipeline


def define(source: object) -> ToolDefinition | None:
    """Return the definition of a tool object, or None if the object is not a tool.

    >>> define("not a tool") is None
    True
    """
    if isinstance(source, Tool):
        return _checked_definition(source)
    execute = getattr(source, "execute", None)
    if callable(execute) and all(
        hasattr(type(source), name) or hasattr(source, name) for name in ("name", "description")
    ):
        name, description = source.name, source.description  # type: ignore[attr-defined]  # checked above
        settings = {
            "inline": getattr(source, "inline", False),
            "policy": _foreign_policy(source),
            **review_settings(name, source),
        }
        if (kind := getattr(source, "input_type", str)) is str:
            return string_definition(name, description, execute, **settings)
        from toolsemble._tools.typed import define_typed  # a subclass of Tool is there

        return define_typed(name, description, execute, kind, settings)
    return None


def _foreign_policy(source: object) -> Policy | None:
    """Return the limits of an object that is not a :class:`Tool`."""
    limits = find_limits(source)
    if not limits:
        return None
    from toolsemble._engine.limits.policy import build_policy

    return build_policy(f"Tool '{getattr(source, 'name', None)}'", NO_LIMITS._replace(**limits))


def _checked_definition(tool: Tool) -> ToolDefinition:
    """Return the definition of a tool; exceptions while reading its attributes become ToolDefinitionError."""
    if not callable(tool.run):
        raise ToolDefinitionError(f"{type(tool).__name__}.run must be a method, not {type(tool.run).__name__}")
    try:
        return tool._define()  # noqa: SLF001 - a class of this module
    except ToolDefinitionError:
        raise
    except Exception as problem:
        raise ToolDefinitionError(f"{type(tool).__name__}: {describe_error(problem)}") from problem


def _own_context(definition: ToolDefinition, given: ToolContext | None) -> ToolContext:
    """Return the context of a call outside a toolbox, derived from a given or the current context."""
    outer = current_context()
    base = given or outer or ToolContext()
    inherited = base is outer
    return base.derive(
        {
            "tool_name": definition.name,
            "call_id": new_id() if inherited or not base.call_id else base.call_id,
            "run_id": base.run_id or (new_id() if base.review is None else new_run_id()),
            "parent_id": base.parent_id if outer is None else outer.call_id,
            # A context created inside a call must not skip that call's gates.
            "gates": base.gates if outer is None else outer.gates,
            "logger": definition.logger if inherited or base.logger is LOGGER else base.logger,
            "place": None,  # calls made by a body are not recorded, because their order is not deterministic
        }
    )
