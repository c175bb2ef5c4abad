"""Threads that wait for the next job: bodies with a timeout do not start a new one each time."""

import os
import threading
import warnings
import weakref
from concurrent.futures import CancelledError, Future
from contextvars import ContextVar

import pytest

from helpers.wait import until
from toolsemble import Toolbox, ToolCall, tool
from toolsemble._runtime.threads import JobFuture, SpareThreads, _SpareThread

user = ContextVar("user", default="unset")


def count_idle(threads):
    return len(threads._idle)


def run_in(threads, job=threading.get_ident):
    result = threads.submit(job).result(timeout=60)
    until(lambda: count_idle(threads))
    return result


def test_next_job_runs_in_the_thread_that_is_idle():
    threads = SpareThreads(seconds=60)
    assert run_in(threads) == run_in(threads)


def test_job_never_waits_for_a_thread():
    threads, go = SpareThreads(seconds=60), threading.Event()
    waiting = [threads.submit(go.wait, 60) for _ in range(20)]
    assert threads.submit(pow, 2, 10).result(timeout=60) == 1024
    go.set()
    assert all(future.result(timeout=60) for future in waiting)
    until(lambda: count_idle(threads) == 8)  # more than that are not kept


def test_job_sees_the_variables_of_its_submitter_and_leaves_none_behind():
    threads = SpareThreads(seconds=60)
    user.set("ada")
    assert run_in(threads, lambda: (user.get(), user.set("eve"))[0]) == "ada"
    user.set("bob")
    assert run_in(threads, user.get) == "bob"


def test_idle_thread_ends_after_a_while():
    threads = SpareThreads(seconds=0.01)
    thread = threads.submit(threading.current_thread).result(timeout=60)
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert count_idle(threads) == 0


class Result:
    """An object with weak references, so that a test can see when it is collected."""


def test_idle_thread_keeps_no_result():
    threads = SpareThreads(seconds=60)
    for _ in range(2):  # in a new thread, and in an idle one
        result = weakref.ref(run_in(threads, Result))
        until(lambda result=result: result() is None)


class HandingOver(list):
    """A list of idle threads from which one is taken just when it stops waiting."""

    def __init__(self, job):
        self.job = job

    def remove(self, thread):
        if self.job is not None:
            thread.job = self.job
            thread.ready.release()
        super().remove(thread)


@pytest.fixture
def idle_thread():
    thread = _SpareThread(int)
    assert thread.wait(60, []) is int
    return thread


def test_job_that_comes_at_the_last_moment_is_run(idle_thread):
    assert idle_thread.wait(0.01, HandingOver("job")) == "job"


def test_thread_whose_job_was_lost_by_an_interrupt_ends(idle_thread):
    assert idle_thread.wait(0.01, HandingOver(None)) is None


def test_failed_job_leaves_its_thread_usable():
    threads = SpareThreads(seconds=60)
    with pytest.raises(ZeroDivisionError):
        run_in(threads, lambda: 1 / 0)
    until(lambda: count_idle(threads))
    assert threads.submit(pow, 2, 3).result(timeout=60) == 8


def test_cancelled_job_does_not_run():
    threads = SpareThreads(seconds=60)
    run_in(threads)
    future: Future[object] = JobFuture()
    assert future.cancel()
    threads.start(future, lambda: pytest.fail("it ran"))
    with pytest.raises(CancelledError):
        future.result(timeout=60)
    until(lambda: count_idle(threads))


def test_threads_of_another_process_are_not_used(monkeypatch):
    threads = SpareThreads(seconds=60)
    thread = run_in(threads)
    monkeypatch.setattr("os.getpid", lambda: 0)  # as it is after a fork
    assert run_in(threads) != thread
    assert count_idle(threads) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_process_starts_threads_of_its_own():
    warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what this is about
    threads = SpareThreads(seconds=60)
    run_in(threads)
    child = os.fork()
    if not child:
        os._exit(0 if threads.submit(pow, 2, 3).result(timeout=60) == 8 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_calls_with_a_timeout_use_the_same_thread():
    @tool(timeout=60)
    def where() -> int:
        """Return the thread."""
        return threading.get_ident()

    box = Toolbox([where])
    seen = {box.execute(ToolCall("where")).text for _ in range(50)}
    assert len(seen) < 50
