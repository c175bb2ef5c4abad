"""Generated arguments for a schema: valid ones, and almost valid ones.

Hypothesis is not used: it draws on the constants of all loaded modules, so a seed would generate other arguments after
each change of a program.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from toolsemble.testing._samples import HOSTILE, INTEGERS, NUMBERS, ODD, PIECES
from toolsemble.testing._values import Values

_NESTING = 60
_DEEPER = 0.7  # probability that a part is changed instead of the whole
_LIKELY, _UNLIKELY = 0.9, 0.1  # probability that an optional parameter is included


class Arguments:
    """A generator of arguments; the same random numbers yield the same arguments.

    >>> schema = {"type": "object", "properties": {"days": {"type": "integer", "minimum": 1}}, "required": ["days"]}
    >>> Arguments(schema, random.Random(7)).generate_valid()["days"] >= 1
    True
    """

    def __init__(self, schema: Mapping[str, Any], rng: random.Random, examples: Sequence[Any] = ()) -> None:
        self._schema = schema
        self._rng = rng
        self._values = Values(schema, rng)
        self._examples = examples

    def edge_cases(self, most: int) -> list[Any]:
        """Return fixed cases: empty, not an object, all parameters, and edge values of each parameter."""
        generated = [self._values.generate(self._schema, optional=share) for share in (0, 1)]
        edges = self._values.edges(self._schema, 0)
        chosen = edges if len(edges) <= most else self._rng.sample(edges, most)
        return [{}, *generated, *self._examples, "", "null", "[]", '"text"', "7", *chosen]

    def generate(self) -> Any:
        """Return valid or almost valid arguments as a dict, or a text that is not a JSON object."""
        kind = self._rng.random()
        if kind < 0.5:  # noqa: PLR2004 - half of them are valid
            return self.generate_valid()
        return self.generate_invalid() if kind < 0.85 else self.generate_broken_json()  # noqa: PLR2004 - most others are JSON

    def generate_valid(self) -> Any:
        """Return arguments that are valid, as far as that is cheap to ensure; sometimes an example."""
        if self._examples and self._rng.random() < 0.3:  # noqa: PLR2004 - examples reach code that random values do not
            return json.loads(json.dumps(self._rng.choice(self._examples)))
        return self._values.generate(self._schema, optional=self._rng.choice((_UNLIKELY, 0.5, _LIKELY)))

    def generate_invalid(self) -> Any:
        """Return arguments that are almost valid: changed in one to three places."""
        value = self.generate_valid()
        for _ in range(self._rng.randint(1, 3)):
            value = self._change(value)
        return value

    def generate_broken_json(self) -> str:
        """Return a text that is almost the JSON of valid arguments."""
        text = json.dumps(self.generate_valid(), ensure_ascii=self._rng.random() < 0.5)  # noqa: PLR2004 - either will do
        at = self._rng.randint(0, len(text))
        piece = self._rng.choice(PIECES)
        return self._rng.choice(
            (
                text[:at],
                text[:at] + piece + text[at:],
                text[:at] + piece + text[at + len(piece) :],
                f"Here it is:\n```json\n{text}\n```",
                text.replace('"', "'"),
                text[:-1] + ",}",
                "[" * self._rng.choice((3, 500)) + text,
                json.dumps(text),
                text + text,
            )
        )

    def _change(self, value: Any) -> Any:
        """Return a copy that is changed in one place."""
        keys: list[Any] = list(
            value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        )
        if keys and self._rng.random() < _DEEPER:
            key, changed = self._rng.choice(keys), value.copy()
            changed[key] = self._change(value[key])
            return changed
        if isinstance(value, dict) and self._rng.random() < 0.5:  # noqa: PLR2004 - keys as often as the whole
            return self._change_keys(value)
        other = self._rng.choice((self._rng.choice(ODD), self._values.generate_text(), [value], _nest(value)))
        return self._rng.choice((other, other, json.dumps(value), self._exaggerate(value), self._exaggerate(value)))

    def _change_keys(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return an object with a key removed, renamed or added."""
        name = self._rng.choice([*value, ""])
        rest = {key: each for key, each in value.items() if key != name}
        extra = self._rng.choice(("extra", "", "__class__", "input", "$ref", "\u202e"))
        others = (name.upper(), f"{name}s", name[:-1], f" {name}")
        renamed = {**rest, self._rng.choice(others): value.get(name)}
        return self._rng.choice((rest, renamed, {**value, extra: self._rng.choice(ODD)}))

    def _exaggerate(self, old: Any) -> Any:
        if isinstance(old, str):
            return self._rng.choice((old * 50, old[: len(old) // 2], self._splice(old), self._splice(old)))
        if isinstance(old, (int, float)):
            return self._rng.choice((-old, old + 1, old - 1, *INTEGERS, *NUMBERS))
        return old * 30 if isinstance(old, list) else self._rng.choice(ODD)

    def _splice(self, text: str) -> str:
        """Return the text with a part replaced: by a part of itself, a symbol, or another text."""
        start, end = sorted(self._rng.randint(0, len(text)) for _ in range(2))
        new = self._rng.choice((text[start:end] * 2, self._rng.choice("+-*/(){}[]^$.,:;@#%&|!?<>=~ 0"), ""))
        return text[:start] + (new or self._rng.choice(HOSTILE)) + text[end:]


def _nest(value: Any) -> Any:
    for _ in range(_NESTING):
        value = [value]
    return value
