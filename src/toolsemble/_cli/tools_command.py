"""The commands ``tools`` and ``explain``, which show tools and their provider formats."""

from __future__ import annotations

import json
from typing import Any

from toolsemble._cli.json_output import json_line
from toolsemble._cli.options import Exit
from toolsemble._cli.screen import Screen
from toolsemble._cli.table import show_table
from toolsemble._cli.targets import BUILT_INS, BuiltIn, load_tools, make_built_in, split_targets
from toolsemble._tools.collection import collect_tools
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.provider_list import PROVIDERS
from toolsemble.catalog._catalog import Catalog
from toolsemble.catalog._entry import first_sentence, format_parameters

_MAX_SHOWN = 10


def tools(
    target: str | None,
    provider: str | None,
    screen: Screen,
    *,
    as_json: bool,
    budget: int | None,
    everything: bool = False,
) -> Exit:
    """Show a target's tools, or the built-in ones; with a budget, their tokens and a catalog's selection.

    :param everything: with a budget in a terminal: whether to show all tools, not the first of each state
    """
    if budget is not None:
        catalog = Catalog(_find_tools(target), budget=budget, provider=provider or "openai")
        most = None if everything or not screen.out.is_terminal else _MAX_SHOWN
        return _show_costs(catalog, provider, screen, as_json=as_json, most=most)
    if target is None and provider is None and not as_json:
        show_table(screen, ["tool", "what it does"], [_make_row(entry) for entry in BUILT_INS.values()])
        return Exit.DONE
    box = Toolbox(_find_tools(target))
    if provider is not None:
        formatted = box.to_provider(provider)
        screen.write(json_line(formatted) if as_json else json.dumps(formatted, indent=2))
    elif as_json:
        for specification in box.specifications:
            screen.write(json_line(json.loads(specification.to_json())))
    else:
        titles = ["tool", "parameters", "what it does"]
        rows = [[each.name, format_parameters(each), first_sentence(each.description)] for each in box.specifications]
        show_table(screen, titles, rows)
    return Exit.DONE


def _find_tools(target: str | None) -> list[object]:
    return _installed_built_ins() if target is None else _load_targets(target)


def _show_costs(catalog: Catalog, provider: str | None, screen: Screen, *, as_json: bool, most: int | None) -> Exit:
    """Show each tool's tokens per provider, and whether a catalog with this budget shows it."""
    providers = tuple(PROVIDERS) if provider is None else (provider,)
    explained = catalog.explain(providers=providers)
    if as_json:
        for each in explained.tools:
            state = {"group": each.group, "state": each.state, "shown": each.shown}
            screen.write(json_line({"tool": each.name, **state, "tokens": dict(each.tokens)}))
        return Exit.DONE
    titles = ["tool", "group", "state", *providers]
    parts = list(explained.first(most))
    costs = explained.tools if most is None else [each for first, _ in parts for each in first]
    rows = [[each.name, each.group, each.state, *map(str, each.tokens.values())] for each in costs]
    show_table(screen, titles, rows)
    left_out = [f"{more:,} {first[0].state}" for first, more in parts if more]
    if left_out:
        screen.report(f"and {', '.join(left_out)}; --all lists them")
    screen.report(explained.summary)
    return Exit.DONE


def _load_targets(targets: str) -> list[object]:
    """Return the tools of one target, or of several separated by commas."""
    return [tool for target in split_targets([targets]) or [targets] for tool in load_tools(target, shown=True)]


def explain(target: str, provider: str | None, screen: Screen, *, as_json: bool) -> Exit:
    """Show which parts of a tool's schema a provider's format changes or drops."""
    found = [pair for each in _load_targets(target) for pair in collect_tools(each)]
    rows = [
        (definition.name, each, note)
        for _, definition in found
        for each in ([provider] if provider else PROVIDERS)
        for note in definition.explain(each)
    ]
    if as_json:
        for name, where, note in rows:
            fields = {"path": note.path, "keyword": note.keyword, "action": note.action, "detail": note.detail}
            screen.write(json_line({"tool": name, "provider": where, **fields}))
    elif rows:
        titles = ["tool", "provider", "where", "keyword", "change"]
        cells = [[name, where, note.path, note.keyword, _describe_note(note)] for name, where, note in rows]
        show_table(screen, titles, cells)
    else:
        screen.report(f"Nothing is lost: {provider or 'every provider'} gets the tool as it is declared.")
    return Exit.DONE


def _describe_note(note: Any) -> str:
    done = {"moved": "moved into the description", "dropped": "dropped", "rewritten": "rewritten"}[note.action]
    return f"{done}: {note.detail}" if note.detail else done


def _make_row(entry: BuiltIn) -> list[str]:
    try:
        summary = first_sentence(Toolbox([make_built_in(entry.name, "", shown=True)]).specifications[0].description)
    except ToolDefinitionError as problem:  # an extra is not installed
        summary = f"not available: {problem}"
    return [entry.form, summary]


def _installed_built_ins() -> list[object]:
    """Return the built-in tools whose extras are installed."""
    found = []
    for name in BUILT_INS:
        try:
            found.append(make_built_in(name, "", shown=True))
        except ToolDefinitionError:
            continue
    return found
