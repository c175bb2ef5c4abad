"""Calls of unknown tools, whose arguments may contain the secrets of an existing tool."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from toolsemble._engine.context import Run, ToolContext
from toolsemble._engine.definition import ToolDefinition
from toolsemble._engine.execution.call import ArgumentsReport, Call, CallPath, CallSettings
from toolsemble._engine.execution.call_path import start_call
from toolsemble._engine.execution.hooks import CallReader
from toolsemble._runtime.text import HIDDEN, preview
from toolsemble._schema.decode import Decoded
from toolsemble._schema.masking import add_secrets, find_texts, start_masking, stop_masking
from toolsemble._schema.secret_values import parameters
from toolsemble._tools.base import Tool
from toolsemble._tools.toolbox import registry
from toolsemble._vocabulary.call import ToolCall, new_id
from toolsemble._vocabulary.specification import is_name


def unknown_path(
    call: ToolCall,
    box: ToolContext,
    run: Run,
    tools: Sequence[ToolDefinition],
    settings: CallSettings,
    report: ArgumentsReport | None,
    members: Iterable[object] = (),
) -> CallPath:
    """Return the call path for an unknown tool.

    :param box: the toolbox's context
    :param tools: the tools of the toolbox
    :param members: its tool objects, which know what their source's lock hides
    """
    definition = registry.unknown_tool(call.name, [each.name for each in tools], _find_refusal(call.name, members))
    return refused_path(call, definition, box, run, tools, settings, report)


def _find_refusal(name: str, members: Iterable[object]) -> str:
    """Return why another tool's lock hides a tool; "" if none does."""
    finders = (getattr(each, "find_lock_refusal", None) for each in members if isinstance(each, Tool))
    return next((refusal for find in finders if find is not None and (refusal := find(name))), "")


def refused_path(
    call: ToolCall,
    definition: ToolDefinition,
    box: ToolContext,
    run: Run,
    tools: Sequence[ToolDefinition],
    settings: CallSettings,
    report: ArgumentsReport | None,
) -> CallPath:
    """Return the path of a rejected call; its arguments are not parsed, and may contain secrets.

    :param definition: fails when it reads arguments
    :param box: the toolbox's context
    :param tools: the possibly intended tools
    """
    context = registry.register_tool(None, definition, box, None).context.of_call(run, call.id or new_id())
    if registry.has_secret_parameters(tools):
        if report is not None:
            report.arguments = {}  # any of them may be a secret
        return masked_path(call, definition, tools, context, settings)
    read = definition.decode if settings.hooks is None else CallReader(call, definition.decode)
    return start_call(Call(definition, read, call.json, context, settings))


def masked_path(
    call: ToolCall,
    unknown: ToolDefinition,
    tools: Iterable[ToolDefinition],
    context: ToolContext,
    settings: CallSettings,
) -> CallPath:
    """Run a call of an unknown tool with all argument values masked.

    A model that misspells a tool's name still sends its secrets. Only argument names that are parameters of existing
    tools are shown: any other name could be a secret itself.

    :param unknown: the definition for calls of unknown tools
    :param tools: the tools of the toolbox
    """
    known = list(tools)
    names = {name for each in known if each.arguments is not None for name in parameters(each.arguments.schema)}
    tool_names, shown = [each.name for each in known], _show_names(call.json, names)
    # Words of the error message and tool names are not secret when a model sends them as values.
    public = "\n".join(
        [registry.unknown_tool_message(call.name if is_name(call.name) else "", tool_names), *tool_names]
    )

    def refuse(text: str, steps: frozenset[str]) -> Decoded:
        if text != shown:
            _mask_sent(text, names, public)  # a hook has replaced the arguments
        return unknown.decode(text, steps)

    token = start_masking()
    try:
        if not is_name(call.name):
            add_secrets([call.name, preview(call.name, registry.LONGEST_NAME)])  # it may contain the arguments
        if settings.hooks is None:
            read: Any = unknown.decode  # only a hook can quote the arguments
        else:
            _mask_sent(call.json, names, public)
            read = CallReader(call, refuse)
        return (yield from start_call(Call(replace(unknown, decode=refuse), read, shown, context, settings)))
    finally:
        stop_masking(token)


def _mask_sent(text: str, names: set[str], public: str) -> None:
    """Mask every text in the arguments, except public ones."""
    add_secrets(each for each in _texts_sent(text, names) if each not in public)


def _texts_sent(text: str, names: set[str]) -> Iterator[str]:
    values = _load_object(text)
    if values != {}:
        yield text
    for key, each in (values or {}).items():
        if key not in names:
            yield key
        yield from find_texts(each)


def _show_names(text: str, names: set[str]) -> str:
    """Return the arguments as text that shows only known names."""
    values = _load_object(text)
    if values is None:
        return HIDDEN
    hidden = len(values.keys() - names)
    shown = {key: HIDDEN for key in values if key in names}
    return json.dumps(shown) if not hidden else f"{json.dumps(shown)} and {hidden} more"


def _load_object(text: str) -> dict[str, Any] | None:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None
