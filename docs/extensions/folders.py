"""The contents of folders: the pages beside an `index.md`, in the order in which it links to them.

So the pages stay plain Markdown, and the navigation cannot differ from what readers of the index see. A page that its
index does not link to is in no table of contents, and Sphinx says so.
"""

import re

from sphinx.application import Sphinx

_PAGE_BESIDE = re.compile(r"\]\(([\w-]+)\.md\)")


def setup(app: Sphinx) -> dict[str, bool]:
    """Have the index of each folder read with its contents."""
    app.connect("source-read", _with_contents)
    return {"parallel_read_safe": True}


def _with_contents(_app: Sphinx, page: str, source: list[str]) -> None:
    if page.endswith("/index"):
        pages = dict.fromkeys(_PAGE_BESIDE.findall(source[0]))
        source[0] += "\n".join(["", "```{toctree}", ":hidden:", "", *pages, "```", ""])
