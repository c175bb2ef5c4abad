"""``Verdict``: which tools of a source may be shown and called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble.catalog._lock.diff import Change, format_changes


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which tools of a source may be shown and called, after a lock has checked them.

    >>> verdict = Verdict("tools.py", frozenset({"now"}), {"later": "it is not in the lock"})
    >>> verdict.admits("now"), verdict.admits("later"), verdict.admits("never")
    (True, False, False)
    """

    source: str
    """The identity of the source."""
    admitted: frozenset[str] = frozenset()
    """The names of the tools that may be shown and called."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """The other tools, each with the reason."""
    changes: tuple[Change, ...] = ()
    """All changes, also of tools that are admitted."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """The digests of the admitted tools."""
    problem: str = ""
    """Why no tool of the source may be called; "" if some may."""

    def admits(self, name: str) -> bool:
        """Return whether a tool may be shown and called."""
        return name in self.admitted

    def check_call(self, name: str, digest: str = "") -> None:
        """Raise ToolExecutionError if a tool may not be called, also for one that was taken before.

        :param digest: the digest of the pin of the tool when it was taken; "" to compare the name only

        >>> Verdict("tools.py").check_call("now")
        Traceback (most recent call last):
        ...
        toolsemble.ToolExecutionError: The lock refuses 'now': its source does not have it anymore
        """
        if name not in self.admitted:
            reason = self.problem or self.refused.get(name, "its source does not have it anymore")
        elif digest and digest != self.digests.get(name):
            reason = "its definition has changed since it was taken"
        else:
            return
        raise ToolExecutionError(f"The lock refuses '{name}': {reason}")

    @property
    def diff(self) -> str:
        """All changes as text, with invisible characters as escapes; "" if there are none."""
        return format_changes(self.source, self.changes) if self.changes else ""
