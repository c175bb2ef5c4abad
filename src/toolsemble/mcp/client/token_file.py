"""``TokenFile``: a file in which the OAuth providers of the SDK keep their tokens."""

from __future__ import annotations

import json
import math
import os
import shlex
import stat
import tempfile
import time
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolsemble.errors import ToolConfigurationError

if TYPE_CHECKING:
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

_EARLY = 30.0
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class TokenFile:
    """A file with the tokens and the registration of one client at one server, which only its owner can read.

    Pass it as ``storage`` to ``OAuthClientProvider`` (authorization code with PKCE) or
    ``ClientCredentialsOAuthProvider`` of the SDK, and pass that as ``auth`` to :meth:`MCPClient.http`. A token that has
    expired is returned without its text, so that the provider refreshes it. A file that others can read is refused.

    >>> TokenFile("~/.config/my-program/tokens.json").path.name
    'tokens.json'
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path).expanduser()

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens; None if there are none."""
        from mcp.shared.auth import OAuthToken  # noqa: PLC0415 - loads the SDK

        values = self._read()
        if "tokens" not in values:
            return None
        found: OAuthToken = self._validate(OAuthToken, values["tokens"])
        expires_at = values.get("expires_at")
        if expires_at is None:
            return found
        if isinstance(expires_at, bool) or not isinstance(expires_at, (int, float)) or not math.isfinite(expires_at):
            raise self._broken()
        left = max(expires_at - time.time(), 0)
        # The SDK forgets when a stored token expires, and would send it.
        text = found.access_token if left > _EARLY else ""
        return found.model_copy(update={"expires_in": int(left), "access_token": text})

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store tokens, and when they expire."""
        expires_at = None if tokens.expires_in is None else time.time() + tokens.expires_in
        self._write(tokens=tokens.model_dump(mode="json", exclude_none=True), expires_at=expires_at)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the registration of the client; None if there is none."""
        from mcp.shared.auth import OAuthClientInformationFull  # noqa: PLC0415 - loads the SDK

        values = self._read()
        return self._validate(OAuthClientInformationFull, values["client"]) if "client" in values else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store the registration of the client."""
        self._write(client=client_info.model_dump(mode="json", exclude_none=True))

    def _validate(self, kind: Any, values: Any) -> Any:
        try:
            return kind.model_validate(values)
        except ValueError as problem:
            raise self._broken() from problem

    def _read(self) -> dict[str, Any]:
        try:
            with self.path.open(encoding="utf-8") as file:
                self._check_mode(os.fstat(file.fileno()).st_mode)
                values = json.load(file)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as problem:
            raise self._broken() from problem
        if not isinstance(values, dict):
            raise self._broken()
        return values

    def _check_mode(self, mode: int) -> None:
        """Raise if other users can read the file, where files have such modes."""
        if os.name == "posix" and mode & _OTHERS:
            path = str(self.path)
            raise ToolConfigurationError(
                f"The token file {path!r} has the mode {stat.S_IMODE(mode):04o}, so that others may know the tokens; "
                f"run: chmod 600 {shlex.quote(path)}"
            )

    def _broken(self) -> ToolConfigurationError:
        # Without the content: it is secret.
        return ToolConfigurationError(f"The token file {str(self.path)!r} cannot be read; delete it to sign in again")

    def _write(self, **changes: Any) -> None:
        """Replace the file as a whole: a crash leaves the old one."""
        values = {**self._read(), **changes}
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")  # with mode 0600
        try:
            with os.fdopen(file, "w", encoding="utf-8") as stream:
                json.dump(values, stream)
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
