"""Names of remote tools: mapped to the names that models may use, reversibly and stably."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping

_INVALID = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST = 64
_DIGITS = 8
_MOST_KEPT = 1000


class NameMap:
    """The names of the tools of one server, under which models call them.

    A valid name stays as it is, with the prefix. Another one is cleaned; if the result is too long, or taken, it ends
    in a digest of the server's name. A name that was assigned once is not assigned to another tool, as long as the
    server has not offered a thousand others since.

    >>> names = NameMap("files_")
    >>> dict(names.assign(["read", "dir.list"]))
    {'read': 'files_read', 'dir.list': 'files_dir_list'}
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._local: dict[str, str] = {}
        self._taken: set[str] = set()

    def assign(self, remote: Iterable[str]) -> Mapping[str, str]:
        """Return the names for models by the names of the server, for the tools that it lists now."""
        listed = dict.fromkeys(remote)
        # Valid names first: the name of a tool does not depend on the order of the listing.
        for name in sorted(listed.keys() - self._local.keys(), key=lambda each: (_clean_name(each) != each, each)):
            local = self._find_name(name)
            self._local[name] = local
            self._taken.add(local)
        self._forget(listed)
        return {name: self._local[name] for name in listed}

    def _forget(self, listed: Collection[str]) -> None:
        """Forget the names that were listed longest ago, if there are too many."""
        for name in sorted(listed):
            self._local[name] = self._local.pop(name)  # the last ones now
        for name in list(self._local)[: max(0, len(self._local) - len(listed) - _MOST_KEPT)]:
            self._taken.discard(self._local.pop(name))

    def propose(self, remote: str) -> str:
        """Return the name for models that a tool would have, if it is valid and not taken."""
        return self._prefix + _clean_name(remote)

    def _find_name(self, remote: str) -> str:
        wanted = self.propose(remote)
        if len(wanted) <= _LONGEST and wanted not in self._taken:
            return wanted
        digest = hashlib.sha256(remote.encode(errors="surrogatepass")).hexdigest()
        # A longer part of the digest, if another name has the same digits.
        ends = (f"_{digest[:digits]}" for digits in range(_DIGITS, len(digest)))
        found = (wanted[: _LONGEST - len(end)] + end for end in ends)
        return next(each for each in found if each not in self._taken)


def _clean_name(name: str) -> str:
    return _INVALID.sub("_", name) or "tool"
