"""Draw recall against false offers as an SVG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 170, 24, 48
COLORS = ("#0b6e4f", "#c1440e", "#3a5ba0", "#7a7a7a")


def draw_curve(curves: Mapping[str, Sequence[float]], most: int, chosen: tuple[int, float]) -> str:
    """Return the picture.

    :param curves: for each search, the recall at each number of false offers
    :param most: the number of unserved questions
    :param chosen: the false offers and the recall of the floor that catalogs have
    """

    def x(offers: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * offers / most

    def y(recall: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * recall

    parts = [
        _text(x(most / 2), HEIGHT - 10, f"false offers of {most}", "middle"),
        _text(8, TOP - 10, "questions whose tool is one of five", "start"),
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts += [
            _line(LEFT, y(share), x(most), y(share), "#dddddd"),
            _text(LEFT - 8, y(share) + 4, f"{share:.0%}", "end"),
        ]
        parts += [_text(x(most * share), HEIGHT - BOTTOM + 18, f"{most * share:.0f}", "middle")]
    for (name, curve), color in zip(curves.items(), COLORS, strict=True):
        points = " ".join(f"{x(offers):.1f},{y(recall):.1f}" for offers, recall in enumerate(curve))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.append(_text(x(most) + 8, y(curve[-1]) + 4, f"{name}", "start", color))
    parts.append(f'<circle cx="{x(chosen[0]):.1f}" cy="{y(chosen[1]):.1f}" r="5" fill="{COLORS[0]}"/>')
    parts.append(_text(x(chosen[0]) + 8, y(chosen[1]) - 14, "the floor of catalogs", "start", COLORS[0]))
    return _picture(parts)


def _picture(parts: Sequence[str]) -> str:
    settings = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title description"'
    described = (
        "For each search, the share of questions whose tools are among the five that are found, against the number of "
        "unserved questions for which something is found."
    )
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {settings} font-family="sans-serif" font-size="12">',
        '<title id="title">Recall against false offers</title>',
        f'<desc id="description">{described}</desc>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    return "\n".join([*head, *parts, "</svg>\n"])


def _line(x1: float, y1: float, x2: float, y2: float, color: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"/>'


def _text(x: float, y: float, text: str, anchor: str, color: str = "#333333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">{escape(text)}</text>'
