"""The built-in tools as targets of the command line, such as ``file_read:DIR``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from toolsemble import builtin
from toolsemble._vocabulary.errors import ToolDefinitionError


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A built-in tool and its setting, which is written after a colon.

    >>> BUILT_INS["file_read"].form
    'file_read:DIR'
    """

    name: str
    make: Callable[[str], Any]
    """Creates the tool from a setting, which may be empty."""
    setting: str = ""
    """The placeholder of the setting; empty: it has none."""
    needed: bool = False
    """Whether the setting is required."""
    example: str = "."
    """A setting with which the tool can be shown."""

    @property
    def form(self) -> str:
        """The syntax of its target."""
        if not self.setting:
            return self.name
        return f"{self.name}:{self.setting}" if self.needed else f"{self.name}[:{self.setting}]"


def make_built_in(name: str, setting: str, *, shown: bool = False) -> object:
    """Return a built-in tool; raise if the setting is missing or not allowed.

    :param shown: whether the tool is only shown, so that the setting may be missing

    >>> make_built_in("file_read", "")
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: file_read needs a setting: write file_read:DIR, such as file_read:.
    """
    entry = BUILT_INS[name]
    if setting and not entry.setting:
        raise ToolDefinitionError(f"{name} takes no setting, but was given {setting!r:.80}")
    if entry.needed and not setting:
        if not shown:
            raise ToolDefinitionError(f"{name} needs a setting: write {entry.form}, such as {name}:{entry.example}")
        setting = entry.example
    return entry.make(setting)


_ALL = (
    BuiltIn("calculator", lambda _: builtin.CalculatorTool()),
    BuiltIn("datetime", lambda _: builtin.DateTimeTool()),
    BuiltIn("json_parser", lambda _: builtin.JsonParserTool()),
    BuiltIn("file_read", lambda directory: builtin.FileReadTool(directory), "DIR", needed=True),  # noqa: PLW0108 - lazy
    # A write cannot be undone, so it needs approval.
    BuiltIn(
        "file_write",
        lambda directory: builtin.FileWriteTool(directory, requires_approval=True),
        "DIR",
        needed=True,
    ),
    BuiltIn("web_search", lambda provider: builtin.WebSearchTool(provider or None), "PROVIDER"),
    BuiltIn("web_scraper", lambda host: builtin.WebScraperTool(allow_hosts=[host] if host else ()), "HOST"),
    BuiltIn("human_input", lambda _: builtin.HumanInputTool()),
)
BUILT_INS: Mapping[str, BuiltIn] = MappingProxyType({each.name: each for each in _ALL})
"""The built-in tools by name, in display order."""
