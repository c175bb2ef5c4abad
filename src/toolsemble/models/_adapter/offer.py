"""A default model offered by the environment, and the source of its key."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec

from toolsemble._runtime.extras import install_command


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
    """Why it can or cannot be used: a sentence fragment."""


def offer_with_key(name: str, package: str, *variables: str) -> Offer:
    """Return the offer of a model that needs a package, and a key in one of the environment variables.

    >>> offer_with_key("toy:small", "json", "TOY_API_KEY").why
    'TOY_API_KEY is not set'
    """
    variable = next(filter(is_set, variables), None)
    if variable is None:
        why = f"{' and '.join(variables)} {'is' if len(variables) == 1 else 'are'} not set"
        return Offer(name, available=False, why=why)
    return offer_with_package(name, package, f"{variable} is set")


def offer_with_package(name: str, package: str, why: str) -> Offer:
    """Return the offer of a model that needs a package."""
    if is_installed(package):
        return Offer(name, available=True, why=why)
    extra = "openai" if package == "openai" else name.partition(":")[0]
    why += f", but the package {package!r} is not installed: {install_command(extra)}"
    return Offer(name, available=False, why=why)


def is_installed(package: str) -> bool:
    """Return whether a package is installed, without importing it."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False


def is_set(variable: str) -> bool:
    """Return whether an environment variable is set to more than blanks."""
    return bool(os.environ.get(variable, "").strip())


CLIENT_KEY = "the key of the client"
"""The key source for a model with the user's own client."""


def find_key_source(api_key: object, *variables: str) -> str | None:
    """Return a key's source, never the key itself; None if there is none.

    :param variables: the environment variables with a key, the first one that is set is used

    >>> find_key_source("sk-secret"), find_key_source(None, "TOY_API_KEY")
    ('the key passed as api_key=', None)
    """
    if api_key:
        return "the key passed as api_key="
    return next((f"the key from {variable}" for variable in variables if is_set(variable)), None)


def key_hint(source: str | None, missing: str) -> str:
    """Return the hint to append to an authentication error.

    :param missing: how to set a key, for a model without one

    >>> key_hint("the key from TOY_API_KEY", "set TOY_API_KEY"), key_hint(None, "set TOY_API_KEY")
    ('; it refused the key from TOY_API_KEY', '; set TOY_API_KEY')
    """
    return f"; {missing}" if source is None else f"; it refused {source}"
