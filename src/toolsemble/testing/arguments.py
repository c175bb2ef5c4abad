"""Arguments from a schema: such as fit, and such as nearly do.

A generator of our own, in place of hypothesis-jsonschema: that one would make hypothesis a dependency of every user,
and gives what fits only, while what nearly fits is what models send.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolsemble.testing.samples import HOSTILE, INTEGERS, NUMBERS, ODD, PIECES
from toolsemble.testing.tree import Place, at, places, put, without
from toolsemble.testing.values import Values

_NESTED = 60
_FULL, _LEAN = 0.9, 0.1  # how likely a parameter is given that need not be


class Arguments:
    """Makes the arguments of calls; the same ones for the same numbers of chance.

    >>> schema = {"type": "object", "properties": {"days": {"type": "integer", "minimum": 1}}, "required": ["days"]}
    >>> Arguments(schema, random.Random(7)).fitting()["days"] >= 1
    True
    """

    def __init__(self, schema: Mapping[str, Any], chance: random.Random, examples: Sequence[Any] = ()) -> None:
        self._schema = schema
        self._chance = chance
        self._values = Values(schema, chance)
        self._examples = examples

    def corners(self, most: int) -> list[Any]:
        """Give what is always worth a try: nothing, no object, everything, and each parameter at its edges."""
        made = [self._values.made(self._schema, optional=share) for share in (0, 1)]
        edges = self._values.edges(self._schema, 0)
        chosen = edges if len(edges) <= most else self._chance.sample(edges, most)
        return [{}, *made, *self._examples, "", "null", "[]", '"text"', "7", *chosen]

    def any(self) -> Any:
        """Give arguments that fit, or nearly do, as a dict; or a text that is no JSON object."""
        kind = self._chance.random()
        if kind < 0.5:  # noqa: PLR2004 - half of them fit
            return self.fitting()
        return self.unfitting() if kind < 0.85 else self.broken()  # noqa: PLR2004 - most others are JSON

    def fitting(self) -> Any:
        """Give arguments that the schema admits, as far as that is cheap to know; an example now and then."""
        if self._examples and self._chance.random() < 0.3:  # noqa: PLR2004 - examples reach deeper than chance does
            return json.loads(json.dumps(self._chance.choice(self._examples)))
        return self._values.made(self._schema, optional=self._chance.choice((_LEAN, 0.5, _FULL)))

    def unfitting(self) -> Any:
        """Give arguments that were changed in one to three places, so that they nearly fit."""
        value = self.fitting()
        for _ in range(self._chance.randint(1, 3)):
            value = self._changed(value)
        return value

    def broken(self) -> str:
        """Give a text that nearly is the JSON of arguments that fit."""
        text = json.dumps(self.fitting(), ensure_ascii=self._chance.random() < 0.5)  # noqa: PLR2004 - either will do
        at = self._chance.randint(0, len(text))
        piece = self._chance.choice(PIECES)
        return self._chance.choice(
            (
                text[:at],
                text[:at] + piece + text[at:],
                text[:at] + piece + text[at + len(piece) :],
                f"Here it is:\n```json\n{text}\n```",
                text.replace('"', "'"),
                text[:-1] + ",}",
                "[" * self._chance.choice((3, 500)) + text,
                json.dumps(text),
                text + text,
            )
        )

    def _changed(self, value: Any) -> Any:
        """Give a value that differs in one place."""
        place = self._chance.choice(list(places(value)))
        old = at(value, place)
        changes: list[Callable[[], Any]] = [
            lambda: put(value, place, self._chance.choice(ODD)),
            lambda: put(value, place, self._values.plain_text()),
            lambda: put(value, place, json.dumps(old)),
            lambda: put(value, place, [old]),
            lambda: put(value, place, _wrapped(old)),
            *[lambda: put(value, place, self._beyond(old))] * 3,
        ]
        if place and isinstance(place[-1], str):
            changes += [lambda: without(value, place), lambda: self._renamed(value, place, old)] * 2
        if isinstance(old, dict):
            extra = self._chance.choice(("extra", "", "__class__", "input", "$ref", "\u202e"))
            changes.append(lambda: put(value, (*place, extra), self._chance.choice(ODD)))
        return self._chance.choice(changes)()

    def _renamed(self, value: Any, place: Place, old: Any) -> Any:
        name = place[-1]
        other = self._chance.choice((name.upper(), f"{name}s", name[:-1], f" {name}"))
        return put(without(value, place), (*place[:-1], other), old)

    def _beyond(self, old: Any) -> Any:
        if isinstance(old, str):
            return self._chance.choice((old * 50, old[: len(old) // 2], self._spliced(old), self._spliced(old)))
        if isinstance(old, (int, float)):
            return self._chance.choice((-old, old + 1, old - 1, *INTEGERS, *NUMBERS))
        return old * 30 if isinstance(old, list) else self._chance.choice(ODD)

    def _spliced(self, text: str) -> str:
        """Give a text with something else in some place of it: a part of itself, a sign, or another text."""
        start, end = sorted(self._chance.randint(0, len(text)) for _ in range(2))
        new = self._chance.choice((text[start:end] * 2, self._chance.choice("+-*/(){}[]^$.,:;@#%&|!?<>=~ 0"), ""))
        return text[:start] + (new or self._chance.choice(HOSTILE)) + text[end:]


def _wrapped(value: Any) -> Any:
    for _ in range(_NESTED):
        value = [value]
    return value
