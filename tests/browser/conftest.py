"""A real browser, and servers of the web interface for it; ``make browser`` says where the browser is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.wait import LONG, until

CHROMIUM = os.environ.get("TOOLSEMBLE_CHROMIUM", "")
SHOP = Path(__file__).parents[1] / "helpers" / "ui_shop.py"
# Without the flags, it looks for updates in the network; root cannot have its sandbox.
FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
TIMEOUT = 30_000  # milliseconds

collect_ignore_glob = [] if CHROMIUM else ["test_*.py"]


class Server:
    """The command ``toolsemble ui`` as a process, on a folder that outlives it."""

    def __init__(self, folder, *words):
        self.folder = folder
        self.words = words
        self.port = "0"
        self.process = None
        self._count = 0

    def start(self):
        """Start it, at the same port as before."""
        self._count += 1
        log = self.folder / f"server{self._count}.log"
        command = [sys.executable, "-m", "toolsemble", "ui", "--no-open", "--port", self.port, *map(str, self.words)]
        with log.open("w") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=self.folder)
        until(lambda: "Ctrl-C" in log.read_text() or self.process.poll() is not None)
        self.link = re.search(r"http://[^\s,]+", log.read_text())[0]
        self.base = self.link.partition("/login")[0]
        self.port = self.base.rpartition(":")[2]
        return self

    def kill(self):
        """End it at once."""
        self.process.kill()
        self.process.wait(LONG)

    @property
    def data(self):
        """The data folder."""
        return self.folder / ".toolsemble"


@pytest.fixture(scope="session")
def chromium():
    """The browser."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=TIMEOUT)  # a busy machine takes longer than its five seconds
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def make_server(tmp_path):
    """Start servers; all of them are ended."""
    made = []

    def make(*words, folder=tmp_path):
        made.append(Server(folder, *words))
        return made[-1].start()

    yield make
    for server in made:
        server.kill()


@pytest.fixture
def server(make_server):
    """A server with the tools of a shop."""
    return make_server(SHOP)


class Watched:
    """Pages of one browser session, and everything that should not happen in them."""

    def __init__(self, context):
        self.context = context
        self.problems = []
        self.requests = []
        context.set_default_timeout(TIMEOUT)
        context.add_init_script(
            "addEventListener('securitypolicyviolation', (event) => console.error('CSP ' + event.violatedDirective))"
        )

    def open(self):
        """Return a new page."""
        page = self.context.new_page()
        page.on("console", lambda message: self._note(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.problems.append("dialog"), dialog.dismiss()))
        page.on("request", lambda request: self.requests.append(request.url))
        return page

    def _note(self, text):
        # The browser itself reports requests that fail, and streams of a server that was killed.
        if "Failed to load resource" not in text and "net::ERR" not in text:
            self.problems.append(text)

    def foreign(self, server):
        """Return the requests to other origins."""
        return [url for url in self.requests if not url.startswith((f"{server.base}/", "data:"))]


@pytest.fixture
def new_session(chromium):
    """Make browser sessions of a size; at the end, nothing must have gone wrong in them."""
    made = []

    def make(width=1360, height=850, **settings):
        context = chromium.new_context(viewport={"width": width, "height": height}, **settings)
        made.append(Watched(context))
        return made[-1]

    yield make
    for session in made:
        session.context.close()
    assert [session.problems for session in made] == [[]] * len(made)


@pytest.fixture
def session(new_session):
    """One session."""
    return new_session()


@pytest.fixture
def page(session, server):
    """A page that is signed in by the link."""
    page = session.open()
    page.goto(server.link)
    page.locator(".frame").wait_for()
    assert "token" not in page.url
    yield page
    assert session.foreign(server) == []
