"""Which model a name means."""

from __future__ import annotations

from importlib import import_module  # the modules of providers are loaded when they are named

from toolsemble.errors import ToolConfigurationError
from toolsemble.models.chat import ChatModel

PROVIDERS: dict[str, str] = {
    "anthropic": "toolsemble.models.anthropic.model:named",
    "bedrock": "toolsemble.models.bedrock.model:named",
    "gemini": "toolsemble.models.google.model:named",
    "google": "toolsemble.models.google.model:named",
    "groq": "toolsemble.models.openai.compatible:named",
    "llamacpp": "toolsemble.models.openai.compatible:named",
    "lmstudio": "toolsemble.models.openai.compatible:named",
    "local": "toolsemble.local.model:named",
    "mistral": "toolsemble.models.mistral.model:named",
    "ollama": "toolsemble.models.openai.compatible:named",
    "openai": "toolsemble.models.openai.model:named",
    "openai-chat": "toolsemble.models.openai.model:named",
    "openai-responses": "toolsemble.models.openai.model:named",
    "openrouter": "toolsemble.models.openai.compatible:named",
    "together": "toolsemble.models.openai.compatible:named",
    "vllm": "toolsemble.models.openai.compatible:named",
}
"""For each first part of a name, such as ``openai`` in ``openai:gpt-5-mini``, the ``module:function`` that makes the
model; it is given both parts of the name."""


def model_of(source: ChatModel | str | None) -> ChatModel:
    """Give the model that an agent is to use: the object itself, what its name means, or what the environment offers.

    >>> model_of("vllm:qwen3")
    OpenAIModel('qwen3', api='chat', base_url='http://127.0.0.1:8000/v1')
    >>> model_of("groq:")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolConfigurationError: 'groq' needs the name of a model behind it, such as 'groq:<model>'
    """
    if source is None:
        return found()
    if isinstance(source, str):
        return _named(source)
    if isinstance(source, type) or not isinstance(source, ChatModel):
        raise ToolConfigurationError(
            f"{source!r:.80} is no ChatModel: pass an object with the methods reply and stream, or a model's name"
        )
    return source


def found() -> ChatModel:
    """Return the first model that is available, and log which and why; raise ToolConfigurationError without one.

    >>> import os
    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, {"TOOLSEMBLE_CHAT_MODEL": "openai:gpt-5-mini", "OPENAI_API_KEY": "sk-..."}):
    ...     found()
    OpenAIModel('gpt-5-mini', api='responses')
    """
    from toolsemble.models.environment import choose_model  # noqa: PLC0415 - who names a model looks for no other

    return _named(choose_model())


def _named(name: str) -> ChatModel:
    provider, _, rest = name.partition(":")
    maker = PROVIDERS.get(provider)
    if maker is None:
        known = ", ".join(sorted(PROVIDERS))
        raise ToolConfigurationError(f"Unknown model {name!r:.80}; known providers: {known}; or pass a ChatModel")
    module, _, function = maker.partition(":")
    model: ChatModel = getattr(import_module(module), function)(provider, rest)
    return model
