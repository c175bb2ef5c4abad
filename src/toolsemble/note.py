"""What was changed in a schema on its way to a model, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Note:
    """One keyword that a model does not see as it was written.

    >>> print(Note("$.age", "minimum", "moved", "at least 18"))
    $.age: minimum moved into the description: at least 18
    """

    path: str
    """Where in the parameters, such as ``$.items[].price``."""
    keyword: str
    """The JSON Schema keyword."""
    action: Literal["moved", "dropped", "rewritten"]
    """Whether the description says it now, nothing says it, or another keyword does."""
    detail: str = ""
    """The words in the description, or what stands in its place."""

    def __str__(self) -> str:
        done = {"moved": "moved into the description", "dropped": "dropped", "rewritten": "rewritten"}[self.action]
        return f"{self.path}: {self.keyword} {done}" + (f": {self.detail}" if self.detail else "")
