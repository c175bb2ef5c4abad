"""A combination of capabilities, which combinations make sense, and what is expected of each.

A capability that gets a new value here, or a new field, is combined with all the others; ``Case.rules`` says what
cannot be combined. Everything that is expected follows from the values of a case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args, get_type_hints

STREAMED = ("stream", "iterate", "sse", "vercel", "ag_ui", "server")
"""The drivers whose consumer can leave."""
LASTING = ("worker", "work_command", "server")
"""The drivers whose process waits for further runs; they need a journal."""
ASYNC = ("run", "stream", "iterate", "sse", "vercel", "ag_ui", "worker", "server")
"""The drivers that are coroutines of the program."""


@dataclass(frozen=True, slots=True)
class Case:
    """One combination; a field is a dimension, and its type lists the values."""

    driver: Literal[
        "run", "run_sync", "stream", "iterate", "sse", "vercel", "ag_ui", "worker", "work_command", "server"
    ] = "run"
    """What drives the run: a method of the agent, a stream for browsers, a worker inside a program, ``toolsemble
    work``, or a web server with a worker in its lifespan."""
    journal: Literal["none", "sqlite", "postgres"] = "none"
    """Where the run is recorded; on Postgres the review store is there, too."""
    review: Literal["none", "callback", "queue", "parked", "pause"] = "none"
    """How the refund is approved: by a function, by a person who answers soon, by one who answers when the run is
    parked, or with the decision that resumes a paused run."""
    decision: Literal["approve", "reject", "edit"] = "approve"
    """What the reviewer decides."""
    interruption: Literal["none", "kill_in_body", "kill_while_waiting", "sigterm", "cancel", "client_gone"] = "none"
    """What happens to the run in its body, or while it waits for the reviewer."""
    tool: Literal["sync", "async", "pipeline", "agent", "mcp", "catalog", "retries", "ledger"] = "sync"
    """The kind of the tool that refunds."""
    effects: Literal["once", "repeatable"] = "once"
    """Whether the refund may be made again with the same key."""
    output: Literal["text", "typed"] = "text"
    """The type of the answer."""
    deps: Literal["none", "run", "agent", "make"] = "none"
    """Where the deps come from: the run or the worker, the agent, or a context manager for each run."""
    memory: Literal["none", "file"] = "none"
    """Whether the conversation is stored."""
    model: Literal["steady", "parallel", "flaky"] = "steady"
    """Whether the model calls two tools in one turn, or fails at first."""
    budget: Literal["none", "seconds", "tight"] = "none"
    """A limit on the seconds, or limits that allow one call and one turn more than needed."""
    sinks: Literal["none", "history", "otel"] = "none"
    """What receives events: a run history, or a run history and OpenTelemetry."""

    rules: ClassVar[list[Rule]] = []
    """The combinations that make no sense."""

    def __str__(self) -> str:
        return "-".join(getattr(self, each.name) for each in fields(self))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the case of a text that ``str(case)`` wrote; raise ValueError for any other one."""
        given = dict(zip(DIMENSIONS, text.split("-"), strict=True))
        for name, value in given.items():
            if value not in DIMENSIONS[name]:
                raise ValueError(f"{name}: expected one of {', '.join(DIMENSIONS[name])}, got {value!r}")
        case = cls(**given)
        if broken := [rule.reason for rule in cls.rules if not rule.holds(given)]:
            raise ValueError(f"This combination makes no sense: {'; '.join(broken)}")
        return case

    @property
    def is_durable(self) -> bool:
        return self.journal != "none"

    @property
    def lasts(self) -> bool:
        """Whether the process waits for further runs."""
        return self.driver in LASTING

    @property
    def has_history(self) -> bool:
        return self.sinks != "none"

    @property
    def moment(self) -> Literal["", "body", "question"]:
        """When the run is interrupted; empty: never."""
        return find_moment(self.interruption, self.review, self.decision)

    @property
    def continues(self) -> bool:
        """Whether the run is continued, or repeated with its id, after the interruption."""
        if self.interruption in ("none", "cancel"):
            return False
        return self.is_durable or self.tool == "ledger" or self.moment == "question"

    @property
    def ends(self) -> Literal["answered", "cancelled", "lost"]:
        """How the run ends."""
        if self.interruption == "cancel":
            return "cancelled"
        if self.interruption == "none" or self.continues:
            return "answered"
        return "lost" if self.interruption == "kill_in_body" else "cancelled"

    @property
    def may_be_unknown(self) -> bool:
        """Whether the refund may have been cut off in its body, so that its outcome is unknown."""
        return self.moment == "body" and self.effects == "once"


