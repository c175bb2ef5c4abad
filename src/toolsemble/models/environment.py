"""Which model an agent takes when it is given none: what the environment offers, and why."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

from toolsemble.errors import ToolConfigurationError, ToolsembleError
from toolsemble.models.openai.compatible import SERVERS, Server
from toolsemble.models.probe import models_at

LOGGER = logging.getLogger("toolsemble.models")
LOGGER.addHandler(logging.NullHandler())  # a program that has not set up logging gets nothing printed

CHOICE = "TOOLSEMBLE_CHAT_MODEL"
"""The variable of the environment that names a model, and stands above everything else."""

OPENAI = "openai:gpt-6-luna"
"""What is asked of OpenAI."""
ANTHROPIC = "anthropic:claude-haiku-5-5"
"""What is asked of Anthropic."""
GOOGLE = "google:gemini-3.5-flash-lite"
"""What is asked of Google."""
MISTRAL = "mistral:mistral-small-latest"
"""What is asked of Mistral."""
BEDROCK = "bedrock:global.amazon.nova-2-lite-v1:0"
"""What is asked of Amazon Bedrock."""
EMBEDDED = "local"
"""The model in the process."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A model that was looked for.

    >>> Offer("openai:gpt-5-mini", available=True, why="OPENAI_API_KEY is set").name
    'openai:gpt-5-mini'
    """

    name: str
    """The model's name, as an agent takes it."""
    available: bool
    """Whether it can be used."""
    why: str
    """Why it can be, or cannot: part of a sentence."""


def offers() -> list[Offer]:
    """Give everything that is looked at, in the order in which one is taken.

    >>> offers()[-1].name
    'local'
    """
    return list(_looked_at())


def choose_model() -> str:
    """Return the name of the first model that is available, and log which and why.

    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, {CHOICE: "openai:gpt-5-mini"}):
    ...     choose_model()
    'openai:gpt-5-mini'
    """
    refused: list[Offer] = []
    for offer in _looked_at():  # one by one: whoever has a key does not wait for servers
        if offer.available:
            LOGGER.info("Taking the model %s: %s", offer.name, offer.why)
            return offer.name
        refused.append(offer)
    raise ToolConfigurationError(
        "The agent has no model, and none was found: "
        + "; ".join(f"{offer.name}: {offer.why}" for offer in refused)
        + f". Set one of the keys, start a server, or name a model: Agent('{OPENAI}'), or {CHOICE}={OPENAI}"
    )


def _looked_at() -> Iterator[Offer]:
    choice = os.environ.get(CHOICE, "").strip()
    if choice:
        yield _there(choice, f"{CHOICE} is set")
    yield _keyed(OPENAI, "openai", "OPENAI_API_KEY")
    yield _keyed(ANTHROPIC, "anthropic", "ANTHROPIC_API_KEY")
    yield _keyed(GOOGLE, "google.genai", "GEMINI_API_KEY", "GOOGLE_API_KEY")
    yield _keyed(MISTRAL, "mistralai", "MISTRAL_API_KEY")
    yield _in_amazon()
    yield from (_served(server) for server in SERVERS.values() if server.is_local)
    yield _embedded()


def _keyed(name: str, package: str, *variables: str) -> Offer:
    """Give the offer of a provider whose key is in one of the variables."""
    variable = next((each for each in variables if os.environ.get(each, "").strip()), None)
    if variable is None:
        return _missing(name, f"{' and '.join(variables)} {'is' if len(variables) == 1 else 'are'} not set")
    return _installed(name, package, f"{variable} is set")


def _in_amazon() -> Offer:
    """Give Bedrock's offer, as far as the environment alone tells: looking for more would take requests."""
    keys = _is_set("AWS_ACCESS_KEY_ID") and _is_set("AWS_SECRET_ACCESS_KEY")
    if not (keys or _is_set("AWS_BEARER_TOKEN_BEDROCK")):
        return _missing(
            BEDROCK, "neither AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY nor AWS_BEARER_TOKEN_BEDROCK is set"
        )
    if not (_is_set("AWS_REGION") or _is_set("AWS_DEFAULT_REGION")):
        return _missing(BEDROCK, "there are AWS credentials, but AWS_REGION is not set")
    return _installed(BEDROCK, "boto3", "AWS credentials and a region are set")


def _served(server: Server) -> Offer:
    """Give the offer of a server on this machine, which is asked for its models."""
    try:
        address = server.address
    except ToolConfigurationError as problem:
        return _missing(server.name, str(problem))
    models = models_at(address, os.environ.get(server.key_variable))
    if isinstance(models, str):
        return _missing(server.name, models)
    return _installed(f"{server.name}:{models[0]}", "openai", f"it is served at {address}")


def _embedded() -> Offer:
    """Give the offer of the model in the process: its program and its weights must be here."""
    if not _has("xllamacpp"):
        return _missing(EMBEDDED, "the package 'xllamacpp' is not installed: pip install 'toolsemble[local]'")
    from toolsemble.local.weights.cache import located  # noqa: PLC0415 - nobody else needs to know where weights are

    try:
        path = located(None)
    except ToolsembleError as problem:  # a path that the user gave leads nowhere
        return _missing(EMBEDDED, str(problem))
    if path is None:
        return _missing(EMBEDDED, "its weights are not here: run `toolsemble models pull`")
    return _there(EMBEDDED, f"its weights are at {path}")


def _there(name: str, why: str) -> Offer:
    return Offer(name, available=True, why=why)


def _missing(name: str, why: str) -> Offer:
    return Offer(name, available=False, why=why)


def _installed(name: str, package: str, why: str) -> Offer:
    """Give an offer that depends on a package."""
    if _has(package):
        return _there(name, why)
    extra = "openai" if package == "openai" else name.partition(":")[0]
    return _missing(name, f"{why}, but the package {package!r} is not installed: pip install 'toolsemble[{extra}]'")


def _has(package: str) -> bool:
    """Whether a package is installed; nothing of it is loaded."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the package that it would be in is missing
        return False


def _is_set(variable: str) -> bool:
    return bool(os.environ.get(variable, "").strip())
