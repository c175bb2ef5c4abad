"""Shorten large values that do not validate, so that reporting their errors does not take too long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_SHORT = 100
_MOST_LOOKS = 200


def shorten(value: Any, fits: Callable[[Any], bool]) -> Any:
    """Return a value that does not validate, with long lists and objects cut after the first wrong item.

    The value is changed in place. Paths stay valid, since only ends are cut.

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
        waiting += items if len(items) <= _SHORT else items[-1:]  # the last item of a cut list is the wrong one
    return value


def _cut(inner: list[Any] | dict[str, Any], fits: Callable[[], bool]) -> int:
    """Cut the end of a list or an object while the whole does not validate; return the number of validations."""
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
