"""Recognition of tools of other frameworks, by the modules of their classes; no framework is imported."""

from __future__ import annotations

from typing import Any

FRAMEWORKS: dict[str, tuple[str, str]] = {
    "langchain_core": ("langchain", "LangChain"),
    "pydantic_ai": ("pydantic_ai", "Pydantic AI"),
    "agents": ("openai_agents", "the OpenAI Agents SDK"),
    "autogen_core": ("autogen", "AutoGen"),
    "agent_framework": ("agent_framework", "the Agent Framework"),
    "llama_index": ("llama_index", "LlamaIndex"),
    "haystack": ("haystack", "Haystack"),
    "crewai": ("crewai", "CrewAI"),
    "smolagents": ("smolagents", "smolagents"),
    "google": ("google_adk", "Google ADK"),
    "strands": ("strands", "Strands"),
    "dspy": ("dspy", "DSPy"),
}
"""The package of a class, with the module of :mod:`toolsemble.interop` for it, and the name of the framework."""
# Not every class of these packages is a tool.
_PREFIXES = {"google": "google.adk.", "agents": "agents.tool"}


def explain_foreign(source: Any) -> str | None:
    """Return what an object of a framework is, and what to write instead; None if it is of none of them.

    >>> explain_foreign("search")
    """
    found = _find_framework(source)
    if found is None:
        return None
    module, framework = found
    name = getattr(source, "name", None)
    shown = f"'{name:.60}'" if isinstance(name, str) else type(source).__name__
    return (
        f"{shown} is a tool of {framework}; pass *{module}.adopt([...]) instead, after "
        f"from toolsemble.interop import {module}"
    )


def _find_framework(source: object) -> tuple[str, str] | None:
    for kind in type(source).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in FRAMEWORKS and kind.__module__.startswith(_PREFIXES.get(root, root)):
            return FRAMEWORKS[root]
    return None
