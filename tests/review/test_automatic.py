"""Reviewers that are programs: one that agrees, one that refuses, one that asks a function."""

import asyncio
import pickle
import threading

import pytest

from helpers.sample_tools import AsyncFunction, Function, call
from toolsemble import Continue, Edit, ExitEarly, ReviewRequest, Toolbox, ToolDefinitionError
from toolsemble._runtime.event_loops import finish
from toolsemble.review import AutoApprove, AutoReject, CallbackReview

REQUEST = ReviewRequest("Does what the test says", "function", "rm old")


async def echo(text):
    return text


TOOLS = [Function(lambda text: text, requires_approval=True), AsyncFunction(echo, requires_approval=True)]
both_tools = pytest.mark.parametrize("tool", TOOLS, ids=["sync", "async"])


def refuse(request):
    return ExitEarly(f"not {request.arguments}")


async def refuse_async(request):
    return refuse(request)


def fail(request):
    raise OSError("gone")


@both_tools
@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (AutoApprove(), "rm old"),
        (AutoApprove(0), "rm old"),
        (AutoApprove(0.001), "rm old"),
        (AutoReject("read only"), "Error: Rejected by reviewer: read only"),
        (AutoReject(), "Error: Rejected by reviewer: function(rm old)"),
        (CallbackReview(lambda _: Continue()), "rm old"),
        (CallbackReview(lambda _: Edit("rm older")), "rm older"),
        (CallbackReview(refuse), "Error: Rejected by reviewer: not rm old"),
        (CallbackReview(refuse_async), "Error: Rejected by reviewer: not rm old"),
        (CallbackReview(lambda _: None), "Error: Rejected by reviewer: the answer was not a decision"),
        (CallbackReview(lambda _: True), "Error: Rejected by reviewer: the answer was not a decision"),
        (CallbackReview(fail), "Error: Rejected by reviewer: the reviewer failed to answer"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_automatic_reviewers_answer_sync_and_async_calls(tool, handler, text):
    box = Toolbox([tool], review=handler)
    asked = call("function", "rm old")
    alone = [box.execute(asked).text, (await box.aexecute(asked)).text]
    turn = [reply.text for reply in await box.aexecute_all([asked, asked])]
    assert alone + turn == [text] * 4


def test_blocking_callback_runs_in_a_thread():
    threads = []

    def decide(_):
        threads.append(threading.current_thread())
        return Continue()

    async def asked():
        return await Toolbox([TOOLS[0]], review=CallbackReview(decide)).aexecute(call("function", "rm old"))

    assert asyncio.run(asked()).text == "rm old"
    assert threads[0] not in {threading.current_thread(), threading.main_thread()}


async def test_delayed_approval_does_not_block_the_event_loop():
    waiting = asyncio.ensure_future(AutoApprove(60).review(REQUEST))
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize("delay", [-1, -0.5, float("nan"), float("inf")])
def test_rejects_invalid_delay(delay):
    with pytest.raises(ToolDefinitionError, match=r"^AutoApprove: delay must be a number of seconds >= 0, not "):
        AutoApprove(delay)


@pytest.mark.parametrize("given", [None, "yes", Continue()])
def test_rejects_uncallable_callback(given):
    with pytest.raises(TypeError, match=r"^CallbackReview needs a function, not (NoneType|str|Continue)$"):
        CallbackReview(given)


@pytest.mark.parametrize(
    "handler", [AutoApprove(1.5), AutoReject("no"), CallbackReview(refuse)], ids=lambda handler: type(handler).__name__
)
def test_automatic_reviewers_can_be_pickled(handler):
    assert pickle.loads(pickle.dumps(handler)) == handler


def test_auto_reject_can_be_used_without_a_toolbox():
    assert finish(AutoReject("no").review(REQUEST)) == ExitEarly("no")
