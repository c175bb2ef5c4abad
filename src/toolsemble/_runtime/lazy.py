"""Lazy loading of a package's names, and of modules that most calls do not need."""

from __future__ import annotations

# Not from typing: importing it would take longer than everything else in a lazy package.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


def export_lazily(
    package: dict[str, Any],
    homes: Mapping[str, Sequence[str]],
    everyday: Sequence[str] = (),
    renamed: Mapping[str, tuple[str, str]] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for a package whose names are loaded on first use.

    :param package: the globals of the package
    :param homes: the names that each of its modules exports; a module next to the package has a dot: ``.result``
    :param everyday: the names that ``dir`` and ``__all__`` show, for a package with too many to list;
        the attribute ``names`` of its ``__getattr__`` lists all of them
    :param renamed: old names, which load with a warning, mapped to the new name and the version that removes them

    >>> load, _, names = export_lazily({"__name__": "toolsemble"}, {"_vocabulary.result": ("ToolResult",)})
    >>> names, load("ToolResult").success("ready").text
    (['ToolResult'], 'ready')
    """
    old_names = renamed or {}
    home_of = {name: module for module, names in homes.items() for name in names}
    exported = sorted(home_of)

    def load(name: str) -> Any:
        home = home_of.get(name)
        if home is None and name in old_names:
            return load_renamed(name)
        if home is None:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        from importlib import import_module

        value = package[name] = getattr(import_module(f".{home}", package["__name__"]), name)
        return value  # cached in the globals, so this is not called again

    def load_renamed(name: str) -> Any:
        from toolsemble._runtime.checks import warn_deprecated

        new, removed_in = old_names[name]
        warn_deprecated(f"{package['__name__']}.{name}", f"{package['__name__']}.{new}", removed_in=removed_in)
        return package.get(new) or load(new)  # not cached under the old name: each use of it warns

    load.names = exported  # type: ignore[attr-defined]  # read by tests and by the reference
    if everyday:
        return load, lambda: sorted({*everyday, *(name for name in package if name[:2] == "__")}), sorted(everyday)
    return load, lambda: sorted({*package, *exported}), exported


class LazyModule:
    """A module that is imported when one of its names is first used.

    For the call path, where an import statement in a function would cost time in every call.

    >>> LazyModule("json").loads("[1]")
    [1]
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        from importlib import import_module

        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)  # found directly the next time
        return value
