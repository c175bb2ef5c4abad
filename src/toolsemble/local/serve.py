"""llama.cpp's own server, which speaks the wire format of OpenAI, for other programs on this machine."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike

from toolsemble.errors import ToolConfigurationError
from toolsemble.local.location import weights
from toolsemble.local.server import library, started


@dataclass(frozen=True, slots=True)
class Served:
    """A server that runs."""

    base_url: str
    """Where it is, as clients of OpenAI want it."""
    api_key: str = field(repr=False)
    """What every request has to carry."""


@contextmanager
def serve(
    path: str | PathLike[str] = "",
    host: str = "127.0.0.1",
    port: int = 0,
    api_key: str | None = None,
    *,
    context: int = 8192,
) -> Iterator[Served]:
    """Run the server for as long as the block lasts.

    >>> with serve("/nowhere/model.gguf") as served:
    ...     print(served.base_url)
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolConfigurationError: There is no file '/nowhere/model.gguf'; give the path of a .gguf file

    :param path: a GGUF file, or the name of weights
    :param host: the address to listen at; the default is reached from this machine only
    :param port: the port; 0 for any that is free
    :param api_key: what requests have to carry; a new one by default, as anybody on this machine reaches a port
    """
    module = library("serve")
    file, key = weights(str(path)), api_key or secrets.token_urlsafe(32)
    try:
        server = started(module, str(file), key, {"hostnames": [host], "port": port, "n_ctx": context})
    except RuntimeError as problem:
        raise ToolConfigurationError(
            f"llama.cpp cannot serve {file.name} at {host}:{port}: the port is taken, or the file cannot be loaded"
        ) from problem
    try:
        yield Served(f"{server.listening_address}/v1", key)
    finally:
        del server  # which waits until it has stopped
