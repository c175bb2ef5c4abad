"""``ToolDefinition``: a tool as the call path uses it, its ``Policy``, and how both are built, checked and varied."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

from toolsemble._engine.context import LOGGER, ToolContext
from toolsemble._runtime.event_loops import is_async
from toolsemble._schema.decode import (
    Arguments,
    CautiousReader,
    Decoded,
    Read,
    decode_arguments,
    decode_input,
    json_text,
    plain_input,
)
from toolsemble._schema.masking import REDACTION
from toolsemble._vocabulary.errors import ToolArgumentsError, ToolDefinitionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble._vocabulary.specification import METHOD, ToolSpecification, check_name, is_method
from toolsemble.review._terms import TIMEOUT, OnTimeout

if TYPE_CHECKING:
    from toolsemble._vocabulary.specification import Note
    from toolsemble.review._gate import Gate


Isolation: TypeAlias = Literal["thread", "process"]
"""Where a blocking body runs: in a thread, or in a worker process, which can be killed."""

Effects: TypeAlias = Literal["read", "write", "irreversible"]
"""What a call changes: nothing, something that can be undone, or something that cannot."""

Inner: TypeAlias = Callable[[Any], Generator[Any, Any, Any]]
"""Returns the path of the inner layers and the body for a context; each call returns a new path."""


class Layer(ABC):
    """The base class of layers around the body of a call: they wait, return a result instead, or run the body again.

    A layer belongs to one tool and is shared by all its calls, in any thread or event loop. Only :meth:`around` is
    needed, and the rest has defaults.
    """

    __slots__ = ()

    binds: bool = False
    """Whether it computes a key of the input, or runs the body again: the input must then not change."""
    keeps_outcomes: bool = False
    """Whether it answers later calls with the outcome of one: a call must then not be left open inside."""
    survives: bool = False
    """Whether it knows a call's outcome after a crash."""

    @abstractmethod
    def around(self, definition: Any, value: Any, context: Any, inner: Inner) -> Generator[Any, Any, Any]:
        """Run one call of a definition with the input of its body; return what a body would return.

        It yields ``Work`` objects, as the call path does. Every wait ends at ``context.deadline``.
        """

    def check(self, definition: Any) -> None:
        """Raise if the layer cannot be used for a definition; by default it can."""
        _ = definition

    def find_answer(self, definition: Any, value: Any, context: Any) -> Generator[Any, Any, ToolResult | None]:
        """Return the answer to a call before a reviewer is asked about it; None, as here, for a call to be made.

        It yields ``Work`` objects, as the call path does.
        """
        _ = definition, value, context
        yield from ()
        return None


class NeededSlots(Protocol):
    """A function that returns the slots and resource names that a call with an input holds while it runs."""

    @property
    def binds(self) -> bool:
        """Whether the names depend on the input, which must not change afterwards."""
        ...

    def __call__(self, value: Any, /) -> Iterable[Hashable]:
        """Return the slots and resource names for an input."""
        ...


