"""The built-in tools, as they are named on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from toolsemble import builtin
from toolsemble.errors import ToolDefinitionError


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A built-in tool, and what can be said of it after a colon.

    >>> BUILT_INS["file_read"].form
    'file_read:DIR'
    """

    name: str
    """How models and people call it."""
    make: Callable[[str], Any]
    """Gives the tool for a setting, which may be empty."""
    setting: str = ""
    """What the setting is; empty when there is none."""
    needed: bool = False
    """Whether it does not work without."""
    example: str = "."
    """A setting with which it can be looked at."""

    @property
    def form(self) -> str:
        """How it is written."""
        if not self.setting:
            return self.name
        return f"{self.name}:{self.setting}" if self.needed else f"{self.name}[:{self.setting}]"


def built_in(name: str, setting: str, *, shown: bool = False) -> object:
    """Give a built-in tool, or refuse the setting.

    :param shown: whether it is only looked at, and need not be told what it works on

    >>> built_in("file_read", "")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: file_read needs a setting: write file_read:DIR, such as file_read:.
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
    # What is written cannot be taken back, so somebody is asked, unless told otherwise by --approve.
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
"""The built-in tools by name, in the order in which they are shown."""
