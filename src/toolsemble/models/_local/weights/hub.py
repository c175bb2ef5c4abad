"""``HubSource``: the Hugging Face hub, or a mirror of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.text import preview
from toolsemble._runtime.threads import JobFuture, ThreadPerJob
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.models._local.weights.cache import file_size
from toolsemble.models._local.weights.catalogue import ProgressCallback, PullProgress, SourceError, Weights

_CHUNK = 256 * 1024
_DENIED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}


class _InterruptedError(SourceError):
    """Signals a missing or truncated response: a retry may succeed."""


class HubSource:
    """The hub, through ``huggingface_hub`` with all of the user's settings: endpoint, proxy, token, offline mode.

    The library's own download starts again from zero in a new process, and leaves the partial file of a killed one
    behind, so this class requests the missing bytes itself, at the pinned revision. An interrupted download is resumed;
    if the hub cannot be reached at all, there is no retry.

    :param endpoint: the URL of a mirror; ``HF_ENDPOINT`` by default, else the hub itself
    :param patience: the seconds to wait for a response, including name resolution and redirects, and for each chunk
    :param tries: the maximum number of consecutive retries without new bytes, after a download has started
    :param pause: the seconds before the first retry; doubled before each further one

    >>> HubSource().name
    'hub'
    """

    name = "hub"

    def __init__(
        self, *, endpoint: str | None = None, patience: float = 8.0, tries: int = 4, pause: float = 1.0
    ) -> None:
        self._endpoint = endpoint
        self._patience = patience
        self._tries = tries
        self._pause = pause

    def fetch(self, weights: Weights, target: Path, progress: ProgressCallback) -> None:
        """Download the rest of the file at ``target``."""
        try:
            import_extra("huggingface_hub", extra="local", user="The hub")
        except ToolDefinitionError as missing:
            raise SourceError(str(missing)) from missing
        start = best = file_size(target)
        idle = 0
        while file_size(target) < weights.size:
            try:
                self._resume(weights, target, progress)
            except _InterruptedError:
                idle = idle + 1 if file_size(target) <= best else 0
                best = max(best, file_size(target))
                if best == start or idle > self._tries:
                    raise
                time.sleep(self._pause * 2**idle)

    def _resume(self, weights: Weights, target: Path, progress: ProgressCallback) -> None:
        offset = file_size(target)
        with closing(self._send(weights, offset)) as response:
            offset = _read_offset(response, offset, weights.size)
            with target.open("ab" if offset else "wb") as file:
                for chunk in _chunks(response):
                    offset += len(chunk)
                    if offset > weights.size:
                        file.truncate(0)
                        raise SourceError(f"the server sent more than the {weights.size:,} bytes of the file")
                    file.write(chunk)
                    progress(PullProgress(self.name, "downloading", offset, weights.size))
        if offset < weights.size:
            raise _InterruptedError(f"the response ended after {offset:,} of {weights.size:,} bytes")

    def _send(self, weights: Weights, offset: int) -> Any:
        # The client has no overall timeout for name resolution and for trying several addresses.
        job: JobFuture[Any] = JobFuture()  # before the thread starts: an interrupt may arrive in between
        try:
            request = partial(_request, weights, offset, self._endpoint, self._patience)
            ThreadPerJob(daemon=True).start(job, request)
            response = job.result(self._patience)
        except BaseException as error:
            job.add_done_callback(_close_late)
            if isinstance(error, OSError):
                raise _InterruptedError(_reason(error, self._patience)) from None
            raise
        if response.status_code not in {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT}:
            response.close()
            hint = "; is the token of the hub still valid?" if response.status_code in _DENIED else ""
            raise _InterruptedError(f"the response was HTTP {response.status_code}{hint}")
        return response


def _close_late(job: Future[Any]) -> None:
    """Close the response of an abandoned request."""
    if job.exception() is None:
        job.result().close()


def _request(weights: Weights, offset: int, endpoint: str | None, patience: float) -> Any:
    from huggingface_hub import hf_hub_url, utils

    url = hf_hub_url(weights.repository, weights.file, revision=weights.revision, endpoint=endpoint)
    library: Any = utils  # its names are documented, but not exported for type checkers
    headers = {**library.build_hf_headers(library_name="toolsemble"), "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    session = library.get_session()
    try:
        request = session.build_request("GET", url, headers=headers, timeout=patience)
        return session.send(request, stream=True, follow_redirects=True)
    except Exception as error:  # the HTTP client depends on the version of the library
        # Not chained: the messages of clients may contain a URL with a password, or a header with a token.
        raise _InterruptedError(_reason(error, patience)) from None


def _read_offset(response: Any, offset: int, size: int) -> int:
    """Return the offset at which a response begins; raise if it is not the file, such as a web page."""
    length = response.headers.get("Content-Length", "")
    if response.status_code == HTTPStatus.PARTIAL_CONTENT:
        place, _, length = response.headers.get("Content-Range", "").partition("/")
        if not place.startswith(f"bytes {offset}-"):
            raise SourceError("the server sent another byte range than requested")
    else:
        offset = 0  # a server without support for ranges sends the whole file
    if length != str(size):
        raise SourceError(f"the file there has {preview(length) or 'an unknown number of'} bytes instead of {size}")
    return offset


def _chunks(response: Any) -> Iterator[bytes]:
    try:
        yield from response.iter_raw(_CHUNK)
    except Exception as error:  # the HTTP client depends on the version of the library
        raise _InterruptedError(f"the connection was closed ({type(error).__name__})") from None


def _reason(error: Exception, patience: float) -> str:
    """Return why there is no response, without the client's message, which may contain secrets."""
    if isinstance(error, TimeoutError) or type(error).__name__.endswith("Timeout"):
        return f"no response in {patience:g} s"
    if type(error).__name__ == "OfflineModeIsEnabled":
        return "the hub's offline mode is switched on; unset HF_HUB_OFFLINE"
    return f"it cannot be reached ({_system_message(error) or type(error).__name__})"


def _system_message(error: BaseException | None) -> str:
    """Return the operating system's error message; "" if there is none."""
    while error is not None:
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
        error = error.__cause__ or error.__context__
    return ""
