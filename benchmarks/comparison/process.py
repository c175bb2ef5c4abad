"""A participant's process, as the driver sees it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Self

WORKER = Path(__file__).parent.parent / "worker.py"
PATIENCE = 300
"""Seconds after which a worker that does not answer is ended."""
QUIET = {
    "AGNO_TELEMETRY": "false",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
}
"""No library calls home during a benchmark."""
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | QUIET
"""Everybody may keep compiled bytecode, as users have it: where it is not kept, an import would compile each time."""


class WorkerError(Exception):
    """A participant cannot do its part; the message says why."""


class Worker:
    """A process that is asked one thing at a time."""

    def __init__(self, module: str, python: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own code
            [python, str(WORKER), module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=ENVIRONMENT,
        )

    def ask(self, *question: object) -> dict[str, object]:
        """Return the answer, or refuse with `WorkerError`."""
        patience = threading.Timer(PATIENCE, self._process.kill)
        patience.start()
        try:
            answer = json.loads(self._said(question) or '{"error": "the process ended without an answer"}')
        finally:
            patience.cancel()
        if "error" in answer:
            raise WorkerError(str(answer["error"]).splitlines()[0])
        return answer

    @property
    def alive(self) -> bool:
        """Whether it can be asked again."""
        return self._process.poll() is None

    def _said(self, question: tuple[object, ...]) -> str:
        """Return the next line of output, empty from a process that has ended."""
        with contextlib.suppress(BrokenPipeError):  # it may have said why before it ended
            print(json.dumps(question), file=self._process.stdin, flush=True)
        return self._process.stdout.readline()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()


def imported(python: str, statements: str) -> float:
    """Return the seconds of imports, and what else there is to run, in a fresh process."""
    code = f"import time; t = time.perf_counter()\n{statements}\nprint(time.perf_counter() - t)"
    run = subprocess.run(  # noqa: S603 - our own code
        [python, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT, timeout=PATIENCE
    )
    return float(run.stdout.split()[-1])
