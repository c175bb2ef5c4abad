"""The style sheet: every color of a text can be read on every background, in both themes."""

import re
from pathlib import Path

import pytest

import toolsemble._ui
from helpers.columns import column

STYLE = (Path(toolsemble._ui.__file__).parent / "static" / "app.css").read_text("utf-8")
LIGHT, SYSTEM, CHOSEN = re.findall(r":root[^{@]*\{([^{}]*--bg:[^{}]*)\}", STYLE)
TEXTS = ["text", "dim", "faint", "accent", "good", "bad", "warn", "info"]
PAIRS = [
    *((text, ground) for text in TEXTS for ground in ("bg", "panel", "sunken")),
    *((text, "accent-soft") for text in ("text", "dim", "faint", "accent", "good")),
    *((kind, f"{kind}-soft") for kind in ("bad", "warn", "info")),
    ("accent", "warn-soft"),
    ("text", "added"),
    ("text", "removed"),
    ("on-accent", "accent"),
]


def read_colors(block):
    """Return the colors of a theme by name."""
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))


def measure_contrast(first, second):
    """Return the contrast of two colors as WCAG 2 defines it."""
    dark, light = sorted(map(measure_luminance, (first, second)))
    return (light + 0.05) / (dark + 0.05)


def measure_luminance(color):
    parts = (int(color[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("theme", [LIGHT, SYSTEM], ids=["light", "dark"])
def test_texts_can_be_read(theme):
    colors = read_colors(theme)
    for text, ground in PAIRS:
        with column(f"{text} on {ground}"):
            assert measure_contrast(colors[text], colors[ground]) >= 4.5


def test_the_dark_theme_is_the_same_whether_it_is_chosen_or_the_system_has_it():
    assert read_colors(SYSTEM) == read_colors(CHOSEN)
    assert read_colors(SYSTEM).keys() == read_colors(LIGHT).keys()
