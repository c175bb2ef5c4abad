"""What the cases need of a framework, and what they see of its replies."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from toolsemble import ToolCall


@dataclass(frozen=True)
class Seen:
    """What a framework shows of one call: to the model, and to programs."""

    text: str
    is_error: bool | None = None  # None: the framework has no such mark
    media: list[tuple[str, bytes]] = field(default_factory=list)
    payload: Any = None


class Driver(Protocol):
    """A module of tests/interop/drivers: one framework, called as its users call it.

    MODULE: the module of toolsemble.interop; DISTRIBUTIONS: whose versions the table shows.
    MEDIA, PAYLOAD: whether the framework carries images, and structured outputs; WRAPS: whether it puts the text of a
    failure into a sentence of its own; REENCODES: whether it writes the bytes of images anew; CANCELS: whether its runs
    can be cancelled; CALL_ID: whether it passes the id of a call on; EDITS: whether a person can edit a call; ASYNC:
    whether async functions are tools.

    A driver may also have run_sync (the same without an event loop), pause (see test of approval), refused(), and
    call_tools (like run, for the time of a call, where run would hide it).
    """

    MODULE: str
    DISTRIBUTIONS: tuple[str, ...]

    async def run(self, exported: Any, calls: Sequence[ToolCall]) -> list[Seen]:
        """Let a scripted model of the framework make the calls in one turn; return what it is shown of each."""

    def offer(self, function: Callable[..., Any]) -> Any:
        """Return the framework's tools, with a native one: a function add(a: int, b: int) -> int."""

    def native(self, log: list[Any]) -> list[Any]:
        """Return two tools of the framework: add(a: int, b: int) -> int, and fail(city: str), which raises ValueError.

        Both append their arguments to the log; fail says "no such city".
        """


def flag(driver: Any, name: str) -> bool:
    """Return a property of a framework; most have all of them, and none wraps."""
    return getattr(driver, name, name not in ("WRAPS", "REENCODES"))


def load(framework: str) -> tuple[Any, Any]:
    """Return the driver of a framework, and the module of this library for it."""
    driver = importlib.import_module(f"interop.drivers.{framework}")
    return driver, importlib.import_module(f"toolsemble.interop.{driver.MODULE}")
