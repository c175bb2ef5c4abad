"""Paging: the tool ``read_more`` for reading the rest of a truncated result."""

from __future__ import annotations

import os
import unicodedata
from collections import OrderedDict
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from toolsemble._engine.context import ToolContext
from toolsemble._runtime.checks import check_count
from toolsemble._runtime.text import preview
from toolsemble._runtime.threads import fork_safe_lock
from toolsemble._tools.function import FunctionTool, tool
from toolsemble._vocabulary.errors import ToolDefinitionError, ToolExecutionError
from toolsemble._vocabulary.param import Param
from toolsemble._vocabulary.specification import check_name

_MOST_PAGES = 10_000
_LONGEST_CHARACTER = 16
_JOINER = "\u200d"
_DEFAULT_MEMORY_ID = ToolContext().memory_id


@dataclass(frozen=True, slots=True)
class Pages:
    """The paging settings: the tool's name, and the storage limits.

    >>> Pages(results=10).name
    'read_more'
    """

    name: str = "read_more"
    """The name of the tool that returns the pages."""
    results: int = 100
    """The maximum number of stored texts; the oldest are evicted first."""
    characters: int = 10_000_000
    """The maximum number of stored characters in total."""

    def __post_init__(self) -> None:
        check_name(self.name)
        check_count("Pages results", self.results, least=1)
        check_count("Pages characters", self.characters, least=1)

    @classmethod
    def of(cls, setting: object) -> Pages:
        """Return the settings for a toolbox's ``pages`` argument; raise if it is invalid.

        >>> Pages.of(True).results
        100
        """
        if isinstance(setting, Pages):
            return setting
        if setting is not True:
            raise ToolDefinitionError(f"Toolbox pages must be True, False or Pages(...), not {setting!r:.80}")
        return cls()


class Reader(NamedTuple):
    """The conversation, or the run, whose model may read a text.

    >>> Reader("ada", None).matches("ada", "run 2"), Reader("ada", None).matches("bob", "run 1")
    (True, False)
    """

    memory_id: str
    """The conversation or user of the result."""
    run_id: str | None
    """The run of the result; None if the program did not set a run id."""

    def matches(self, memory_id: str, run_id: str) -> bool:
        """Return whether a call may read the text; with the default memory id, run ids must also match."""
        if memory_id != self.memory_id:
            return False
        return memory_id != _DEFAULT_MEMORY_ID or self.run_id is None or run_id == self.run_id


class _Text(NamedTuple):
    text: str
    starts: list[int]
    reader: Reader


class PageStore:
    r"""A toolbox's truncated texts, each with its permitted reader.

    >>> book = PageStore(Pages())
    >>> cut, note = book.keep("one\ntwo\nthree", 8, "ada", None)
    >>> cut, note[:57]
    (8, ' [page 1 of 2; for the next one call read_more with resul')
    """

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._lock = fork_safe_lock(self)
        self._texts: OrderedDict[str, _Text] = OrderedDict()
        self._room = pages.characters

    @property
    def name(self) -> str:
        """The name of the tool that returns pages."""
        return self._pages.name

    def keep(
        self, text: str, limit: int, memory_id: str, run_id: str | None, text_id: str | None = None
    ) -> tuple[int, str]:
        """Store a text; return the end of its first page, and a note for the model about the other pages.

        :param memory_id: the conversation or user whose model may read it
        :param run_id: the run whose model may read it; None if the program did not set one
        :param text_id: the id for page requests; None: a random one
        """
        starts = page_starts(text, limit) if len(text) <= self._pages.characters else None
        if starts is None:
            return limit, ""
        text_id = text_id or os.urandom(16).hex()
        with self._lock:
            replaced = self._texts.pop(text_id, None)
            self._room += 0 if replaced is None else len(replaced.text)
            self._texts[text_id] = _Text(text, starts, Reader(memory_id, run_id))
            self._room -= len(text)
            while self._room < 0 or len(self._texts) > self._pages.results:
                self._room += len(self._texts.popitem(last=False)[1].text)
        return starts[1], f" {self._note(text_id, 1, len(starts))}"

    def page(self, id: str, number: int, context: ToolContext) -> str:
        """Return a page of a text with a note about the next one; raise if this reader has no such text."""
        with self._lock:
            found = self._texts.get(id)
        if found is None or not found.reader.matches(context.memory_id, context.run_id):
            # The same message for both: it must not reveal that another reader's text exists.
            raise ToolExecutionError(
                f"Unknown result '{preview(id, 64)}': it never existed or is no longer stored; call the tool again"
            )
        count = len(found.starts)
        if not 1 <= number <= count:
            raise ToolExecutionError(f"The result has pages 1 to {count}, not {preview(str(number), 20)}")
        start, end = found.starts[number - 1], [*found.starts, len(found.text)][number]
        return f"{found.text[start:end]}\n{self._note(id, number, count)}"

    def tool(self) -> FunctionTool[..., str]:
        """Return the tool for reading pages."""

        @tool(self._pages.name, "Reads another page of a result that was truncated.", effects="read")
        def read_more(
            result: Annotated[str, Param("The id of the result, from the note at its end")],
            page: Annotated[int, Param("The number of the page, starting at 1")],
            context: ToolContext,
        ) -> str:
            return self.page(result, page, context)

        return read_more

    def _note(self, id: str, number: int, count: int) -> str:
        if number == count:
            return f"[page {number} of {count}, the last one]"
        name = self._pages.name
        return f'[page {number} of {count}; for the next one call {name} with result="{id}" and page={number + 1}]'


def page_starts(text: str, limit: int) -> list[int] | None:
    r"""Return the start of each page of a text, within the page limit; None if there would be too many pages.

    >>> page_starts("one\ntwo\nthree", 8)
    [0, 8]
    """
    if limit < 1 or len(text) > limit * _MOST_PAGES // 2:  # a page is at least half full
        return None
    starts = [0]
    while len(text) - starts[-1] > limit:
        starts.append(_page_end(text, starts[-1], limit))
    return starts


def _page_end(text: str, start: int, limit: int) -> int:
    """Return the end of a page: after a line or a word in its second half, else between two characters."""
    end, half = start + limit, start + limit // 2
    for mark in ("\n", " "):
        found = text.rfind(mark, half, end)
        if found >= 0:
            return found + 1
    for cut in range(end, max(start, end - _LONGEST_CHARACTER), -1):
        if not _are_joined(text[cut - 1], text[cut]):
            return cut
    return end


def _are_joined(before: str, after: str) -> bool:
    """Return whether two code points are probably displayed as one character."""
    if after.isascii():
        return before == "\r" and after == "\n"
    if _JOINER in (before, after) or "\U0001f3fb" <= after <= "\U0001f3ff":
        return True
    return unicodedata.category(after).startswith("M")
