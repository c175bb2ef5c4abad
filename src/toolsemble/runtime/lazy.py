"""Names of a package that are loaded when they are first used."""

from __future__ import annotations

# Not from typing: importing that would take longer than all the rest of a package that loads lazily.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


def loader(package: dict[str, Any], homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Give the ``__getattr__`` of a package, from its globals and the names that each of its modules holds.

    A module that stands beside the package has one more dot before it: ``.result``.

    >>> load = loader({"__name__": "toolsemble"}, {"result": ("ToolResult",)})
    >>> load("ToolResult").success("ready").text
    'ready'
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def load(name: str) -> Any:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 - nothing is imported before a name is used

        value = package[name] = getattr(import_module(f".{home}", package["__name__"]), name)
        return value  # the next use finds it without coming here

    return load
