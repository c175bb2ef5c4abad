"""Files of the repository as pages of the site: their links, written for there, lead to the same places here."""

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

_PARTS = re.compile(r"(^ *```.*?^ *```)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(\]\()(?!\w+:|#)([^)#\s]+)")
_PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/mcp.md": "mcp-benchmarks.md",
}


def setup(app: Sphinx) -> dict[str, bool]:
    """Have links read as the ones of the page that they stand on in the end."""
    app.connect("source-read", _read)
    app.connect("include-read", _included)
    return {"parallel_read_safe": True}


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = _moved(source[0], Path(app.srcdir, page).parent, Path(app.srcdir, page).parent, Path(app.srcdir))


def _included(app: Sphinx, path: Path, page: str, source: list[str]) -> None:
    written = Path(app.srcdir, path).resolve().parent
    source[0] = _moved(source[0], written, Path(app.srcdir, page).parent, Path(app.srcdir))


def _moved(text: str, written: Path, shown: Path, docs: Path) -> str:
    """Return a text that was written in one folder with links that work in another one."""

    def link(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(written / found[2]))
        page = _PAGES.get(target.relative_to(docs.parent).as_posix())
        path = os.path.relpath(docs / page if page else target, shown).replace(os.sep, "/")
        is_file = target.suffix == ".md" and not page and not target.is_relative_to(docs)
        return f"{found[1]}{'path:' if is_file else ''}{path}"  # a page of the repository alone is had as a file

    # Every other part is a block of code.
    return "".join(part if number % 2 else _LINK.sub(link, part) for number, part in enumerate(_PARTS.split(text)))
