"""The command ``lock``: pin the tools of targets, and show later changes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from toolsemble._cli.json_output import json_line
from toolsemble._cli.options import Exit
from toolsemble._cli.screen import Screen
from toolsemble._cli.targets import PREFIX, build_clients, load_tools, split_targets
from toolsemble._runtime.extras import import_extra
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.catalog._pinning.diff import Change, format_changes
from toolsemble.catalog._pinning.lock_file import identify_target, read_lock
from toolsemble.catalog._pinning.pins import is_pinned
from toolsemble.catalog._pinning.tool_lock import ToolLock

if TYPE_CHECKING:
    from toolsemble.mcp._gateway.settings import GatewaySettings

_DEFAULT = "toolsemble.lock"


def lock_targets(
    targets: Sequence[str], file: str | None, config: str | None, screen: Screen, *, check: bool, as_json: bool
) -> Exit:
    """Pin the tools of targets and of a gateway, or show what has changed since.

    :param file: the lock file; None: the gateway's, or ``toolsemble.lock``
    :param config: the gateway's configuration file
    """
    if not targets and config is None:
        raise ToolDefinitionError("Nothing to lock: name a target, or a gateway with --config")
    command = [*targets, *(["--config", config] if config else []), *(["--file", file] if file else [])]
    with _open_sources(targets, file, config) as (sources, place):
        if check:
            return _check_lock(sources, place, command, screen, as_json=as_json)
        return _write_lock(sources, place, screen, as_json=as_json)


@contextmanager
def _open_sources(
    targets: Sequence[str], file: str | None, config: str | None
) -> Iterator[tuple[dict[str, list[object]], str]]:
    """Yield the tools by source, and the lock file; inside the gateway's folder, if there is one."""
    sources = _load_sources(targets)
    if config is None:
        yield sources, file or _DEFAULT
        return
    import_extra("mcp", extra="mcp", user="A gateway")
    from toolsemble._cli.serve_command import open_config

    named = None if file is None else str(Path(file).absolute())
    with open_config(config) as settings:
        default = _DEFAULT if settings.lock is None else settings.lock.file
        yield {**sources, **_load_gateway(settings)}, named or default


def _write_lock(sources: Mapping[str, Sequence[object]], file: str, screen: Screen, *, as_json: bool) -> Exit:
    """Pin the tools, and show changes since the previous pins."""
    lock = ToolLock(file)
    known = read_lock(lock.path) or {}
    changes = {source: lock.compare(source, tools) for source, tools in sources.items() if source in known}
    ToolLock.write(file, sources)
    _show_changes(changes, screen, as_json=as_json)
    screen.report(f"{file}: pinned {_count(sources)}")
    return Exit.DONE


def _check_lock(
    sources: Mapping[str, Sequence[object]], file: str, command: Sequence[str], screen: Screen, *, as_json: bool
) -> Exit:
    """Show what has changed since the tools were pinned; return FAILED if anything has."""
    lock = ToolLock(file)
    changes = {source: lock.compare(source, tools) for source, tools in sources.items()}
    _show_changes(changes, screen, as_json=as_json)
    if not any(changes.values()):
        screen.report(f"{file}: {_count(sources)}, unchanged")
        return Exit.DONE
    advice = shlex.join(["toolsemble", "lock", *command])
    screen.report(f"{file} differs; review the changes, and pin them with: {advice}")
    return Exit.FAILED


def _load_sources(targets: Sequence[str]) -> dict[str, list[object]]:
    """Return the tools of the targets by source: the target itself, or a tool's server."""
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


def _load_gateway(settings: GatewaySettings) -> dict[str, list[object]]:
    """Return a gateway's tools by source; start its servers, without the lock."""
    from toolsemble.mcp._gateway.gateway import build_client

    clients = [build_client(each, None).client for each in settings.servers]
    sources: dict[str, list[object]] = {client.lock_source: [*client.start().listed] for client in clients}
    return {**sources, **_load_sources(settings.targets)}


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
