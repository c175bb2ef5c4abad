"""Where the key of a model comes from, for the errors of a provider that refuses it."""

from __future__ import annotations

from toolsemble.models._adapter.offer import is_set

CLIENT_KEY = "the key of the client"
"""The source of a key for a model that has a client of its user."""


def find_key_source(api_key: object, *variables: str) -> str | None:
    """Return where a key comes from, never the key itself; None if there is none.

    :param variables: the environment variables with a key, the first one that is set is used

    >>> find_key_source("sk-secret"), find_key_source(None, "TOY_API_KEY")
    ('the key passed as api_key=', None)
    """
    if api_key:
        return "the key passed as api_key="
    return next((f"the key from {variable}" for variable in variables if is_set(variable)), None)


def key_hint(source: str | None, missing: str) -> str:
    """Return the end of a message about a request that was refused for its key.

    :param missing: how to set a key, for a model that has none

    >>> key_hint("the key from TOY_API_KEY", "set TOY_API_KEY"), key_hint(None, "set TOY_API_KEY")
    ('; it refused the key from TOY_API_KEY', '; set TOY_API_KEY')
    """
    return f"; {missing}" if source is None else f"; it refused {source}"
