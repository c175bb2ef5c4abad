"""What goes along into a worker process, where context variables cannot go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias

from toolsemble.context import LOGGER
from toolsemble.masking.secrets import know, known, veil
from toolsemble.observers.watchers import Companion, watchers

Carried: TypeAlias = tuple[Callable[[], Any], ...]
"""What is to be called on arrival, each of which can be pickled."""


def capture() -> Carried:
    """Give what is to be known of this context in another process: secrets, and what those who go along want there.

    >>> capture()
    ()
    """
    secrets = known()
    taken: list[Callable[[], Any] | None] = [partial(_known_there, secrets)] if secrets else []
    taken += [each.pack() for each in watchers() if isinstance(each, Companion)]
    return tuple(each for each in taken if each is not None)


def restore(luggage: Iterable[Callable[[], Any]]) -> None:
    """Arrive in the context of a body, which is there for it alone; what goes wrong here does not disturb it.

    >>> restore([partial(print, "here")])
    here
    """
    for each in luggage:
        try:
            each()
        except Exception:  # noqa: BLE001 - a trace that breaks off is better than a call that fails
            LOGGER.warning("Something did not arrive in a worker process", exc_info=True)


def _known_there(secrets: tuple[str, ...]) -> None:
    veil()
    know(secrets)
