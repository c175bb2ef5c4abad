"""What the models of each provider are shown of a tool, and what of its declaration is lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from toolsemble._tools.collection import collect_tools
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import ToolsembleError
from toolsemble._vocabulary.note import Note
from toolsemble._vocabulary.providers import PROVIDERS


@dataclass(frozen=True, slots=True)
class ProviderView:
    """A tool in the format of a provider.

    >>> ProviderView("mcp", [{"name": "pay"}]).problem
    ''
    """

    provider: str
    """The name of the provider."""
    tools: list[dict[str, Any]]
    """What a program sends as tools; empty if the provider cannot take this one."""
    notes: tuple[Note, ...] = ()
    """What the format cannot express as declared, and what became of it."""
    problem: str = ""
    """Why the provider cannot take the tool; empty if it can."""


def view_providers(tool: object, providers: Iterable[str] = tuple(PROVIDERS)) -> tuple[ProviderView, ...]:
    """Return a tool in the formats of providers.

    :param tool: a tool, such as ``box["pay"]``

    >>> from toolsemble import tool
    >>> @tool
    ... def pay(order: int) -> str:
    ...     '''Pay an order.'''
    ...     return f"paid {order}"
    >>> [view.provider for view in view_providers(pay)]
    ['openai', 'anthropic', 'google', 'mistral', 'bedrock', 'ollama', 'mcp']
    """
    box = Toolbox([tool])
    ((_, definition),) = collect_tools(tool)
    views = []
    for provider in providers:
        try:
            views.append(ProviderView(provider, box.to_provider(provider), tuple(definition.explain(provider))))
        except (ToolsembleError, ValueError) as problem:
            views.append(ProviderView(provider, [], problem=str(problem)))
    return tuple(views)
