"""The drivers of a call path: in this thread, on an event loop, or in a worker while the caller goes on.

A path yields the work it needs and is sent the outcome; a driver does the work and knows nothing of tools.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

from toolsemble._engine.execution.call import CallPath
from toolsemble._engine.work.body import RunBody, Work
from toolsemble._runtime.concurrency import SharedLoop, unwrap_outcome
from toolsemble._vocabulary.result import ToolResult

T = TypeVar("T")


def drive(path: Generator[Work, Any, T], interrupt: BaseException | None = None) -> T:
    """Return what a path returns, such as the result of a call, doing its work in this thread.

    :param interrupt: an exception to raise where the path is suspended
    """
    try:
        work = path.send(None) if interrupt is None else path.throw(interrupt)
        while True:
            try:
                done = work.do()
            except BaseException as error:  # the path decides what becomes of it
                work = path.throw(error)
            else:
                work = path.send(done)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # the generator's type says so, StopIteration's does not
    except BaseException as raised:
        if path.gi_frame is None:  # type: ignore[attr-defined]  # it is a generator of ours
            raise  # the path has ended with it
        return drive(path, raised)  # an interrupt came just when the path had yielded


async def adrive(path: Generator[Work, Any, T]) -> T:
    """Return what a path returns, such as the result of a call, awaiting its work."""
    try:
        work = path.send(None)
        while True:
            try:
                doing = work.ado()
                del work  # less for the garbage collector when thousands of calls wait
                done = await doing
            except BaseException as error:  # the path decides what becomes of it
                work = path.throw(error)
            else:
                work = path.send(done)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # the generator's type says so, StopIteration's does not
    except BaseException:
        path.close()  # an interrupt may come just when the path has yielded; otherwise this does nothing
        raise


def drive_in_worker(path: CallPath, loop: SharedLoop, ended: Callable[[], object]) -> Generator[None, None, ToolResult]:
    """Return the result of a call whose body blocks, without waiting in this thread.

    Yields once the body runs in a worker; resume it after ``ended`` was called.
    """
    try:
        work = path.send(None)
        while True:
            try:
                future = cast("RunBody", work).begin(loop)  # such paths yield nothing else
                future.add_done_callback(lambda _: ended())
                try:
                    yield
                except BaseException:
                    future.cancel()  # nobody waits for it
                    raise
                done = unwrap_outcome(future.result())
            except BaseException as error:  # the path decides what becomes of it
                work = path.throw(error)
            else:
                work = path.send(done)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # as above
