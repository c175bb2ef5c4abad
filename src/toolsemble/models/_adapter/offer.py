"""A model that the environment may offer to an agent without a model."""

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
    """Why it can be used, or why not: part of a sentence."""


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
