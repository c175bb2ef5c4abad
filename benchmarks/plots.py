"""Draw the findings: bars of what libraries take, and lines of growth; the same findings give the same files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cells import seconds, times
from findings import HERE, OWN, PEERS, Own, Peers, read
from versus import OURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FOLDER = HERE / "plots"
INK, FAINT, GRID = "#1f2937", "#6b7280", "#e5e7eb"
HIGHLIGHT, PLAIN = "#2563eb", "#cbd5e1"
LINES = ("#2563eb", "#ea580c", "#059669", "#9333ea", "#64748b")
STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": GRID,
    "axes.labelcolor": FAINT,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that every machine lays out the same
    "font.size": 11,
    "grid.color": GRID,
    "svg.fonttype": "none",
    "svg.hashsalt": "toolsemble",
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": INK,
    "ytick.major.size": 0,
}
FONTS = "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
"""What readers see; narrower than what was laid out, so that everything fits."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture."""

    name: str
    """The name of its file."""
    title: str
    """What stands above it."""
    figure: str = ""
    """The key of the figure that its bars show; empty for growth."""


@dataclass(frozen=True, slots=True)
class Bar:
    """What one library takes."""

    name: str
    """Whose bar it is."""
    seconds: float
    """How long it is."""
    ratio: float
    """How many times toolsemble's it is."""

    @property
    def label(self) -> str:
        """What stands at its end."""
        return seconds(self.seconds) if self.name == OURS else f"{seconds(self.seconds)}  ·  {times(self.ratio)}"


PLOTS = {
    plot.name: plot
    for plot in (
        Plot("call", "A call, from JSON text to reply text", "call"),
        Plot("agent", "A turn of an agent, with a scripted model", "agent"),
        Plot("import", "Cold import", "import"),
        Plot("growth", "Growth: the time of each, among n"),
    )
}


def bars(own: Own, peers: Peers | None, figure: str) -> list[Bar]:
    """Return the libraries' bars, the shortest first; only ours and the floor's where no library was compared."""
    if peers is not None:
        found = [(each["name"], each["figures"].get(figure)) for each in peers["libraries"]]
        made = [Bar(name, each["seconds"], each["ratio"]) for name, each in found if each]
    else:
        row = next(row for row in own["rows"] if row["figure"] == figure)
        made = [Bar(OURS, row["ours"], 1), Bar(row["against"].replace("`", ""), row["other"], 1 / row["ratio"])]
    return sorted(made, key=lambda bar: bar.seconds)


def draw(own: Own, peers: Peers | None, folder: Path, *, ending: str = "svg") -> list[Path]:
    """Draw every picture that there are findings for, and give the files."""
    folder.mkdir(exist_ok=True)
    return [_drawn(plot, own, peers, folder / f"{plot.name}.{ending}") for plot in PLOTS.values()]


def _drawn(plot: Plot, own: Own, peers: Peers | None, path: Path) -> Path:
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        chosen = bars(own, peers, plot.figure) if plot.figure else []
        figure, axes = _canvas(plot.title, 1.5 + 0.33 * len(chosen) if plot.figure else 5.2)
        if plot.figure:
            _draw_bars(axes, chosen)
        else:
            _draw_growth(axes, own)
        _save(figure, path)
    return path


def _canvas(title: str, height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    padding = ConstrainedLayoutEngine(w_pad=0.14, h_pad=0.12)
    figure = Figure(figsize=(8.33, height), facecolor="white", layout=padding)
    figure.suptitle(title, x=0.017, ha="left", fontsize=14, fontweight="bold")
    return figure, figure.add_subplot()


def _draw_bars(axes: Axes, chosen: list[Bar]) -> None:
    names, taken = [bar.name for bar in chosen], [bar.seconds for bar in chosen]
    colors = [HIGHLIGHT if bar.name == OURS else PLAIN for bar in chosen]
    drawn = axes.barh(names, taken, color=colors, height=0.72)
    axes.bar_label(drawn, [bar.label for bar in chosen], padding=6, color=INK, fontsize=10)
    axes.set(xscale="log", xlim=(min(taken) / 4, max(taken) * 12), ylim=(len(chosen) - 0.4, -0.6))
    axes.set(xlabel="time (log scale), and how many times toolsemble's")
    axes.xaxis.set_major_formatter(_ticks())
    axes.xaxis.grid(visible=True)
    axes.minorticks_off()
    for label in axes.get_yticklabels():
        if label.get_text() == OURS:
            label.set(fontweight="bold", color=HIGHLIGHT)


def _draw_growth(axes: Axes, own: Own) -> None:
    for color, growth in zip(cycle(LINES), own["growth"], strict=False):
        sizes, each = zip(*growth["points"], strict=True)
        axes.plot(sizes, each, color=color, marker="o", linewidth=2, label=growth["what"])
    taken = [each for growth in own["growth"] for _, each in growth["points"]]
    axes.set(xscale="log", yscale="log", ylim=(min(taken) / 3, max(taken) * 3))
    axes.set(xlabel="n, both axes on a log scale: a level line is linear growth")
    axes.xaxis.set_major_formatter(lambda size, _: f"{size:,.0f}")
    axes.yaxis.set_major_formatter(_ticks())
    axes.grid(visible=True)
    axes.minorticks_off()
    axes.figure.legend(loc="outside lower left", ncols=2, frameon=False, fontsize=10)


def _ticks() -> Callable[[float, float], str]:
    return lambda taken, _: seconds(taken).replace(".00", "").replace(".0", "")


def _save(figure: Figure, path: Path) -> None:
    dateless = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(path, metadata=dateless, dpi=96)
    if path.suffix == ".svg":
        path.write_text(_finished(path.read_text(encoding="utf-8")), encoding="utf-8")


def _finished(drawing: str) -> str:
    """Return the drawing with the fonts of its readers, and without blanks at the ends of lines."""
    named = drawing.replace("'DejaVu Sans'", FONTS)
    return "\n".join(line.rstrip() for line in named.splitlines()) + "\n"


def main() -> None:
    """Draw what there is."""
    own = read(OWN)
    if own is None:
        raise SystemExit(f"There are no findings in {OWN}; run: make bench")
    draw(own, read(PEERS), FOLDER)


if __name__ == "__main__":
    main()
