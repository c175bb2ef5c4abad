"""A text in a person's own editor."""

from __future__ import annotations

import atexit
import os
import shlex
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from toolsemble.review.terminal import AbandonedError, Terminal

_POLL = 0.02
_GRACE = 2.0


def find_editor() -> str:
    """Give the command of the editor that the person has chosen; empty for none."""
    return (os.environ.get("VISUAL") or os.environ.get("EDITOR") or "").strip()


def edit_text(command: str, text: str, name: str, terminal: Terminal) -> str:
    """Give the text as the editor left it in a private file; raise OSError or ValueError when that failed."""
    with TemporaryDirectory(prefix="toolsemble-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, name)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        with terminal.lend():
            _run([*shlex.split(command, posix=os.name != "nt"), str(path)], terminal)
        revised = path.read_bytes().decode("utf-8", "surrogatepass")
    # Editors end the last line; the text did not ask for it.
    return revised.removesuffix("\n") if not text.endswith("\n") else revised


def _run(command: list[str], terminal: Terminal) -> None:
    """Run an editor to its end, or to the moment when nobody waits for it."""
    source, target = terminal.streams
    with subprocess.Popen(command, stdin=source, stdout=target) as process:  # noqa: S603 - the person's own choice
        atexit.register(process.terminate)  # a program that ends without its reviewers leaves no editor behind
        try:
            while (status := _status(process, _POLL)) is None:
                if terminal.abandoned():
                    raise AbandonedError
        finally:
            process.terminate()
            if _status(process, _GRACE) is None:
                process.kill()
            atexit.unregister(process.terminate)  # at last: this thread may be cut off anywhere before
    if status:
        raise ChildProcessError(f"it ended with status {status}")


def _status(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Give the status that a process ended with; None when it runs on."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
