"""The server of llama.cpp, inside of this process."""

from __future__ import annotations

import http.client
import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from toolsemble.runtime.extras import import_extra

_WAITING = "OMP_WAIT_POLICY"
_ALWAYS = {
    "n_parallel": 1,
    "no_extra_bufts": True,  # repacked weights would be held a second time
    "warmup": False,
    "ui": False,
    "use_jinja": True,
    "offline": True,
    "verbosity": -1,
}


def library(user: str) -> ModuleType:
    """Give llama.cpp's Python module, or refuse with what to install."""
    # Threads that wait for each other by turning round and round take several times as long on a machine where others
    # work as well; how they wait is read from the environment when the module is loaded, and only then.
    policy = os.environ.get(_WAITING)
    os.environ[_WAITING] = policy or "passive"
    try:
        return import_extra("xllamacpp", extra="local", user=user)
    finally:
        if policy is None:
            del os.environ[_WAITING]


def started(module: ModuleType, path: str, key: str, settings: Mapping[str, Any], threads: int = 0) -> Any:
    """Give a server that works, or raise a ``RuntimeError`` when it cannot load the file or listen at its address.

    :param key: what every request has to carry, as a port is open to every user of this machine
    """
    parameters = module.CommonParams()
    parameters.model.path = path
    parameters.api_keys = [key]
    for name, value in {**_ALWAYS, **settings}.items():
        setattr(parameters, name, value)
    if threads:
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    server = module.Server(parameters)
    _wait(server.listening_address, key)
    return server


def _wait(address: str, key: str) -> None:
    """Wait until the server takes tasks: one that is given up before that never ends."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc)
    try:
        connection.request("GET", "/slots", headers={"Authorization": f"Bearer {key}"})
        connection.getresponse().read()
    finally:
        connection.close()
