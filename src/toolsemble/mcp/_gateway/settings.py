"""A gateway's settings, as in ``toolsemble.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """A server behind the gateway."""

    name: str
    """Its name, which prefixes its tools, prompts and resources."""
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
    """Its client's options."""
    resources: tuple[str, ...] | bool = True
    """Whether to forward its resources, or patterns of their URIs."""
    prompts: tuple[str, ...] | bool = True
    """Whether to forward its prompts, or patterns of their names."""
    required: bool = True
    """Whether the gateway refuses to start without it."""


@dataclass(frozen=True, slots=True)
class ToolRule:
    """Settings for the tools whose names match a pattern."""

    pattern: str
    hide: bool = False
    """Whether to hide them."""
    approve: bool = False
    """Whether their calls need approval."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Limits, as toolbox settings."""


@dataclass(frozen=True, slots=True)
class ApprovalSettings:
    """The tools that need approval, and the reviewer."""

    tools: tuple[str, ...] = ()
    """Names and patterns of tools that need approval."""
    reviewer: str = "client"
    """``"client"``, ``"reject"``, ``"queue"``, or the ``module:attribute`` of a reviewer."""
    file: str = ""
    """The queue's file."""
    terms: Mapping[str, Any] = field(default_factory=dict)
    """Approval settings, as toolbox settings."""


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """The receivers of call events."""

    trace: str | None = None
    """The file to append events to."""
    console: bool = False
    """Whether events are written to standard error."""
    opentelemetry: bool = False
    """Whether calls become spans."""
    custom: tuple[str, ...] = ()
    """The ``module:attribute`` of additional sinks."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A bearer token that clients may send."""

    token: str = field(repr=False)
    subject: str | None = None
    """The token's user; None: a separate user. Two tokens may name the same user."""
    client: str = "gateway"
    """The token's client program."""
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The gateway's address, and its permitted clients."""

    address: str
    allowed_hosts: tuple[str, ...] = ()
    tokens: tuple[AccessToken, ...] = ()
    """The accepted tokens; empty: no authentication."""
    auth: str | None = None
    """The ``module:attribute`` of a ``TokenVerifier``, instead of tokens."""
    issuer_url: str | None = None
    resource_url: str | None = None


@dataclass(frozen=True, slots=True)
class LockSettings:
    """The lock of all tools."""

    file: str
    actions: Mapping[str, str] = field(default_factory=dict)
    """``changed``, ``added``, ``removed`` and ``first``, as for ``ToolLock``."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """A gateway's settings."""

    name: str | None = None
    instructions: str = ""
    targets: tuple[str, ...] = ()
    """Command-line targets, such as ``my_tools.py`` or ``mcp:./mcp.json``."""
    servers: tuple[ServerSettings, ...] = ()
    rules: tuple[ToolRule, ...] = ()
    approval: ApprovalSettings = ApprovalSettings()
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Limits for all tools together, as toolbox settings."""
    ledger: str | None = None
    """The effect ledger's file."""
    sinks: SinkSettings = SinkSettings()
    http: HttpSettings | None = None
    """None: standard input and output."""
    lock: LockSettings | None = None
