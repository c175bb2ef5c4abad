"""The command ``serve``: serve tools over the Model Context Protocol, also as a gateway."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toolsemble._cli.options import Exit
from toolsemble._cli.screen import Screen, redirect_prints
from toolsemble._cli.targets import PREFIX, build_clients, load_deps, load_object, load_tools, split_targets
from toolsemble._engine.limits.effect_ledger import EffectLedger
from toolsemble._runtime.text import escape_line
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError
from toolsemble.agent._deps import DepsMaker
from toolsemble.catalog._pinning.lock_file import identify_target
from toolsemble.catalog._pinning.tool_lock import ToolLock
from toolsemble.mcp._gateway.config_file import read_gateway
from toolsemble.mcp._gateway.gateway import Gateway, NamedClient, Parts, ServedBox, build_client, serve_as
from toolsemble.mcp._gateway.live_toolbox import find_unused
from toolsemble.mcp._gateway.settings import ApprovalSettings, GatewaySettings, HttpSettings, LockSettings, SinkSettings
from toolsemble.mcp._server.server import Offer
from toolsemble.mcp._server.source import ServedLock
from toolsemble.review import AutoReject, QueueReview, ReviewHandler, ReviewStore
from toolsemble.telemetry import ConsoleSink, OpenTelemetry, TraceFile

_NOT_A_NAME = re.compile("[^a-zA-Z0-9_-]")


@contextmanager
def open_config(path: str | None) -> Iterator[GatewaySettings]:
    """Yield a file's settings; inside the block, relative paths are relative to its folder."""
    if path is None:
        yield GatewaySettings()
        return
    settings = read_gateway(path)
    with chdir(Path(path).resolve().parent):
        yield settings


def load_parts(
    settings: GatewaySettings, loaded: Sequence[tuple[str, list[object]]], config: str | None = None
) -> Parts:
    """Return the objects that the settings name, without starting anything.

    :param loaded: the tools of targets outside the settings
    :param config: the settings file, for messages
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
    """Return a gateway's lock; None without one."""
    if settings.lock is None:
        return None
    actions: Any = settings.lock.actions
    if config is None:
        return ToolLock(settings.lock.file, review=reviewer, **actions)
    lock = ToolLock(Path(settings.lock.file).absolute(), review=reviewer, **actions)
    return lock.separate(shlex.join(["toolsemble", "lock", "--config", config]))


def load_own_tools(target: str) -> list[object]:
    """Return the tools of a target other than a server; an agent becomes a tool named after its attribute."""
    name = target.rpartition(":")[2]
    found = load_object(target) if ":" in target and name.isidentifier() else None
    make_tool = getattr(found, "as_tool", None)
    if make_tool is None:
        return load_tools(target)
    return [make_tool(name, "Performs a task or answers a question, in plain text")]


def _build_named(target: str, lock: ToolLock | None) -> list[NamedClient]:
    if not target.startswith(PREFIX):
        return []
    return [NamedClient(_NOT_A_NAME.sub("_", each.name), each) for each in build_clients(target, lock=lock)]


def _find_box(target: str, box: Toolbox, lock: ToolLock | None) -> ServedBox:
    return ServedBox(target, box, None if lock is None else ServedLock(lock, identify_target(target)))


def _leave_out_members(tools: list[object], boxes: Sequence[ServedBox]) -> list[object]:
    """Return a target's tools without its toolboxes and their tools: a module has both."""
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
        return QueueReview(ReviewStore(approval.file))
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


_MOST_NAMES = 20
_MAX_NAME = 80


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The command's options."""

    http: str | None = None
    """The address; None: the file's, or standard input and output."""
    gates: tuple[str, ...] = ()
    """Names and patterns of tools that need approval."""
    hosts: tuple[str, ...] = ()
    """The host names under which clients reach it."""
    lock: str | None = None
    """The lock file; None: the one in the configuration file."""
    config: str | None = None
    """The configuration file."""
    deps: str | None = None
    """The target of the tools' deps."""


