"""Read the functions and questions of the Berkeley Function Calling Leaderboard, as the wheel `bfcl-eval` has them.

The questions are in two halves, by the name of the function that they need: weights are chosen on the questions of the
one half, and reported for the other, for whose functions no weight was chosen.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from toolsemble import SchemaTool

FILES = ("simple_python", "multiple", "live_simple", "live_multiple")
"""The files whose questions need one call."""
OTHERS = ("parallel", "parallel_multiple", "live_parallel", "live_parallel_multiple")
"""The files whose questions need several calls."""

_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "", "String": "string", "long": "integer"}


@dataclass(frozen=True, slots=True)
class Question:
    """What a user asks for."""

    text: str
    """The words of the user."""
    needed: frozenset[str]
    """The names of the tools that serve it."""
    half: Literal["tuned", "unseen"]
    """Whether weights were chosen on it, or are reported for it."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function that can be called."""

    name: str
    """Its name, as providers accept it."""
    description: str
    """What it does."""
    parameters: dict[str, Any]
    """The JSON Schema of its arguments."""

    def to_tool(self) -> SchemaTool:
        """Return the function as a tool, which does nothing."""
        return SchemaTool(self.name, self.description, lambda _: "done", self.parameters)


def find_data() -> Path:
    """Return the folder of the installed wheel; the package itself is not imported, as it needs many others."""
    from importlib.metadata import distribution

    return Path(str(distribution("bfcl-eval").locate_file("bfcl_eval/data")))


def read_functions(data: Path, files: tuple[str, ...] = FILES) -> list[Function]:
    """Return the distinct functions; of those that share a name, the first."""
    functions: dict[str, Function] = {}
    for file in files:
        for row in _read_lines(data / f"BFCL_v4_{file}.json"):
            for each in row["function"]:
                name = name_tool(each["name"])
                functions.setdefault(name, Function(name, each["description"], _convert(each["parameters"])))
    return list(functions.values())


def read_questions(data: Path, files: tuple[str, ...] = FILES) -> list[Question]:
    """Return the questions, each once."""
    questions: dict[str, Question] = {}
    for file in files:
        answers = {row["id"]: row["ground_truth"] for row in _read_lines(data / f"possible_answer/BFCL_v4_{file}.json")}
        for row in _read_lines(data / f"BFCL_v4_{file}.json"):
            text = "\n".join(each["content"] for each in row["question"][0] if each["role"] == "user")
            needed = frozenset(name_tool(name) for call in answers[row["id"]] for name in call)
            questions.setdefault(row["id"], Question(text, needed, _choose_half(min(needed))))
    return list(questions.values())


def name_tool(name: str) -> str:
    """Return the name of a function as providers accept it."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64]


def _choose_half(name: str) -> Literal["tuned", "unseen"]:
    return "tuned" if zlib.crc32(name.encode()) % 2 else "unseen"


def _convert(schema: Any) -> Any:
    """Return a schema in the words of JSON Schema; BFCL's uses the names of Python types."""
    if isinstance(schema, list):
        return [_convert(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    converted = {key: _convert(value) for key, value in schema.items() if key not in {"type", "optional", "default"}}
    kind = schema.get("type")
    if isinstance(kind, dict):  # a parameter that is called "type"
        return {**converted, "type": _convert(kind)}
    if isinstance(kind, str) and (known := _TYPES.get(kind, kind)):
        converted["type"] = known
    return converted


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