@dataclass(frozen=True, slots=True)
class Policy:
    """The checked limits and effects of a tool, for the call path.

    >>> Policy(timeout=5, effects="read").hints
    {'readOnlyHint': True}
    """

    timeout: float | None = None
    """Seconds that a call may take after its approval; None: no limit."""
    isolation: Isolation = "thread"
    """Where a blocking body runs."""
    max_memory: int | None = None
    """Bytes of memory that the worker process may use; None: no limit."""
    cpus: float | None = None
    """CPUs that a cluster reserves for a call; None: its default."""
    gpus: float | None = None
    """GPUs that a cluster reserves for a call; None: none."""
    memory: int | None = None
    """Bytes of memory that a cluster reserves for a call; None: its default."""
    cluster: Any = field(default=None, compare=False)
    """The executor of the cluster that runs a blocking body; None: it runs on this machine."""
    effects: Effects | None = None
    """What a call changes; None: not declared."""
    idempotent: bool = False
    """Whether a second call with the same arguments has no further effect."""
    retried: bool = False
    """Whether failed calls are retried."""
    cached: bool = False
    """Whether caching is declared, on or off."""
    polling: bool = False
    """Whether repeated identical calls are expected, until the result changes."""
    max_output: int | None = None
    """Characters of a result that the model gets; None: the limit of the toolbox."""
    needs: NeededSlots | None = None
    """Returns the slots and resource names that a call with an input holds while it runs; None: none."""
    rates: tuple[Any, ...] = ()
    """The rate limits, the tool's own first."""
    layers: tuple[Layer, ...] = ()
    """The layers around the body and the wait for its slots, innermost first."""
    nearest: tuple[Layer, ...] = ()
    """The layers directly around the body, within all limits, innermost first; for tests."""
    limits: bool = field(init=False, compare=False)
    """Whether the policy limits calls; if not, it only describes the tool."""
    binds: bool = field(init=False, compare=False)
    """Whether a key, resource names or retries depend on the input, which must not change afterwards."""

    def __post_init__(self) -> None:
        held = self.timeout is not None or self.needs is not None or self.isolation != "thread" or bool(self.layers)
        object.__setattr__(self, "limits", held or self.cluster is not None or bool(self.rates or self.nearest))
        bound = any(each.binds for each in self.layers) or (self.needs is not None and self.needs.binds)
        object.__setattr__(self, "binds", bound)

    @property
    def repeatable(self) -> bool:
        """Whether a call may be repeated if the outcome of the first one is unknown."""
        return self.effects == "read" or self.idempotent

    @property
    def hints(self) -> dict[str, bool]:
        """The effects as Model Context Protocol annotations.

        >>> Policy(effects="irreversible").hints
        {'readOnlyHint': False, 'destructiveHint': True}
        """
        hints: dict[str, bool] = {}
        if self.effects is not None:
            hints["readOnlyHint"] = self.effects == "read"
        if self.effects in ("write", "irreversible"):
            hints["destructiveHint"] = self.effects == "irreversible"
        if self.idempotent:
            hints["idempotentHint"] = True
        return hints


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
    """A context field that a tool requires.

    >>> Need("find_order", "ToolContext[Shop]").tool
    'find_order'
    """

    tool: str
    """The name of the tool."""
    declared: str
    """The type of the parameter that takes it, as declared."""


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
    """A tool as the call path uses it; the call path does not depend on tool classes."""

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
    """The digest with which a lock file pins the tool: an approval holds for this version only; "" without a lock."""
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
            self.check_no_init_vars("a reviewer could not see it")

    def _find_deps_need(self) -> Need | None:
        """Return which tool needs deps; computed once, so that a call only reads a field."""
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
        """Raise if the input type has an InitVar; ``otherwise`` says what would not work."""
        if self.arguments is not None and (init_only := self.arguments.init_only):
            raise ToolDefinitionError(
                f"Tool '{self.name}': {init_only} is an InitVar, stored by no object, so {otherwise}; make it a field"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names that an approval pattern may match: the tool's, and its name on an MCP server."""
        origin = self.metadata.get("mcp")
        if not isinstance(origin, Mapping) or not isinstance(own := origin.get("name"), str):
            return (self.name,)
        # The tool's name may have been shortened, so that it no longer describes the tool.
        return tuple(dict.fromkeys((self.name, own, f"{origin.get('server')}_{own}")))

    @property
    def only_blocks(self) -> bool:
        """Whether the body is blocking and a call has no approval, no limits and no flow: it needs only a thread."""
        bounded = self.policy is not None and self.policy.limits
        return not (self.awaits or self.inline or bounded) and self.gate is None and self.flow is None

    def specification(self, *, bounds: bool = False) -> ToolSpecification:
        """Return the specification for models; with ``bounds``, bounds are also schema keywords."""
        from toolsemble._schema.provider_schema import make_portable

        parameters = {"type": "object", **make_portable(self.schema(), bounds=bounds)[0]}
        nothing = not parameters.get("properties") and parameters.get("additionalProperties") is False
        taken = None if nothing else parameters
        metadata = self.metadata if self.policy is None else {**self.policy.hints, **self.metadata}
        return ToolSpecification(self.name, self.description, taken, metadata, self.strict)

    def explain(self, provider: str) -> list[Note]:
        """Return a note for every schema keyword that a provider's format cannot express as declared."""
        from toolsemble._schema.provider_schema import make_portable
        from toolsemble._vocabulary.provider_list import PROVIDERS, load_wire_format

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


def map_definition(definition: ToolDefinition, change: Callable[[ToolDefinition], ToolDefinition]) -> ToolDefinition:
    """Apply a function to a definition and to the parts of its flow at every depth; return the new definition."""
    changed = change(definition)
    if changed.flow is None:
        return changed
    return replace(changed, flow=changed.flow.map(lambda part: map_definition(part, change)))


def always_gated_in(parts: Iterable[ToolDefinition]) -> tuple[ToolDefinition, ...]:
    """Return the parts, at every depth, that need approval whenever they run."""
    found: list[ToolDefinition] = []
    for part in parts:
        if part.gate is not None and not part.gate.predicates:
            found.append(part)
        if part.flow is not None:
            found += part.flow.always_gated
    return tuple(found)


def to_dry_run(definition: ToolDefinition) -> ToolDefinition:
    """Return the definition for a dry run: calls are decoded, reviewed and recorded, but the body does not run.

    >>> from toolsemble._engine.definition import string_definition
    >>> to_dry_run(string_definition("shout", "Says it louder", str.upper)).body("hello").output
    "Dry run: 'shout' was not run"
    """
    result = dry_result(definition.name)
    return replace(
        definition,
        body=lambda _: result,
        awaits=False,
        inline=True,
        policy=None,
        needs={},
        reviewed_as=f"Dry run, nothing will be done: {definition.reviewed_as or definition.description}",
        flow=None if definition.flow is None else definition.flow.to_dry_run(),
    )


def dry_result(name: str) -> ToolResult:
    """Return the result of a tool in a dry run.

    >>> dry_result("save").attributes["dry_run"]
    True
    """
    return ToolResult.success(f"Dry run: '{name}' was not run", attributes={"dry_run": True})


def add_layer(definition: ToolDefinition, layer: Layer | None) -> ToolDefinition:
    """Return the definition with a layer directly around its body, within all limits; None adds nothing."""
    if layer is None:
        return definition
    policy = definition.policy or Policy()
    return replace(definition, policy=replace(policy, nearest=(*policy.nearest, layer)))


def string_definition(name: object, description: object, body: Callable[[str], Any], **settings: Any) -> ToolDefinition:
    """Return the definition of a tool that takes one string; raise if the name or description is not valid.

    >>> shout = string_definition("shout", "Says it louder", str.upper, inline=True)
    >>> shout.decode('{"input": "hello"}', frozenset())
    ('hello', ())
    """
    owner = check_name(name)
    return ToolDefinition(
        name=owner,
        description=check_description(owner, description),
        body=body,
        decode=lambda text, steps: decode_input(text, owner, steps),
        accept=lambda value, steps: _accept_input(value, owner, steps),
        schema=_string_schema,
        awaits=is_async(body),
        **settings,
    )


def _accept_input(value: object, owner: str, steps: frozenset[str]) -> Decoded:
    """Return the input that a program passes: text unchanged, arguments as the JSON that a model would send."""
    if isinstance(value, Mapping):
        return decode_input(json_text(dict(value), owner), owner, steps)
    return plain_input(value, owner), ()


def typed_definition(
    name: object, description: object, body: Callable[[Any], Any], arguments: Arguments, **settings: Any
) -> ToolDefinition:
    """Return the definition of a tool with named parameters; raise if the name or description is not valid."""
    owner = check_name(name)

    decode = partial(_decode_strict if settings.get("strict") else decode_arguments, arguments)

    def accept(value: Any, steps: frozenset[str]) -> Decoded:
        return decode(value if isinstance(value, str) else _write_arguments(value, arguments.owner), steps)

    return ToolDefinition(
        name=owner,
        description=check_description(owner, description),
        body=body,
        decode=decode,
        accept=accept,
        schema=lambda: arguments.schema,
        arguments=arguments,
        secret=bool(arguments.secret_keys),
        **{"present": arguments.present, **settings},
    )


def _write_arguments(value: object, owner: str) -> str:
    """Return a program's arguments as JSON text; None means no arguments."""
    if isinstance(value, Mapping):
        return json_text(dict(value), owner)
    return json_text({} if value is None else value, owner)


def _decode_strict(arguments: Arguments, text: str, steps: frozenset[str]) -> Decoded:
    """Decode arguments with null for omitted parameters: strict mode has no other way to omit one."""
    return decode_arguments(arguments, text, steps | {"null"})


def rename_definition(definition: ToolDefinition, name: object, description: object = None) -> ToolDefinition:
    """Return the definition of the same tool under another name; raise if the name or description is not valid.

    :param description: another description for the model; None: the definition's own
    """
    old, new = definition.name, check_name(name)
    arguments = definition.arguments
    if arguments is not None and arguments.owner == old:
        arguments = copy(arguments)
        arguments.owner = new
    return replace(
        definition,
        name=new,
        description=definition.description if description is None else check_description(new, description),
        decode=_RenamedReader(definition.decode, old, new),
        accept=_RenamedReader(definition.accept, old, new),
        arguments=arguments,
    )


class _RenamedReader:
    """A reader of arguments whose errors name a tool by its new name."""

    __slots__ = ("_new", "_old", "_read")

    def __init__(self, read: Read, old: str, new: str) -> None:
        self._read = read
        self._old = f" for '{old}'"
        self._new = f" for '{new}'"

    def __call__(self, value: Any, steps: frozenset[str]) -> Decoded:
        """Read arguments."""
        try:
            return self._read(value, steps)
        except ToolArgumentsError as problem:
            problem.args = (str(problem).replace(self._old, self._new, 1),)
            raise


def review_settings(name: object, source: object) -> dict[str, Any]:
    """Return the review settings of an object as fields of a definition; raise if one is not valid."""
    requires_approval, editable = getattr(source, "requires_approval", False), getattr(source, "editable", "")
    timeout = getattr(source, "approval_timeout", TIMEOUT)
    on_timeout = getattr(source, "approval_on_timeout", OnTimeout.EXIT_EARLY)
    described = getattr(source, "approval_description", "")
    if not isinstance(described, str):
        raise ToolDefinitionError(f"Tool '{name}': approval_description must be a str, not {described!r:.80}")
    settings = {"editable": editable, "reviewed_as": described}
    if requires_approval is False:
        return settings
    from toolsemble.review._gate import build_gate

    role = getattr(source, "approval_role", None)
    return settings | {"gate": build_gate(f"Tool '{name}'", requires_approval, timeout, on_timeout, role)}


def _string_schema() -> dict[str, Any]:
    described = {"type": "string", "description": "The input to pass to the tool"}
    return {"type": "object", "properties": {"input": described}, "required": ["input"]}


def check_description(name: str, description: object) -> str:
    """Return the description if it is valid; raise otherwise.

    >>> check_description("clock", None)
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Tool 'clock': description must be a str, not NoneType
    """
    if is_method(description):
        raise ToolDefinitionError(f"Tool '{name}': {METHOD.format(name='description')}")
    if not isinstance(description, str):
        raise ToolDefinitionError(f"Tool '{name}': description must be a str, not {type(description).__name__}")
    try:
        description.encode()
    except UnicodeEncodeError as problem:
        raise ToolDefinitionError(f"Tool '{name}': description is not valid text: {problem}") from None
    return description
