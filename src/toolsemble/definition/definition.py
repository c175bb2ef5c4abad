"""A tool as the call path sees it: what to read, what to run, and how."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from importlib import import_module  # provider modules are loaded when they are used
from typing import Any, NamedTuple, Protocol

from toolsemble.context import LOGGER, ToolContext
from toolsemble.definition.policy import Policy
from toolsemble.errors import ToolDefinitionError
from toolsemble.masking.log_filter import REDACTION
from toolsemble.note import Note
from toolsemble.result import ToolResult
from toolsemble.review.gate import Gate, gate_of
from toolsemble.review.request import TIMEOUT, OnTimeout
from toolsemble.runtime.concurrency import is_async
from toolsemble.schema.decode import (
    Arguments,
    Cautious,
    Decoded,
    decode_arguments,
    decode_input,
    json_text,
    plain_input,
)
from toolsemble.schema.portable import portable
from toolsemble.specification import ToolSpecification

PROVIDERS = ("openai", "anthropic", "google", "bedrock", "mistral", "ollama", "mcp")
"""The providers whose wire formats are known."""

_STRICT = {"openai", "anthropic", "bedrock", "mistral"}


class ReturnBehavior(Enum):
    """Who gets a tool's result: the model, or the caller at once.

    >>> ReturnBehavior.IMMEDIATE.name
    'IMMEDIATE'
    """

    TO_LLM = "to_llm"
    """The model, which goes on with it."""
    IMMEDIATE = "immediate"
    """The caller, when every call of the turn is immediate."""
    IMMEDIATE_IF_LAST = "immediate_if_last"
    """The caller, also when only the last call of the turn says so."""


_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Names(NamedTuple):
    """Names of tools, as far as they are known beforehand."""

    found: tuple[str, ...]
    """The names."""
    all_known: bool = True
    """Whether there are no others; False where tools are looked up later."""


class Flow(Protocol):
    """The work of a tool that is made of tools: a path through their paths, which either driver can walk."""

    def __call__(self, value: Any, context: ToolContext, walk: Any, trace: Any, /) -> Generator[Any, Any, Any]:
        """Walk the parts with an input, as the call itself is walked and traced; give what a body would return."""
        ...

    def map(self, change: Callable[[ToolDefinition], ToolDefinition], /) -> Flow:
        """Give the same flow through parts that a function makes of these."""
        ...

    def to_dry_run(self) -> Flow:
        """Give the same flow for a dry run, in which no part's body runs."""
        ...

    def parts(self) -> tuple[ToolDefinition, ...]:
        """Give the definitions of the tools that it is made of."""
        ...

    def tools(self) -> tuple[ToolDefinition, ...]:
        """Give the definitions of all tools that it may run: its parts, and those that undo them."""
        ...

    @property
    def always_gated(self) -> tuple[ToolDefinition, ...]:
        """The parts, at every depth, that ask a reviewer whenever their turn comes, and whose turn is no choice."""
        ...

    @property
    def how(self) -> str:
        """How the parts are walked, in words."""
        ...


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """What a call needs to know of a tool, taken down once; the call path knows no tool classes.

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
    """The name by which it is called."""
    description: str
    """What it does, for the model."""
    body: Callable[[Any], Any]
    """The work itself; takes what reading gives."""
    decode: Callable[[str, frozenset[str]], Decoded]
    """From the JSON text that a model wrote to the body's input, with the steps of repair that are allowed."""
    accept: Callable[[Any, frozenset[str]], Decoded]
    """From what a program handed over to the body's input."""
    schema: Callable[[], Mapping[str, Any]] = dict
    """Gives the whole JSON Schema of the arguments; asked when a specification is needed."""
    awaits: bool = False
    """Whether the body is async."""
    inline: bool = False
    """Whether the body never blocks, so that async callers may run it without a thread."""
    gate: Gate | None = None
    """When a reviewer must agree before the body runs; None for never."""
    reviewed_as: str = ""
    """What a reviewer is told that the tool does; empty for the description."""
    editable: str = ""
    """The parameter whose plain text a reviewer may edit; empty when an edit replaces all arguments."""
    present: Callable[..., Any] = lambda value, **_: value
    """From the body's input to what a reviewer is shown: JSON values that nobody else holds, with secrets hidden unless
    ``reveal`` is true."""
    return_behavior: ReturnBehavior = ReturnBehavior.TO_LLM
    """Who gets the result."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What else a provider may want to know."""
    strict: bool | None = None
    """Whether the provider's strict mode is asked for."""
    arguments: Arguments | None = None
    """How named parameters are checked; None for a tool that takes one string."""
    hand: Callable[[Any, frozenset[str]], Decoded] | None = None
    """From what the tool before it in a pipeline gave to the body's input; None where its parameters tell how."""
    returns: Callable[[], Any] = lambda: Any
    """Gives the declared type of what the body returns."""
    policy: Policy | None = None
    """What was declared about limits; None when nothing was."""
    sees: frozenset[str] = frozenset()
    """What of the call's context the body is given beside its input: ``"memory_id"``, ``"parameters"``."""
    holder: object = None
    """The object whose state the body can depend on: a tool of a class, or whose method it is; None for a function."""
    flow: Flow | None = None
    """What is walked in place of the body, where the tool is made of tools."""
    inside: Callable[[], Names] | None = None
    """Gives the names of the tools that a call of this one can call, as an agent does; None when there are none."""
    secret: bool = False
    """Whether a parameter is a secret, or has one inside."""
    logger: logging.Logger = field(init=False)
    """The tool's own logger, called by its name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "logger", LOGGER.getChild(self.name))
        self.logger.addFilter(REDACTION)  # any tool can be called inside a call that has secrets
        if self.strict:
            self._check_strict()
        if self.editable:
            self._check_editable()
        if self.policy is not None:
            self._check_policy(self.policy)
        if self._is_irreversible() and not isinstance(self.decode, Cautious):
            object.__setattr__(self, "decode", Cautious(self.decode))
            object.__setattr__(self, "accept", Cautious(self.accept))
        if self.gate is not None:
            self.check_no_init_vars("a reviewer could not be shown it")

    def _is_irreversible(self) -> bool:
        """Return whether the tool, or one that it is made of, does what cannot be undone."""
        if self.policy is not None and self.policy.effects == "irreversible":
            return True
        return self.flow is not None and any(isinstance(part.decode, Cautious) for part in self.flow.parts())

    def check_no_init_vars(self, otherwise: str) -> None:
        """Refuse a type that does not keep what it is made of, where that has to be told; say what would happen."""
        if self.arguments is not None and (unkept := self.arguments.unkept):
            raise ToolDefinitionError(
                f"Tool '{self.name}': {unkept} is an InitVar, which no object keeps, so {otherwise}; make it a field"
            )

    @property
    def only_blocks(self) -> bool:
        """Whether a call needs nothing but a thread for its body: nobody is asked, and nothing is waited for."""
        bounded = self.policy is not None and self.policy.limits
        return not (self.awaits or self.inline or bounded) and self.gate is None and self.flow is None

    def specification(self) -> ToolSpecification:
        """Give what a model is shown of the tool."""
        parameters = {"type": "object", **portable(self.schema())[0]}
        nothing = not parameters.get("properties") and parameters.get("additionalProperties") is False
        taken = None if nothing else parameters
        metadata = self.metadata if self.policy is None else {**self.policy.hints, **self.metadata}
        return ToolSpecification(self.name, self.description, taken, metadata, self.strict)

    def explain(self, provider: str) -> list[Note]:
        """Give a note for every keyword of the schema that a provider's model does not see as it was written."""
        if provider not in PROVIDERS:
            raise ValueError(f"Unknown provider {provider!r}; known are {', '.join(PROVIDERS)}")
        parameters, notes = portable(self.schema())
        strict = {"strict": True} if self.strict and provider in _STRICT else {}
        return [*notes, *import_module(f"toolsemble.providers.{provider}").adapt(parameters, **strict)[1]]

    def _check_editable(self) -> None:
        """Refuse an editable field that the tool does not have, or that is no text."""
        fields = self.specification().parameters or {}
        if fields.get("properties", {}).get(self.editable, {}).get("type") != "string":
            raise ToolDefinitionError(f"Tool '{self.name}': editable must name a text parameter, not {self.editable!r}")

    def _check_policy(self, policy: Policy) -> None:
        """Refuse limits that this body would not keep."""
        owner = f"Tool '{self.name}'"
        if policy.timeout is not None and self.inline and not self.awaits and self.flow is None:
            raise ToolDefinitionError(
                f"{owner}: timeout cannot be kept by a sync body that is inline; leave inline out, or make it async"
            )
        if policy.retried and self.flow is not None:
            raise ToolDefinitionError(f"{owner}: retries are for a body; it is made of tools, so declare them on those")
        if policy.isolation == "process" and self.flow is not None:
            raise ToolDefinitionError(f"{owner}: isolation is for a body; it is made of tools, so declare it on those")
        if policy.isolation == "process" and (self.awaits or self.inline):
            kind = "async" if self.awaits else "inline"
            raise ToolDefinitionError(f"{owner}: isolation='process' is for blocking bodies, and this one is {kind}")
        for layer in policy.layers:
            layer.check(self)

    def _check_strict(self) -> None:
        """Refuse a strict tool whose schema strict mode cannot say."""
        try:
            self.explain("openai")
        except ValueError as problem:
            raise ToolDefinitionError(f"Tool '{self.name}' cannot be strict: {problem}") from None


