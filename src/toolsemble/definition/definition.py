"""``ToolDefinition``: a tool as the call path uses it, and the functions that build and transform definitions."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, Protocol

from toolsemble.context import LOGGER, ToolContext
from toolsemble.definition.policy import Policy
from toolsemble.errors import ToolDefinitionError
from toolsemble.masking.log_filter import REDACTION
from toolsemble.note import Note
from toolsemble.result import ToolResult
from toolsemble.review.gate import Gate, build_gate
from toolsemble.review.request import TIMEOUT, OnTimeout
from toolsemble.runtime.concurrency import is_async
from toolsemble.schema.decode import (
    Arguments,
    CautiousReader,
    Decoded,
    decode_arguments,
    decode_input,
    json_text,
    plain_input,
)
from toolsemble.schema.portable import make_portable
from toolsemble.specification import ToolSpecification


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


_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Names(NamedTuple):
    """Names of tools, as far as they are known in advance."""

    found: tuple[str, ...]
    """The names."""
    all_known: bool = True
    """Whether the list is complete; False if tools are looked up later."""


class Flow(Protocol):
    """The work of a tool that consists of other tools: a generator that runs their call paths."""

    def __call__(self, value: Any, context: ToolContext, walk: Any, trace: Any, /) -> Generator[Any, Any, Any]:
        """Run the parts with an input, in the walk and trace of the call; return what a body would return."""
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
    """The context fields that the body receives besides its input: ``"memory_id"``, ``"parameters"``."""
    holder: object = None
    """The object whose state the body may depend on: a tool object, or the object of a method; None for a function."""
    flow: Flow | None = None
    """The flow to run instead of the body, if the tool consists of other tools."""
    inside: Callable[[], Names] | None = None
    """Returns the names of the tools that a call can call, as an agent does; None if there are none."""
    secret: bool = False
    """Whether a parameter is or contains a secret."""
    logger: logging.Logger = field(init=False)
    """The logger of the tool, named after it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "logger", LOGGER.getChild(self.name))
        self.logger.addFilter(REDACTION)  # any tool can be called inside a call with secrets
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
    def only_blocks(self) -> bool:
        """Whether the body is blocking and a call has no approval, no limits and no flow: it needs only a thread."""
        bounded = self.policy is not None and self.policy.limits
        return not (self.awaits or self.inline or bounded) and self.gate is None and self.flow is None

    def specification(self) -> ToolSpecification:
        """Return the specification that models are shown."""
        parameters = {"type": "object", **make_portable(self.schema())[0]}
        nothing = not parameters.get("properties") and parameters.get("additionalProperties") is False
        taken = None if nothing else parameters
        metadata = self.metadata if self.policy is None else {**self.policy.hints, **self.metadata}
        return ToolSpecification(self.name, self.description, taken, metadata, self.strict)

    def explain(self, provider: str) -> list[Note]:
        """Return a note for every schema keyword that a provider's format cannot express as declared."""
        from toolsemble.providers import PROVIDERS, load_wire_format  # noqa: PLC0415 - calls do not need them

        adapt = load_wire_format(provider).adapt
        parameters, notes = make_portable(self.schema())
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
        accept=lambda value, _: (plain_input(value, owner), ()),
        schema=_string_schema,
        awaits=is_async(body),
        **settings,
    )


def typed_definition(
    name: object, description: object, body: Callable[[Any], Any], arguments: Arguments, **settings: Any
) -> ToolDefinition:
    """Return the definition of a tool with named parameters; raise if the name or description is not valid."""
    owner = check_name(name)

    decode = partial(_decode_strict if settings.get("strict") else decode_arguments, arguments)

    def accept(value: Any, steps: frozenset[str]) -> Decoded:
        text = value if isinstance(value, str) else json_text({} if value is None else value, arguments.owner)
        return decode(text, steps)

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


def _decode_strict(arguments: Arguments, text: str, steps: frozenset[str]) -> Decoded:
    """Decode arguments with null for omitted parameters: strict mode has no other way to omit one."""
    return decode_arguments(arguments, text, steps | {"null"})


