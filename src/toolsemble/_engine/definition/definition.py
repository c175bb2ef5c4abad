"""``ToolDefinition``: a tool as the call path uses it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from toolsemble._engine.context import LOGGER, ToolContext
from toolsemble._engine.definition.policy import Policy
from toolsemble._schema.decode import Arguments, CautiousReader, Decoded
from toolsemble._schema.masking.log_filter import REDACTION
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.specification import ToolSpecification

if TYPE_CHECKING:
    from toolsemble._vocabulary.note import Note
    from toolsemble.review._gate import Gate


class ReturnBehavior(Enum):
    """The recipient of a tool's result: the model, or the caller immediately.

    >>> ReturnBehavior.IMMEDIATE.name
    'IMMEDIATE'
    """

    TO_LLM = "to_llm"
    """The model, which continues with it."""
    IMMEDIATE = "immediate"
    """The caller, if every call of the turn is immediate."""
    IMMEDIATE_IF_LAST = "immediate_if_last"
    """The caller, if the last call of the turn has this setting."""


class Names(NamedTuple):
    """Names of tools, as far as they are known in advance."""

    found: tuple[str, ...]
    """The names."""
    all_known: bool = True
    """Whether the list is complete; False if tools are looked up later."""


class Need(NamedTuple):
    """A context field that a tool cannot do without.

    >>> Need("find_order", "ToolContext[Shop]").tool
    'find_order'
    """

    tool: str
    """The name of the tool."""
    declared: str
    """The type of the parameter that takes it, as it is declared."""


class Flow(Protocol):
    """The work of a tool that consists of other tools: a generator that runs their call paths."""

    def __call__(self, value: Any, context: ToolContext, settings: Any, report: Any, /) -> Generator[Any, Any, Any]:
        """Run the parts with the settings and the report of the call; return what a body would return."""
        ...

    def map(self, change: Callable[[ToolDefinition], ToolDefinition], /) -> Flow:
        """Return the same flow with a function applied to each part."""
        ...

    def to_dry_run(self) -> Flow:
        """Return the same flow for a dry run, in which no body runs."""
        ...

    def parts(self) -> tuple[ToolDefinition, ...]:
        """Return the definitions of the tools that the flow consists of."""
        ...

    def tools(self) -> tuple[ToolDefinition, ...]:
        """Return the definitions of all tools that the flow may run: its parts and their compensations."""
        ...

    @property
    def always_gated(self) -> tuple[ToolDefinition, ...]:
        """The parts, at every depth, that always need approval and are always run."""
        ...

    @property
    def how(self) -> str:
        """How the parts are run, in words."""
        ...

    @property
    def kind(self) -> Literal["sequence", "parallel", "each", "choice"]:
        """How the parts are run, for programs."""
        ...


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as the call path uses it; the call path does not depend on tool classes.

    >>> definition = ToolDefinition(
    ...     name="shout",
    ...     description="Says it louder",
    ...     body=str.upper,
    ...     decode=lambda text, steps: (text, ()),
    ...     accept=lambda value, steps: (value, ()),
    ... )
    >>> definition.logger.name
    'toolsemble.tool.shout'
    """

    name: str
    """The name of the tool."""
    description: str
    """What the tool does, for the model."""
    body: Callable[[Any], Any]
    """The function that does the work; takes the decoded input."""
    decode: Callable[[str, frozenset[str]], Decoded]
    """Decodes JSON text from a model to the body's input, with the enabled repair steps."""
    accept: Callable[[Any, frozenset[str]], Decoded]
    """Decodes a value passed by a program to the body's input."""
    schema: Callable[[], Mapping[str, Any]] = dict
    """Returns the full JSON Schema of the arguments; called when a specification is needed."""
    awaits: bool = False
    """Whether the body is async."""
    inline: bool = False
    """Whether the body never blocks, so that async callers run it without a thread."""
    gate: Gate | None = None
    """When a reviewer must approve a call before the body runs; None: never."""
    reviewed_as: str = ""
    """The description that a reviewer sees; empty: the description of the tool."""
    editable: str = ""
    """The parameter whose text a reviewer may edit; empty: an edit replaces all arguments."""
    present: Callable[..., Any] = lambda value, **_: value
    """Converts the body's input to what a reviewer is shown: a copy as JSON values; secrets are hidden without
    ``reveal``."""
    return_behavior: ReturnBehavior = ReturnBehavior.TO_LLM
    """The recipient of the result."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Further data for providers."""
    strict: bool | None = None
    """Whether to request the provider's strict mode; None: not set."""
    arguments: Arguments | None = None
    """The decoder of named parameters; None for a tool that takes one string."""
    hand: Callable[[Any, frozenset[str]], Decoded] | None = None
    """Converts the output of the previous step of a pipeline to the body's input; None: by its parameters."""
    returns: Callable[[], Any] = lambda: Any
    """Returns the declared return type of the body."""
    policy: Policy | None = None
    """The declared limits; None if there are none."""
    sees: frozenset[str] = frozenset()
    """The context fields that the body receives besides its input: ``"memory_id"``, ``"parameters"``, ``"deps"``."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """The context fields that must be set for the tool, ``"memory_id"`` and ``"deps"``, each with the declared type."""
    holder: object = None
    """The object whose state the body may depend on: a tool object, or the object of a method; None for a function."""
    flow: Flow | None = None
    """The flow to run instead of the body, if the tool consists of other tools."""
    inside: Callable[[], Names] | None = None
    """Returns the names of the tools that a call can call, as an agent does; None if there are none."""
    delegates: bool = False
    """Whether the body only runs an agent, whose replies and calls a journal records one by one."""
    secret: bool = False
    """Whether a parameter is or contains a secret."""
    pinned: str = ""
    """The digest by which a lock has pinned the tool: an approval is valid for this version only; "" without a lock."""
    logger: logging.Logger = field(init=False)
    """The logger of the tool, named after it."""
    deps_need: Need | None = field(init=False)
    """The tool, or the first one in its flow, that cannot run without deps; None: there is none."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "logger", LOGGER.getChild(self.name))
        self.logger.addFilter(REDACTION)  # any tool can be called inside a call with secrets
        object.__setattr__(self, "deps_need", self._find_deps_need())
        if self.strict:
            self._check_strict()
        if self.editable:
            self._check_editable()
        if self.policy is not None:
            self._check_policy(self.policy)
        if self._is_irreversible() and not isinstance(self.decode, CautiousReader):
            object.__setattr__(self, "decode", CautiousReader(self.decode))
            object.__setattr__(self, "accept", CautiousReader(self.accept))
        if self.gate is not None:
            self.check_no_init_vars("a reviewer could not be shown it")

    def _find_deps_need(self) -> Need | None:
        """Return which tool needs deps; found here, so that a call only has to look."""
        if "deps" in self.needs:
            return Need(self.name, self.needs["deps"])
        parts = () if self.flow is None else self.flow.tools()
        return next((part.deps_need for part in parts if part.deps_need is not None), None)

    def _is_irreversible(self) -> bool:
        """Return whether the tool, or a part of its flow, is declared irreversible."""
        if self.policy is not None and self.policy.effects == "irreversible":
            return True
        return self.flow is not None and any(isinstance(part.decode, CautiousReader) for part in self.flow.parts())

    def check_no_init_vars(self, otherwise: str) -> None:
        """Raise if the input type has an InitVar; ``otherwise`` says what could not work."""
        if self.arguments is not None and (init_only := self.arguments.init_only):
            raise ToolDefinitionError(
                f"Tool '{self.name}': {init_only} is an InitVar, which no object keeps, so {otherwise}; make it a field"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a pattern of approval may mean: the tool's, and the one that it has at an MCP server."""
        origin = self.metadata.get("mcp")
        if not isinstance(origin, Mapping) or not isinstance(own := origin.get("name"), str):
            return (self.name,)
        # The tool's name may have been shortened, so that it no longer says what the tool does.
        return tuple(dict.fromkeys((self.name, own, f"{origin.get('server')}_{own}")))

    @property
    def only_blocks(self) -> bool:
        """Whether the body is blocking and a call has no approval, no limits and no flow: it needs only a thread."""
        bounded = self.policy is not None and self.policy.limits
        return not (self.awaits or self.inline or bounded) and self.gate is None and self.flow is None

    def specification(self, *, bounds: bool = False) -> ToolSpecification:
        """Return the specification that models are shown; with ``bounds``, also as keywords of the schema."""
        from toolsemble._schema.portable import make_portable

        parameters = {"type": "object", **make_portable(self.schema(), bounds=bounds)[0]}
        nothing = not parameters.get("properties") and parameters.get("additionalProperties") is False
        taken = None if nothing else parameters
        metadata = self.metadata if self.policy is None else {**self.policy.hints, **self.metadata}
        return ToolSpecification(self.name, self.description, taken, metadata, self.strict)

    def explain(self, provider: str) -> list[Note]:
        """Return a note for every schema keyword that a provider's format cannot express as declared."""
        from toolsemble._schema.portable import make_portable
        from toolsemble._vocabulary.providers import PROVIDERS, load_wire_format

        adapt = load_wire_format(provider).adapt
        parameters, notes = make_portable(self.schema(), bounds=PROVIDERS[provider].keeps_bounds)
        strict = {"strict": True} if self.strict and PROVIDERS[provider].has_strict else {}
        return [*notes, *adapt(parameters, **strict)[1]]

    def _check_editable(self) -> None:
        """Raise if ``editable`` does not name a parameter of type string."""
        fields = self.specification().parameters or {}
        if fields.get("properties", {}).get(self.editable, {}).get("type") != "string":
            raise ToolDefinitionError(f"Tool '{self.name}': editable must name a str parameter, not {self.editable!r}")

    def _check_policy(self, policy: Policy) -> None:
        """Raise if a limit cannot be enforced for this body."""
        owner = f"Tool '{self.name}'"
        if policy.timeout is not None and self.inline and not self.awaits and self.flow is None:
            raise ToolDefinitionError(
                f"{owner}: timeout cannot be enforced for a sync inline body; remove inline, or make it async"
            )
        if policy.retried and self.flow is not None:
            raise ToolDefinitionError(
                f"{owner}: retries need a body; it consists of tools, so declare retries on those"
            )
        if policy.isolation == "process" and self.flow is not None:
            raise ToolDefinitionError(
                f"{owner}: isolation needs a body; it consists of tools, so declare isolation on those"
            )
        if policy.isolation == "process" and (self.awaits or self.inline):
            kind = "async" if self.awaits else "inline"
            raise ToolDefinitionError(f"{owner}: isolation='process' needs a blocking body, and this one is {kind}")
        for layer in policy.layers:
            layer.check(self)

    def _check_strict(self) -> None:
        """Raise if strict mode cannot express the schema of a strict tool."""
        try:
            self.explain("openai")
        except ValueError as problem:
            raise ToolDefinitionError(f"Tool '{self.name}' cannot be strict: {problem}") from None
