"""The interface of one server: its data folder, and the tools and agents that it was started with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolsemble._runtime.observers.sinks import Sinks
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._ui.data_folder import DataFolder
from toolsemble.agent._agent import Agent
from toolsemble.models._message import Message
from toolsemble.review._queue import QueueReview


@dataclass(frozen=True, slots=True)
class Targets:
    """The tools and agents that a server was started with, and can call.

    >>> Targets().find("add") is None
    True
    """

    boxes: tuple[Toolbox, ...] = ()
    """The toolboxes; where two have a tool of the same name, the first one counts."""
    agents: Mapping[str, Agent[Any]] = field(default_factory=dict)
    """The agents by name."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The target that each tool came from, as a command line names it."""
    deps: Any = None
    """The deps of calls and runs that are started here, or what makes them; None: an agent's own."""
    deps_source: str = ""
    """The target that the deps came from, as a command line names it."""

    @property
    def names(self) -> list[str]:
        """The names of all tools."""
        return list(dict.fromkeys(name for box in self.boxes for name in box.names))

    def find(self, name: str) -> Toolbox | None:
        """Return the toolbox with a tool; None if no one has it."""
        return next((box for box in self.boxes if name in box), None)


@dataclass(slots=True)
class Interface:
    """All that endpoints need."""

    folder: DataFolder
    """The data folder."""
    targets: Targets = field(default_factory=Targets)
    """The tools and agents."""
    read_only: bool = False
    """Whether nothing can be changed."""
    address: str = "http://127.0.0.1:7771"
    """Where the server is reached."""
    chats: dict[str, Sequence[Message]] = field(default_factory=dict)
    """The conversations of the chat page, by memory id, of agents without a memory."""
    working: set[Any] = field(default_factory=set)
    """The tasks of runs that are resumed here."""

    def reviewer(self) -> QueueReview:
        """Return the reviewer for tools and agents that have none: the store of the data folder."""
        store = self.folder.reviews(create=True)
        assert store is not None  # noqa: S101 - it was created
        return QueueReview(store)

    def choose_reviewer(self, agent: Agent[Any]) -> dict[str, Any]:
        """Return the settings of a run with a reviewer, unless the agent has its own."""
        return {} if agent.list_reviewers() else {"review": self.reviewer()}

    def record(self) -> Sinks:
        """Return the sinks for what is started here: the history of the data folder."""
        return Sinks("toolsemble ui", [self.folder.history(create=True)])