def string_definition(name: object, description: object, body: Callable[[str], Any], **settings: Any) -> ToolDefinition:
    """Give the definition of a tool that takes one string; refuse a bad name or description.

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
    """Give the definition of a tool with named parameters; refuse a bad name or description."""
    owner = check_name(name)

    decode = partial(_forgiving if settings.get("strict") else decode_arguments, arguments)

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


def _forgiving(arguments: Arguments, text: str, steps: frozenset[str]) -> Decoded:
    """Read arguments, with null for what is left out: a strict model has no other way to say so."""
    return decode_arguments(arguments, text, steps | {"null"})


def map_definition(definition: ToolDefinition, change: Callable[[ToolDefinition], ToolDefinition]) -> ToolDefinition:
    """Give what a function makes of a definition and, where it is made of tools, of those at every depth.

    >>> shout = string_definition("shout", "Says it louder", str.upper)
    >>> map_definition(shout, lambda each: replace(each, name=each.name.upper())).name
    'SHOUT'
    """
    made = change(definition)
    return made if made.flow is None else replace(made, flow=made.flow.map(lambda part: map_definition(part, change)))


def always_gated_in(parts: Iterable[ToolDefinition]) -> tuple[ToolDefinition, ...]:
    """Give those parts, and parts of theirs, that ask a reviewer whenever they are walked.

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
    """Give the definition for a dry run: it reads, asks and records as ever, but its body does not run.

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
    """Give what stands for the result of a tool that was not run.

    >>> dry_result("save").attributes["dry_run"]
    True
    """
    return ToolResult.success(f"Dry run: '{name}' was not run", attributes={"dry_run": True})


def review_settings(name: object, source: object) -> dict[str, Any]:
    """Give what an object says about its review, as settings of a definition; refuse what is unclear.

    >>> class Delete:
    ...     requires_approval = True
    ...     approval_timeout = 60
    >>> review_settings("delete", Delete())["gate"].timeout
    60
    """
    requires_approval, editable = getattr(source, "requires_approval", False), getattr(source, "editable", "")
    timeout = getattr(source, "approval_timeout", TIMEOUT)
    on_timeout = getattr(source, "approval_on_timeout", OnTimeout.EXIT_EARLY)
    gate = gate_of(f"Tool '{name}'", requires_approval, timeout, on_timeout, getattr(source, "approval_role", None))
    return {"gate": gate, "editable": editable, "reviewed_as": getattr(source, "approval_description", "")}


def _string_schema() -> dict[str, Any]:
    described = {"type": "string", "description": "The input to pass to the tool"}
    return {"type": "object", "properties": {"input": described}, "required": ["input"]}


def is_name(name: object) -> bool:
    """Return whether a tool can have this name.

    >>> is_name("web_search"), is_name("web search")
    (True, False)
    """
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(name: object) -> str:
    """Give the name back, or refuse it with what is wrong.

    >>> check_name("web search")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Invalid tool name 'web search': use 1 to 64 letters, digits, '_' or '-'
    """
    if is_name(name):
        return str(name)
    if name is None:
        raise ToolDefinitionError("The tool has no name; give its class an attribute or property 'name'")
    if isinstance(name, str) and not name.strip():
        raise ToolDefinitionError("Invalid tool name: it is blank; use 1 to 64 letters, digits, '_' or '-'")
    raise ToolDefinitionError(f"Invalid tool name {name!r:.80}: use 1 to 64 letters, digits, '_' or '-'")


def check_description(name: str, description: object) -> str:
    """Give the description back, or refuse it with what is wrong.

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
