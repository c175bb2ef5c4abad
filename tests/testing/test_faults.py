import re

import pytest

from helpers.sample_tools import AsyncEcho, Echo, call
from toolsemble import InMemoryMetrics, Toolbox, ToolCall, ToolDefinitionError, ToolExecutionError, ToolPipeline, tool
from toolsemble.testing import Fault, Faults, Injected


@tool
def weather(city: str) -> dict:
    """The weather in a city."""
    return {"city": city, "sky": "clear"}


ROME = ToolCall("weather", {"city": "Rome"})


def texts(box, times=4, made=ROME):
    return [box.execute(made).text for _ in range(times)]


SUNNY = '{"city":"Rome","sky":"clear"}'

# faults, texts of four calls
RUNS = {
    "no faults": ((), [SUNNY] * 4),
    "an error always": ((Fault("weather", error=ConnectionError("down")),), ["Error: down"] * 4),
    "an error at the second call": (
        (Fault("weather", error=TimeoutError, nth=2),),
        [SUNNY, "Error: TimeoutError", SUNNY, SUNNY],
    ),
    "an error at some calls": (
        (Fault("w*r", error=ToolExecutionError("busy"), nth=[1, 3]),),
        ["Error: busy", SUNNY, "Error: busy", SUNNY],
    ),
    "another tool": ((Fault("search", error=OSError("down")),), [SUNNY] * 4),
    "never": ((Fault(error=OSError("down"), probability=0),), [SUNNY] * 4),
    "the first error of two": (
        (Fault(error=OSError("one"), nth=1), Fault(error=OSError("two"))),
        ["Error: one", "Error: two", "Error: two", "Error: two"],
    ),
    "nothing": ((Fault(malformed="empty", nth=1),), ["", SUNNY, SUNNY, SUNNY]),
    "half of it": ((Fault(malformed="cut", nth=1),), ['{"city":"Rome"', SUNNY, SUNNY, SUNNY]),
    "something else": ((Fault(malformed=lambda found: found["sky"]),), ["clear"] * 4),
    "one after the other": ((Fault(malformed=lambda found: "sunny"), Fault(malformed="cut")), ["su"] * 4),
}


@pytest.mark.parametrize(("faults", "expected"), RUNS.values(), ids=RUNS)
def test_faults_apply_to_the_selected_calls(faults, expected):
    assert texts(Faults(*faults).around(Toolbox([weather]))) == expected


@pytest.mark.parametrize("box", [Toolbox([Echo()]), Toolbox([AsyncEcho()])], ids=["sync", "async"])
async def test_latency_delays_sync_and_async_calls(box):
    faults = Faults(Fault(latency=0.01, nth=[1, 2]))
    slow = faults.around(box)
    made = call(box.names[0])
    assert (slow.execute(made).text, (await slow.aexecute(made)).text, slow.execute(made).text) == ("hi", "hi", "hi")
    assert [each.number for each in faults.injected] == [1, 2]


async def test_timeout_interrupts_latency():
    @tool(timeout=0.05)
    async def quick() -> str:
        return "done"

    box = Faults(Fault(latency=600)).around(Toolbox([quick]))
    assert box.execute(ToolCall("quick")).text == "Error: Tool 'quick' timed out after 0.05 s"
    assert (await box.aexecute(ToolCall("quick"))).text == "Error: Tool 'quick' timed out after 0.05 s"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("garbage", r"\x00\x1b\[2J\u202e\ufffd\\ud800{{<script>"),
        ("huge", "x{1000000}"),
        ("object", "Error: The tool returned a value that JSON cannot hold: .*"),
    ],
)
def test_malformed_results_can_be_injected(kind, expected):
    reply = Faults(Fault(malformed=kind)).around(Toolbox([weather])).execute(ROME)
    assert re.fullmatch(expected, reply.text)
    assert reply.text.encode()


def test_injected_error_counts_as_an_error_of_the_tool():
    metrics = InMemoryMetrics()
    box = Faults(Fault(error=OSError("down"), nth=2)).around(Toolbox([weather], metrics=metrics))
    texts(box, 3)
    assert (metrics.count("weather", "success"), metrics.count("weather", "error")) == (2, 1)


def test_same_seed_selects_the_same_calls_in_any_order():
    def hit(seed, calls):
        faults = Faults(Fault("*", error=OSError("down"), probability=0.4), seed=seed)
        box = faults.around(Toolbox([weather, Echo()]))
        box.execute_all(calls)
        return sorted((each.tool_name, each.number) for each in faults.injected)

    calls = [ROME, call()] * 20
    assert hit(1, calls) == hit(1, calls) == hit(1, sorted(calls, key=lambda each: each.name))
    assert hit(1, calls) != hit(2, calls)
    assert 5 < len(hit(1, calls)) < 30


def test_faults_apply_to_pipeline_steps():
    pipeline = ToolPipeline.of(Echo(), weather, name="both")
    faults = Faults(Fault("weather", error=OSError("down")))
    box = faults.around(Toolbox([pipeline]))
    assert box.execute(ToolCall("both", {"input": "Rome"})).text == "Error: Step 'weather' raised: down"
    assert faults.injected == [Injected("weather", 1, faults.injected[0].fault)]


def test_original_toolbox_is_unchanged():
    box = Toolbox([weather])
    Faults(Fault(error=OSError("down"))).around(box)
    assert box.execute(ROME).text == SUNNY


def test_one_error_can_be_raised_many_times_without_growing():
    error = OSError("down")
    box = Faults(Fault(error=error)).around(Toolbox([weather]))
    texts(box, 50)
    depth, trace = 0, error.__traceback__
    while trace is not None:
        depth, trace = depth + 1, trace.tb_next
    assert depth < 20


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "Fault '*': it has no effect; set latency, error or malformed"),
        ({"tools": 3, "latency": 1}, "Fault 3: tools must be a str, not 3"),
        ({"latency": -1}, "Fault '*': latency must be a number of seconds >= 0, not -1"),
        ({"latency": True}, "Fault '*': latency must be a number of seconds >= 0, not True"),
        ({"latency": "1"}, "Fault '*': latency must be a number of seconds >= 0, not '1'"),
        ({"latency": 1, "probability": 1.5}, "Fault '*': probability must be a number from 0 to 1, not 1.5"),
        ({"error": "down"}, "Fault '*': error must be an exception, not 'down'"),
        ({"error": int}, "Fault '*': error must be an exception, not <class 'int'>"),
        (
            {"malformed": "odd"},
            "Fault '*': malformed must be one of 'empty', 'cut', 'garbage', 'huge', 'object', or a function, not 'odd'",
        ),
        ({"latency": 1, "nth": 0}, "Fault '*': nth must be integers >= 1, not 0"),
        ({"latency": 1, "nth": ["x"]}, "Fault '*': nth must be integers >= 1, not ['x']"),
        ({"latency": 1, "nth": 1.5}, "Fault '*': nth must be integers >= 1, not 1.5"),
    ],
)
def test_rejects_invalid_faults(settings, message):
    with pytest.raises(ToolDefinitionError) as caught:
        Fault(**settings)
    assert str(caught.value) == message


def test_rejects_values_that_are_not_faults():
    with pytest.raises(ToolDefinitionError, match=r"Faults at index 0 must be a Fault, not 'search'"):
        Faults("search")
