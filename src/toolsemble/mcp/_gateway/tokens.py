"""Bearer tokens that a file lists, for gateways without an authorization server."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from mcp.server.auth.provider import AccessToken

from toolsemble.mcp._gateway.settings import AccessToken as ListedToken


class ListedTokens:
    """A ``TokenVerifier`` that accepts a list of tokens; one without a subject is a user of its own.

    >>> import asyncio
    >>> tokens = ListedTokens([ListedToken("a long secret of ada", subject="ada")])
    >>> asyncio.run(tokens.verify_token("a long secret of ada")).subject
    'ada'
    >>> asyncio.run(tokens.verify_token("another")) is None
    True
    """

    def __init__(self, tokens: Sequence[ListedToken]) -> None:
        self._tokens = tuple(tokens)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the user of a token; None if it is not in the list."""
        sent = token.encode(errors="surrogatepass")
        # All are compared, in constant time: the time of an answer must not tell how much of a token is right.
        found = [each for each in self._tokens if hmac.compare_digest(each.token.encode(), sent)]
        if not found:
            return None
        known = found[0]
        subject = known.subject or _name_token(known.token)
        return AccessToken(token=token, client_id=known.client, scopes=list(known.scopes), subject=subject)


def _name_token(token: str) -> str:
    """Return a name for the user of a token, from which the token cannot be computed.

    >>> _name_token("a long secret of ada")
    'token:389e60d210fc9482'
    """
    return f"token:{hashlib.sha256(token.encode()).hexdigest()[:16]}"
