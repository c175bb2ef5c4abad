"""The server of llama.cpp, inside of this process."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

_ALWAYS = {
    "n_parallel": 1,
    "no_extra_bufts": True,  # repacked weights would be held a second time
    "warmup": False,
    "ui": False,
    "use_jinja": True,
    "offline": True,
    "verbosity": -1,
}


def started(library: ModuleType, path: str, key: str, settings: Mapping[str, Any], threads: int = 0) -> Any:
    """Give a server that works, or raise a ``RuntimeError`` when it cannot load the file or listen at its address.

    :param key: what every request has to carry, as a port is open to every user of this machine
    """
    parameters = library.CommonParams()
    parameters.model.path = path
    parameters.api_keys = [key]
    for name, value in {**_ALWAYS, **settings}.items():
        setattr(parameters, name, value)
    if threads:
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    server = library.Server(parameters)
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
