"""The command line ``toolsemble``; each command loads only the modules that it needs, so that it starts fast."""

from __future__ import annotations

import io
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

_USAGE_ERROR = 2
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; ``docs/cli.md`` lists the codes.

    :param argv: the arguments; the default is ``sys.argv[1:]``

    >>> main(["version"])  # doctest: +ELLIPSIS
    toolsemble ...
    0
    """
    with _replace_missing_streams():
        try:
            from toolsemble._cli.app import run  # a missing extra is reported
        except ModuleNotFoundError as problem:
            if problem.name != "click":
                raise
            from toolsemble._runtime.extras import install_command

            sys.stderr.write(f"toolsemble: the command line needs the package 'click': {install_command('cli')}\n")
            return _USAGE_ERROR
        return run(sys.argv[1:] if argv is None else list(argv))


def program(leave: Callable[[int], object] = os._exit) -> None:
    """Run the command of this process, and exit.

    :param leave: exits the process without waiting for threads
    """
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # an invalid byte must not end a chat
    # There is no line in a program to show it at; `toolsemble tools` shows which tools have none.
    warnings.filterwarnings("ignore", r"Tool '.*' has no description")
    warnings.filterwarnings("ignore", r"Tool '.*' takes .* without a type")
    try:
        code = main()
    except KeyboardInterrupt:  # before the command could handle it
        code = _INTERRUPTED
    if code == _INTERRUPTED and _has_running_threads():
        # An uninterruptible tool may still be running in a thread; do not wait for it after Ctrl-C.
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        leave(code)
    sys.exit(code)


@contextmanager
def _replace_missing_streams() -> Iterator[None]:
    """Replace missing standard streams with the null device."""
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    with ExitStack() as opened:
        for name in closed:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, opened.enter_context(open(os.devnull, mode, encoding="utf-8")))  # noqa: PTH123 - pathlib is slow to import
        try:
            yield
        finally:
            for name in closed:
                setattr(sys, name, None)


def _has_running_threads() -> bool:
    """Return whether a thread is running that would delay the interpreter's exit."""
    return any(not each.daemon for each in threading.enumerate() if each is not threading.main_thread())
