"""The registry of providers: resolves model names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module  # a provider's module is loaded when its name is used

from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.models._chat import ChatModel

_COMPATIBLE = "toolsemble.models.openai._compatible"
_LONGEST = 80
# Prefixes of well-known models' names, for a name without a provider.
_FAMILIES = {
    **dict.fromkeys(("gpt-", "chatgpt", "o1", "o3", "o4"), "openai"),
    "claude": "anthropic",
    "gemini": "google",
    **dict.fromkeys(("mistral", "ministral", "magistral", "codestral", "devstral"), "mistral"),
    **dict.fromkeys(("amazon.", "anthropic.", "meta."), "bedrock"),
    **dict.fromkeys(("qwen", "llama", "gemma", "phi", "deepseek"), "ollama"),
}


def model_of(source: ChatModel | str | None) -> ChatModel:
    """Return a model: the object itself, the model with that name, or for None the first available one.

    >>> model_of("vllm:qwen3")
    OpenAIModel('qwen3', api='chat', base_url='http://127.0.0.1:8000/v1')
    >>> model_of("groq:")
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: 'groq' needs a model name, such as 'groq:<model>'
    """
    if source is None:
        return found()
    if isinstance(source, str):
        return _create(source)
    if isinstance(source, type) or not isinstance(source, ChatModel):
        raise ToolConfigurationError(
            f"{source!r:.80} is not a ChatModel; pass an object with the methods reply and stream, or a model's name"
        )
    return source


def found() -> ChatModel:
    """Return the first available model, and log the choice; raise ToolConfigurationError if there is none.

    >>> import os
    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, {"TOOLSEMBLE_CHAT_MODEL": "openai:gpt-5-mini", "OPENAI_API_KEY": "sk-..."}):
    ...     found()
    OpenAIModel('gpt-5-mini', api='responses')
    """
    from toolsemble.models._environment import choose_model

    return _create(choose_model())


def find_module(prefix: str) -> str | None:
    """Return the module that creates models for a name's prefix; None if there is none.

    >>> find_module("gemini"), find_module("unknown")
    ('toolsemble.models.google._model', None)
    """
    return next((module for known, module in _iterate_modules() if known == prefix), None)


def _iterate_modules() -> Iterator[tuple[str, str]]:
    """Yield each prefix of model names, and its module."""
    from toolsemble._vocabulary.provider_list import PROVIDERS

    yield from ((prefix, each.model_module) for each in PROVIDERS.values() for prefix in each.models)
    yield "local", "toolsemble.models._local.model"
    yield from ((name, _COMPATIBLE) for name in import_module(_COMPATIBLE).SERVERS)


def _create(name: str) -> ChatModel:
    prefix, _, rest = name.partition(":")
    module = find_module(prefix)
    if module is None:
        known = sorted(dict(_iterate_modules()))
        suggestion = _suggest(name, known)
        start = f"{suggestion} Known" if suggestion else "; known"
        raise ToolConfigurationError(
            f"Unknown model {name!r:.80}{start} providers: {', '.join(known)}; or pass a ChatModel"
        )
    model: ChatModel = import_module(module).model_from_name(prefix, rest)
    return model


def _suggest(name: str, known: list[str]) -> str:
    """Return a suggestion with the probably intended name; empty if there is none.

    >>> _suggest("opnai:gpt-4o", ["anthropic", "openai"]), _suggest("gpt-4o", [])
    (". Did you mean 'openai:gpt-4o'?", ". Did you mean 'openai:gpt-4o'?")
    """
    from difflib import get_close_matches

    written = re.match(r"([\w-]*)[:/](.*)", name[:_LONGEST])
    for prefix, model in [written.groups()] if written else []:
        if near := get_close_matches(prefix.lower(), known, n=1):
            return f". Did you mean '{near[0]}:{model}'?"
    provider = next((each for start, each in _FAMILIES.items() if name.lower().startswith(start)), None)
    return f". Did you mean '{provider}:{name[:_LONGEST]}'?" if provider else ""
