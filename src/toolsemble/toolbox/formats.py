"""A set of tools: names, specifications, and the tool formats of the providers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from toolsemble.definition.definition import ReturnBehavior, ToolDefinition
from toolsemble.errors import ToolDefinitionError
from toolsemble.record import TRACE
from toolsemble.specification import ToolSpecification
from toolsemble.toolbox.registry import Registered


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
        """The specifications that models are shown, in registration order; built on first use."""
        if self._specifications is None:
            self._specifications = tuple(_specification_of(entry.definition) for entry in self._entries.values())
        return list(self._specifications)

    @property
    def names(self) -> list[str]:
        """The names of the tools, in registration order."""
        return list(self._entries)

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

    def has_secrets(self, name: str) -> bool:
        """Return whether a parameter of a tool is or contains a secret.

        >>> ToolSet({}).has_secrets("nothing")
        False
        """
        entry = self._entries.get(name)
        return entry is not None and entry.definition.secret

    def registered(self, name: str) -> Registered:
        """Return the definition of a tool, and what is known of its calls in advance; raise KeyError if unknown.

        >>> from toolsemble import Toolbox, tool
        >>> @tool
        ... def now() -> str:
        ...     return "noon"
        >>> Toolbox([now]).registered("now").definition.name
        'now'
        """
        return self._entries[name]

    def to_openai(
        self, api: Literal["chat", "responses"] = "chat", *, strict: bool | None = None
    ) -> list[dict[str, Any]]:
        """Return the ``tools`` argument of OpenAI's SDK; ``strict`` overrides the setting of each tool.

        >>> from toolsemble import Toolbox, tool
        >>> @tool
        ... def now() -> str:
        ...     '''The time.'''
        ...     return "noon"
        >>> Toolbox([now]).to_openai()[0]["function"]["name"]
        'now'
        """
        return self.to_provider("openai", api=api, strict=strict)

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
        """Return the tools as an MCP server lists them."""
        return self.to_provider("mcp")

    def to_provider(self, provider: str, **settings: Any) -> list[dict[str, Any]]:
        """Return the tools in the format of a provider, by its name, with the settings of that format.

        >>> ToolSet({}).to_provider("anthropic")
        []
        """
        from toolsemble.providers import load_wire_format  # noqa: PLC0415 - calls do not need it

        write_tools = load_wire_format(provider).write_tools
        try:
            tools: list[dict[str, Any]] = write_tools(self.specifications, **settings)
        except ValueError as problem:
            raise ToolDefinitionError(f"{provider}: {problem}") from None
        return tools

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


def _specification_of(definition: ToolDefinition) -> ToolSpecification:
    specification = definition.specification()
    if definition.logger.isEnabledFor(TRACE):
        definition.logger.log(TRACE, "%s", specification.to_json())
    return specification
