"""The server: a socket, the address that is opened, and uvicorn."""

from __future__ import annotations

import os
import socket
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from ipaddress import ip_address
from pathlib import Path

import uvicorn

from toolsemble._runtime.http_server import Hosts, bound_server
from toolsemble._ui.app import build_app
from toolsemble._ui.guard import Sessions
from toolsemble._ui.interface import DataFolder, Interface, Targets
from toolsemble._ui.people import LocalUser, People, PeopleFile
from toolsemble._vocabulary.errors import ToolConfigurationError

_MAX_CONNECTIONS = 200
_OPEN_FILE = "ui-open.html"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of a server.

    >>> ServerSettings().port
    7771
    """

    data: str = ".toolsemble"
    """The data folder."""
    port: int = 7771
    """The port; 0: a free one."""
    host: str = "127.0.0.1"
    """The address; other ones than loopback need ``people``."""
    people: str | None = None
    """The file of people; None: only the user of this machine."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names under which the server is reached."""
    read_only: bool = False
    """Whether nothing can be changed."""
    open_browser: bool = True
    """Whether to open the page."""


def serve(settings: ServerSettings, targets: Targets, report: Callable[[str], object]) -> None:
    """Serve the interface until the program is interrupted.

    :param report: writes a line for the user
    """
    is_local = _is_loopback(settings.host)
    if not is_local and settings.people is None:
        raise ToolConfigurationError(
            f"Other machines reach {settings.host:.80}, so that people must sign in: pass --people FILE, "
            "made by 'toolsemble ui add-person NAME'"
        )
    people: People = LocalUser() if settings.people is None else PeopleFile(settings.people)
    folder = DataFolder(Path(settings.data))
    with _bind(settings.host, settings.port) as listener:
        port = listener.getsockname()[1]
        sessions = Sessions(folder.path, people, port)
        address = f"http://{_bracket(settings.host)}:{port}"
        interface = Interface(folder, targets, settings.read_only, address)
        hosts = Hosts.build(settings.allowed_hosts, addresses=not is_local)
        config = uvicorn.Config(
            build_app(interface, sessions, hosts),
            log_level="warning",
            server_header=False,
            proxy_headers=settings.people is not None,
            timeout_graceful_shutdown=2,
            **bound_server(_MAX_CONNECTIONS),
        )
        _announce(settings, sessions, address, folder.path, report)
        try:
            uvicorn.Server(config).run([listener])
        finally:
            (folder.path / _OPEN_FILE).unlink(missing_ok=True)


def _announce(
    settings: ServerSettings, sessions: Sessions, address: str, folder: Path, report: Callable[[str], object]
) -> None:
    if not sessions.link_token:
        report(f"toolsemble ui: {address}, for the people in {settings.people}; Ctrl-C stops it")
        report("toolsemble ui: connections are not encrypted: put a proxy with TLS in front of it")
        return
    link = f"{address}/login?token={sessions.link_token}"
    report(f"toolsemble ui: {link}")
    report("toolsemble ui: the link works once; Ctrl-C stops the server")
    if settings.open_browser:
        webbrowser.open(_write_opener(folder, link).as_uri())


def _write_opener(folder: Path, link: str) -> Path:
    """Return a private file that leads to the link: the arguments of a browser can be seen by all users."""
    path = folder / _OPEN_FILE
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(link)}">\n')
    return path


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()  # so that the browser, which is opened now, can wait
    except OSError as error:
        listener.close()
        raise ToolConfigurationError(
            f"Cannot listen at {host}:{port} ({error.strerror}); pass another --port"
        ) from error
    return listener


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host
