"""The registry of providers: from the name of a model to the model."""

from __future__ import annotations

from importlib import import_module  # a provider's module is loaded when its name is used

from toolsemble.errors import ToolConfigurationError
from toolsemble.models.chat import ChatModel

PROVIDERS: dict[str, str] = {
    "anthropic": "toolsemble.models.anthropic.model:model_from_name",
    "bedrock": "toolsemble.models.bedrock.model:model_from_name",
    "gemini": "toolsemble.models.google.model:model_from_name",
    "google": "toolsemble.models.google.model:model_from_name",
    "groq": "toolsemble.models.openai.compatible:model_from_name",
    "llamacpp": "toolsemble.models.openai.compatible:model_from_name",
    "lmstudio": "toolsemble.models.openai.compatible:model_from_name",
    "local": "toolsemble.local.model:model_from_name",
    "mistral": "toolsemble.models.mistral.model:model_from_name",
    "ollama": "toolsemble.models.openai.compatible:model_from_name",
    "openai": "toolsemble.models.openai.model:model_from_name",
    "openai-chat": "toolsemble.models.openai.model:model_from_name",
    "openai-responses": "toolsemble.models.openai.model:model_from_name",
    "openrouter": "toolsemble.models.openai.compatible:model_from_name",
    "together": "toolsemble.models.openai.compatible:model_from_name",
    "vllm": "toolsemble.models.openai.compatible:model_from_name",
}
"""The ``module:function`` that creates the model for each prefix of a name, such as ``openai`` in
``openai:gpt-5-mini``; it is called with both parts of the name."""


def model_of(source: ChatModel | str | None) -> ChatModel:
    """Return a model: the object itself, the model of that name, or for None the first one that is available.

    >>> model_of("vllm:qwen3")
    OpenAIModel('qwen3', api='chat', base_url='http://127.0.0.1:8000/v1')
    >>> model_of("groq:")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolConfigurationError: 'groq' needs a model name, such as 'groq:<model>'
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
    """Return the first model that is available, and log the choice; raise ToolConfigurationError if there is none.

    >>> import os
    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, {"TOOLSEMBLE_CHAT_MODEL": "openai:gpt-5-mini", "OPENAI_API_KEY": "sk-..."}):
    ...     found()
    OpenAIModel('gpt-5-mini', api='responses')
    """
    from toolsemble.models.environment import choose_model  # noqa: PLC0415 - not needed for a model given by name

    return _create(choose_model())


def _create(name: str) -> ChatModel:
    provider, _, rest = name.partition(":")
    entry = PROVIDERS.get(provider)
    if entry is None:
        known = ", ".join(sorted(PROVIDERS))
        raise ToolConfigurationError(f"Unknown model {name!r:.80}; known providers: {known}; or pass a ChatModel")
    module, _, function = entry.partition(":")
    model: ChatModel = getattr(import_module(module), function)(provider, rest)
    return model
