"""Servers that are compatible with OpenAI's chat completions: their addresses and keys."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.models._adapter.dialect import require_model_name
from toolsemble.models._model_list import fetch_models
from toolsemble.models.openai._model import OpenAIModel
from toolsemble.models.openai._parts import INPUT_KINDS


@dataclass(frozen=True, slots=True)
class Server:
    """A kind of server.

    >>> SERVERS["vllm"].address
    'http://127.0.0.1:8000/v1'
    """

    name: str
    default: str
    """Its base URL, unless the host variable is set."""
    key_variable: str
    """The environment variable with its key."""
    host_variable: str | None = None
    """The environment variable with its address, for a local server; it needs no key."""
    inputs: tuple[str, ...] = ("image",)
    """The contents that it accepts in prompts."""

    @property
    def address(self) -> str:
        """Its base URL."""
        host = os.environ.get(self.host_variable, "").strip() if self.host_variable else ""
        return _address(host, self) if host else self.default

    @property
    def is_local(self) -> bool:
        """Whether it is a local server of the user."""
        return self.host_variable is not None

    def model(self, name: str) -> OpenAIModel:
        """Return one of its models.

        It has no ``native_output``: such servers ignore the answer's schema, or ignore tools when one is set.

        >>> SERVERS["ollama"].model("qwen3:8b")
        OpenAIModel('qwen3:8b', api='chat', base_url='http://127.0.0.1:11434/v1')
        """
        if not self.is_local and not os.environ.get(self.key_variable, "").strip():
            raise ToolConfigurationError(f"{self.name!r} needs a key: set {self.key_variable}")
        return OpenAIModel(
            name,
            api="chat",
            base_url=self.address,
            key_variable=self.key_variable,
            label=self.name,
            native_output=False,
            inputs=self.inputs,
        )


_WITH_URLS = ("image", "image_url")
SERVERS = {
    server.name: server
    for server in (
        Server("ollama", "http://127.0.0.1:11434/v1", "OLLAMA_API_KEY", "OLLAMA_HOST"),
        Server("lmstudio", "http://127.0.0.1:1234/v1", "LM_API_TOKEN", "LMSTUDIO_HOST"),
        Server("llamacpp", "http://127.0.0.1:8080/v1", "LLAMA_API_KEY", "LLAMACPP_HOST"),
        Server("vllm", "http://127.0.0.1:8000/v1", "VLLM_API_KEY", "VLLM_HOST", _WITH_URLS),
        Server("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", inputs=_WITH_URLS),
        Server("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY", inputs=_WITH_URLS),
        Server("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", inputs=tuple(INPUT_KINDS)),
    )
}
"""The servers with their own prefix; use ``OpenAIModel(name, base_url=…)`` for others."""


def model_from_name(provider: str, rest: str) -> OpenAIModel:
    """Return the model of a name such as ``ollama:qwen3:8b``; without a model name, the first one of a local server.

    >>> model_from_name("groq", "")
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: 'groq' needs a model name, such as 'groq:<model>'
    """
    server = SERVERS[provider]
    if server.is_local and not rest.strip():
        return server.model(first_model(server))
    return server.model(require_model_name(provider, rest, "<model>"))


def first_model(server: Server) -> str:
    """Return the name of a server's first model; raise ``ToolConfigurationError`` if there is none."""
    found = fetch_models(server.address, os.environ.get(server.key_variable))
    if isinstance(found, str):
        raise ToolConfigurationError(f"{server.name}: {found}; start the server, or set {server.host_variable}")
    return found[0]


def _address(host: str, server: Server) -> str:
    """Return the base URL for a host, a host with a port, or a URL, like Ollama's own variable."""
    default = urlsplit(server.default)
    try:
        parts = urlsplit(host if "://" in host else f"//{host}", scheme="http")
        port = parts.port or (default.port if "://" not in host else None)
    except ValueError:
        raise ToolConfigurationError(
            f"{server.host_variable} must be a host, a host with a port, or a URL, not {host!r:.80}"
        ) from None
    name = parts.hostname or "127.0.0.1"
    # Servers listen on all interfaces with these; a client needs one address.
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name)  # noqa: S104 - nothing is bound here
    shown = f"[{name}]" if ":" in name else name
    path = parts.path.rstrip("/") or default.path
    return f"{parts.scheme}://{shown}{f':{port}' if port else ''}{path}"
