"""The command ``serve``, which serves tools by the Model Context Protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toolsemble._cli.exit_codes import Exit
from toolsemble._cli.gateway import load_own_tools, load_parts, open_config
from toolsemble._cli.mcp_servers import PREFIX
from toolsemble._cli.redirect import redirect_prints
from toolsemble._cli.screen import Screen
from toolsemble._cli.targets import load_deps, split_targets
from toolsemble._runtime.text import escape_line
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError
from toolsemble.agent._deps import DepsMaker
from toolsemble.mcp._gateway.gateway import Gateway, Parts, serve_as
from toolsemble.mcp._gateway.live_toolbox import find_unused
from toolsemble.mcp._gateway.settings import (
    ApprovalSettings,
    GatewaySettings,
    HttpSettings,
    LockSettings,
    SinkSettings,
)
from toolsemble.mcp._server.server import Offer

_MOST_NAMES = 20
_MAX_NAME = 80


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of the command."""

    http: str | None = None
    """The address; None: that of the file, or standard input and output."""
    gates: tuple[str, ...] = ()
    """Names and patterns of tools that need approval."""
    hosts: tuple[str, ...] = ()
    """The names under which clients reach it."""
    lock: str | None = None
    """The lock file; None: that of the configuration file."""
    config: str | None = None
    """The configuration file."""
    deps: str | None = None
    """The target of the deps of the tools."""


def serve_targets(targets: Sequence[str], options: ServeOptions, screen: Screen) -> Exit:
    """Serve the tools of targets and of a file until the client leaves, or the program is interrupted."""
    found = split_targets(targets)
    if not found and options.config is None:
        raise ToolDefinitionError("There is nothing to serve: name a target, or a file with --config")
    with redirect_prints():  # what a module prints while it is loaded must not reach the protocol
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
        raise ToolConfigurationError(f"--deps {target!r:.80}: a server needs an object, which all calls share")
    return deps


def merge_options(settings: GatewaySettings, servers: Sequence[str], options: ServeOptions) -> GatewaySettings:
    """Return the settings of a file with the options of the command, which come first.

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
    """Return the target of a server, with the path of a file that is relative to the working directory now."""
    path = Path(target.removeprefix(PREFIX).strip())
    return f"{PREFIX}{path.absolute()}" if path.suffix == ".json" and path.is_file() else target


def _is_toolbox_alone(settings: GatewaySettings, parts: Parts) -> bool:
    """Return whether one toolbox is all that is served, with nothing around it but gates and a lock."""
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
    """Serve one toolbox as it is, with its own reviewer, hooks and sinks; only gates and a lock are added."""
    (served,) = parts.boxes
    gates = settings.approval.tools
    box = served.box.around(approve=gates) if gates else served.box
    _report(settings, box.names, find_unused(box, gates), screen)
    serve_as(Offer(box, settings.name, settings.instructions, lock=served.lock, deps=parts.deps), settings, parts.auth)


def _report(settings: GatewaySettings, names: Sequence[str], unused: Sequence[str], screen: Screen) -> None:
    """Say what is served where, and which patterns match nothing."""
    for pattern in unused:
        screen.report(f"toolsemble: {escape_line(repr(pattern), _MAX_NAME)} matches none of the tools")
    if settings.http is not None:
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        shown = ", ".join(names[:_MOST_NAMES]) or "nothing"
        screen.report(f"serving {shown}{more} at http://{settings.http.address}/mcp")
