"""The commands about models: which there are here, and the embedded one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from toolsemble.cli.exit_codes import Exit
from toolsemble.cli.json_output import json_line
from toolsemble.cli.screen import Screen
from toolsemble.cli.table import show_table
from toolsemble.cli.visible import one_line
from toolsemble.runtime.extras import import_extra

_MEGABYTE = 1_000_000
_FAST = 10 * _MEGABYTE


def offers(screen: Screen, *, as_json: bool) -> Exit:
    """Show which models can be used here, and why others cannot."""
    from toolsemble.models import environment  # noqa: PLC0415 - looking around takes its time

    found = environment.offers()
    if as_json:
        for offer in found:
            screen.write(json_line({"name": offer.name, "available": offer.available, "why": offer.why}))
    else:
        rows = [[offer.name, "yes" if offer.available else "no", offer.why] for offer in found]
        show_table(screen, ["model", "available", "why"], rows)
    return Exit.DONE


def pull(name: str | None, screen: Screen) -> Exit:
    """Put the weights of an embedded model into the cache, and write where they are."""
    screen.answer(str(_pulled(name, screen)))
    return Exit.DONE


def serve(name: str | None, host: str, port: int, api_key: str | None, screen: Screen) -> Exit:
    """Run llama.cpp's own server with an embedded model, until Ctrl-C."""
    from toolsemble.local.serve import serve as served  # noqa: PLC0415 - only this command needs the runtime

    with served(_pulled(name, screen), host=host, port=port, api_key=api_key) as server:
        screen.answer(server.base_url)
        key = "" if api_key else f"The API key is {one_line(server.api_key)}; "
        screen.tell(f"{key}Ctrl-C stops the server.")
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    return Exit.DONE


def _pulled(name: str | None, screen: Screen) -> Path:
    """Give the file of an embedded model; say what there is to know before a long download."""
    from toolsemble import weights  # noqa: PLC0415 - as above

    found: Path | None = weights.located(name)
    if found is not None:
        return found
    entry = weights.entry(name)
    screen.tell(
        f"{one_line(entry.name)}: {_megabytes(entry.size)} to download once, about {entry.size / _FAST / 60:.0f} min "
        f"at {_megabytes(_FAST)}/s; {_megabytes(entry.memory)} of memory at work, license {one_line(entry.license)}"
    )
    screen.tell(f"What to expect: {one_line(entry.note)}")
    with _progress(screen) as progress:
        path: Path = weights.pull(name, progress=progress)
    return path


@contextmanager
def _progress(screen: Screen) -> Iterator[Callable[[Any], None]]:
    """Give what is told how far a download has come: a bar on a terminal, else a line for each new phase."""
    if not screen.err.moves:
        yield _Phases(screen).told
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
    pane = console.Console(stderr=True, no_color=not screen.err.colors, highlight=False)
    with progress.Progress(*columns, console=pane, transient=True) as bar:
        task = bar.add_task("looking", total=None)

        def told(event: Any) -> None:
            bar.update(task, description=_phase(event), completed=event.done, total=event.total or None)

        yield told


class _Phases:
    """Tells of each new phase, once."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._last = ""

    def told(self, event: Any) -> None:
        """Take how far it has come."""
        phase = _phase(event)
        if phase != self._last:
            self._last = phase
            self._screen.tell(phase)


def _phase(event: Any) -> str:
    return one_line(f"{event.phase} ({event.source})" if event.source else event.phase, 60)


def _megabytes(count: int) -> str:
    return f"{count / _MEGABYTE:,.0f} MB"
