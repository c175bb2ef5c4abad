"""Explain objects passed as tools by mistake, and what to write instead."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from toolsemble._tools.base import Tool
from toolsemble._vocabulary.specification import ToolSpecification

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
"""The :mod:`toolsemble.interop` module and framework name for the package of a class."""
# Not every class of these packages is a tool.
_PREFIXES = {"google": "google.adk.", "agents": "agents.tool"}


def explain_foreign(source: Any) -> str | None:
    """Return what a framework's object is, and what to write instead; None for other objects.

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


_MAX_SHOWN = 5


def explain_mistake(source: object) -> str | None:
    """Return what a non-tool object is, and what to pass instead; None if unknown.

    >>> explain_mistake(len)
    "the built-in function 'len' is not a tool; call it in a function of your own with @tool above it"
    """
    if foreign := explain_foreign(source):
        return foreign
    for is_mistake, explain in _MISTAKES:
        if is_mistake(source):
            return explain(source)
    return None


def _explain_function(function: Any) -> str:
    name = function.__name__
    if name == "<lambda>":
        return "a lambda is not a tool: it has neither a name nor types; write a function with @tool above it"
    if isinstance(function, types.MethodType):
        owner = function.__self__
        kind = owner.__name__ if isinstance(owner, type) else type(owner).__name__
        return f"the method '{kind}.{name}' is not a tool; put @tool above it, or pass tool(...) of it"
    return f"the function '{name}' is not a tool; put @tool above it, or pass tool({name})"


def _explain_coroutine(coroutine: Any) -> str:
    coroutine.close()  # it is never awaited, about which Python would also warn
    name = coroutine.__name__
    return f"the coroutine of '{name}' is not a tool; pass the function, with @tool above it, and do not call it"


def _explain_module(module: types.ModuleType) -> str:
    tools = [name for name, value in vars(module).items() if isinstance(value, Tool)]
    short = module.__name__.rpartition(".")[2]
    shown = ", ".join(f"{short}.{name}" for name in tools[:_MAX_SHOWN])
    if not tools:
        return f"the module '{module.__name__}' is not a tool, and has none; put @tool above its functions"
    return f"the module '{module.__name__}' is not a tool; pass its tools: {shown}{', ...' * (len(tools) > _MAX_SHOWN)}"


def _explain_specification(source: ToolSpecification) -> str:
    return (
        f"the ToolSpecification '{source.name}' says what a tool takes, not what it does; pass the tool itself, or "
        "SchemaTool(name, description, function, parameters)"
    )


def _explain_dict(source: Mapping[Any, Any]) -> str:
    return (
        f"a dict is not a tool: {source!r:.60}; for a JSON Schema and a function, pass "
        "SchemaTool(name, description, function, parameters)"
    )


def _explain_text(source: object) -> str:
    return f"the {type(source).__name__} {source!r:.60} is not a tool; pass the tool itself, not its name"


def _explain_incomplete(source: Any) -> str:
    return (
        f"{type(source).__name__} '{source.name!s:.60}' has a name and a description, but no method execute(input); "
        "pass SchemaTool(name, description, function, parameters)"
    )


def _explain_partial(source: functools.partial[Any]) -> str:
    name = getattr(source.func, "__name__", "function")
    return f"the partial of '{name}' is not a tool; pass tool('a_name', 'what it does')(partial({name}, ...))"


def _has(*names: str) -> Callable[[object], bool]:
    return lambda source: all(inspect.getattr_static(source, name, None) is not None for name in names)


def _is_plain_function(source: object) -> bool:
    return isinstance(source, (types.FunctionType, types.MethodType))


_MISTAKES: tuple[tuple[Callable[[Any], bool], Callable[[Any], str]], ...] = (
    (_is_plain_function, _explain_function),
    (
        lambda source: isinstance(source, types.BuiltinFunctionType),
        lambda source: (
            f"the built-in function '{source.__name__}' is not a tool; call it in a function of your own with @tool "
            "above it"
        ),
    ),
    (lambda source: isinstance(source, functools.partial), _explain_partial),
    (inspect.iscoroutine, _explain_coroutine),
    (
        lambda source: callable(getattr(type(source), "as_tool", None)),
        lambda _: "An Agent is not a tool; pass agent.as_tool(name, description) instead",
    ),
    (
        lambda source: all(callable(getattr(type(source), name, None)) for name in ("box", "search", "explain")),
        lambda _: (
            "A Catalog is not a tool; write Agent(model, catalog) with all tools in the catalog, or use "
            "catalog.box(messages) in a loop of your own"
        ),
    ),
    (lambda source: isinstance(source, types.ModuleType), _explain_module),
    (lambda source: isinstance(source, ToolSpecification), _explain_specification),
    (lambda source: isinstance(source, Mapping), _explain_dict),
    (lambda source: isinstance(source, (str, bytes)), _explain_text),
    (
        lambda source: _has("name", "description")(source) and not hasattr(source, "execute"),
        _explain_incomplete,
    ),
    (
        lambda source: isinstance(source, Iterable),
        lambda source: f"a {type(source).__name__} object is not a tool, but has items; if they are tools: [*tools]",
    ),
)
