"""The command line: ``toolsemble``.

Nothing is loaded here but what the command at hand needs: the program answers at once, also where it is asked for help.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

_MISUSED = 2
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Give the exit code of a command, once it is done; see ``docs/cli.md`` for what each code says.

    :param argv: the words after the program's name; those of this process by default

    >>> main(["version"])  # doctest: +ELLIPSIS
    toolsemble ...
    0
    """
    with _streams():
        try:
            from toolsemble.cli.app import run  # noqa: PLC0415 - it may not be there, and that is said in words
        except ModuleNotFoundError as problem:
            if problem.name != "click":
                raise
            sys.stderr.write("toolsemble: the command line needs the package 'click': pip install 'toolsemble[cli]'\n")
            return _MISUSED
        return run(sys.argv[1:] if argv is None else list(argv))


def program(leave: Callable[[int], object] = os._exit) -> None:
    """Do what the command line of this process says, and end the process.

    :param leave: ends the process without waiting for anybody
    """
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # one byte that is no text must not end a conversation
    try:
        code = main()
    except KeyboardInterrupt:  # before there was a command that could take notice of it
        code = _INTERRUPTED
    if code == _INTERRUPTED and _busy():
        # A tool that cannot be interrupted works on in its thread; the person has asked for an end.
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        leave(code)
    sys.exit(code)


@contextmanager
def _streams() -> Iterator[None]:
    """Put an empty stream in the place of each that the process was started without."""
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    with ExitStack() as opened:
        for name in closed:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, opened.enter_context(open(os.devnull, mode, encoding="utf-8")))  # noqa: PTH123 - quick
        try:
            yield
        finally:
            for name in closed:
                setattr(sys, name, None)


def _busy() -> bool:
    """Whether a thread is at work that the interpreter would wait for."""
    return any(not each.daemon for each in threading.enumerate() if each is not threading.main_thread())
