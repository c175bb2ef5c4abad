"""The command line: ``toolsemble``.

Nothing is loaded here but what the command at hand needs: the program answers at once, also where it is asked for help.
"""

from __future__ import annotations

import os
import sys
import threading

# Not from typing and collections: they would take longer than all the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MISUSED = 2
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Give the exit code of a command, once it is done; see ``docs/cli.md`` for what each code says.

    :param argv: the words after the program's name; those of this process by default

    >>> main(["version"])  # doctest: +ELLIPSIS
    toolsemble ...
    0
    """
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
    code = main()
    if code == _INTERRUPTED and _busy():
        # A tool that cannot be interrupted works on in its thread; the person has asked for an end.
        sys.stdout.flush()
        sys.stderr.flush()
        leave(code)
    sys.exit(code)


def _busy() -> bool:
    """Whether a thread is at work that the interpreter would wait for."""
    return any(not each.daemon for each in threading.enumerate() if each is not threading.main_thread())
