"""Recording and replay of the results of tools."""

from __future__ import annotations

import difflib
import json
import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from toolsemble._engine.context import ToolContext
from toolsemble._runtime.text import HIDDEN, preview
from toolsemble._schema.masking.secrets import add_secrets, mask_result, mask_value, start_masking, stop_masking
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble.testing._cassette_file import RecordedCall, read_arguments, read_cassette, record_call, write_cassette

LOGGER = logging.getLogger("toolsemble.testing")
LOGGER.addHandler(logging.NullHandler())  # a program that has not set up logging gets nothing printed

Mode = Literal["once", "record", "replay"]

_MAX_SHOWN = 200  # maximum characters of arguments in messages and comparisons


class _OpenCall(NamedTuple):
    """A call that is being recorded."""

    call: ToolCall
    place: tuple[str, str]  # the ids of the run and the call


class Cassette:
    """A recording of the results of a box's tools; during replay no tool runs and no reviewer is asked.

    Calls are matched by tool and arguments, regardless of the order of keys; the second of two equal calls gets the
    second result. Secrets are masked in the file, and a masked value matches any other. A call that was not recorded
    raises a :class:`~toolsemble.ToolConfigurationError`, which reaches the test.

    >>> import tempfile
    >>> from toolsemble import tool
    >>> @tool
    ... def roll() -> int:
    ...     return __import__("random").randrange(1_000_000)
    >>> path = Path(tempfile.mkdtemp()) / "dice.json"
    >>> first = Cassette(path).around(Toolbox([roll])).execute(ToolCall("roll"))
    >>> again = Cassette(path).around(Toolbox([roll])).execute(ToolCall("roll"))
    >>> first.result == again.result
    True
    """

    def __init__(self, path: str | os.PathLike[str], mode: Mode = "once", *, hide: Iterable[str] = ()) -> None:
        """Set the path and the mode; read the file if it is replayed.

        :param path: a JSON file, written after each recorded call; for one process at a time
        :param mode: ``"once"`` replays the file if it exists and records it otherwise, ``"record"`` always records,
            ``"replay"`` always replays
        :param hide: texts to mask in the file, such as a key that a result repeats; ``Secret`` parameters are masked
            anyway
        """
        if mode not in get_args(Mode):
            raise ToolDefinitionError(f"Cassette mode must be one of {', '.join(get_args(Mode))}, not {mode!r:.80}")
        self._path = Path(path)
        self._is_replaying = mode == "replay" or (mode == "once" and self._path.exists())
        self._hide = [hide] if isinstance(hide, str) else list(hide)
        self._lock = threading.RLock()
        self._calls = read_cassette(self._path) if self._is_replaying else []
        self._by_arguments: dict[tuple[str, str], list[int]] = {}
        for index, recorded in enumerate(self._calls):
            self._by_arguments.setdefault((recorded.tool, recorded.call.canonical), []).append(index)
        self._with_secrets = [index for index, recorded in enumerate(self._calls) if recorded.has_secrets]
        self._played: set[int] = set()
        self._open: dict[int, _OpenCall] = {}

    @property
    def is_playing(self) -> bool:
        """Whether calls are replayed; otherwise they are recorded."""
        return self._is_replaying

    @property
    def unplayed(self) -> list[ToolCall]:
        """The recorded calls that were not made, in order; empty while recording."""
        with self._lock:
            left = [each for index, each in enumerate(self._calls) if self._is_replaying and index not in self._played]
        return [each.call for each in left]

    @property
    def converted(self) -> list[str]:
        """The places of results that JSON cannot represent exactly, and that are replayed in their JSON form.

        >>> Cassette("there_is_none.json").converted
        []
        """
        with self._lock:
            found = [(recorded, place, kind) for recorded in self._calls for place, kind in recorded.converted.items()]
        return [f"{recorded.tool}: {place} ({kind})" for recorded, place, kind in found]

    def around(self, box: Toolbox) -> Toolbox:
        """Return a box of the same tools whose calls are recorded or replayed, outside of the hooks of the box."""
        return box.around(before_call=self.before_call, after_call=self.after_call)

    def before_call(self, call: ToolCall, context: ToolContext) -> ToolResult | None:
        """Return the recorded result during replay: a hook for a :class:`~toolsemble.Toolbox`."""
        with self._lock:
            if self._is_replaying:
                return self._replay(call)
            self._open[id(context)] = _OpenCall(call, (context.run_id, context.call_id))
        return None

    def after_call(self, call: ToolCall, result: ToolResult, context: ToolContext) -> None:
        """Record the result: the other hook."""
        with self._lock:
            opened = self._open.pop(id(context), None)
            around = (context.run_id, context.parent_id)
            # Sub-calls are not recorded: the enclosing call has the result.
            if opened is None or any(each.place == around for each in self._open.values()):
                return
            recorded = self._record(opened.call, result)
            self._calls.append(recorded)
            write_cassette(self._path, self._calls)
        for place, kind in recorded.converted.items():
            LOGGER.warning("The cassette '%s' has %s of %s (%s) as JSON only", self._path, place, recorded.tool, kind)

    def _record(self, call: ToolCall, result: ToolResult) -> RecordedCall:
        token = start_masking()
        try:
            add_secrets(self._hide)
            return record_call(call.name, mask_value(read_arguments(call)), mask_result(result))
        finally:
            stop_masking(token)

    def _replay(self, call: ToolCall) -> ToolResult:
        matching = list(self._by_arguments.get((call.name, call.canonical), ()))
        secret = (index for index in self._with_secrets if self._calls[index].matches(call))
        matching += [index for index in secret if index not in matching]
        for index in matching:
            if index not in self._played:
                self._played.add(index)
                return self._calls[index].result
        raise ToolConfigurationError(self._explain_missing(call, len(matching)))

    def _explain_missing(self, call: ToolCall, times: int) -> str:
        shown = _show(call.name, self._mask(call))
        again = "record it again with Cassette(path, mode='record')"
        if times:
            known = "once" if times == 1 else f"{times} times"
            return f"The cassette '{self._path}' has {shown} {known}, and this is one more; {again}"
        nearest = self._find_nearest(call)
        hint = "it is empty" if nearest is None else f"the nearest is {_show(nearest.tool, nearest.arguments)}"
        return f"The cassette '{self._path}' has no {shown}; {hint}; {again}"

    def _find_nearest(self, call: ToolCall) -> RecordedCall | None:
        text = call.canonical[:_MAX_SHOWN]

        def near(recorded: RecordedCall) -> tuple[float, float]:
            other = recorded.call.canonical[:_MAX_SHOWN]
            names = difflib.SequenceMatcher(None, recorded.tool, call.name[:_MAX_SHOWN]).ratio()
            return names, difflib.SequenceMatcher(None, other, text).ratio()

        return max(self._calls, key=near, default=None)

    def _mask(self, call: ToolCall) -> Any:
        """Return the arguments of a call, masked where those of another call of the tool are masked."""
        arguments = read_arguments(call)
        if not isinstance(arguments, dict):
            return arguments
        hidden = {
            key
            for recorded in self._calls
            if recorded.tool == call.name and isinstance(recorded.arguments, dict)
            for key, each in recorded.arguments.items()
            if HIDDEN in json.dumps(each)
        }
        return {key: HIDDEN if key in hidden else each for key, each in arguments.items()}


def _show(tool: str, arguments: Any) -> str:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"{preview(tool, _MAX_SHOWN)}({preview(text, _MAX_SHOWN)})"
