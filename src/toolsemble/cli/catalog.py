"""The commands that look at tools: what there is, and what becomes of it on the way to a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from toolsemble.cli.builtins import BUILT_INS, BuiltIn, built_in
from toolsemble.cli.exit_codes import Exit
from toolsemble.cli.json_output import json_line
from toolsemble.cli.screen import Screen
from toolsemble.cli.table import show_table
from toolsemble.cli.targets import split_targets, tools_of
from toolsemble.definition.definition import PROVIDERS
from toolsemble.errors import ToolDefinitionError
from toolsemble.specification import ToolSpecification
from toolsemble.toolbox.toolbox import Toolbox
from toolsemble.tools.collection import collect_tools


def tools(target: str | None, provider: str | None, screen: Screen, *, as_json: bool) -> Exit:
    """Show the tools of a target, or the built-in ones."""
    if target is None and provider is None and not as_json:
        show_table(screen, ["tool", "what it does"], [_row(entry) for entry in BUILT_INS.values()])
        return Exit.DONE
    box = Toolbox(_there() if target is None else _named(target))
    if provider is not None:
        screen.write(_wire(box, provider, indent=None if as_json else 2))
    elif as_json:
        for specification in box.specifications:
            screen.write(json_line(json.loads(specification.to_json())))
    else:
        titles = ["tool", "parameters", "what it does"]
        show_table(screen, titles, [[each.name, _signature(each), _summary(each)] for each in box.specifications])
    return Exit.DONE


def _named(targets: str) -> list[object]:
    """Give the tools of one target, or of several with commas between them."""
    return [tool for target in split_targets([targets]) or [targets] for tool in tools_of(target, shown=True)]


def explain(target: str, provider: str | None, screen: Screen, *, as_json: bool) -> Exit:
    """Show what a provider's model does not see of a tool as it was declared."""
    found = [pair for each in _named(target) for pair in collect_tools(each)]
    rows = [
        (definition.name, each, note)
        for _, definition in found
        for each in ([provider] if provider else PROVIDERS)
        for note in definition.explain(each)
    ]
    if as_json:
        for name, where, note in rows:
            told = {"path": note.path, "keyword": note.keyword, "action": note.action, "detail": note.detail}
            screen.write(json_line({"tool": name, "provider": where, **told}))
    elif rows:
        titles = ["tool", "provider", "where", "keyword", "what becomes of it"]
        cells = [[name, where, note.path, note.keyword, _fate(note)] for name, where, note in rows]
        show_table(screen, titles, cells)
    else:
        screen.tell(f"Nothing is lost: {provider or 'every provider'} sees it as it is declared.")
    return Exit.DONE


def _fate(note: Any) -> str:
    done = {"moved": "moved into the description", "dropped": "dropped", "rewritten": "rewritten"}[note.action]
    return f"{done}: {note.detail}" if note.detail else done


def _row(entry: BuiltIn) -> list[str]:
    try:
        told = _summary(Toolbox([built_in(entry.name, "", shown=True)]).specifications[0])
    except ToolDefinitionError as problem:  # an extra is not installed
        told = f"not available: {problem}"
    return [entry.form, told]


def _there() -> list[object]:
    """Give the built-in tools for which everything is installed."""
    found = []
    for name in BUILT_INS:
        try:
            found.append(built_in(name, "", shown=True))
        except ToolDefinitionError:
            continue
    return found


def _summary(specification: ToolSpecification) -> str:
    """Give the first sentence, or line, of what a model is told."""
    line = specification.description.strip().split("\n")[0]
    sentence, stop, _ = line.partition(". ")
    return f"{sentence}{stop.strip()}"


def _signature(specification: ToolSpecification) -> str:
    """Give the parameters in one line; those in brackets can be left out."""
    schema = specification.parameters or {}
    needed = schema.get("required", ())
    shown = ((name, f"{name}: {_kind(part)}") for name, part in schema.get("properties", {}).items())
    return ", ".join(text if name in needed else f"[{text}]" for name, text in shown)


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return "|".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    if "anyOf" in schema:
        return "|".join(dict.fromkeys(map(_kind, schema["anyOf"])))
    kind = str(schema.get("type", "any"))
    return f"{_kind(schema.get('items', {}))}[]" if kind == "array" else kind


def _wire(box: Toolbox, provider: str, indent: int | None) -> str:
    made: Sequence[Any] = getattr(box, f"to_{provider}")()
    return json_line(made) if indent is None else json.dumps(made, indent=indent)
