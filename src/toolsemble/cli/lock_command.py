"""The command ``lock``, which pins the tools of targets, and shows what has changed since."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from toolsemble.cli.exit_codes import Exit
from toolsemble.cli.json_output import json_line
from toolsemble.cli.mcp_servers import PREFIX, build_clients
from toolsemble.cli.screen import Screen
from toolsemble.cli.targets import load_tools, split_targets
from toolsemble.lock.diff import Change, format_changes
from toolsemble.lock.file import read_lock
from toolsemble.lock.lock import ToolLock
from toolsemble.lock.pins import is_pinned
from toolsemble.lock.source import identify_target


def write_lock(targets: Sequence[str], file: str, screen: Screen, *, as_json: bool) -> Exit:
    """Pin the tools of the targets, and show what has changed since they were pinned before."""
    sources = _load_sources(targets)
    lock = ToolLock(file)
    known = read_lock(lock.path) or {}
    changes = {source: lock.compare(source, tools) for source, tools in sources.items() if source in known}
    ToolLock.write(file, sources)
    _show_changes(changes, screen, as_json=as_json)
    screen.report(f"{file}: pinned {_count(sources)}")
    return Exit.DONE


def check_lock(targets: Sequence[str], file: str, screen: Screen, *, as_json: bool) -> Exit:
    """Show what has changed since the tools of the targets were pinned; return FAILED if anything has."""
    sources = _load_sources(targets)
    lock = ToolLock(file)
    changes = {source: lock.compare(source, tools) for source, tools in sources.items()}
    _show_changes(changes, screen, as_json=as_json)
    if not any(changes.values()):
        screen.report(f"{file}: {_count(sources)}, as pinned")
        return Exit.DONE
    where = [] if file == "toolsemble.lock" else ["--file", file]
    screen.report(
        f"{file} differs; review the changes, and pin them with: {shlex.join(['toolsemble', 'lock', *targets, *where])}"
    )
    return Exit.FAILED


def _load_sources(targets: Sequence[str]) -> dict[str, list[object]]:
    """Return the tools of the targets by source: the target itself, or the server that a tool belongs to."""
    sources: dict[str, list[object]] = {}
    for target in split_targets(targets):
        if target.startswith(PREFIX):
            sources |= {client.lock_source: [*client.start().listed] for client in build_clients(target)}
            continue
        for tool in load_tools(target, shown=True):
            source = tool.lock_source if is_pinned(tool) else identify_target(target)
            tools = sources.setdefault(source, [])
            if not any(each is tool for each in tools):
                tools.append(tool)
    return sources


def _count(sources: Mapping[str, Sequence[object]]) -> str:
    tools = sum(map(len, sources.values()))
    return (
        f"{tools} {'tool' if tools == 1 else 'tools'} of {len(sources)} {'source' if len(sources) == 1 else 'sources'}"
    )


def _show_changes(changes: Mapping[str, Sequence[Change]], screen: Screen, *, as_json: bool) -> None:
    for source, found in changes.items():
        if as_json:
            for change in found:
                screen.write(json_line(_to_fields(source, change)))
        elif found:
            screen.answer(format_changes(source, found))


def _to_fields(source: str, change: Change) -> dict[str, object]:
    names = ("place", "effect", "before", "after", "summary")
    differences = [{name: getattr(each, name) for name in names} for each in change.differences]
    fields = {"source": source, "tool": change.tool, "kind": change.kind, "effects": change.effects}
    return {**fields, "differences": differences}
