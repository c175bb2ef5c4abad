"""The toolbox of a gateway: built again whenever the tools of a server behind it change."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from toolsemble.errors import ToolDefinitionError
from toolsemble.mcp.client.client import MCPClient
from toolsemble.mcp.gateway.settings import ToolRule
from toolsemble.runtime.fork_locks import fork_safe_lock
from toolsemble.toolbox.formats import names_inside
from toolsemble.toolbox.toolbox import Toolbox

LOGGER = logging.getLogger("toolsemble.mcp")


class LiveToolbox:
    """The tools of servers and of programs, as they are now; a function of the caller that ``serve`` takes.

    :param own: tools that do not change
    :param clients: the servers, which run
    :param rules: settings for tools by their names
    :param approve: names and patterns of tools that need approval
    :param settings: the settings of the toolbox
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
    ) -> None:
        self._own = own
        self._clients = clients
        self._rules = rules
        self._settings = settings
        self._guard = fork_safe_lock(self)
        self._seen: list[object] = []
        self._approve = [*approve, *(rule.pattern for rule in rules if rule.approve)]
        self._box = self._build(list(self._find_tools()))

    def __call__(self, caller: object = None) -> Toolbox:
        """Return the toolbox as it is now, the same for every caller."""
        _ = caller
        with self._guard:
            tools = list(self._find_tools())
            if not _is_same(tools, self._seen):
                self._rebuild(tools)
            return self._box

    def find_unused(self) -> list[str]:
        """Return the patterns that match no tool now: probably mistakes."""
        patterns = [*self._approve, *(rule.pattern for rule in self._rules if not rule.approve)]
        return [
            *find_unused(Toolbox(self._seen), patterns),
            *(each for client in self._clients for each in client.find_unused()),
        ]

    def _find_tools(self) -> list[object]:
        return [*self._own, *(tool for client in self._clients for tool in client)]

    def _rebuild(self, tools: list[object]) -> None:
        """Build the toolbox again; keep the old one if the new tools do not fit together."""
        try:
            self._box = self._build(tools)
        except ToolDefinitionError as problem:
            self._seen = tools  # reported once
            LOGGER.warning("The changed tools cannot be served, and the old ones stay: %s", problem)

    def _build(self, tools: list[object]) -> Toolbox:
        parts = [self._apply(part) for part in self._split(tools) if not self._is_hidden(part.names[0])]
        # The tool of a server may come later: its name must not fail until then.
        approve = [_to_pattern(each) if self._clients else each for each in self._approve] or None
        box = Toolbox(parts, approve=approve, **self._settings)
        self._seen = tools
        return box

    def _split(self, tools: Sequence[object]) -> list[Toolbox]:
        """Return a toolbox for each tool, so that each can have limits of its own; an object may have several."""
        boxes = [Toolbox([each]) for each in tools]
        return [box if len(box) == 1 else box.filtered([name]) for box in boxes for name in box.names]

    def _is_hidden(self, name: str) -> bool:
        return any(rule.hide and fnmatchcase(name, rule.pattern) for rule in self._rules)

    def _apply(self, part: Toolbox) -> Toolbox:
        """Return a tool with the limits of all rules that match its name."""
        for rule in self._rules:
            if rule.settings and fnmatchcase(part.names[0], rule.pattern):
                part = Toolbox([part], **rule.settings)
        return part


def find_unused(box: Toolbox, patterns: Sequence[str]) -> list[str]:
    """Return the patterns that match no tool of a toolbox; none, if an agent in it has tools that are not known.

    >>> from toolsemble import Toolbox, tool
    >>> @tool
    ... def delete(path: str) -> str:
    ...     return "deleted"
    >>> find_unused(Toolbox([delete]), ["del*", "remove*"])
    ['remove*']
    """
    inside = names_inside(box)
    if not inside.all_known:
        return []
    return [each for each in patterns if not any(fnmatchcase(name, each) for name in inside.found)]


def _is_same(one: Sequence[object], other: Sequence[object]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _to_pattern(name: str) -> str:
    """Return a pattern that matches a name, or the pattern itself."""
    return f"[{name[0]}]{name[1:]}" if name and not set(name) & set("*?[") else name
