"""Who is signed in: a link that works once, a signed cookie, and tokens for programs."""

from __future__ import annotations

import base64
import hmac
import json
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from toolsemble._runtime.signing import is_signed, sign
from toolsemble._runtime.sqlite import load_key
from toolsemble._ui.people import LocalUser, People, Person

LIFETIME = 7 * 24 * 3600
"""Seconds for which a cookie is valid."""
TOKEN_FILE = "ui.token"  # noqa: S105 - the name of a file
"""The file in the data folder that holds the token for programs of this user."""


class Sessions:
    """The sessions of one server, which outlive it: cookies are signed with a key in the data folder.

    :param folder: the data folder
    :param people: the people who may sign in
    :param port: a part of the cookie's name, so that two servers of one machine do not sign each other out
    :param clock: returns the seconds since the epoch
    """

    def __init__(self, folder: Path, people: People, port: int, clock: Callable[[], float] = time.time) -> None:
        self._key = load_key(folder / "ui", "key of the web interface")
        self._people = people
        self._clock = clock
        self._link = secrets.token_urlsafe(32) if isinstance(people, LocalUser) else ""
        self._program_token = sign(self._key, "program", "")
        self.cookie = f"toolsemble-{port}"
        if isinstance(people, LocalUser):
            _write_private(folder / TOKEN_FILE, self._program_token)

    @property
    def link_token(self) -> str:
        """The token of the link that signs in the user of this machine; empty if it was used, or people have tokens."""
        return self._link

    def use_link(self, token: str) -> Person | None:
        """Return the user of this machine for the token of the link, which works once; None if it is wrong.

        A link takes no other token: it would stay in logs, and somebody else's would sign in who follows it as them.
        """
        is_right = self._link and hmac.compare_digest(self._link.encode(), token.encode(errors="replace"))
        if not is_right or not isinstance(self._people, LocalUser):
            return None
        self._link = ""
        return self._people.person

    def sign_in(self, token: str) -> Person | None:
        """Return the person of a token that was entered; None if it is wrong."""
        return self.use_link(token) or self.find_bearer(token)

    def find_bearer(self, token: str) -> Person | None:
        """Return the person of the token of a program; None if it is wrong."""
        return self._find_program(token) or self._people.find_token(token)

    def make_cookie(self, person: Person) -> str:
        """Return the value of a cookie for a person."""
        values = [person.name, int(self._clock()) + LIFETIME]
        text = base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")
        return f"{text}.{self._sign(values, person)}"

    def find_cookie(self, value: str) -> Person | None:
        """Return the person of a cookie; None if it has expired, was not made here, or the person is out."""
        text, _, signature = value.partition(".")
        try:
            values = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            name, expires = values
            person = self._people.find(name)
        except (ValueError, TypeError):
            return None
        if person is None or not is_signed(signature, self._key, "session", [values, person.token_sha256]):
            return None
        return person if self._clock() < expires else None

    def _sign(self, values: list[object], person: Person) -> str:
        # With the digest of the token: a new token ends the sessions of the old one.
        return sign(self._key, "session", [values, person.token_sha256])

    def _find_program(self, token: str) -> Person | None:
        if not isinstance(self._people, LocalUser):
            return None
        is_right = hmac.compare_digest(self._program_token.encode(), token.encode(errors="replace"))
        return self._people.person if is_right else None


def _write_private(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
