"""A set of tools: names, specifications, and provider formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Literal, NoReturn, Self

from toolsemble._engine.context import LOGGER
from toolsemble._engine.definition import Names, Need, Policy, ReturnBehavior, ToolDefinition, map_definition
from toolsemble._runtime.trace_level import trace_tools
from toolsemble._tools.toolbox.registry import Defined, Registered, find_needs, has_secret_parameters, names_in
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.specification import ToolSpecification


class ToolSet:
    """A read-only set of tools by name.

    >>> ToolSet({}).names
    []
    """

    __slots__ = ("_entries", "_specifications")

    def __init__(self, entries: dict[str, Registered]) -> None:
        self._entries = entries
        self._specifications: tuple[ToolSpecification, ...] | None = None

    @property
    def specifications(self) -> list[ToolSpecification]:
        """The specifications as shown to models, in registration order; built on first use."""
        if self._specifications is None:
            self._specifications = tuple(entry.definition.specification() for entry in self._entries.values())
        return list(self._specifications)

    @property
    def names(self) -> list[str]:
        """The names of the tools, in registration order."""
        return list(self._entries)

    def definitions(self) -> Iterable[ToolDefinition]:
        """Return the definitions of all tools that the toolbox executes, including hidden ones.

        >>> list(ToolSet({}).definitions())
        []
        """
        return [entry.definition for entry in self._entries.values()]

    def return_behavior(self, name: str) -> ReturnBehavior:
        """Return the recipient of a tool's result; ``TO_LLM`` for an unknown name.

        >>> ToolSet({}).return_behavior("nothing").name
        'TO_LLM'
        """
        entry = self._entries.get(name)
        return ReturnBehavior.TO_LLM if entry is None else entry.definition.return_behavior

    def is_polling(self, name: str) -> bool:
        """Return whether a tool is declared with ``polling``: repeated identical calls are expected.

        >>> ToolSet({}).is_polling("nothing")
        False
        """
        entry = self._entries.get(name)
        return entry is not None and entry.definition.policy is not None and entry.definition.policy.polling

    def can_pause_inside(self, name: str) -> bool:
        """Return whether a tool is an agent whose calls can be left open, without a cache or ledger.

        >>> ToolSet({}).can_pause_inside("nothing")
        False
        """
        entry = self._entries.get(name)
        if entry is None or entry.definition.inside is None:
            return False
        layers = () if entry.definition.policy is None else entry.definition.policy.layers
        return not any(layer.keeps_outcomes for layer in layers)

    def find_needs(self) -> dict[str, Need]:
        """Return the context fields that a run must set for the tools, each with a tool that needs it.

        >>> ToolSet({}).find_needs()
        {}
        """
        return find_needs(self.definitions())

    def has_secrets(self, name: str) -> bool:
        """Return whether the arguments of a call may contain a secret.

        They may if a parameter of the tool is or contains a secret, or if an unknown name may be a misspelled one of
        such a tool.

        >>> ToolSet({}).has_secrets("nothing")
        False
        """
        entry = self._entries.get(name)
        if entry is None:
            return has_secret_parameters(self.definitions())
        return entry.definition.secret

    def show_arguments(self, call: ToolCall) -> dict[str, Any] | None:
        """Return a call's arguments for display; None: as requested.

        Secrets are masked. Unparseable arguments of a tool with secrets are hidden completely, and so are arguments of
        an unknown tool, which may be misspelled, because its secret parameters are unknown.

        >>> from toolsemble import Secret, Toolbox, tool
        >>> @tool
        ... def login(password: Secret[str]) -> str:
        ...     return "welcome"
        >>> Toolbox([login]).show_arguments(ToolCall("login", {"password": "hunter2"}))
        {'password': '**********'}
        """
        if not self.has_secrets(call.name):
            return None
        if call.name not in self._entries:
            return {}
        from toolsemble._engine.execution.call import mask_arguments

        return mask_arguments(self._entries[call.name].definition, call.json)

    def registered(self, name: str) -> Registered:
        """Return a tool's definition with its precomputed call data; raise KeyError if unknown."""
        return self._entries[name]

    def to_openai(
        self, api: Literal["chat", "responses"] = "chat", *, strict: bool | None = None, bounds: bool = False
    ) -> list[dict[str, Any]]:
        """Return the ``tools`` argument of OpenAI's SDK.

        :param strict: whether strict mode is used; None: as each tool is set
        :param bounds: whether bounds, patterns and formats are also keywords, not only words in descriptions; strict
            mode enforces the supported ones, which fine-tuned models may reject

        >>> from toolsemble import Toolbox, tool
        >>> @tool
        ... def now() -> str:
        ...     '''The time.'''
        ...     return "noon"
        >>> Toolbox([now]).to_openai()[0]["function"]["name"]
        'now'
        """
        return self.to_provider("openai", api=api, strict=strict, bounds=bounds)

    def to_anthropic(self) -> list[dict[str, Any]]:
        """Return the ``tools`` argument of Anthropic's SDK."""
        return self.to_provider("anthropic")

    def to_google(self) -> list[dict[str, Any]]:
        """Return the ``tools`` argument of Google Gemini's SDK."""
        return self.to_provider("google")

    def to_bedrock(self) -> list[dict[str, Any]]:
        """Return the ``tools`` argument of Amazon Bedrock's SDK."""
        return self.to_provider("bedrock")

    def to_mistral(self) -> list[dict[str, Any]]:
        """Return the ``tools`` argument of Mistral's SDK."""
        return self.to_provider("mistral")

    def to_ollama(self) -> list[dict[str, Any]]:
        """Return the ``tools`` argument of Ollama's SDK."""
        return self.to_provider("ollama")

    def to_mcp(self) -> list[dict[str, Any]]:
        """Return the tools in MCP's list format, with ``outputSchema`` for declared return types.

        >>> from toolsemble import Toolbox, tool
        >>> @tool
        ... def count(text: str) -> int:
        ...     '''Count the characters.'''
        ...     return len(text)
        >>> Toolbox([count]).to_mcp()[0]["outputSchema"]["properties"]
        {'result': {'type': 'integer'}}
        """
        from toolsemble._tools.toolbox.structured_output import find_output

        tools = self.to_provider("mcp")
        for listed, entry in zip(tools, self._entries.values(), strict=True):
            output = find_output(entry)
            if output is not None and output.is_read_alone:
                listed["outputSchema"] = output.schema
        return tools

    def to_provider(self, provider: str, **settings: Any) -> list[dict[str, Any]]:
        """Return the tools in a provider's format, by its name, with that format's settings.

        >>> ToolSet({}).to_provider("anthropic")
        []
        """
        from toolsemble._vocabulary.provider_list import PROVIDERS, load_wire_format

        write_tools = load_wire_format(provider).write_tools
        offers = self.specifications
        if PROVIDERS[provider].keeps_bounds or settings.get("bounds"):
            offers = [entry.definition.specification(bounds=True) for entry in self._entries.values()]
        try:
            tools: list[dict[str, Any]] = write_tools(offers, **settings)
        except ValueError as problem:
            raise ToolDefinitionError(f"{provider}: {problem}") from None
        trace_tools(LOGGER, provider, tools)
        return tools

    def prefixed(self, prefix: str) -> Self:
        """Return the same toolbox with prefixed tool names.

        >>> from toolsemble import Toolbox
        >>> from toolsemble.builtin import CalculatorTool
        >>> Toolbox([CalculatorTool()]).prefixed("office_").names
        ['office_calculator']
        """
        if not isinstance(prefix, str):
            raise ToolDefinitionError(f"prefixed takes a str, such as 'crm_', not {prefix!r:.80}")
        return self.renamed({name: f"{prefix}{name}" for name, entry in self._entries.items() if not entry.fixed})

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return the same toolbox with some tools renamed: a mapping from current to new names.

        Everything else stays the same, as with :meth:`Tool.renamed`. The new toolbox's tools keep this toolbox's
        approval and limits, even in another toolbox.

        >>> from toolsemble import Toolbox
        >>> from toolsemble.builtin import CalculatorTool
        >>> Toolbox([CalculatorTool()]).renamed({"calculator": "compute"}).names
        ['compute']
        """
        if not isinstance(names, Mapping):
            raise ToolDefinitionError(f"renamed takes a dict from names to new names, not {names!r:.80}")
        for name in names:
            if name not in self._entries or self._entries[name].fixed:
                raise ToolDefinitionError(f"renamed: there is no tool {name!r:.80}; the tools are {self._list_names()}")
        found: dict[str, Registered] = {}
        for name, entry in self._entries.items():
            new = _rename_entry(entry, names[name]) if name in names else entry
            if new.definition.name in found:
                raise ToolDefinitionError(f"Duplicate tool name: '{new.definition.name}'; choose another one")
            found[new.definition.name] = new
        return self._with_entries(found)

    def filtered(self, keep: Iterable[str] | Callable[[ToolSpecification], object]) -> Self:
        """Return the same toolbox with a subset of its tools.

        :param keep: names, patterns such as ``"read_*"``, or a function of the tool's specification

        >>> from toolsemble import Toolbox
        >>> from toolsemble.builtin import CalculatorTool, HumanInputTool
        >>> box = Toolbox([CalculatorTool(), HumanInputTool()])
        >>> box.filtered(["calc*"]).names, box.filtered(lambda each: "person" in each.description).names
        (['calculator'], ['human_input'])
        """
        keeps = keep if callable(keep) else self._matcher(keep)
        kept = {
            name: entry
            for name, entry in self._entries.items()
            if entry.fixed or keeps(entry.definition.specification())
        }
        return self._with_entries(kept)

    def members(self, *, reviewed: bool = False) -> list[Defined]:
        """Return the tools and their definitions, for inclusion in another toolbox.

        :param reviewed: whether this toolbox's reviewer reviews their calls, because the other one has none

        >>> ToolSet({}).members()
        []
        """
        found = [(entry, _own_definition(entry)) for entry in self._entries.values() if not entry.fixed]
        return [(entry.tool, _keep_reviewer(entry, each) if reviewed else each) for entry, each in found]

    def _with_entries(self, entries: dict[str, Registered]) -> Self:
        made = copy(self)
        made._entries = entries
        made._specifications = None
        return made

    def _matcher(self, patterns: Iterable[str]) -> Callable[[ToolSpecification], bool]:
        """Return a predicate for tools with one of the names; raise if a name matches no tool."""
        from fnmatch import fnmatchcase

        given: Any = patterns
        listed = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
        for pattern in listed:
            if not isinstance(pattern, str):
                raise ToolDefinitionError(
                    f"filtered takes names or a function of a ToolSpecification, not {patterns!r:.80}"
                )
            if not any(fnmatchcase(name, pattern) for name in self._entries):
                raise ToolDefinitionError(f"filtered: no tool is {pattern!r:.80}; the tools are {self._list_names()}")
        return lambda specification: any(fnmatchcase(specification.name, str(pattern)) for pattern in listed)

    def _list_names(self) -> str:
        return ", ".join(name for name, entry in self._entries.items() if not entry.fixed) or "none"

    def __add__(self, other: object) -> NoReturn:
        raise TypeError("A Toolbox is not added to another; write Toolbox([first, second]), which takes the settings")

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> object:
        return self._entries[name].tool

    def __iter__(self) -> Iterator[object]:
        return iter([entry.tool for entry in self._entries.values()])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._entries)})"

    def _repr_html_(self) -> str:
        from toolsemble._runtime.notebook import format_note, format_table

        found = self.specifications
        rows = [(each.name, _name_parameters(each), each.description) for each in found]
        title = f"{type(self).__name__} with {len(found):,} tool{'' if len(found) == 1 else 's'}"
        return format_note(title) + format_table(rows, ("tool", "parameters", "description"))


def _name_parameters(specification: ToolSpecification) -> str:
    """Return parameter names, with a question mark for optional ones."""
    schema = specification.parameters or {}
    required = schema.get("required", ())
    return ", ".join(name if name in required else f"{name}?" for name in schema.get("properties", ()))


def _own_definition(entry: Registered) -> ToolDefinition:
    """Return a toolbox tool's definition, with the output limit as its own."""
    policy = entry.definition.policy or Policy()
    if policy.max_output == entry.limit:
        return entry.definition
    return replace(entry.definition, policy=replace(policy, max_output=entry.limit))


def _keep_reviewer(entry: Registered, definition: ToolDefinition) -> ToolDefinition:
    """Return the definition with its toolbox's reviewer for its own gates and the gates inside its flow."""
    review = entry.context.review
    if review is None:
        return definition

    def keep(part: ToolDefinition) -> ToolDefinition:
        gate = part.gate
        return part if gate is None or gate.review is not None else replace(part, gate=replace(gate, review=review))

    return map_definition(definition, keep)


def _rename_entry(entry: Registered, name: str) -> Registered:
    """Return a toolbox tool under another name, with its gate and limits."""
    from toolsemble._tools.collection import collect_tools
    from toolsemble._tools.renamed import RenamedTool

    tool = RenamedTool(entry.tool, name, definition=_own_definition(entry))
    ((_, definition),) = collect_tools(tool)
    context = entry.context.derive({"tool_name": definition.name, "logger": definition.logger})
    return replace(entry, tool=tool, definition=definition, context=context)


def names_inside(box: ToolSet) -> Names:
    """Return the names of a toolbox's tools, and of the tools that they can call.

    >>> names_inside(ToolSet({})).found
    ()
    """
    return names_in(entry.definition for entry in box._entries.values())
