"""The list of providers, each with the module that writes tools and replies, and reads calls, in its wire format.

No SDK is imported.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module  # a wire format is loaded when it is used
from typing import Any, NamedTuple


class Provider(NamedTuple):
    """A provider; its wire format is the module of this package with its name.

    >>> PROVIDERS["google"].models, PROVIDERS["google"].model_module
    (('google', 'gemini'), 'toolsemble.models.google._model')
    """

    name: str
    """Its name, for ``to_provider``, ``from_provider``, ``explain``, and the option ``--provider``."""
    has_strict: bool = False
    """Whether the wire format has a strict mode: its ``adapt`` takes ``strict``."""
    models: tuple[str, ...] = ()
    """The prefixes of its model names, the most common one first; empty: it has no model class."""
    keeps_bounds: bool = False
    """Whether the wire format accepts all of JSON Schema, so that bounds stay keywords besides their descriptions."""
    otel_name: str = ""
    """Its name in OpenTelemetry's attribute ``gen_ai.provider.name``; empty: unknown."""
    wire: str = ""
    """The module with its wire format, if it has no package under ``models``."""

    @property
    def model_module(self) -> str:
        """The module with its model class, the function ``model_from_name``, and the function ``offer``."""
        return f"toolsemble.models.{self.name}._model"

    @property
    def wire_module(self) -> str:
        """The module with its wire format."""
        return self.wire or f"toolsemble.models.{self.name}._wire"


PROVIDERS = {
    each.name: each
    for each in (
        Provider("openai", has_strict=True, models=("openai", "openai-chat", "openai-responses"), otel_name="openai"),
        Provider("anthropic", has_strict=True, models=("anthropic",), otel_name="anthropic"),
        Provider("google", models=("google", "gemini"), otel_name="gcp.gemini"),
        Provider("mistral", has_strict=True, models=("mistral",), otel_name="mistral_ai"),
        Provider("bedrock", has_strict=True, models=("bedrock",), otel_name="aws.bedrock"),
        Provider("ollama", wire="toolsemble.models._ollama"),  # its models use the OpenAI-compatible API
        Provider("mcp", keeps_bounds=True, wire="toolsemble.mcp._wire"),
    )
}
"""All providers, by name. An agent without a model looks for their models in this order."""


RESERVED_KEYS = frozenset({
    "name", "description", "parameters", "parameters_json_schema", "parametersJsonSchema", "input_schema",
    "inputSchema", "outputSchema", "annotations", "strict", "type", "function",
})  # fmt: skip
"""The keys of a tool that wire formats write, and that metadata for a provider cannot replace."""


@cache
def load_wire_format(provider: str) -> Any:
    """Return the module with the wire format of a provider; raise ``ValueError`` for an unknown name.

    >>> load_wire_format("mcp").__name__
    'toolsemble.mcp._wire'
    """
    if provider not in PROVIDERS:
        raise ValueError(f"Unknown provider {provider!r}; known are {', '.join(PROVIDERS)}")
    return import_module(PROVIDERS[provider].wire_module)
