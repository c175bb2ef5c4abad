"""``HubSource``: the official hub, or a mirror of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http import HTTPStatus
from pathlib import Path
from typing import Any

from toolsemble.errors import ToolDefinitionError
from toolsemble.local.weights.cache import size_of
from toolsemble.local.weights.catalogue import Weights
from toolsemble.local.weights.source import PullProgress, SourceError, Tell
from toolsemble.runtime.concurrency import ThreadPerJob
from toolsemble.runtime.extras import import_extra
from toolsemble.runtime.text import preview

_CHUNK = 256 * 1024
_DENIED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}


class _CutError(SourceError):
    """There was no answer, or it ended too early: another try may get further."""


class HubSource:
    """The hub, through ``huggingface_hub`` with all of the user's settings: endpoint, proxy, token, offline mode.

    Its own download begins anew after every end of a process, so bytes are asked for from here on, at the pinned
    revision. A connection that is cut is taken up again; a hub that cannot be reached at all is given up at once.

    :param endpoint: the URL of a mirror; ``HF_ENDPOINT`` by default, and else the hub itself
    :param patience: how many seconds there are for an answer, names and redirects and all, and for each piece of it
    :param tries: how often in a row a download that has begun is taken up again without any byte
    :param pause: how many seconds to wait before that, the first time; twice as many the next

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

    def fetch(self, weights: Weights, target: Path, progress: Tell) -> None:
        """Complete the file at ``target``."""
        try:
            import_extra("huggingface_hub", extra="local", user="The hub")
        except ToolDefinitionError as missing:
            raise SourceError(str(missing)) from missing
        begun = best = size_of(target)
        idle = 0
        while size_of(target) < weights.size:
            try:
                self._go_on(weights, target, progress)
            except _CutError:
                idle = idle + 1 if size_of(target) <= best else 0
                best = max(best, size_of(target))
                if best == begun or idle > self._tries:
                    raise
                time.sleep(self._pause * 2**idle)

    def _go_on(self, weights: Weights, target: Path, progress: Tell) -> None:
        here = size_of(target)
        with closing(self._answer(weights, here)) as answer:
            here = _begins(answer, here, weights.size)
            with target.open("ab" if here else "wb") as file:
                for chunk in _chunks(answer):
                    here += len(chunk)
                    if here > weights.size:
                        file.truncate(0)
                        raise SourceError(f"more than the {weights.size:,} bytes of the file came")
                    file.write(chunk)
                    progress(PullProgress(self.name, "downloading", here, weights.size))
        if here < weights.size:
            raise _CutError(f"the answer ended after {here:,} of {weights.size:,} bytes")

    def _answer(self, weights: Weights, here: int) -> Any:
        asking = _Asking()
        try:
            # Names are looked up, and one address tried after the other, without any limit of the client's own.
            job = ThreadPerJob(daemon=True).submit(asking.answer, weights, here, self._endpoint, self._patience)
            answer = job.result(self._patience)
        except BaseException as error:
            asking.give_up()
            if isinstance(error, OSError):
                raise _CutError(_reason(error, self._patience)) from None
            raise
        if answer.status_code not in {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT}:
            answer.close()
            hint = "; is the token of the hub still valid?" if answer.status_code in _DENIED else ""
            raise _CutError(f"the answer was HTTP {answer.status_code}{hint}")
        return answer


class _Asking:
    """Hangs up on an answer that nobody waits for any more, whenever it comes."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._came = ExitStack()

    def answer(self, weights: Weights, here: int, endpoint: str | None, patience: float) -> Any:
        answer = _asked(weights, here, endpoint, patience)
        self._came.callback(answer.close)
        if self._over.is_set():
            self._came.close()
        return answer

    def give_up(self) -> None:
        self._over.set()
        self._came.close()


def _asked(weights: Weights, here: int, endpoint: str | None, patience: float) -> Any:
    from huggingface_hub import hf_hub_url, utils  # noqa: PLC0415 - an extra, for those who download

    url = hf_hub_url(weights.repository, weights.file, revision=weights.revision, endpoint=endpoint)
    library: Any = utils  # its names are public, but not marked as such
    headers = {**library.build_hf_headers(library_name="toolsemble"), "Accept-Encoding": "identity"}
    if here:
        headers["Range"] = f"bytes={here}-"
    session = library.get_session()
    try:
        request = session.build_request("GET", url, headers=headers, timeout=patience)
        return session.send(request, stream=True, follow_redirects=True)
    except Exception as error:  # noqa: BLE001 - the client under the library changes with its versions
        # Not chained: what clients say may hold a URL with a password, or a header with a token.
        raise _CutError(_reason(error, patience)) from None


def _begins(answer: Any, here: int, size: int) -> int:
    """Give the place in the file where an answer begins; refuse what cannot be it, such as a web page."""
    told = answer.headers.get("Content-Length", "")
    if answer.status_code == HTTPStatus.PARTIAL_CONTENT:
        place, _, told = answer.headers.get("Content-Range", "").partition("/")
        if not place.startswith(f"bytes {here}-"):
            raise SourceError("other bytes came than were asked for")
    else:
        here = 0  # a server that knows no ranges sends all of it again
    if told != str(size):
        raise SourceError(f"what is there has {preview(told) or 'an unknown number of'} bytes in place of {size}")
    return here


def _chunks(answer: Any) -> Iterator[bytes]:
    try:
        yield from answer.iter_raw(_CHUNK)
    except Exception as error:  # noqa: BLE001 - as above
        raise _CutError(f"the connection was cut ({type(error).__name__})") from None


def _reason(error: Exception, patience: float) -> str:
    """Say in our own words why there is no answer, but for those of the system."""
    if isinstance(error, TimeoutError) or type(error).__name__.endswith("Timeout"):
        return f"no answer in {patience:g} s"
    if type(error).__name__ == "OfflineModeIsEnabled":
        return "the hub's offline mode is switched on; unset HF_HUB_OFFLINE"
    return f"it cannot be reached ({_of_system(error) or type(error).__name__})"


def _of_system(error: BaseException | None) -> str:
    """Give what the system said about it; empty when it said nothing."""
    while error is not None:
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
        error = error.__cause__ or error.__context__
    return ""
