"""The default model of an agent: the models that the environment offers, and which one is used."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

from toolsemble.errors import ToolConfigurationError, ToolsembleError
from toolsemble.models.openai.compatible import SERVERS, Server
from toolsemble.models.probe import fetch_models

LOGGER = logging.getLogger("toolsemble.models")
LOGGER.addHandler(logging.NullHandler())  # a program that has not set up logging gets nothing printed

CHOICE = "TOOLSEMBLE_CHAT_MODEL"
"""The environment variable that names a model; it takes precedence over everything else."""

OPENAI = "openai:gpt-6-luna"
"""The default model of OpenAI."""
ANTHROPIC = "anthropic:claude-haiku-5-5"
"""The default model of Anthropic."""
GOOGLE = "google:gemini-3.5-flash-lite"
"""The default model of Google."""
MISTRAL = "mistral:mistral-small-latest"
"""The default model of Mistral."""
BEDROCK = "bedrock:global.amazon.nova-2-lite-v1:0"
"""The default model of Amazon Bedrock."""
EMBEDDED = "local"
"""The embedded model."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A model that the environment may offer.

    >>> Offer("openai:gpt-5-mini", available=True, why="OPENAI_API_KEY is set").name
    'openai:gpt-5-mini'
    """

    name: str
    """The model's name, as passed to an agent."""
    available: bool
    """Whether it can be used."""
    why: str
    """Why it can be used, or why not: part of a sentence."""


def offers() -> list[Offer]:
    """Return all models that are looked for, in order of preference.

    >>> offers()[-1].name
    'local'
    """
    return list(_iterate_offers())


def choose_model() -> str:
    """Return the name of the first available model, and log the choice.

    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, {CHOICE: "openai:gpt-5-mini"}):
    ...     choose_model()
    'openai:gpt-5-mini'
    """
    refused: list[Offer] = []
    for offer in _iterate_offers():  # lazily: with a key there is no need to wait for servers
        if offer.available:
            LOGGER.info("Using the model %s: %s", offer.name, offer.why)
            return offer.name
        refused.append(offer)
    raise ToolConfigurationError(
        "The agent has no model, and none was found: "
        + "; ".join(f"{offer.name}: {offer.why}" for offer in refused)
        + f". Set one of the keys, start a server, or name a model: Agent('{OPENAI}'), or {CHOICE}={OPENAI}"
    )


def _iterate_offers() -> Iterator[Offer]:
    choice = os.environ.get(CHOICE, "").strip()
    if choice:
        yield _available(choice, f"{CHOICE} is set")
    yield _offer_with_key(OPENAI, "openai", "OPENAI_API_KEY")
    yield _offer_with_key(ANTHROPIC, "anthropic", "ANTHROPIC_API_KEY")
    yield _offer_with_key(GOOGLE, "google.genai", "GEMINI_API_KEY", "GOOGLE_API_KEY")
    yield _offer_with_key(MISTRAL, "mistralai", "MISTRAL_API_KEY")
    yield _offer_bedrock()
    yield from (_offer_server(server) for server in SERVERS.values() if server.is_local)
    yield _offer_embedded()


def _offer_with_key(name: str, package: str, *variables: str) -> Offer:
    """Return the offer of a provider whose key is in one of the variables."""
    variable = next(filter(_is_set, variables), None)
    if variable is None:
        return _missing(name, f"{' and '.join(variables)} {'is' if len(variables) == 1 else 'are'} not set")
    return _offer_with_package(name, package, f"{variable} is set")


def _offer_bedrock() -> Offer:
    """Return Bedrock's offer, judged by environment variables alone; other checks would need requests."""
    keys = _is_set("AWS_ACCESS_KEY_ID") and _is_set("AWS_SECRET_ACCESS_KEY")
    if not (keys or _is_set("AWS_BEARER_TOKEN_BEDROCK")):
        return _missing(
            BEDROCK, "neither AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY nor AWS_BEARER_TOKEN_BEDROCK is set"
        )
    if not (_is_set("AWS_REGION") or _is_set("AWS_DEFAULT_REGION")):
        return _missing(BEDROCK, "there are AWS credentials, but AWS_REGION is not set")
    return _offer_with_package(BEDROCK, "boto3", "AWS credentials and a region are set")


def _offer_server(server: Server) -> Offer:
    """Return the offer of a local server; fetch its list of models."""
    try:
        address = server.address
    except ToolConfigurationError as problem:
        return _missing(server.name, str(problem))
    models = fetch_models(address, os.environ.get(server.key_variable))
    if isinstance(models, str):
        return _missing(server.name, models)
    return _offer_with_package(f"{server.name}:{models[0]}", "openai", f"it is served at {address}")


def _offer_embedded() -> Offer:
    """Return the offer of the embedded model, which needs its package and its weights."""
    if not _is_installed("xllamacpp"):
        return _missing(EMBEDDED, "the package 'xllamacpp' is not installed: pip install 'toolsemble[local]'")
    from toolsemble.local.weights.cache import located  # noqa: PLC0415 - only the embedded model has weights

    try:
        path = located(None)
    except ToolsembleError as problem:  # the path that the user set does not exist
        return _missing(EMBEDDED, str(problem))
    if path is None:
        return _missing(EMBEDDED, "its weights are not downloaded: run `toolsemble models pull`")
    return _available(EMBEDDED, f"its weights are at {path}")


def _available(name: str, why: str) -> Offer:
    return Offer(name, available=True, why=why)


def _missing(name: str, why: str) -> Offer:
    return Offer(name, available=False, why=why)


def _offer_with_package(name: str, package: str, why: str) -> Offer:
    """Return an offer that depends on a package."""
    if _is_installed(package):
        return _available(name, why)
    extra = "openai" if package == "openai" else name.partition(":")[0]
    return _missing(name, f"{why}, but the package {package!r} is not installed: pip install 'toolsemble[{extra}]'")


def _is_installed(package: str) -> bool:
    """Return whether a package is installed, without importing it."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False


def _is_set(variable: str) -> bool:
    return bool(os.environ.get(variable, "").strip())
