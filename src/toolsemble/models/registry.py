"""Which model a name means."""

from __future__ import annotations

from importlib import import_module  # the modules of providers are loaded when they are named

from toolsemble.errors import ToolConfigurationError
from toolsemble.models.chat import ChatModel

PROVIDERS: dict[str, str] = {
    "anthropic": "toolsemble.models.anthropic:named",
    "mistral": "toolsemble.models.mistral:named",
}
"""For each first part of a name, such as ``openai`` in ``openai:gpt-5-mini``, the ``module:function`` that makes the
model; it is given both parts of the name."""


def model_of(source: ChatModel | str | None) -> ChatModel:
    """Give the model that an agent is to use: the object itself, or what its name means.

    >>> model_of("nobody:nothing")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolConfigurationError: Unknown model 'nobody:nothing'; known providers: ...; or pass a ChatModel
    """
    if source is None:
        raise ToolConfigurationError(
            "The agent has no model; pass one: a ChatModel object, or a name such as 'provider:model'"
        )
    if isinstance(source, str):
        return _named(source)
    if isinstance(source, type) or not isinstance(source, ChatModel):
        raise ToolConfigurationError(
            f"{source!r:.80} is no ChatModel: pass an object with the methods reply and stream, or a model's name"
        )
    return source


def _named(name: str) -> ChatModel:
    provider, _, rest = name.partition(":")
    maker = PROVIDERS.get(provider)
    if maker is None:
        known = ", ".join(sorted(PROVIDERS)) or "none"
        raise ToolConfigurationError(f"Unknown model {name!r:.80}; known providers: {known}; or pass a ChatModel")
    module, _, function = maker.partition(":")
    model: ChatModel = getattr(import_module(module), function)(provider, rest)
    return model
