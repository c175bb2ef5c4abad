"""The settings of a gateway, as ``toolsemble.toml`` has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """A server behind the gateway."""

    name: str
    """Its name, by which its tools, prompts and resources are prefixed."""
    command: str = ""
    """The program; "" for a URL."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str = ""
    """The URL; "" for a program."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    token: str | None = field(default=None, repr=False)
    """A bearer token for the URL."""
    transport: str = "http"
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of its client."""
    resources: tuple[str, ...] | bool = True
    """Whether its resources are passed on, or patterns of their URIs."""
    prompts: tuple[str, ...] | bool = True
    """Whether its prompts are passed on, or patterns of their names."""
    required: bool = True
    """Whether the gateway does not start without it."""


@dataclass(frozen=True, slots=True)
class ToolRule:
    """Settings for the tools whose names match a pattern."""

    pattern: str
    hide: bool = False
    """Whether they are left out."""
    approve: bool = False
    """Whether their calls need approval."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Limits: settings of a toolbox."""


@dataclass(frozen=True, slots=True)
class ApprovalSettings:
    """The tools that need approval, and the reviewer."""

    tools: tuple[str, ...] = ()
    """Names and patterns of tools that need approval."""
    reviewer: str = "client"
    """``"client"``, ``"reject"``, ``"queue"``, or the ``module:attribute`` of a reviewer."""
    file: str = ""
    """The file of the queue."""
    terms: Mapping[str, Any] = field(default_factory=dict)
    """The terms of approval: settings of a toolbox."""


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """The receivers of the events of calls."""

    trace: str | None = None
    """The file to which events are appended."""
    console: bool = False
    """Whether events are written to standard error."""
    opentelemetry: bool = False
    """Whether calls become spans."""
    custom: tuple[str, ...] = ()
    """The ``module:attribute`` of further sinks."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A bearer token that clients may send."""

    token: str = field(repr=False)
    subject: str | None = None
    """The user of the token; None: the token is a user of its own. Two tokens may name the same user."""
    client: str = "gateway"
    """The client program of the token."""
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The address of the gateway, and the clients that may reach it."""

    address: str
    allowed_hosts: tuple[str, ...] = ()
    tokens: tuple[AccessToken, ...] = ()
    """The tokens that are accepted; none: everyone is."""
    auth: str | None = None
    """The ``module:attribute`` of a ``TokenVerifier``, instead of tokens."""
    issuer_url: str | None = None
    resource_url: str | None = None


@dataclass(frozen=True, slots=True)
class LockSettings:
    """The lock of all tools."""

    file: str
    actions: Mapping[str, str] = field(default_factory=dict)
    """``changed``, ``added``, ``removed`` and ``first``, as a ``ToolLock`` takes them."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """All settings of a gateway."""

    name: str | None = None
    instructions: str = ""
    targets: tuple[str, ...] = ()
    """Targets of the command line, such as ``my_tools.py`` or ``mcp:./mcp.json``."""
    servers: tuple[ServerSettings, ...] = ()
    rules: tuple[ToolRule, ...] = ()
    approval: ApprovalSettings = ApprovalSettings()
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Limits of all tools together: settings of a toolbox."""
    ledger: str | None = None
    """The file of the effect ledger."""
    sinks: SinkSettings = SinkSettings()
    http: HttpSettings | None = None
    """None: standard input and output."""
    lock: LockSettings | None = None
