"""Bearer tokens that a file lists, for gateways without an authorization server."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from mcp.server.auth.provider import AccessToken

from toolsemble.mcp.gateway.settings import AccessToken as ListedToken


class ListedTokens:
    """A ``TokenVerifier`` that accepts a list of tokens.

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
        return AccessToken(token=token, client_id=known.client, scopes=list(known.scopes), subject=known.subject)
