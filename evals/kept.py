"""Keep the outcomes of tasks in a file, so that an evaluation that was interrupted goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "build"


class Kept:
    """Outcomes in a file with a line for each; delete the file after a change of the prompt or of the search."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._outcomes: dict[tuple[str, ...], Mapping[str, Any]] = {
            tuple(each["of"]): each["outcome"] for each in map(json.loads, lines)
        }

    def get(self, *of: str) -> Mapping[str, Any] | None:
        """Return the outcome of a task; None if it is not known."""
        return self._outcomes.get(of)

    def find(self, *of: str) -> Iterator[Mapping[str, Any]]:
        """Yield the outcomes of all tasks that begin with these names."""
        return (outcome for key, outcome in self._outcomes.items() if key[: len(of)] == of)

    def add(self, *of: str, **outcome: Any) -> None:
        """Keep the outcome of a task."""
        self._outcomes[of] = outcome
        self._path.parent.mkdir(exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps({"of": of, "outcome": outcome}) + "\n")
