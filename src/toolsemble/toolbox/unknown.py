"""Calls of tools that a toolbox does not have, which may hold the secrets of a tool that it has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from toolsemble.call import ToolCall
from toolsemble.context import ToolContext
from toolsemble.definition.definition import ToolDefinition, is_name
from toolsemble.execution.hooks import Sent
from toolsemble.execution.path import Call, CallPath, Walk, call_path
from toolsemble.masking.secrets import know, texts_in, unveil, veil
from toolsemble.runtime.text import preview
from toolsemble.schema.decode import Decoded
from toolsemble.schema.display import HIDDEN
from toolsemble.schema.secret import parameters
from toolsemble.toolbox.registry import LONGEST_NAME, unknown_tool_message


def has_secret_parameters(tools: Iterable[ToolDefinition]) -> bool:
    """Return whether one of some tools, or a tool that one of them is made of, takes secrets.

    >>> has_secret_parameters([])
    False
    """
    return any(each.secret or (each.flow is not None and has_secret_parameters(each.flow.tools())) for each in tools)


def masked_path(
    call: ToolCall, stand_in: ToolDefinition, tools: Iterable[ToolDefinition], context: ToolContext, walk: Walk
) -> CallPath:
    """Return the path of a call of an unknown tool, with all values of its arguments masked.

    A model that misspells the name of a tool sends its secrets all the same. Only the names of the arguments are shown,
    and of those only names that parameters of the tools have: a model may have put anything else in their place.

    :param stand_in: what stands in for the unknown tool, and refuses every call
    :param tools: the tools that there are
    """
    known = list(tools)
    names = {name for each in known if each.arguments is not None for name in parameters(each.arguments.schema)}
    there, shown = [each.name for each in known], _shown(call.json, names)
    # The words of the refusal, and the names of tools, are no secrets where a model sends them as values.
    public = "\n".join([unknown_tool_message(call.name if is_name(call.name) else "", there), *there])

    def refuse(text: str, steps: frozenset[str]) -> Decoded:
        if text != shown:
            _know_sent(text, names, public)  # a hook has put other arguments in the place of those that were sent
        return stand_in.decode(text, steps)

    token = veil()
    try:
        if not is_name(call.name):
            know([call.name, preview(call.name, LONGEST_NAME)])  # the arguments may be a part of it
        if walk.hooks is None:
            read: Any = stand_in.decode  # nothing but a hook can quote what was sent
        else:
            _know_sent(call.json, names, public)
            read = Sent(call, refuse)
        return (yield from call_path(Call(replace(stand_in, decode=refuse), read, shown, context, walk)))
    finally:
        unveil(token)


def _know_sent(text: str, names: set[str], public: str) -> None:
    """Mask every text that was sent, but what is public anyway."""
    know(each for each in _texts_sent(text, names) if each not in public)


def _texts_sent(text: str, names: set[str]) -> Iterator[str]:
    values = _object(text)
    if values != {}:
        yield text
    for key, each in (values or {}).items():
        if key not in names:
            yield key
        yield from texts_in(each)


def _shown(text: str, names: set[str]) -> str:
    """Return what is shown of the arguments: their names."""
    values = _object(text)
    if values is None:
        return HIDDEN
    hidden = len(values.keys() - names)
    shown = {key: HIDDEN for key in values if key in names}
    return json.dumps(shown) if not hidden else f"{json.dumps(shown)} and {hidden} more"


def _object(text: str) -> dict[str, Any] | None:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None
