"""Calls of tools with positional values, as code and some frameworks make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolsemble._vocabulary.errors import ToolArgumentsError
from toolsemble.interop._exported import ExportedTool


def bind_arguments(exported: ExportedTool, values: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name; positional values belong to the parameters in their order.

    A single dict of parameters stands for all of them.

    :param values: the positional values
    :param named: the keyword arguments

    >>> from toolsemble import Toolbox, tool
    >>> from toolsemble.interop._exported import export_tools
    >>> @tool
    ... def order(item: str, count: int) -> str:
    ...     '''Order something.'''
    ...     return f"{count} {item}"
    >>> [exported] = export_tools(Toolbox([order]))
    >>> bind_arguments(exported, ["tea"], {"count": 3})
    {'item': 'tea', 'count': 3}
    >>> bind_arguments(exported, [{"count": 3}], {})
    {'count': 3}
    """
    names = list(exported.parameters.get("properties", {}))
    if len(values) == 1 and not named and isinstance(values[0], dict) and values[0].keys() <= set(names):
        return dict(values[0])
    if len(values) > len(names):
        raise ToolArgumentsError(f"'{exported.shown_name}' takes {len(names)} positional values, not {len(values)}")
    bound = dict(zip(names, values, strict=False))
    twice = sorted(bound.keys() & named.keys())
    if twice:
        raise ToolArgumentsError(f"'{exported.shown_name}' got two values for {', '.join(twice)}")
    return {**bound, **named}
