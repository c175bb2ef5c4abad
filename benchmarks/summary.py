"""The figures in the README of the project."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cells import MISSING, memory, seconds, setting_of, table
from findings import Library, Peers

CHOSEN = ("toolsemble", "pydantic-ai", "langchain", "openai-agents", "smolagents")
ROWS: dict[str, Callable[[Library], str]] = {
    "a call, from JSON text to reply text": lambda library: _time(library, "call"),
    "a refused call, up to the text for the model": lambda library: _time(library, "refused"),
    "a turn of an agent, with a scripted model": lambda library: _time(library, "agent"),
    "200 async calls at once": lambda library: _time(library, "async_200"),
    "import of what an agent needs": lambda library: _time(library, "import"),
    "what is checked of the arguments": lambda library: _CHECKED[library["validates"]],
    "installed": lambda library: f"{memory(library['bytes'])}, {library['distributions']} distributions",
}
BEGIN, END = "<!-- measured -->\n", "<!-- end -->"
_CHECKED = {"yes": "types and bounds", "types only": "some types", "no": "nothing"}


def placed(text: str, peers: Peers | None) -> str:
    """Return the page with the figures between its marks; unchanged if there are none."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if peers is None or not (begin and end):
        return text
    return f"{before}{begin}{''.join(_summary(peers))}{end}{after}"


def _summary(peers: Peers) -> Iterator[str]:
    known = {library["name"]: library for library in peers["libraries"]}
    libraries = [known[name] for name in CHOSEN if name in known]
    rows = [(title, *(cell(library) for library in libraries)) for title, cell in ROWS.items()]
    yield table(("", *map(_named, libraries)), "l" + "r" * len(libraries), rows)
    yield f"\n{setting_of(peers)} In parentheses: the ratio to toolsemble.\n"


def _named(library: Library) -> str:
    return f"{library['name']} {library['version']}"


def _time(library: Library, key: str) -> str:
    figure = library["figures"].get(key)
    if figure is None:
        return MISSING
    beside = f" ({figure['ratio']:.1f})" if library["name"] != CHOSEN[0] else ""
    return f"{seconds(figure['seconds'])}{beside}"
