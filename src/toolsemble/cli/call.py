"""The command that calls a tool by hand, on the same path as a model's calls."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from toolsemble.agent.result import ToolCallRecord
from toolsemble.call import ToolCall, ToolReply, new_id
from toolsemble.cli.approval import reviewer
from toolsemble.cli.exit_codes import Exit
from toolsemble.cli.json_output import json_line, written_record
from toolsemble.cli.redirect import aside
from toolsemble.cli.screen import Screen
from toolsemble.cli.targets import toolbox_of
from toolsemble.cli.visible import progress_line
from toolsemble.context import ToolContext, enter, leave
from toolsemble.errors import ToolDefinitionError
from toolsemble.events import CallProgress, ReviewDecided, ReviewRequested
from toolsemble.observers.watchers import unwatch, watch
from toolsemble.review import ExitEarly, ReviewHandler
from toolsemble.toolbox.toolbox import Toolbox

_PAIR = re.compile(r"([^\W\d][\w.-]*)=(.*)", re.DOTALL)


def call(target: str, words: Sequence[str], approve: str, screen: Screen, *, as_json: bool) -> Exit:
    """Call one tool and write its reply."""
    box = toolbox_of([target])
    if len(box) != 1:
        names = ", ".join(box.names)
        raise ToolDefinitionError(f"{target!r:.80} has several tools; name one of them, as {target}:NAME: {names}")
    started, watcher = time.monotonic(), _Watcher(screen)
    reply = _replied(box, ToolCall(box.names[0], _arguments(box, words), new_id()), reviewer(approve, screen), watcher)
    screen.clear_status()
    if as_json:
        screen.write(json_line(written_record(ToolCallRecord(reply.call, reply, time.monotonic() - started))))
    else:
        screen.answer(reply.text.removesuffix("\n"))
        for content in reply.result.contents:
            screen.tell(screen.err.painted("dim", f"and a {type(content).__name__}, which only programs can get"))
    if not reply.is_error:
        return Exit.DONE
    return Exit.STOPPED if watcher.refused else Exit.FAILED


class _Watcher:
    """Shows how far the call has come, and takes down what reviewers say."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._asked: set[str] = set()

    @property
    def refused(self) -> bool:
        """Whether there was a question that nobody agreed to; one that is interrupted has no decision."""
        return bool(self._asked)

    def __call__(self, event: object) -> None:
        if isinstance(event, CallProgress):
            self._screen.status(progress_line(event.fraction, event.message))
        elif isinstance(event, ReviewRequested):
            self._asked.add(event.request.id)
        elif isinstance(event, ReviewDecided) and not isinstance(event.decision, ExitEarly):
            self._asked.discard(event.request.id)


def _replied(box: Toolbox, asked: ToolCall, review: ReviewHandler, watcher: _Watcher) -> ToolReply:
    """Execute the call; the toolbox's own reviewer, if somebody gave it one, stands above ours."""
    inside, watching = enter(ToolContext(review=review)), watch(watcher)
    try:
        with aside():
            return box.execute(asked, run_id=new_id())
    finally:
        unwatch(watching)
        leave(inside)


def _arguments(box: Toolbox, words: Sequence[str]) -> str | dict[str, Any]:
    """Give what was written as arguments: JSON, pairs, or the text of a tool that takes one text."""
    if list(words) == ["-"]:
        return sys.stdin.read()
    if not words or words[0].lstrip().startswith("{"):
        return " ".join(words)
    properties = (box.specifications[0].parameters or {}).get("properties", {})
    pairs = [_PAIR.fullmatch(word) for word in words]
    # Text stays text: what a parameter is to be, the path knows best.
    written = {pair[1]: pair[2] for pair in pairs if pair is not None}
    if None not in pairs and (written.keys() & properties.keys() or not _takes_text(properties)):
        _check_once([pair[1] for pair in pairs if pair is not None])
        return written
    if _takes_text(properties):
        return {next(iter(properties)): " ".join(words)}
    raise ToolDefinitionError(
        f"Arguments are JSON text or pairs such as {next(iter(properties), 'name')}=value, not {' '.join(words)!r:.80}"
    )


def _check_once(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ToolDefinitionError(f"{name!r:.80} is given {names.count(name)} times; give it once, or write JSON")


def _takes_text(properties: Mapping[str, Any]) -> bool:
    """Whether a tool has one parameter, and it is a text."""
    return [each.get("type") for each in properties.values()] == ["string"]
