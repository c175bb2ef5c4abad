"""``TokenFile``: token storage for the SDK's OAuth providers."""

from __future__ import annotations

import json
import math
import os
import shlex
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError

if TYPE_CHECKING:
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

_EARLY = 30.0
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class TokenFile:
    """A file with one client's tokens and registration for one server, readable only by its owner.

    Pass it as ``storage`` to ``OAuthClientProvider`` (authorization code with PKCE) or
    ``ClientCredentialsOAuthProvider`` of the SDK, and pass that as ``auth`` to :meth:`MCPClient.http`. An expired token
    is returned without its text, so that the provider refreshes it. A file that others can read is rejected.

    The file records its server, and is rejected for any other, so that tokens are sent only to their server. A file
    without a server, from an older version, is bound to the first server that it is used with. Several processes may
    share one file.

    >>> TokenFile("~/.config/my-program/tokens.json").path.name
    'tokens.json'
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path).expanduser()
        self._server = ""

    def use_for(self, server: str) -> None:
        """Bind the file to the server at a URL; :meth:`MCPClient.http` does so for its provider's file.

        Raise :class:`~toolsemble.ToolDefinitionError` if the object is bound to another server.

        >>> TokenFile("tokens.json").use_for("https://tools.example.com/mcp")
        """
        if self._server not in ("", server):
            raise ToolDefinitionError(
                f"The token file {str(self.path)!r} is used for {self._server}; use another file for {server}"
            )
        self._server = server

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens; None if there are none."""
        from mcp.shared.auth import OAuthToken

        values = self._claim()
        if "tokens" not in values:
            return None
        found: OAuthToken = self._validate(OAuthToken, values["tokens"])
        expires_at = values.get("expires_at")
        if expires_at is None:
            return found
        if isinstance(expires_at, bool) or not isinstance(expires_at, (int, float)) or not math.isfinite(expires_at):
            raise self._broken()
        left = max(expires_at - time.time(), 0)
        # The SDK does not store a token's expiry, and would send an expired one.
        text = found.access_token if left > _EARLY else ""
        return found.model_copy(update={"expires_in": int(left), "access_token": text})

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store tokens and their expiry."""
        expires_at = None if tokens.expires_in is None else time.time() + tokens.expires_in
        self._write(tokens=tokens.model_dump(mode="json", exclude_none=True), expires_at=expires_at)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the client's registration; None if there is none."""
        from mcp.shared.auth import OAuthClientInformationFull

        values = self._claim()
        return self._validate(OAuthClientInformationFull, values["client"]) if "client" in values else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store the client's registration."""
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
        self._check_server(values)
        return values

    def _claim(self) -> dict[str, Any]:
        """Return the file's values; bind a file without a server to this one."""
        values = self._read()
        if values and self._server and "server" not in values:
            self._write()
            values = self._read()
        return values

    def _check_server(self, values: dict[str, Any]) -> None:
        """Raise if the file belongs to a different server."""
        found = values.get("server", self._server)
        if self._server and found != self._server:
            raise ToolConfigurationError(
                f"The token file {str(self.path)!r} has the tokens of {found!r:.200}; "
                f"use another file for {self._server}"
            )

    def _check_mode(self, mode: int) -> None:
        """Raise if other users can read the file, on systems with file modes."""
        if os.name == "posix" and mode & _OTHERS:
            path = str(self.path)
            raise ToolConfigurationError(
                f"The token file {path!r} has the mode {stat.S_IMODE(mode):04o}, so others may have read the tokens; "
                f"run: chmod 600 {shlex.quote(path)}"
            )

    def _broken(self) -> ToolConfigurationError:
        # Without the content, which is secret.
        return ToolConfigurationError(f"The token file {str(self.path)!r} cannot be read; delete it to sign in again")

    def _write(self, **changes: Any) -> None:
        """Replace the file atomically: a crash leaves the old one."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _lock_directory(self.path.parent):
            # Reread: another process may have changed other values.
            values = {**self._read(), **changes}
            if self._server:
                values["server"] = self._server
            self._replace(values)

    def _replace(self, values: dict[str, Any]) -> None:
        file, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")  # with mode 0600
        try:
            with os.fdopen(file, "w", encoding="utf-8") as stream:
                json.dump(values, stream)
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


@contextmanager
def _lock_directory(path: Path) -> Iterator[None]:
    """Lock a directory's files against other processes and threads, where the system supports it.

    The directory is locked because the file gets replaced, which would void a lock on the file.
    """
    try:
        import fcntl  # not available on every system
    except ImportError:
        yield
        return
    directory = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        # Closing is not enough: a process forked in the meantime has the directory open and would keep the lock.
        fcntl.flock(directory, fcntl.LOCK_UN)
        os.close(directory)
