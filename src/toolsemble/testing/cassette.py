"""Results of tools that are recorded once, and played again without the tools."""

from __future__ import annotations

import difflib
import json
import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from toolsemble.call import ToolCall
from toolsemble.context import ToolContext
from toolsemble.errors import ToolConfigurationError, ToolDefinitionError
from toolsemble.masking.secrets import add_secrets, mask_result, mask_value, start_masking, stop_masking
from toolsemble.result import ToolResult
from toolsemble.runtime.text import preview
from toolsemble.schema.display import HIDDEN
from toolsemble.testing.tape import Track, read_arguments, read_tape, track_of, write_tape
from toolsemble.toolbox.toolbox import Toolbox

LOGGER = logging.getLogger("toolsemble.testing")
LOGGER.addHandler(logging.NullHandler())  # a program that has not set up logging gets nothing printed

Mode = Literal["once", "record", "replay"]

_SHOWN = 200  # how much of the arguments a message shows, and two calls are compared by


class _Open(NamedTuple):
    """A call that is being recorded."""

    call: ToolCall
    place: tuple[str, str]  # the run and the call


class Cassette:
    """Records what the tools of a box give, and plays it again: no tool runs then, and no reviewer is asked.

    A call is found by its tool and its arguments, whatever the order of their keys; the second of two equal calls gets
    the second result. Secrets are hidden in the file, and any secret is then the right one. A call that is not on the
    tape is a :class:`~toolsemble.ToolConfigurationError`, which reaches the test.

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
        """Take down the path; read the file, if it is to be played.

        :param path: a JSON file, which is written after each call that is recorded; for one process at a time
        :param mode: ``"once"`` plays the file where there is one and makes it otherwise, ``"record"`` always makes it
            anew, ``"replay"`` only plays
        :param hide: texts that must not stand in the file, such as a key that a result repeats; ``Secret`` parameters
            are hidden anyway
        """
        if mode not in get_args(Mode):
            raise ToolDefinitionError(f"Cassette mode must be one of {', '.join(get_args(Mode))}, not {mode!r:.80}")
        self._path = Path(path)
        self._plays = mode == "replay" or (mode == "once" and self._path.exists())
        self._hide = [hide] if isinstance(hide, str) else list(hide)
        self._lock = threading.RLock()
        self._tracks = read_tape(self._path) if self._plays else []
        self._exact: dict[tuple[str, str], list[int]] = {}
        for index, track in enumerate(self._tracks):
            self._exact.setdefault((track.tool, track.call.canonical), []).append(index)
        self._secretive = [index for index, track in enumerate(self._tracks) if track.has_secrets]
        self._played: set[int] = set()
        self._open: dict[int, _Open] = {}

    @property
    def is_playing(self) -> bool:
        """Whether calls are answered by the tape; else they are recorded."""
        return self._plays

    @property
    def unplayed(self) -> list[ToolCall]:
        """The calls on the tape that were not made, in their order; none while it records."""
        with self._lock:
            left = [each for index, each in enumerate(self._tracks) if self._plays and index not in self._played]
        return [each.call for each in left]

    @property
    def converted(self) -> list[str]:
        """Where a result has something that JSON cannot hold as it is, and that is played in the form of JSON.

        >>> Cassette("there_is_none.json").converted
        []
        """
        with self._lock:
            found = [(track, place, kind) for track in self._tracks for place, kind in track.converted.items()]
        return [f"{track.tool}: {place} ({kind})" for track, place, kind in found]

    def around(self, box: Toolbox) -> Toolbox:
        """Give a box of the same tools whose calls are recorded or played; the hooks of the box stand inside."""
        return box.around(before_call=self.before_call, after_call=self.after_call)

    def before_call(self, call: ToolCall, context: ToolContext) -> ToolResult | None:
        """Give what the tape has, when it is played: a hook for a :class:`~toolsemble.Toolbox`."""
        with self._lock:
            if self._plays:
                return self._next(call)
            self._open[id(context)] = _Open(call, (context.run_id, context.call_id))
        return None

    def after_call(self, call: ToolCall, result: ToolResult, context: ToolContext) -> None:  # noqa: ARG002 - as it was sent
        """Record the result, when it is not played: the other hook."""
        with self._lock:
            made = self._open.pop(id(context), None)
            around = (context.run_id, context.parent_id)
            # What happens inside of a call is not played again: the call around it has the answer.
            if made is None or any(each.place == around for each in self._open.values()):
                return
            track = self._track(made.call, result)
            self._tracks.append(track)
            write_tape(self._path, self._tracks)
        for place, kind in track.converted.items():
            LOGGER.warning("The cassette '%s' has %s of %s (%s) as JSON only", self._path, place, track.tool, kind)

    def _track(self, call: ToolCall, result: ToolResult) -> Track:
        token = start_masking()
        try:
            add_secrets(self._hide)
            return track_of(call.name, mask_value(read_arguments(call)), mask_result(result))
        finally:
            stop_masking(token)

    def _next(self, call: ToolCall) -> ToolResult:
        fitting = list(self._exact.get((call.name, call.canonical), ()))
        fitting += [index for index in self._secretive if index not in fitting and self._tracks[index].fits(call)]
        for index in fitting:
            if index not in self._played:
                self._played.add(index)
                return self._tracks[index].result
        raise ToolConfigurationError(self._missing(call, len(fitting)))

    def _missing(self, call: ToolCall, times: int) -> str:
        asked = _shown(call.name, self._masked(call))
        again = "record it again with Cassette(path, mode='record')"
        if times:
            known = "once" if times == 1 else f"{times} times"
            return f"The cassette '{self._path}' has {asked} {known}, and this is one more; {again}"
        nearest = self._nearest(call)
        hint = "it is empty" if nearest is None else f"the nearest is {_shown(nearest.tool, nearest.arguments)}"
        return f"The cassette '{self._path}' has no {asked}; {hint}; {again}"

    def _nearest(self, call: ToolCall) -> Track | None:
        text = call.canonical[:_SHOWN]

        def near(track: Track) -> tuple[float, float]:
            kept = track.call.canonical[:_SHOWN]
            names = difflib.SequenceMatcher(None, track.tool, call.name[:_SHOWN]).ratio()
            return names, difflib.SequenceMatcher(None, kept, text).ratio()

        return max(self._tracks, key=near, default=None)

    def _masked(self, call: ToolCall) -> Any:
        """Give the arguments of a call without what is a secret in any other call of the tool."""
        given = read_arguments(call)
        if not isinstance(given, dict):
            return given
        hidden = {
            key
            for track in self._tracks
            if track.tool == call.name and isinstance(track.arguments, dict)
            for key, each in track.arguments.items()
            if HIDDEN in json.dumps(each)
        }
        return {key: HIDDEN if key in hidden else each for key, each in given.items()}


def _shown(tool: str, arguments: Any) -> str:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"{preview(tool, _SHOWN)}({preview(text, _SHOWN)})"
