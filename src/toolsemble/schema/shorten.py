"""Values that do not fit, without most of what fits: telling what is wrong with a large one takes too long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_SHORT = 100
_MOST_LOOKS = 200


def shorten(value: Any, fits: Callable[[Any], bool]) -> Any:
    """Give a value that does not fit, its long lists and objects cut after the first item that is wrong.

    The value itself is changed. Places stay what they are, since only ends are cut.

    >>> value = {"sizes": [1] * 1000 + ["x"] * 1000}
    >>> len(shorten(value, lambda each: "x" not in each["sizes"])["sizes"])
    1001
    """
    looks, waiting = _MOST_LOOKS, [value]
    while waiting and looks > 0:
        inner = waiting.pop()
        if not isinstance(inner, (list, dict)):
            continue
        if len(inner) > _SHORT:
            looks -= _cut(inner, lambda: fits(value))
        items = list(inner.values()) if isinstance(inner, dict) else inner
        waiting += items if len(items) <= _SHORT else items[-1:]  # of a long one, the last is to blame
    return value


def _cut(inner: list[Any] | dict[str, Any], fits: Callable[[], bool]) -> int:
    """Cut the end of a list or an object as far as the whole still does not fit; give how often that was asked."""
    items = list(inner.items()) if isinstance(inner, dict) else list(inner)
    low, high, looks = _SHORT, len(items), 0
    while low < high:
        middle = (low + high) // 2
        _keep(inner, items[:middle])
        low, high = (middle + 1, high) if fits() else (low, middle)
        looks += 1
    _keep(inner, items[:high])
    return looks


def _keep(inner: list[Any] | dict[str, Any], items: list[Any]) -> None:
    inner.clear()
    if isinstance(inner, dict):
        inner.update(items)
    else:
        inner.extend(items)
