"""The users of the interface and their roles: a TOML file, or this machine's user."""

from __future__ import annotations

import getpass
import hashlib
import hmac
import re
import secrets
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from toolsemble._runtime.text import escape_line
from toolsemble._vocabulary.errors import ToolConfigurationError

OPERATOR = "operator"
"""The role of people who may call tools, chat, and change durable runs and unknown outcomes."""
VIEWER = "viewer"
"""The read-only role."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
_ROLE = re.compile(r"[^\x00-\x1f\"\\\x7f]{1,64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FIELDS = {"token_sha256", "roles"}


@dataclass(frozen=True, slots=True)
class Person:
    """A user of the interface.

    >>> Person("ada", roles=("admin",)).may_answer("admin")
    True
    """

    name: str
    """The name, as shown in receipts and the audit."""
    roles: tuple[str, ...] = ()
    """The person's roles for answering requests."""
    token_sha256: str = ""
    """The digest of the person's token; empty for this machine's user."""

    @property
    def may_change(self) -> bool:
        """Whether the person may make changes."""
        return VIEWER not in self.roles

    @property
    def may_operate(self) -> bool:
        """Whether the person may call tools, chat, and change runs."""
        return self.may_change and (not self.token_sha256 or OPERATOR in self.roles)

    def may_answer(self, required_role: str | None) -> bool:
        """Return whether the person may answer a request that requires a role."""
        return self.may_change and (required_role is None or required_role in self.roles)


class People(Protocol):
    """The users of the interface."""

    def find(self, name: str) -> Person | None:
        """Return a person by name; None if there is none."""
        ...

    def find_token(self, token: str) -> Person | None:
        """Return the person with a token; None if there is none."""
        ...


class LocalUser:
    """The user of this machine, without roles and token.

    >>> LocalUser().find(LocalUser().person.name).may_operate
    True
    """

    def __init__(self) -> None:
        self.person = Person(_find_user())

    def find(self, name: str) -> Person | None:
        """Return the user if the name matches."""
        return self.person if name == self.person.name else None

    def find_token(self, token: str) -> Person | None:
        """Return None: the local user signs in with the printed link."""
        return None


class PeopleFile:
    """The people in a TOML file, reloaded when it changes: removed users are signed out immediately.

    :param path: the file; each table is a person, with ``token_sha256`` and ``roles``
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._stamp: tuple[int, int] | None = None
        self._people: dict[str, Person] = {}
        self._read()

    def find(self, name: str) -> Person | None:
        """Return a person by name; None if there is none."""
        return self._read().get(name)

    def find_token(self, token: str) -> Person | None:
        """Return the person with a token; compare all of them, to prevent timing attacks."""
        digest = digest_token(token)
        found = [each for each in self._read().values() if hmac.compare_digest(each.token_sha256, digest)]
        return found[0] if found else None

    def _read(self) -> Mapping[str, Person]:
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            if stamp != self._stamp:
                self._people = read_people(self._path)
                self._stamp = stamp
        except OSError as error:
            raise ToolConfigurationError(f"The people file '{self._path}' cannot be read: {error}") from error
        return self._people


def read_people(path: Path) -> dict[str, Person]:
    """Return a file's people by name; raise ToolConfigurationError with the location of a problem."""
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ToolConfigurationError(f"The people file '{path}' is not TOML: {error}") from error
    return {name: _read_person(path, name, table) for name, table in tables.items()}


def add_person(path: Path, name: str, roles: Iterable[str]) -> str:
    """Add a person to a file, creating it if missing; return the token, which is not stored.

    :param roles: the person's roles; ``operator`` may call tools, ``viewer`` is read-only
    """
    if not _NAME.fullmatch(name):
        raise ToolConfigurationError(f"A person's name is letters, digits and _ . @ -, not '{escape_line(name, 80)}'")
    wanted = list(dict.fromkeys(roles))
    for role in wanted:
        if not _ROLE.fullmatch(role):
            raise ToolConfigurationError(
                f"'{escape_line(role, 80)}' cannot be a role: it contains quotes or is not 1 to 64 characters long"
            )
    known = read_people(path) if path.exists() else {}
    if name in known:
        raise ToolConfigurationError(f"'{path}' already has a person '{name}'; remove that table first")
    token = secrets.token_urlsafe(32)
    listed = ", ".join(f'"{role}"' for role in wanted)
    text = f'["{name}"]\ntoken_sha256 = "{digest_token(token)}"\nroles = [{listed}]\n'
    before = path.read_text("utf-8").rstrip("\n") + "\n\n" if known else ""
    path.touch(0o600)
    path.write_text(before + text, "utf-8")
    return token


def digest_token(token: str) -> str:
    """Return the digest of a token; a token is 256 random bits, so no slow digest is needed.

    >>> digest_token("secret")[:8]
    '2bb80d53'
    """
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def _read_person(path: Path, name: str, table: Any) -> Person:
    place = f"'{path}', person '{escape_line(name, 80)}'"
    if not _NAME.fullmatch(name) or not isinstance(table, dict) or table.keys() - _FIELDS:
        raise ToolConfigurationError(f"{place}: expected a table with token_sha256 and roles")
    digest, roles = table.get("token_sha256"), table.get("roles", [])
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ToolConfigurationError(
            f"{place}: token_sha256 must be 64 hexadecimal digits; 'toolsemble ui add-person' writes it"
        )
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        raise ToolConfigurationError(f"{place}: roles must be a list of texts, such as ['admin']")
    return Person(name, tuple(roles), digest)


def _find_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may have a user without a name
        return "local user"
