"""Whether every link of the built site leads somewhere, and nothing is loaded from elsewhere: `links.py build/docs`."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
_NAMED_BY_ADDRESS = {"canonical", "next", "prev", "search", "index", "author"}  # <link rel=…> that loads nothing
_SCHEMES = {"https", "http", "mailto"}


class Page(HTMLParser):
    """What a page links to, loads, and can be linked to at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take down the attributes of a tag."""
        given = {name: value or "" for name, value in attrs}
        self.ids.update(given[name] for name in ("id", "name") if name in given)
        for name in ("href", "src"):
            if name not in given:
                continue
            self.links.append(given[name])
            if (tag, name) in _LOADED and given.get("rel") not in _NAMED_BY_ADDRESS:
                self.loaded.append(given[name])


def problems(site: Path) -> list[str]:
    """Return a line for each link that leads nowhere, and for each thing that would be loaded from elsewhere."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        found += [f"{path}: loads {link}" for link in page.loaded if urlsplit(link).netloc]
        found += [f"{path}: {link}: {problem}" for link in page.links if (problem := _problem(link, path, pages))]
    return found


def _problem(link: str, path: Path, pages: dict[Path, Page]) -> str:
    try:
        parts = urlsplit(link)
    except ValueError as error:
        return str(error)
    if parts.scheme or parts.netloc:
        well_formed = parts.scheme in _SCHEMES and (parts.netloc or parts.scheme == "mailto") and " " not in link
        return "" if well_formed else "is no address of the web"
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
    if not target.is_file():
        return "there is no such file"
    page = pages.get(target)
    if parts.fragment and page and unquote(parts.fragment) not in page.ids:
        return "there is no such place in the page"
    return ""


if __name__ == "__main__":
    lines = problems(Path(sys.argv[1]).resolve())
    print(*lines, sep="\n", end="\n" if lines else "")
    sys.exit(bool(lines))