def map_definition(definition: ToolDefinition, change: Callable[[ToolDefinition], ToolDefinition]) -> ToolDefinition:
    """Apply a function to a definition and to the parts of its flow at every depth; return the new definition.

    >>> shout = string_definition("shout", "Says it louder", str.upper)
    >>> map_definition(shout, lambda each: replace(each, name=each.name.upper())).name
    'SHOUT'
    """
    changed = change(definition)
    if changed.flow is None:
        return changed
    return replace(changed, flow=changed.flow.map(lambda part: map_definition(part, change)))


def always_gated_in(parts: Iterable[ToolDefinition]) -> tuple[ToolDefinition, ...]:
    """Return the parts, at every depth, that need approval whenever they run.

    >>> shout = string_definition("shout", "Says it louder", str.upper)
    >>> [each.name for each in always_gated_in([shout, replace(shout, gate=Gate())])]
    ['shout']
    """
    found: list[ToolDefinition] = []
    for part in parts:
        if part.gate is not None and not part.gate.predicates:
            found.append(part)
        if part.flow is not None:
            found += part.flow.always_gated
    return tuple(found)


def to_dry_run(definition: ToolDefinition) -> ToolDefinition:
    """Return the definition for a dry run: calls are decoded, reviewed and recorded, but the body does not run.

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
        reviewed_as=f"Dry run, nothing will be done: {definition.reviewed_as or definition.description}",
        flow=None if definition.flow is None else definition.flow.to_dry_run(),
    )


def dry_result(name: str) -> ToolResult:
    """Return the result of a tool in a dry run.

    >>> dry_result("save").attributes["dry_run"]
    True
    """
    return ToolResult.success(f"Dry run: '{name}' was not run", attributes={"dry_run": True})


def review_settings(name: object, source: object) -> dict[str, Any]:
    """Return the review settings of an object as fields of a definition; raise if one is not valid.

    >>> class Delete:
    ...     requires_approval = True
    ...     approval_timeout = 60
    >>> review_settings("delete", Delete())["gate"].timeout
    60
    """
    requires_approval, editable = getattr(source, "requires_approval", False), getattr(source, "editable", "")
    timeout = getattr(source, "approval_timeout", TIMEOUT)
    on_timeout = getattr(source, "approval_on_timeout", OnTimeout.EXIT_EARLY)
    gate = build_gate(f"Tool '{name}'", requires_approval, timeout, on_timeout, getattr(source, "approval_role", None))
    described = getattr(source, "approval_description", "")
    if not isinstance(described, str):
        raise ToolDefinitionError(f"Tool '{name}': approval_description must be a str, not {described!r:.80}")
    return {"gate": gate, "editable": editable, "reviewed_as": described}


def _string_schema() -> dict[str, Any]:
    described = {"type": "string", "description": "The input to pass to the tool"}
    return {"type": "object", "properties": {"input": described}, "required": ["input"]}


def is_name(name: object) -> bool:
    """Return whether this is a valid name for a tool.

    >>> is_name("web_search"), is_name("web search")
    (True, False)
    """
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(name: object) -> str:
    """Return the name if it is valid; raise otherwise.

    >>> check_name("web search")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Invalid tool name 'web search': use 1 to 64 letters, digits, '_' or '-'
    """
    if is_name(name):
        return str(name)
    if name is None:
        raise ToolDefinitionError("The tool has no name; add an attribute or property 'name' to its class")
    if isinstance(name, str) and not name.strip():
        raise ToolDefinitionError("Invalid tool name: it is blank; use 1 to 64 letters, digits, '_' or '-'")
    raise ToolDefinitionError(f"Invalid tool name {name!r:.80}: use 1 to 64 letters, digits, '_' or '-'")


def check_description(name: str, description: object) -> str:
    """Return the description if it is valid; raise otherwise.

    >>> check_description("clock", None)
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Tool 'clock': description must be a str, not NoneType
    """
    if not isinstance(description, str):
        raise ToolDefinitionError(f"Tool '{name}': description must be a str, not {type(description).__name__}")
    try:
        description.encode()
    except UnicodeEncodeError as problem:
        raise ToolDefinitionError(f"Tool '{name}': description is not valid text: {problem}") from None
    return description
