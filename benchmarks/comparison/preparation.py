"""What is timed for each figure, proved to do what it should before the clock runs."""

import asyncio
import inspect
import threading
import time
from collections.abc import Callable

from peers.task import (
    ANSWER,
    BROKEN,
    COERCED,
    FOUND,
    LINED,
    RAN,
    TURNS,
    WRONG_TYPE,
    Call,
    Participant,
    new_async_search,
    new_search,
    one_by_one,
)
from timing import WALL, Repeated

NAP = 0.005
"""Seconds that a blocking body takes."""


class MissingError(Exception):
    """The library has no such thing, or does not do it right; the message says which."""


class Preparation:
    """One participant's work, by figure."""

    def __init__(self, peer: Participant, runner: asyncio.Runner) -> None:
        self._peer = peer
        self._runner = runner

    def define(self) -> Repeated:
        """Prepare a definition with its specification."""
        return self._work(self._peer.define)

    def call(self) -> Repeated:
        """Prepare a valid call."""
        return self._answering(self._peer.make_call())

    def number_as_text(self) -> Repeated:
        """Prepare a call with a number as text, which the body must get as a number."""
        return self._mended(COERCED)

    def broken_json(self) -> Repeated:
        """Prepare a call whose JSON text has a comma too many."""
        return self._mended(BROKEN)

    def refused(self) -> Repeated:
        """Prepare a call with a wrong type, up to the text for the model."""
        if not self._peer.VALIDATES:
            raise MissingError("wrong types are not refused")
        own = getattr(self._peer, "make_refusal", None)
        work = self._work(own() if own else _told(self._peer.make_call(WRONG_TYPE)))
        text = str(work.once())
        return _proved(work, bool(text) and "results for" not in text, text)

    def look_up(self) -> Repeated:
        """Prepare a call of one tool among a thousand."""
        return self._answering(self._offered("make_look_up")(1000))

    def pipeline(self) -> Repeated:
        """Prepare a pipeline of three."""
        work = self._work(self._offered("make_pipeline")())
        return _proved(work, LINED in (text := str(work.once())), text)

    def agent(self) -> Repeated:
        """Prepare an agent's run, timed by turn; the body must have been given every turn's limit, as a number."""
        work = self._work(self._offered("make_agent")(one_by_one()), parts=TURNS)
        RAN.clear()
        text = work.once()
        return _proved(
            work, text == ANSWER and repr([*RAN]) == repr([*range(1, TURNS + 1)]), f"{text!r} after {[*RAN]}"
        )

    def async_200(self) -> Repeated:
        """Prepare 200 concurrent async calls."""
        return self._parallel(200)

    def async_2000(self) -> Repeated:
        """Prepare 2,000 concurrent async calls."""
        return self._parallel(2000)

    def blocking_200(self) -> Repeated:
        """Prepare 200 blocking calls; they must have run in several threads."""
        make, threads = self._offered("make_blocking"), []

        def nap() -> None:
            time.sleep(NAP)
            threads.append(threading.get_ident())

        count = 200
        work = self._work(make(new_search(pause=nap), count))
        RAN.clear()
        work.once()
        proved = len(threads) == count and len(set(threads)) > 1 and set(map(repr, RAN)) == {"5"}
        return _proved(work, proved, f"{len(threads)} bodies in {len(set(threads))} threads with {set(RAN)}")

    def _parallel(self, count: int) -> Repeated:
        """Prepare calls that wait for each other: a library that runs them one after another never ends."""
        make, meeting = self._offered("make_parallel"), Meeting(count)
        work = self._work(make(new_async_search(pause=meeting.attend), count))
        RAN.clear()
        work.once()
        return _proved(work, meeting.held == 1 and set(map(repr, RAN)) == {"5"}, f"{meeting.held} meetings")

    def _mended(self, arguments: str) -> Repeated:
        """Prepare a call with a defect; a library that refuses it does not give a valid call's reply."""
        try:
            return self._answering(self._peer.make_call(arguments))
        except Exception as error:
            raise MissingError(f"{arguments} is answered: {error}") from error

    def _answering(self, call: Call) -> Repeated:
        work = self._work(call)
        return _proved(work, FOUND in (text := str(work.once())), text)

    def _work(self, call: Call, parts: int = 1) -> Repeated:
        return Repeated(call, WALL, runner=self._runner, parts=parts)

    def _offered(self, function: str) -> Callable[..., Call]:
        try:
            return getattr(self._peer, function)
        except AttributeError:
            raise MissingError(f"the module has no {function}") from None


class Meeting:
    """Where a number of calls wait until all are there."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._missing = count
        self._complete: asyncio.Future[None] | None = None
        self.held = 0

    async def attend(self) -> None:
        """Wait for the others."""
        if self._missing == self._count:
            self._complete = asyncio.get_running_loop().create_future()
        complete = self._complete
        self._missing -= 1
        if not self._missing:
            self._missing = self._count
            self.held += 1
            complete.set_result(None)
        await complete


def _told(call: Call) -> Call:
    """Return a call whose error, if it raises one, is its reply."""

    def called() -> object:
        try:
            return call()
        except Exception as error:  # every library refuses with its own errors
            return str(error)

    async def awaited() -> object:
        try:
            return await call()
        except Exception as error:  # every library refuses with its own errors
            return str(error)

    return awaited if inspect.iscoroutinefunction(call) else called


def _proved(work: Repeated, proof: bool, seen: str) -> Repeated:  # noqa: FBT001 - what was found out is handed over
    """Return the work, or refuse it."""
    if not proof:
        raise AssertionError(f"it gives {seen!r:.200}")
    return work
