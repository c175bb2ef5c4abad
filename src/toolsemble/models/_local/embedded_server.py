"""llama.cpp's server inside this process."""

from __future__ import annotations

import http.client
import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from toolsemble._runtime.extras import import_extra

_WAIT_POLICY = "OMP_WAIT_POLICY"
_SETTINGS = {
    "n_parallel": 1,
    "no_extra_bufts": True,  # repacked weights would take their memory twice
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
    """Wait until the server accepts tasks: one that is stopped earlier never ends."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc)
    try:
        connection.request("GET", "/slots", headers={"Authorization": f"Bearer {key}"})
        connection.getresponse().read()
    finally:
        connection.close()
