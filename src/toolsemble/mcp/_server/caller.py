"""``Caller``: who calls a served tool, as far as a verified token says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

_PREFIXES = ("client:", "subject:")
_NO_CLAIMS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Caller:
    """The user and the program that call a served tool; the fields are empty without authentication.

    It has no token, so that no tool can pass one on.

    >>> Caller(subject="ada", scopes=("read",)).memory_id
    'ada'
    >>> Caller().subject is None
    True
    """

    subject: str | None = None
    """The user, from the verified token; None without one."""
    client_id: str | None = None
    """The client program, from the verified token; None without one."""
    scopes: tuple[str, ...] = ()
    """The scopes of the token."""
    claims: Mapping[str, Any] = field(default_factory=lambda: _NO_CLAIMS, hash=False)
    """Further claims of the token."""

    @property
    def memory_id(self) -> str | None:
        """The memory id of the caller's calls: the user, else ``client:`` and the client; None: that of the toolbox.

        No user shares it with a client of the same name, whatever the two are called.

        >>> [caller.memory_id for caller in (Caller("ada"), Caller(client_id="ada"), Caller("client:ada"))]
        ['ada', 'client:ada', 'subject:client:ada']
        """
        if self.subject:
            return f"subject:{self.subject}" if self.subject.startswith(_PREFIXES) else self.subject
        return f"client:{self.client_id}" if self.client_id else None

    @property
    def identity(self) -> tuple[str | None, ...]:
        """What tells callers apart: the client, the issuer of the token, and the user."""
        issuer = self.claims.get("iss")
        return self.client_id, None if issuer is None else str(issuer), self.subject


_NOBODY = Caller()


def current_caller() -> Caller:
    """Return the caller of the request that is handled in this context.

    >>> current_caller()
    Caller(subject=None, client_id=None, scopes=(), claims=mappingproxy({}))
    """
    from mcp.server.auth.middleware.auth_context import get_access_token

    token = get_access_token()
    if token is None:
        return _NOBODY
    return Caller(token.subject, token.client_id, tuple(token.scopes), MappingProxyType(dict(token.claims or {})))
