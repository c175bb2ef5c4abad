"""The commands ``models``, ``models pull`` and ``models serve``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from toolsemble._cli.json_output import json_line
from toolsemble._cli.options import Exit
from toolsemble._cli.screen import Screen
from toolsemble._cli.table import show_table
from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.text import escape_line

_MEGABYTE = 1_000_000
_SPEED = 10 * _MEGABYTE


def offers(screen: Screen, *, as_json: bool) -> Exit:
    """Show which models are available, and why others are not."""
    from toolsemble.models import _environment as environment

    found = environment.offers()
    if as_json:
        for offer in found:
            screen.write(json_line({"name": offer.name, "available": offer.available, "why": offer.why}))
    else:
        rows = [[offer.name, "yes" if offer.available else "no", offer.why] for offer in found]
        show_table(screen, ["model", "available", "why"], rows)
    return Exit.DONE


def pull(name: str | None, screen: Screen) -> Exit:
    """Download the weights of an embedded model into the cache, and write their path."""
    screen.answer(str(_pull_weights(name, screen)))
    return Exit.DONE


def serve(name: str | None, host: str, port: int, api_key: str | None, screen: Screen) -> Exit:
    """Run llama.cpp's own server with an embedded model, until Ctrl-C."""
    from toolsemble.models._local.embedded_server import serve as start_server

    with start_server(_pull_weights(name, screen), host=host, port=port, api_key=api_key) as server:
        screen.answer(server.base_url)
        key = "" if api_key else f"The API key is {escape_line(server.api_key)}; "
        screen.report(f"{key}Ctrl-C stops the server.")
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    return Exit.DONE


def _pull_weights(name: str | None, screen: Screen) -> Path:
    """Return an embedded model's file; show its size and license before a download."""
    from toolsemble import weights

    found: Path | None = weights.located(name)
    if found is not None:
        return found
    entry = weights.entry(name)
    screen.report(
        f"{escape_line(entry.name)}: {_to_megabytes(entry.size)} to download, about {entry.size / _SPEED / 60:.0f} min "
        f"at {_to_megabytes(_SPEED)}/s; {_to_megabytes(entry.memory)} of memory when running, "
        f"license {escape_line(entry.license)}"
    )
    screen.report(f"What to expect: {escape_line(entry.note)}")
    with _progress(screen) as progress:
        path: Path = weights.pull(name, progress=progress)
    return path


@contextmanager
def _progress(screen: Screen) -> Iterator[Callable[[Any], None]]:
    """Yield a progress callback: a progress bar on a terminal, else a line for each phase."""
    if not screen.err.can_overwrite:
        yield _PhasePrinter(screen).update
        return
    progress, console = (
        import_extra(f"rich.{name}", extra="cli", user="A progress bar") for name in ("progress", "console")
    )
    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    terminal = console.Console(stderr=True, no_color=not screen.err.colors, highlight=False)
    with progress.Progress(*columns, console=terminal, transient=True) as bar:
        task = bar.add_task("looking", total=None)

        def update(event: Any) -> None:
            bar.update(task, description=_format_phase(event), completed=event.done, total=event.total or None)

        yield update


class _PhasePrinter:
    """A progress callback that writes a line for each new phase."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._last = ""

    def update(self, event: Any) -> None:
        """Write the phase if it is new."""
        phase = _format_phase(event)
        if phase != self._last:
            self._last = phase
            self._screen.report(phase)


def _format_phase(event: Any) -> str:
    return escape_line(f"{event.phase} ({event.source})" if event.source else event.phase, 60)


def _to_megabytes(count: int) -> str:
    return f"{count / _MEGABYTE:,.0f} MB"
