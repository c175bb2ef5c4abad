"""llama.cpp's server: inside this process, or for other programs on this machine."""

from __future__ import annotations

import http.client
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from toolsemble._runtime.extras import import_extra
from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.models._local.weights.cache import located
from toolsemble.models._local.weights.catalogue import entry

_MAGIC = b"GGUF"


def find_weights(name: str = "") -> Path:
    """Return a model's file by name or path; raise :class:`ToolConfigurationError` if it does not exist.

    This never downloads anything. Without a name, ``TOOLSEMBLE_MODEL`` may contain the path of a file.

    >>> find_weights("/nowhere/model.gguf")
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: There is no file '/nowhere/model.gguf'; pass the path of a .gguf file
    """
    path = located(name or None)
    if path is None:
        known = entry(name or None)
        command = f"toolsemble models pull {name}".rstrip()
        raise ToolConfigurationError(
            f"The weights of the local model ({known.file}) are not on this machine: run `{command}` once, which "
            f"downloads {known.size / 1e9:.1f} GB; the model takes about {known.memory / 1e9:.1f} GB of memory. "
            "Or pass a file: 'local:/path/to/x.gguf'"
        )
    with path.open("rb") as file:
        begin = file.read(len(_MAGIC))
    if begin != _MAGIC:
        raise ToolConfigurationError(f"{str(path)!r} is not a GGUF file: it begins with {begin!r}")
    return path.resolve()


_WAIT_POLICY = "OMP_WAIT_POLICY"
_SETTINGS = {
    "n_parallel": 1,
    "no_extra_bufts": True,  # repacked weights would double the memory
    "warmup": False,
    "ui": False,
    "use_jinja": True,
    "offline": True,
    "verbosity": -1,
}


def load_library(user: str) -> ModuleType:
    """Return llama.cpp's Python module; raise with the install command if it is missing."""
    # Threads that spin while they wait are several times slower on a busy machine. The policy is read from the
    # environment when the module is loaded, and only then.
    policy = os.environ.get(_WAIT_POLICY)
    os.environ[_WAIT_POLICY] = policy or "passive"
    try:
        return import_extra("xllamacpp", extra="local", user=user)
    finally:
        if policy is None:
            del os.environ[_WAIT_POLICY]


def start_server(module: ModuleType, path: str, key: str, settings: Mapping[str, Any], threads: int = 0) -> Any:
    """Return a running server; raise RuntimeError if it cannot load the file or listen on its address.

    :param key: the key that every request must have, because any user of this machine can connect to the port
    """
    parameters = module.CommonParams()
    parameters.model.path = path
    parameters.api_keys = [key]
    for name, value in {**_SETTINGS, **settings}.items():
        setattr(parameters, name, value)
    if threads:
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    server = module.Server(parameters)
    _wait_ready(server.listening_address, key)
    return server


def _wait_ready(address: str, key: str) -> None:
    """Wait until the server accepts tasks: if stopped earlier, it never exits."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc)
    try:
        connection.request("GET", "/slots", headers={"Authorization": f"Bearer {key}"})
        connection.getresponse().read()
    finally:
        connection.close()


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
