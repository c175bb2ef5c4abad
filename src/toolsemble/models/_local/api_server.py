"""llama.cpp's own server with an OpenAI-compatible API, for other programs on this machine."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike

from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.models._local.embedded_server import load_library, start_server
from toolsemble.models._local.location import find_weights


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A running server."""

    base_url: str
    """The base URL for OpenAI clients."""
    api_key: str = field(repr=False)
    """The key that every request must have."""


@contextmanager
def serve(
    path: str | PathLike[str] = "",
    host: str = "127.0.0.1",
    port: int = 0,
    api_key: str | None = None,
    *,
    context: int = 8192,
) -> Iterator[RunningServer]:
    """Run the server until the end of the block.

    >>> with serve("/nowhere/model.gguf") as server:
    ...     print(server.base_url)
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: There is no file '/nowhere/model.gguf'; pass the path of a .gguf file

    :param path: a GGUF file, or the name of weights
    :param host: the address to listen on; by default only this machine can connect
    :param port: the port; 0: any free port
    :param api_key: the key that requests must have; a new one by default, because any user of this machine can connect
    """
    module = load_library("serve")
    file, key = find_weights(str(path)), api_key or secrets.token_urlsafe(32)
    try:
        running = start_server(module, str(file), key, {"hostnames": [host], "port": port, "n_ctx": context})
    except RuntimeError as problem:
        raise ToolConfigurationError(
            f"llama.cpp cannot serve {file.name} at {host}:{port}: the port is in use, or the file cannot be loaded"
        ) from problem
    try:
        yield RunningServer(f"{running.listening_address}/v1", key)
    finally:
        del running  # the destructor waits until it has stopped