def serve_targets(targets: Sequence[str], options: ServeOptions, screen: Screen) -> Exit:
    """Serve the tools of targets and a file until the client disconnects or the program is interrupted."""
    found = split_targets(targets)
    if not found and options.config is None:
        raise ToolDefinitionError("Nothing to serve: name a target, or a file with --config")
    with redirect_prints():  # a module's prints while it is loaded must not reach the protocol
        # Before the folder of the file becomes the working directory.
        own = [(target, load_own_tools(target)) for target in found if not target.startswith(PREFIX)]
        deps = _load_deps(options.deps)
    servers = [_make_absolute(target) for target in found if target.startswith(PREFIX)]
    if options.config is not None and options.lock is not None:
        options = replace(options, lock=str(Path(options.lock).absolute()))
    with open_config(options.config) as settings:
        merged = merge_options(settings, servers, options)
        if merged.http is not None:
            from toolsemble.mcp._server.http import check_address

            check_address(merged.http.address, merged.http.allowed_hosts)  # before anything is started or reported
        with redirect_prints():
            parts = replace(load_parts(merged, own, options.config), deps=deps)
        if _is_toolbox_alone(merged, parts):
            _serve_toolbox(merged, parts, screen)
        else:
            _serve_gateway(merged, parts, screen)
    return Exit.DONE


def _load_deps(target: str | None) -> Any:
    deps = load_deps(target)
    if isinstance(deps, DepsMaker):
        raise ToolConfigurationError(f"--deps {target!r:.80}: a server needs an object, shared by all calls")
    return deps


def merge_options(settings: GatewaySettings, servers: Sequence[str], options: ServeOptions) -> GatewaySettings:
    """Return a file's settings with the command's options, which take precedence.

    >>> merge_options(GatewaySettings(), [], ServeOptions(gates=("*delete*",))).approval.tools
    ('*delete*',)
    """
    http = settings.http
    if options.http is not None:
        http = HttpSettings(options.http) if http is None else replace(http, address=options.http)
    if options.hosts:
        if http is None:
            raise ToolConfigurationError("--allow-host is for HTTP: pass --http HOST:PORT as well, or leave it out")
        http = replace(http, allowed_hosts=(*http.allowed_hosts, *options.hosts))
    lock = settings.lock
    if options.lock is not None:
        lock = LockSettings(options.lock) if lock is None else replace(lock, file=options.lock)
    approval = replace(settings.approval, tools=(*settings.approval.tools, *options.gates))
    return replace(settings, targets=(*settings.targets, *servers), http=http, lock=lock, approval=approval)


def _make_absolute(target: str) -> str:
    """Return a server's target, with a file path relative to the current working directory."""
    path = Path(target.removeprefix(PREFIX).strip())
    return f"{PREFIX}{path.absolute()}" if path.suffix == ".json" and path.is_file() else target


def _is_toolbox_alone(settings: GatewaySettings, parts: Parts) -> bool:
    """Return whether a single toolbox is served, wrapped only in gates and a lock."""
    own = replace(settings.approval, tools=())
    is_plain = own == ApprovalSettings() and settings.sinks == SinkSettings() and settings.ledger is None
    has_limits = bool(settings.rules or settings.limits)
    return len(parts.boxes) == 1 and not parts.tools and not parts.servers and is_plain and not has_limits


def _serve_gateway(settings: GatewaySettings, parts: Parts, screen: Screen) -> None:
    for each in parts.boxes:
        if each.box._sinks is not None:  # noqa: SLF001 - an audit must not end silently
            raise ToolDefinitionError(
                f"{each.target}: the toolbox has sinks, which its tools would lose in a gateway; name them in [sinks] "
                "of the file, or serve the toolbox alone"
            )
    gateway = Gateway(settings, parts)
    _report(settings, gateway.toolbox().names, gateway.toolbox.find_unused(), screen)
    gateway.serve()


def _serve_toolbox(settings: GatewaySettings, parts: Parts, screen: Screen) -> None:
    """Serve one toolbox with its own reviewer, hooks and sinks; add only gates and a lock."""
    (served,) = parts.boxes
    gates = settings.approval.tools
    box = served.box.around(approve=gates) if gates else served.box
    _report(settings, box.names, find_unused(box, gates), screen)
    serve_as(Offer(box, settings.name, settings.instructions, lock=served.lock, deps=parts.deps), settings, parts.auth)


def _report(settings: GatewaySettings, names: Sequence[str], unused: Sequence[str], screen: Screen) -> None:
    """Report the served tools and address, and patterns that match nothing."""
    for pattern in unused:
        screen.report(f"toolsemble: {escape_line(repr(pattern), _MAX_NAME)} matches none of the tools")
    if settings.http is not None:
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        shown = ", ".join(names[:_MOST_NAMES]) or "nothing"
        screen.report(f"serving {shown}{more} at http://{settings.http.address}/mcp")
