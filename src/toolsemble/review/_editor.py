"""Editing of a text in the editor of the user."""

from __future__ import annotations

import atexit
import os
import shlex
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from toolsemble._runtime.terminal import AbandonedError, Terminal

_POLL = 0.02
_GRACE = 2.0


def find_editor() -> str:
    """Return the command of the editor from VISUAL or EDITOR; "" for none."""
    return (os.environ.get("VISUAL") or os.environ.get("EDITOR") or "").strip()


def edit_text(command: str, text: str, name: str, terminal: Terminal) -> str:
    """Return a text as the editor saved it in a private file; raise OSError or ValueError if that fails."""
    with TemporaryDirectory(prefix="toolsemble-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, name)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        with terminal.lend():
            _run([*shlex.split(command, posix=os.name != "nt"), str(path)], terminal)
        revised = path.read_bytes().decode("utf-8", "surrogatepass")
    # Editors add a newline at the end.
    return revised.removesuffix("\n") if not text.endswith("\n") else revised


def _run(command: list[str], terminal: Terminal) -> None:
    """Run an editor until it ends; raise AbandonedError when the request is abandoned."""
    source, target = terminal.streams
    with subprocess.Popen(command, stdin=source, stdout=target) as process:  # noqa: S603 - the user's own setting
        atexit.register(process.terminate)  # the editor must not outlive the program
        try:
            while (status := _wait(process, _POLL)) is None:
                if terminal.abandoned():
                    raise AbandonedError
        finally:
            process.terminate()
            if _wait(process, _GRACE) is None:
                process.kill()
            atexit.unregister(process.terminate)  # last: this thread may be interrupted anywhere before
    if status:
        raise ChildProcessError(f"it ended with status {status}")


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Return the exit status of a process; None if it is still running."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
