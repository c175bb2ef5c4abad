"""The check of the built site's links."""

import importlib.util
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "docs" / "links.py"


@pytest.fixture(scope="module")
def links():
    specification = importlib.util.spec_from_file_location("links", SOURCE)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("tag", "problem"),
    [
        ('<a href="other.html#there">', None),
        ('<a href="#here">', None),
        ('<a href="https://example.com/a?b=c#d">', None),
        ('<a href="mailto:ada@example.com">', None),
        ('<img src="picture%201.svg">', None),
        ('<link rel="canonical" href="https://example.com/">', None),
        ('<a href="missing.html">', "missing.html: there is no such file"),
        ('<a href="other.html#nowhere">', "other.html#nowhere: there is no such place in the page"),
        ('<a href="#nowhere">', "#nowhere: there is no such place in the page"),
        ('<a href="https://">', "https://: is no address of the web"),
        ('<a href="htps://example.com">', "htps://example.com: is no address of the web"),
        ('<a href="https://[::1">', "https://[::1: Invalid IPv6 URL"),
        ('<script src="https://cdn.example.com/a.js">', "loads https://cdn.example.com/a.js"),
        ('<link rel="stylesheet" href="//fonts.example.com/a.css">', "loads //fonts.example.com/a.css"),
    ],
)
def test_links_exist_and_pages_load_nothing_remote(links, tmp_path, tag, problem):
    (tmp_path / "other.html").write_text('<p id="there">', encoding="utf-8")
    (tmp_path / "picture 1.svg").write_text("<svg/>", encoding="utf-8")
    page = tmp_path / "page.html"
    page.write_text(f'<p id="here">{tag}', encoding="utf-8")
    assert links.problems(tmp_path)[:1] == ([] if problem is None else [f"{page}: {problem}"])
