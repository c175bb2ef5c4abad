"""The command ``call``, which executes a tool call as a model would make it."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from toolsemble._cli.json_output import json_line, record_to_json
from toolsemble._cli.options import Exit
from toolsemble._cli.screen import Screen, format_progress, make_reviewer, redirect_prints
from toolsemble._cli.targets import PREFIX, load_deps, load_toolbox
from toolsemble._engine.context import ToolContext, enter, leave
from toolsemble._runtime.event_loops import finish
from toolsemble._runtime.watchers import unwatch, watch
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolCall, ToolReply, new_id, new_run_id
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.agent._deps import DepsMaker
from toolsemble.agent._result import ToolCallRecord
from toolsemble.agent._run.start import call_with_deps
from toolsemble.events import CallProgress, ReviewDecided, ReviewRequested
from toolsemble.review import ExitEarly, ReviewHandler

_PAIR = re.compile(r"([^\W\d][\w.-]*)=(.*)", re.DOTALL)


def call(
    target: str,
    words: Sequence[str],
    screen: Screen,
    *,
    approve: str,
    as_json: bool,
    deps: str | None = None,
    memory_id: str | None = None,
) -> Exit:
    """Call one tool and write its reply."""
    box, words = _select_tool(target, load_toolbox([target]), words)
    execute = partial(_execute, box, ToolCall(box.names[0], _arguments(box, words), new_id()), memory_id)
    given, started, watcher = load_deps(deps), time.monotonic(), _Watcher(screen)
    reply = execute(given, make_reviewer(approve, screen), watcher)
    screen.clear_status()
    if as_json:
        screen.write(json_line(record_to_json(ToolCallRecord(reply.call, reply, time.monotonic() - started))))
    else:
        screen.answer(reply.text.removesuffix("\n"))
        for content in reply.result.contents:
            screen.report(
                screen.err.paint("dim", f"and a {type(content).__name__}, which is available to programs only")
            )
    if not reply.is_error:
        return Exit.DONE
    return Exit.STOPPED if watcher.is_rejected else Exit.FAILED


def _select_tool(target: str, box: Toolbox, words: Sequence[str]) -> tuple[Toolbox, Sequence[str]]:
    """Return the tool to call and its arguments; an MCP server's tool is named after the target."""
    is_server = target.startswith(PREFIX)
    if is_server and words and words[0] in box:
        return Toolbox([box[words[0]]]), words[1:]
    if len(box) != 1:
        how = "after it" if is_server else f"as {target}:NAME"
        names = ", ".join(box.names)
        raise ToolDefinitionError(f"{target!r:.80} has several tools; name one of them, {how}: {names}")
    return box, words


class _Watcher:
    """An observer of the call that shows its progress and records whether a reviewer rejected it."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._undecided: set[str] = set()

    @property
    def is_rejected(self) -> bool:
        """Whether a review request was rejected or not decided."""
        return bool(self._undecided)

    def __call__(self, event: object) -> None:
        if isinstance(event, CallProgress):
            self._screen.show_status(format_progress(event.fraction, event.message))
        elif isinstance(event, ReviewRequested):
            self._undecided.add(event.request.id)
        elif isinstance(event, ReviewDecided) and not isinstance(event.decision, ExitEarly):
            self._undecided.discard(event.request.id)


def _execute(
    box: Toolbox, call: ToolCall, memory_id: str | None, deps: Any, review: ReviewHandler, watcher: _Watcher
) -> ToolReply:
    """Execute the call; the toolbox's own reviewer, if it has one, takes precedence."""
    inside, watching, run_id = enter(ToolContext(review=review)), watch(watcher), new_run_id()
    try:
        with redirect_prints():
            if not isinstance(deps, DepsMaker):
                return box.execute(call, run_id=run_id, memory_id=memory_id, deps=deps)
            execute = lambda made: box.aexecute(call, run_id=run_id, memory_id=memory_id, deps=made)  # noqa: E731 - short
            return finish(call_with_deps(deps, run_id, memory_id or ToolContext.memory_id, execute))
    finally:
        unwatch(watching)
        leave(inside)


def _arguments(box: Toolbox, words: Sequence[str]) -> str | dict[str, Any]:
    """Return the arguments: JSON text, a dict of pairs, or the text for a tool with one str parameter."""
    if list(words) == ["-"]:
        return sys.stdin.read()
    if not words or words[0].lstrip().startswith("{"):
        return " ".join(words)
    properties = (box.specifications[0].parameters or {}).get("properties", {})
    pairs = [_PAIR.fullmatch(word) for word in words]
    # Values stay str: reading arguments coerces them to the declared types.
    values = {pair[1]: pair[2] for pair in pairs if pair is not None}
    if None not in pairs and (values.keys() & properties.keys() or not _takes_text(properties)):
        _check_unique([pair[1] for pair in pairs if pair is not None])
        return values
    if _takes_text(properties):
        return {next(iter(properties)): " ".join(words)}
    raise ToolDefinitionError(
        f"Arguments are JSON text or pairs such as {next(iter(properties), 'name')}=value, not {' '.join(words)!r:.80}"
    )


def _check_unique(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ToolDefinitionError(f"duplicate argument {name!r:.80}; give it once, or write JSON")


def _takes_text(properties: Mapping[str, Any]) -> bool:
    """Return whether a tool has exactly one parameter, of type str."""
    return [each.get("type") for each in properties.values()] == ["string"]
