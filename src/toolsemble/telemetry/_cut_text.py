"""Cut the long texts in JSON values, and say where."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from toolsemble._schema.pointer import escape_token


def cut_texts(values: Any, max_text: int, max_items: int | None = None) -> tuple[Any, dict[str, int]]:
    """Return JSON values with long texts cut, and the full lengths of what was cut, by JSON pointer.

    :param max_text: the characters that are left of a text
    :param max_items: the items that are left of an array or an object; None: all

    >>> cut_texts({"result": {"output": "abcdef"}}, 3)
    ({'result': {'output': 'abc'}}, {'/result/output': 6})
    """
    cutter = _Cutter(max_text, max_items)
    return cutter.cut(values, ""), cutter.lengths


@dataclass(slots=True)
class _Cutter:
    max_text: int
    max_items: int | None
    lengths: dict[str, int] = field(default_factory=dict)

    def cut(self, value: Any, place: str) -> Any:
        if isinstance(value, str):
            return self._shorten(value, self.max_text, place)
        if isinstance(value, dict):
            kept = self._shorten(list(value), self.max_items, place)
            return {key: self.cut(value[key], f"{place}/{escape_token(key)}") for key in kept}
        if isinstance(value, list):
            kept = self._shorten(value, self.max_items, place)
            return [self.cut(each, f"{place}/{index}") for index, each in enumerate(kept)]
        return value

    def _shorten(self, value: Any, limit: int | None, place: str) -> Any:
        if limit is None or len(value) <= limit:
            return value
        self.lengths[place] = len(value)
        return value[:limit]
