"""How many calls there may be in some time."""

import asyncio
import pickle
import re
import threading
import time
from itertools import pairwise

import pytest

from tools import AsyncFunction, Function
from toolsemble import RateLimit, Toolbox, ToolCall, ToolContext, ToolDefinitionError, map_over
from toolsemble.limits import TABLE


class Logged(RateLimit):
    """A rate limit that keeps all beginnings."""

    def __init__(self, calls, per):
        super().__init__(calls, per)
        self.all = []

    def pause(self, start=None):
        pause = super().pause(start)
        if start is not None and not pause:
            self.all.append(start)
        return pause


def starts(rate, **settings):
    """A tool under a rate limit, and the inputs with which its body began."""
    begun = []
    return Function(lambda text: begun.append(text) or text, rate_limit=rate, **settings), begun


def begun_under(rate):
    """How many bodies have begun in the last stretch of time."""
    return sum(start.at is not None for start in rate._starts)


def calls(count, name="function"):
    return [ToolCall(name, {"input": str(number)}) for number in range(count)]


def held(rate):
    """Whether no stretch of time has more beginnings than there may be."""
    begun = sorted(start.at for start in rate.all if start.at is not None)
    stretches = zip(begun, begun[rate.calls :], strict=False)
    return all(later - first >= rate.per for first, later in stretches)


@pytest.mark.parametrize("count", [1, 3])
def test_no_stretch_of_time_has_more_calls_than_there_may_be(count):
    rate = Logged(count, 0.05)
    made, begun = starts(rate)
    box = Toolbox([made])
    assert [reply.text for reply in box.execute_all(calls(7))] == [str(number) for number in range(7)]
    box.execute(*calls(1))
    assert len(begun) == 8
    assert held(rate)


def test_tools_that_share_the_object_share_the_rate():
    rate = Logged(1, 0.03)
    first, begun = starts(rate, name="first")
    second = AsyncFunction(
        lambda text: asyncio.sleep(0, begun.append(time.monotonic()) or text), "second", rate_limit=rate
    )
    boxes = Toolbox([first]), Toolbox([second])
    threads = [
        threading.Thread(target=boxes[0].execute_all, args=(calls(3, "first"),)),
        threading.Thread(target=boxes[1].execute_all, args=(calls(3, "second"),)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(begun) == 6
    assert held(rate)


def test_a_box_has_a_rate_for_all_its_tools():
    rate = Logged(1, 0.03)
    first, begun = starts(RateLimit(100), name="first")
    second = Function(begun.append, "second")
    Toolbox([first, second], rate_limit=rate).execute_all([*calls(2, "first"), *calls(2, "second")])
    assert len(begun) == 4
    assert held(rate)


def test_each_step_counts_for_the_rate_of_a_box_and_the_pipeline_itself_does_not():
    rate = RateLimit(100, per=600)
    line = Function(str, "first") | Function(str, "second")
    box = Toolbox([line, map_over(Function(str, "third"))], rate_limit=rate)
    assert box.execute(ToolCall("first_then_second", {"input": "x"})).text == "x"
    assert begun_under(rate) == 2
    box.execute(ToolCall("each_third", {"items": ["a", "b", "c"]}))
    assert begun_under(rate) == 5


async def test_calls_come_in_the_order_in_which_they_were_made():
    order = []
    made = AsyncFunction(lambda text: asyncio.sleep(0, order.append(text)), rate_limit=RateLimit(1, per=0.001))
    await Toolbox([made]).aexecute_all(calls(20))
    assert order == [str(number) for number in range(20)]


def test_a_call_that_cannot_begin_in_time_fails_at_once_and_says_when_it_could():
    made, begun = starts(RateLimit(1, per=36_000), timeout=30)
    assert made.execute("x").is_success
    message = made.execute("x").error_message
    told = r"The rate limit of 1 calls in 36000 s is used up; the next call can begin in \d{5} s"
    assert re.fullmatch(told, message)
    assert len(begun) == 1


async def test_one_that_waits_behind_others_waits_no_longer_than_it_may():
    made, _ = starts(RateLimit(1, per=600))
    made.execute("x")
    slow = asyncio.create_task(made.aexecute("x"))
    while made.rate_limit not in TABLE._held:
        await asyncio.sleep(0)
    late = await made.aexecute("x", ToolContext(deadline=time.monotonic() + 0.05))
    assert late.error_message.startswith("Tool 'function' timed out after 0.")
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow


async def test_a_waiter_that_is_cancelled_uses_nothing_up():
    made = AsyncFunction(lambda text: asyncio.sleep(0, text), rate_limit=RateLimit(1, per=0.05))
    await made.aexecute("x")
    waiting = [asyncio.create_task(made.aexecute("x")) for _ in range(3)]
    await asyncio.sleep(0)
    for task in waiting[:2]:
        task.cancel()
    assert (await waiting[2]).output == "x"
    assert [task.cancelled() for task in waiting] == [True, True, False]
    assert begun_under(made.rate_limit) == 1
    assert not TABLE.waiting


def test_a_failed_call_counts_and_a_refused_one_does_not():
    rate = RateLimit(5)

    def fail(_):
        raise ValueError("boom")

    box = Toolbox([Function(fail, rate_limit=rate)])
    box.execute(*calls(1))
    box.execute(ToolCall("function", "{}"))
    assert begun_under(rate) == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"calls": 0}, "RateLimit calls must be a whole number from 1 on, not 0"),
        ({"calls": 1.5}, "RateLimit calls must be a whole number from 1 on, not 1.5"),
        ({"calls": 1, "per": 0}, "RateLimit per must be a number of seconds above 0, not 0"),
        ({"calls": 1, "per": "1"}, "RateLimit per must be a number of seconds above 0, not '1'"),
    ],
)
def test_what_is_no_rate_is_refused(arguments, told):
    with pytest.raises(ToolDefinitionError) as caught:
        RateLimit(**arguments)
    assert str(caught.value) == told


def test_only_a_rate_limit_is_one():
    with pytest.raises(ToolDefinitionError, match="Tool 'function': rate_limit must be a RateLimit, not 5"):
        Toolbox([Function(str, rate_limit=5)])
    with pytest.raises(ToolDefinitionError, match="Toolbox: rate_limit must be a RateLimit, not 5"):
        Toolbox([], rate_limit=5)


def test_a_copy_in_another_process_begins_anew():
    rate = pickle.loads(pickle.dumps(RateLimit(2, per=3)))
    assert (repr(rate), list(rate._starts)) == ("RateLimit(2, per=3)", [])
    assert [first != second for first, second in pairwise([rate, RateLimit(2, per=3)])] == [True]
