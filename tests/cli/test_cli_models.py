"""Tests of the commands about models, with fakes for discovery, downloads and the server."""

import json
import signal
import sys
import types
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

import toolsemble
from helpers.terminal import Person
from toolsemble import models
from toolsemble._cli import main

ENTRY = SimpleNamespace(
    name="tiny", file="tiny.gguf", size=600_000_000, memory=700_000_000, license="Apache-2.0", note="one call at a time"
)
PHASES = [("hub", "looking", 0, 0), ("hub", "downloading", 1, 2), ("hub", "downloading", 2, 2), ("", "checking", 2, 2)]
SAID = "tiny: 600 MB to download, about 1 min at 10 MB/s; 700 MB of memory when running, license Apache-2.0\n"


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.fixture
def replace_module(monkeypatch):
    """Put a module in the place of one."""

    def replace_module(package, name, **attributes):
        module = types.ModuleType(f"{package.__name__}.{name}")
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(package, name, module, raising=False)
        return module

    return replace_module


@pytest.fixture
def weights(replace_module):
    """Have weights that are found only after they were pulled."""
    found = []

    def pull(name, progress):
        for phase in PHASES:
            progress(SimpleNamespace(**dict(zip(("source", "phase", "done", "total"), phase, strict=True))))
        found.append(Path("/cache/tiny.gguf"))
        return found[-1]

    def located(name):
        return found[-1] if found else None

    replace_module(toolsemble, "weights", entry=lambda name: ENTRY, pull=pull, located=located)
    return found


def test_usable_models_are_listed_with_reason(replace_module, capsys):
    offers = [
        SimpleNamespace(name="openai", available=False, why="no key\x1b[2J"),
        SimpleNamespace(name="local", available=True, why="here"),
    ]
    replace_module(models, "_environment", offers=lambda: offers)
    assert main(["models"]) == 0
    assert capsys.readouterr().out == "openai\tno\tno key\\x1b[2J\nlocal\tyes\there\n"
    assert main(["models", "--json"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [vars(offer) for offer in offers]


def test_embedded_model_is_listed_last(capsys):
    assert main(["models", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["name"] == "local"


def test_existing_file_is_not_pulled(tmp_path, capsys):
    file = tmp_path / "mine.gguf"
    file.write_bytes(b"GGUF")
    assert main(["models", "pull", str(file)]) == 0
    assert capsys.readouterr() == (f"{file}\n", "")


def test_unknown_model_lists_known_models(capsys):
    assert main(["models", "pull", "medium"]) == 2
    assert capsys.readouterr().err.startswith("toolsemble: Unknown embedded model 'medium'; known: ")


def test_download_is_explained_once(weights, capsys):
    assert main(["models", "pull"]) == 0
    out, err = capsys.readouterr()
    assert out == "/cache/tiny.gguf\n"
    assert err == f"{SAID}What to expect: one call at a time\nlooking (hub)\ndownloading (hub)\nchecking\n"
    assert main(["models", "pull", "tiny"]) == 0
    assert capsys.readouterr() == ("/cache/tiny.gguf\n", "")


def test_download_shows_progress_bar_at_terminal(weights, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    person = Person()
    assert person.runs(["models", "pull"]) == 0
    assert "checking" in (person.plain() and person.seen)
    assert "\x1b[" in person.seen
    person.leaves()


@pytest.mark.parametrize(
    ("words", "expected"),
    [([], "The API key is s3cret; Ctrl-C stops the server.\n"), (["--api-key", "k"], "Ctrl-C stops the server.\n")],
)
def test_serve_runs_until_ctrl_c(weights, replace_module, monkeypatch, capsys, words, expected):
    served = []

    @contextmanager
    def serve(path, *, host, port, api_key):
        served.append((path, host, port, api_key))
        yield SimpleNamespace(base_url=f"http://{host}:{port}/v1", api_key=api_key or "s3cret")
        served.append("closed")

    replace_module(replace_module(models, "_local"), "embedded_server", serve=serve)
    weights.append(Path("/cache/tiny.gguf"))
    monkeypatch.setattr("threading.Event.wait", lambda *_: signal.raise_signal(signal.SIGINT))
    assert main(["models", "serve", "tiny", "--port", "9", *words]) == 0
    assert served == [
        (Path("/cache/tiny.gguf"), "127.0.0.1", 9, dict(zip(words[::2], words[1::2], strict=True)).get("--api-key")),
        "closed",
    ]
    assert capsys.readouterr() == ("http://127.0.0.1:9/v1\n", expected)
