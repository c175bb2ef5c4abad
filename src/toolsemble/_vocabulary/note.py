"""``Note``: a change of a schema for a provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Note:
    """A keyword of a schema that a provider's format cannot express as declared.

    >>> print(Note("$.age", "minimum", "moved", "at least 18"))
    $.age: minimum moved into the description: at least 18
    """

    path: str
    """Where in the parameters, such as ``$.items[].price``."""
    keyword: str
    """The JSON Schema keyword."""
    action: Literal["moved", "dropped", "rewritten"]
    """Whether it was moved into the description, dropped, or rewritten as another keyword."""
    detail: str = ""
    """The text in the description, or the replacement."""

    def __str__(self) -> str:
        action = {"moved": "moved into the description", "dropped": "dropped", "rewritten": "rewritten"}[self.action]
        return f"{self.path}: {self.keyword} {action}" + (f": {self.detail}" if self.detail else "")
