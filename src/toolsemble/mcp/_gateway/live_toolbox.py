"""A gateway's toolbox, rebuilt whenever an upstream server's tools change."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from toolsemble._runtime.threads import fork_safe_lock
from toolsemble._tools.toolbox.formats import names_inside
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.mcp._client.client import MCPClient
from toolsemble.mcp._gateway.settings import ToolRule
from toolsemble.review._rules.pattern import matches_name

LOGGER = logging.getLogger("toolsemble.mcp")
Offered: TypeAlias = tuple[MCPClient | None, object]
"""A tool and its server; None for the gateway's own tools."""
_MOST_NAMES = 10_000


class LiveToolbox:
    """The current tools of servers and programs; a function of the caller for ``serve``.

    :param own: immutable tools
    :param clients: the running servers
    :param rules: tool settings by name
    :param approve: names and patterns of tools that need approval
    :param settings: the toolbox settings
    :param hidden: the names of immutable tools that the lock hides
    """

    is_shared = True
    """Whether all callers get the same toolbox."""

    def __init__(
        self,
        own: Sequence[object],
        clients: Sequence[MCPClient],
        rules: Sequence[ToolRule],
        approve: Sequence[str],
        settings: dict[str, Any],
        hidden: frozenset[str] = frozenset(),
    ) -> None:
        self._own = own
        self._clients = clients
        self._rules = rules
        self._settings = settings
        self._hidden = hidden
        self._guard = fork_safe_lock(self)
        self._seen: list[object] = []
        self._owners: dict[str, MCPClient | None] = {}
        self._reported: set[tuple[str, str]] = set()
        self._approve = [*approve, *(rule.pattern for rule in rules if rule.approve)]
        self._box = self._build(self._find_tools())

    def __call__(self, caller: object = None) -> Toolbox:
        """Return the current toolbox, the same for every caller."""
        _ = caller
        with self._guard:
            tools = self._find_tools()
            if not _is_same([tool for _, tool in tools], self._seen):
                self._rebuild(tools)
            return self._box

    def is_hidden_by_lock(self, name: str) -> bool:
        """Return whether a server's or the gateway's lock hides a tool with this name."""
        return name in self._hidden or any(name in client.hidden for client in self._clients)

    def find_unused(self) -> list[str]:
        """Return the patterns that match no current tool: probably mistakes."""
        patterns = [*self._approve, *(rule.pattern for rule in self._rules if not rule.approve)]
        return [
            *find_unused(Toolbox(self._split(self._find_tools())), patterns),
            *(each for client in self._clients for each in client.find_unused()),
        ]

    def _find_tools(self) -> list[Offered]:
        """Return the gateway's tools, then the servers' tools in order, each with its server."""
        return [*((None, tool) for tool in self._own), *((each, tool) for each in self._clients for tool in each)]

    def _rebuild(self, tools: list[Offered]) -> None:
        """Rebuild the toolbox, without tools that its settings do not fit."""
        try:
            self._box = self._build(tools)
        except ToolDefinitionError:
            self._box = self._build([(client, tool) for client, tool in tools if self._fits(client, tool)])
        self._seen = [tool for _, tool in tools]

    def _fits(self, client: MCPClient | None, tool: object) -> bool:
        """Return whether the toolbox can contain a tool; log the reason if not."""
        try:
            for part in _split_tool(tool):
                Toolbox([self._apply(part)], **self._settings)
        except ToolDefinitionError as problem:
            LOGGER.warning("Skipped a tool of %s: %s", "the gateway" if client is None else client.name, problem)
            return False
        return True

    def _build(self, tools: list[Offered]) -> Toolbox:
        parts = [self._apply(part) for part in self._split(tools) if not self._is_hidden(part)]
        # A server's tool may appear later: its name must not be an error until then.
        approve = [_to_pattern(each) if self._clients else each for each in self._approve] or None
        box = Toolbox(parts, approve=approve, **self._settings)
        self._seen = [tool for _, tool in tools]
        return box

    def _split(self, tools: Sequence[Offered]) -> list[Toolbox]:
        """Return a toolbox for each tool, so that each can have its own limits; an object may have several.

        A server's tool is skipped if its name belongs to another server.
        """
        parts = [(client, part) for client, tool in tools for part in _split_tool(tool)]
        self._assign_names(parts)
        kept: list[Toolbox] = []
        for client, part in parts:
            if client is None or self._owners.get(part.names[0]) is client:
                kept.append(part)
            else:
                self._report_taken(client, part.names[0])
        return kept

    def _assign_names(self, parts: Sequence[tuple[MCPClient | None, Toolbox]]) -> None:
        """Assign each name to its first owner while the gateway runs.

        A server that restarts, or hides a tool temporarily, must keep its names: otherwise, another server could take
        them over.
        """
        current = {part.names[0] for _, part in parts}
        if len(self._owners) > _MOST_NAMES:
            self._owners = {name: owner for name, owner in self._owners.items() if name in current}
        for client, part in parts:
            self._owners.setdefault(part.names[0], client)

    def _report_taken(self, client: MCPClient, name: str) -> None:
        owner = self._owners.get(name)
        if (client.name, name) not in self._reported and len(self._reported) < _MOST_NAMES:
            self._reported.add((client.name, name))
            of = "the gateway itself" if owner is None else f"the server {owner.name!r}"
            LOGGER.warning("The tool %r of the server %r is skipped: the name belongs to %s", name, client.name, of)

    def _is_hidden(self, part: Toolbox) -> bool:
        names = part.registered(part.names[0]).definition.names
        return any(rule.hide and matches_name(rule.pattern, name) for rule in self._rules for name in names)

    def _apply(self, part: Toolbox) -> Toolbox:
        """Return a tool with the limits of all matching rules."""
        for rule in self._rules:
            if rule.settings and fnmatchcase(part.names[0], rule.pattern):
                part = Toolbox([part], **rule.settings)
        return part


def find_unused(box: Toolbox, patterns: Sequence[str]) -> list[str]:
    """Return the patterns that match no tool in a toolbox; none if a nested agent's tools are unknown."""
    inside = names_inside(box)
    if not inside.all_known:
        return []
    return [each for each in patterns if not any(matches_name(each, name) for name in inside.found)]


def _split_tool(tool: object) -> list[Toolbox]:
    box = Toolbox([tool])
    return [box] if len(box) == 1 else [box.filtered([name]) for name in box.names]


def _is_same(one: Sequence[object], other: Sequence[object]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _to_pattern(name: str) -> str:
    """Return a pattern that matches a name, or the pattern itself."""
    return f"[{name[0]}]{name[1:]}" if name and not set(name) & set("*?[") else name
