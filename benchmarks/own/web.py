"""The built-in web scraper: a page of a server on this machine, from the call to its text as Markdown."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import trafilatura

from own.measure import Comparison, Subject, once
from toolsemble import Toolbox, ToolCall
from toolsemble.builtin import WebScraperTool

PARAGRAPH = "This is a paragraph of a story that goes on for quite some while, so that nobody takes it for a menu. "


def comparisons(paragraphs: int = 100) -> Iterator[Comparison]:
    """Return the comparison of a page; the first one, for which a process is started, warms up."""
    with serve_page(write_page(paragraphs)) as url:
        box, call = Toolbox([WebScraperTool(allow_hosts=["127.0.0.1"])]), ToolCall("web_scraper", {"url": url})

        def ours() -> None:
            if PARAGRAPH.strip() not in (text := box.execute(call).text):
                raise AssertionError(f"The page is answered {text!r:.200}")

        def by_hand() -> None:
            with urllib.request.urlopen(url, timeout=60) as response:  # noqa: S310 - our own server
                trafilatura.extract(response.read().decode(), url=url, output_format="markdown", include_links=True)

        against = "`urlopen` and trafilatura in this process: nothing is checked, and nothing can be stopped"
        subject = Subject("web", "a page by `web_scraper`, after the first", against, "< 60 ms")
        yield Comparison(subject, once(ours), once(by_hand))


def write_page(paragraphs: int) -> bytes:
    """Return a page with a menu and an article."""
    menu = "".join(f'<li><a href="/{number}">Page {number}</a></li>' for number in range(20))
    text = "".join(f"<h2>Part {number}</h2><p>{PARAGRAPH}{number}</p>" for number in range(paragraphs))
    html = f"<html><head><title>Rain</title></head><body><nav><ul>{menu}</ul></nav><article>{text}</article></body>"
    return f"<!DOCTYPE html>{html}</html>".encode()


@contextmanager
def serve_page(page: bytes) -> Iterator[str]:
    """Serve a page from a thread of this process; yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
