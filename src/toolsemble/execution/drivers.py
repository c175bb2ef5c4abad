"""The drivers of a call path: in this thread, on an event loop, or in a worker while the caller goes on.

A path yields the work it needs and is sent the outcome; a driver does the work and knows nothing of tools.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import cast

from toolsemble.execution.path import CallPath
from toolsemble.result import ToolResult
from toolsemble.runtime.concurrency import SharedLoop, unwrap_outcome
from toolsemble.work.body import RunBody


def drive(path: CallPath, interrupt: BaseException | None = None) -> ToolResult:
    """Give the result of a call, doing its work in this thread.

    :param interrupt: is raised where the path stands still
    """
    try:
        work = path.send(None) if interrupt is None else path.throw(interrupt)
        while True:
            try:
                done = work.do()
            except BaseException as error:  # noqa: BLE001 - the path decides what becomes of it
                work = path.throw(error)
            else:
                work = path.send(done)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # the generator's type says so, StopIteration's does not
    except BaseException as raised:
        if path.gi_frame is None:  # type: ignore[attr-defined]  # it is a generator of ours
            raise  # the path has come to its end with it
        return drive(path, raised)  # it came from outside, when the path had just stopped for a work


async def adrive(path: CallPath) -> ToolResult:
    """Give the result of a call, awaiting its work."""
    try:
        work = path.send(None)
        while True:
            try:
                doing = work.ado()
                del work  # of thousands of calls that wait, the garbage collector has less to look at
                done = await doing
            except BaseException as error:  # noqa: BLE001 - the path decides what becomes of it
                work = path.throw(error)
            else:
                work = path.send(done)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # the generator's type says so, StopIteration's does not
    except BaseException:
        path.close()  # an interrupt may come when it has just stopped for a work; else this does nothing
        raise


def begun(path: CallPath, loop: SharedLoop, ended: Callable[[], object]) -> Generator[None, None, ToolResult]:
    """Give the result of a call whose body only blocks, waiting for nothing: whoever walks on has waited.

    It yields when a body has begun in a worker, and is to be resumed when it was told that this has ended.
    """
    try:
        work = path.send(None)
        while True:
            try:
                future = cast("RunBody", work).begin(loop)  # such paths ask for nothing else
                future.add_done_callback(lambda _: ended())
                try:
                    yield
                except BaseException:
                    future.cancel()  # nobody will ask for it
                    raise
                done = unwrap_outcome(future.result())
            except BaseException as error:  # noqa: BLE001 - the path decides what becomes of it
                work = path.throw(error)
            else:
                work = path.send(done)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # as above
