"""An agent's default model, chosen from the models that the environment offers."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from importlib import import_module  # a provider's model is loaded on lookup

from toolsemble._runtime.extras import install_command
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolsembleError
from toolsemble._vocabulary.provider_list import PROVIDERS
from toolsemble.models._adapter.offer import Offer, is_installed, offer_with_package
from toolsemble.models._model_list import fetch_models
from toolsemble.models.openai._compatible import SERVERS, Server

LOGGER = logging.getLogger("toolsemble.models")
LOGGER.addHandler(logging.NullHandler())  # a program that has not set up logging gets nothing printed

CHOICE = "TOOLSEMBLE_CHAT_MODEL"
"""The environment variable that names a model; it takes precedence over everything else."""

_EMBEDDED = "local"


def offers() -> list[Offer]:
    """Return all candidate models, in order of preference.

    >>> offers()[-1].name
    'local'
    """
    return list(_iterate_offers())


def choose_model() -> str:
    """Return the name of the first available model, and log the choice."""
    refused: list[Offer] = []
    for offer in _iterate_offers():  # lazily: with a key there is no need to wait for servers
        if offer.available:
            LOGGER.info("Using the model %s: %s", offer.name, offer.why)
            return offer.name
        refused.append(offer)
    default = refused[0].name
    raise ToolConfigurationError(
        "The agent has no model, and none was found: "
        + "; ".join(f"{offer.name}: {offer.why}" for offer in refused)
        + f". Set one of the keys, start a server, or name a model: Agent('{default}'), or {CHOICE}={default}"
    )


def _iterate_offers() -> Iterator[Offer]:
    choice = os.environ.get(CHOICE, "").strip()
    if choice:
        yield Offer(choice, available=True, why=f"{CHOICE} is set")
    for provider in PROVIDERS.values():
        if provider.models:
            yield import_module(provider.model_module).offer()
    yield from (_offer_server(server) for server in SERVERS.values() if server.is_local)
    yield _offer_embedded()


def _offer_server(server: Server) -> Offer:
    """Return the offer of a local server; fetch its list of models."""
    try:
        address = server.address
    except ToolConfigurationError as problem:
        return Offer(server.name, available=False, why=str(problem))
    models = fetch_models(address, os.environ.get(server.key_variable))
    if isinstance(models, str):
        return Offer(server.name, available=False, why=models)
    return offer_with_package(f"{server.name}:{models[0]}", "openai", f"it is served at {address}")


def _offer_embedded() -> Offer:
    """Return the offer of the embedded model, which needs its package and its weights."""
    if not is_installed("xllamacpp"):
        why = f"the package 'xllamacpp' is not installed: {install_command('local')}"
        return Offer(_EMBEDDED, available=False, why=why)
    from toolsemble.models._local.weights.cache import located

    try:
        path = located(None)
    except ToolsembleError as problem:  # the path that the user set does not exist
        return Offer(_EMBEDDED, available=False, why=str(problem))
    if path is None:
        return Offer(_EMBEDDED, available=False, why="its weights are not downloaded: run `toolsemble models pull`")
    return Offer(_EMBEDDED, available=True, why=f"its weights are at {path}")