class Rule(NamedTuple):
    """A condition on some values of a case."""

    reason: str
    names: tuple[str, ...]
    holds_for: Callable[..., bool]

    def holds(self, values: dict[str, str]) -> bool:
        """Return whether the condition holds, as far as the values are known."""
        if any(name not in values for name in self.names):
            return True
        return self.holds_for(*[values[name] for name in self.names])


def find_moment(interruption: str, review: str, decision: str) -> Literal["", "body", "question"]:
    """Return when a run is interrupted: in its body, or while it waits for the reviewer."""
    if interruption == "none":
        return ""
    if interruption == "kill_in_body":
        return "body"
    waits = review in ("queue", "parked") or (review == "callback" and decision == "reject")
    return "question" if interruption == "kill_while_waiting" or waits else "body"


def rule(reason: str, *names: str) -> Callable[[Callable[..., bool]], Callable[..., bool]]:
    """Add a condition on the values with these names."""

    def add(holds: Callable[..., bool]) -> Callable[..., bool]:
        Case.rules.append(Rule(reason, names, holds))
        return holds

    return add


@rule("a worker does the runs of a journal", "driver", "journal")
def _(driver: str, journal: str) -> bool:
    return journal != "none" or driver not in LASTING


@rule("a run is parked in a journal, and a paused one is not in any", "journal", "review")
def _(journal: str, review: str) -> bool:
    return review != ("parked" if journal == "none" else "pause")


@rule("a decision needs a reviewer", "review", "decision")
def _(review: str, decision: str) -> bool:
    return review != "none" or decision == "approve"


@rule("only a call that was not rejected has a body", "review", "decision", "interruption")
def _(review: str, decision: str, interruption: str) -> bool:
    return decision != "reject" or find_moment(interruption, review, decision) != "body"


@rule("only a process that is there while the run waits can be killed", "driver", "review", "interruption")
def _(driver: str, review: str, interruption: str) -> bool:
    if interruption == "kill_while_waiting":
        return review in ("callback", "queue") or (review == "parked" and driver in LASTING)
    return interruption != "sigterm" or review != "parked" or driver in LASTING


@rule("only the client of a stream can leave, and a parked run's stream has ended", "driver", "review", "interruption")
def _(driver: str, review: str, interruption: str) -> bool:
    return interruption != "client_gone" or (driver in STREAMED and review != "parked")


@rule("retries are for calls that may be repeated, a ledger and a server of others for those that must not",
      "tool", "effects")  # fmt: skip
def _(tool: str, effects: str) -> bool:
    return effects == {"retries": "repeatable", "ledger": "once", "mcp": "once"}.get(tool, effects)


@rule("a paused run cannot continue inside a pipeline", "tool", "review")
def _(tool: str, review: str) -> bool:
    return tool != "pipeline" or review != "pause"


def _values(hint: Any) -> tuple[str, ...]:
    return get_args(hint)


_HINTS = get_type_hints(Case)
DIMENSIONS: dict[str, tuple[str, ...]] = {each.name: _values(_HINTS[each.name]) for each in fields(Case)}
"""The values of each field."""

TRIPLES = (
    ("journal", "review", "interruption"),
    ("driver", "journal", "review"),
    ("driver", "review", "interruption"),
    ("tool", "review", "interruption"),
)
"""The fields of which all triples are covered, and not only all pairs."""
