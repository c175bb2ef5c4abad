"""Gateways: what the targets and the names of a file stand for, and the tools of its servers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from toolsemble._cli.mcp_servers import PREFIX, build_clients
from toolsemble._cli.targets import load_object, load_tools
from toolsemble._engine.limits.effect_ledger import EffectLedger
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.catalog._lock.lock import ToolLock
from toolsemble.catalog._lock.source import identify_target
from toolsemble.mcp._gateway.config_file import read_gateway
from toolsemble.mcp._gateway.gateway import NamedClient, Parts, ServedBox, build_client
from toolsemble.mcp._gateway.settings import GatewaySettings, SinkSettings
from toolsemble.mcp._server.served_lock import ServedLock
from toolsemble.review import AutoReject, QueueReview, ReviewHandler, SQLiteStore
from toolsemble.telemetry import ConsoleSink, OpenTelemetry, TraceFile

_NOT_A_NAME = re.compile("[^a-zA-Z0-9_-]")


@contextmanager
def open_config(path: str | None) -> Iterator[GatewaySettings]:
    """Yield the settings of a file; in the block, relative paths are relative to its folder."""
    if path is None:
        yield GatewaySettings()
        return
    settings = read_gateway(path)
    with chdir(Path(path).resolve().parent):
        yield settings


def load_parts(
    settings: GatewaySettings, loaded: Sequence[tuple[str, list[object]]], config: str | None = None
) -> Parts:
    """Return what the names in the settings stand for; nothing is started.

    :param loaded: the tools of targets that are not in the settings
    :param config: the file of the settings, for messages
    """
    reviewer = _load_reviewer(settings)
    lock = load_lock(settings, config, reviewer)
    servers = [build_client(each, lock) for each in settings.servers]
    servers += [each for target in settings.targets for each in _build_named(target, lock)]
    own = [*loaded, *((target, load_own_tools(target)) for target in settings.targets if not target.startswith(PREFIX))]
    boxes = [_find_box(target, box, lock) for target, found in own for box in found if isinstance(box, Toolbox)]
    single = [(target, _leave_out_members(found, boxes)) for target, found in own]
    tools = [tool for target, found in single for tool in _check_lock(target, found, lock)]
    hidden = _list_names(tool for _, found in single for tool in found) - _list_names(tools)
    ledger = {} if settings.ledger is None else {"ledger": EffectLedger(settings.ledger)}
    around = {"review": reviewer, "sinks": _load_sinks(settings.sinks), **ledger}
    auth = None if settings.http is None or settings.http.auth is None else _load("http.auth", settings.http.auth)
    return Parts(tools, boxes, hidden, servers, around, auth)


def load_lock(settings: GatewaySettings, config: str | None, reviewer: ReviewHandler | None = None) -> ToolLock | None:
    """Return the lock of a gateway; None without one."""
    if settings.lock is None:
        return None
    actions: Any = settings.lock.actions
    if config is None:
        return ToolLock(settings.lock.file, review=reviewer, **actions)
    lock = ToolLock(Path(settings.lock.file).absolute(), review=reviewer, **actions)
    return lock.separate(shlex.join(["toolsemble", "lock", "--config", config]))


def load_own_tools(target: str) -> list[object]:
    """Return the tools of a target that is not a server; an agent is a tool named after its attribute."""
    name = target.rpartition(":")[2]
    found = load_object(target) if ":" in target and name.isidentifier() else None
    make_tool = getattr(found, "as_tool", None)
    if make_tool is None:
        return load_tools(target)
    return [make_tool(name, "Does a task, or answers a question, in plain text")]


def _build_named(target: str, lock: ToolLock | None) -> list[NamedClient]:
    if not target.startswith(PREFIX):
        return []
    return [NamedClient(_NOT_A_NAME.sub("_", each.name), each) for each in build_clients(target, lock=lock)]


def _find_box(target: str, box: Toolbox, lock: ToolLock | None) -> ServedBox:
    return ServedBox(target, box, None if lock is None else ServedLock(lock, identify_target(target)))


def _leave_out_members(tools: list[object], boxes: Sequence[ServedBox]) -> list[object]:
    """Return the tools of a target without its toolboxes, and without the tools in them: a module has both."""
    inside = {id(tool) for each in boxes for tool in each.box}
    return [each for each in tools if not isinstance(each, Toolbox) and id(each) not in inside]


def _check_lock(target: str, tools: list[object], lock: ToolLock | None) -> Sequence[object]:
    return tools if lock is None or not tools else lock.checked(tools, source=identify_target(target))


def _list_names(tools: Iterable[object]) -> frozenset[str]:
    return frozenset(Toolbox(tools).names)


def _load_reviewer(settings: GatewaySettings) -> ReviewHandler | None:
    approval = settings.approval
    if approval.reviewer == "client":
        return None
    if approval.reviewer == "reject":
        return AutoReject("the gateway rejects calls that need approval")
    if approval.reviewer == "queue":
        return QueueReview(SQLiteStore(approval.file))
    reviewer: Any = _load("approve.reviewer", approval.reviewer)
    return reviewer  # type: ignore[no-any-return]  # a toolbox checks it


def _load_sinks(settings: SinkSettings) -> list[Any]:
    sinks: list[Any] = [] if settings.trace is None else [TraceFile(Path(settings.trace).absolute())]
    if settings.console:
        sinks.append(ConsoleSink())
    if settings.opentelemetry:
        sinks.append(OpenTelemetry())
    return [*sinks, *(_load("sinks.custom", each) for each in settings.custom)]


def _load(key: str, target: str) -> object:
    """Return the object at ``module:attribute`` or ``file.py:attribute``."""
    found = load_object(target) if ":" in target else None
    if found is None:
        raise ToolConfigurationError(f"{key}: there is no {target!r:.80}; write module:attribute or file.py:attribute")
    return found
