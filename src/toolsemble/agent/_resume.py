"""Resuming a paused run: its decisions, each bound to one call with its arguments, and what the run continues with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from toolsemble._tools.toolbox.decided_calls import replace_reviewer
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolReply
from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.agent._loop_detector import LoopDetector
from toolsemble.agent._pause_point import is_inside_agent_tool
from toolsemble.agent._result import PausedRun
from toolsemble.agent._state import RunState
from toolsemble.models._message import AssistantMessage, Message, ToolMessage
from toolsemble.review._decided import DecidedReview
from toolsemble.review._decision import Continue, Edit, ExitEarly, ReviewDecision

_OWN = ("history", "run_id", "memory_id")


class Resumption(NamedTuple):
    """A paused run, and the decisions about its calls."""

    paused: PausedRun
    decisions: Mapping[str, ReviewDecision]
    """By the ids of the requests; a call without a decision goes on waiting."""

    def decide_in(self, box: Toolbox) -> Toolbox:
        """Return a toolbox that gives the decisions to the calls that wait for them, and to no other calls."""
        decided = [each for each in self.paused.pending if each.id in self.decisions and not each.path]
        review = DecidedReview((each.request, self.decisions[each.id]) for each in decided)
        begun = {each.call_id: each.name for each in self.paused.inner}
        return replace_reviewer(box, {*begun.values(), *(each.call.name for each in decided)}, review, begun)


def read_resumption(paused: PausedRun, own: dict[str, Any]) -> Resumption:
    """Return what to resume; put the settings that the paused run has into those of the run.

    :param own: the settings of the run that its agent does not have
    """
    for name in _OWN:
        if own.get(name) is not None:
            raise TypeError(f"A paused run has its own {name}; remove {name}=")
    decisions = own.pop("decisions", None)
    _check_decisions(paused, {} if decisions is None else decisions)
    own |= {"history": paused.messages, "paused": paused}
    if not is_inside_agent_tool():  # such a run has the ids of the run around it
        own |= {"run_id": paused.run_id, "memory_id": paused.memory_id}
    return Resumption(paused, dict(decisions or {}))


def _check_decisions(paused: PausedRun, decisions: Any) -> None:
    if not isinstance(decisions, Mapping):
        raise TypeError(f"The decisions of a run must be a mapping of request ids to decisions, not {decisions!r:.80}")
    known = [each.id for each in paused.pending]
    for key, decision in decisions.items():
        if key not in known:
            raise ToolConfigurationError(f"There is no open request {key!r:.80}; open are {', '.join(known)}")
        # By type, as for reviewers: the call path does not know what a subclass means.
        if type(decision) not in (Continue, Edit, ExitEarly):
            raise TypeError(
                f"The decision about request {key} must be Continue(), Edit(...) or Reject(...), not {decision!r:.80}"
            )
        if type(decision) is Edit and not isinstance(decision.revised, str):
            raise TypeError(f"The edit of request {key} must be a str, such as JSON text, not {decision.revised!r:.80}")


def repeat_turns(detector: LoopDetector, state: RunState, box: Toolbox) -> None:
    """Show the turns of a run before its pause to its detector of repetition."""
    turns = _find_turns(state.messages)
    first, calls = len(turns), len(state.records)
    while calls > 0 and first > 0:  # the turns before are those of earlier runs
        first -= 1
        calls -= len(turns[first])
    for replies in turns[first:]:
        detector.begin(len(replies))
        for reply in replies:
            detector.check(reply, exempt=box.is_polling(reply.name))


def _find_turns(messages: Iterable[Message]) -> list[list[ToolReply]]:
    """Return the replies of each turn in which the model called tools."""
    turns: list[list[ToolReply]] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            turns[-1].append(message.reply)
        elif isinstance(message, AssistantMessage):
            turns.append([])
    return [replies for replies in turns if replies]
