"""``CatalogBox``: a toolbox that knows the tools of a catalog which the model is not shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NoReturn

from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._engine.execution.call import ArgumentsReport, CallPath
from toolsemble._tools.toolbox.formats import ToolSet
from toolsemble._tools.toolbox.run import Run
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import UnknownToolError
from toolsemble.catalog._budget import Offer
from toolsemble.catalog._entry import Entry
from toolsemble.catalog._find_tools import FIND_TOOLS
from toolsemble.catalog._snapshot import Snapshot
from toolsemble.catalog._summary import write_line


class CatalogBox(Toolbox):
    """A toolbox with some tools of a catalog. It does not run the others, and tells the model that they are loaded.

    :param snapshot: the tools of the catalog
    :param offer: the tools that the model is shown
    :param search: the tool that searches the catalog
    :param gone: the names of tools that were found earlier, and no longer exist
    :param settings: the settings of the toolbox
    """

    __slots__ = ("_gone", "_snapshot")

    def __init__(self, snapshot: Snapshot, offer: Offer, search: Entry, gone: Collection[str], **settings: Any) -> None:
        self._snapshot = snapshot
        self._gone = frozenset(gone)
        known = {**snapshot.entries, FIND_TOOLS: search}
        # A set of tools is taken over with the definitions that it has.
        super().__init__([ToolSet({name: known[name].register(cuts) for name, cuts in offer})], **settings)

    def definitions(self) -> Iterable[ToolDefinition]:
        """Return the definitions of all tools of the catalog, so that mistakes are found before a tool is loaded."""
        shown = super().definitions()
        return [*shown, *(each.definition for name, each in self._snapshot.entries.items() if name not in self)]

    def _refuse(self, call: ToolCall, report: ArgumentsReport | None, run: Run) -> CallPath:
        from toolsemble._tools.toolbox.unknown import refused_path, unknown_path

        shown = list(super().definitions())
        # Whoever misspells a name may send the secrets of any tool.
        tools = [*shown, *(each for each in self.definitions() if each.secret and each.name not in self)]
        if call.name in self._snapshot.entries:
            definition = _refuse_hidden(self._snapshot.entries[call.name])
        elif call.name in self._gone:
            definition = _refuse_with(call.name, f"The tool '{call.name}' is no longer available")
        else:
            members = [each.tool for each in self._snapshot.entries.values()]
            return unknown_path(call, self._context, run, tools, self._settings, report, members)
        return refused_path(call, definition, self._context, run, tools, self._settings, report)


def _refuse_hidden(entry: Entry) -> ToolDefinition:
    """Return a definition that tells the model how to call a tool that it has not been shown yet."""
    line = write_line(entry.specification())
    told = f"'{entry.name}' was not loaded, so it was not run; it is loaded now, call it again: {line}"
    return _refuse_with(entry.name, told)


def _refuse_with(name: str, message: str) -> ToolDefinition:
    def refuse(*_: object) -> NoReturn:
        raise UnknownToolError(message)

    return ToolDefinition(name, "", body=refuse, decode=refuse, accept=refuse)
