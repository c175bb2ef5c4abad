"""One call, from the JSON text that a model wrote to the text of the reply; with and without limits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from peers.task import ARGUMENTS, COERCED, WRONG_TYPE, new_search
from pydantic import ValidationError
from timing import PROCESSOR, WALL, Clock, Repeated

from own.job import FENCED, TEXT, Echo, bare_search
from own.measure import Comparison, Subject
from toolsemble import RateLimit, Toolbox, ToolCall, tool

FLOOR = "pydantic-core's `validate_json` and the function"


def comparisons() -> Iterator[Comparison]:
    """Return the comparisons of single calls."""
    yield _typed("a valid call", ARGUMENTS, FLOOR, aim="< 3.5", figure="call")
    yield _typed("a repaired call: a number as text", COERCED, f"{FLOOR}, lax", aim="< 25 µs")
    yield _typed("a repaired call: a code block with single quotes", FENCED, f"{FLOOR}, of valid JSON", bare=ARGUMENTS)
    yield _typed("a refused call", WRONG_TYPE, "`validate_json` and the error's text", aim="< 30 µs")
    yield _plain()
    yield _limited()
    yield _timed("a blocking call with a timeout", WALL, "< 60 µs")
    yield _timed("a blocking call with a timeout, in CPU time of both threads", PROCESSOR)


def _typed(what: str, arguments: str, against: str, *, aim: str = "", figure: str = "", bare: str = "") -> Comparison:
    """Compare a call of the five-parameter search with the floor."""
    box, validate, text = Toolbox([tool(new_search())]), bare_search(), bare or arguments

    def by_hand() -> str:
        try:
            return validate(text)
        except ValidationError as error:
            return str(error)

    ours = _executed(box, ToolCall("search", arguments, id="call_1"))
    return Comparison(Subject("call", what, against, aim, figure), Repeated(ours), Repeated(by_hand))


def _plain() -> Comparison:
    """Compare a call of a string tool with reading its JSON and calling the function."""
    echo = Echo()
    subject = Subject("call", "a valid call of a string tool", "`json.loads` and the function", "< 8 µs more")
    ours = _executed(Toolbox([echo]), ToolCall("echo", TEXT, id="call_1"))
    return Comparison(subject, Repeated(ours), Repeated(lambda: echo.run(json.loads(TEXT)["input"])))


def _limited() -> Comparison:
    """Compare a call of a tool that declares limits which cost no thread with one that declares none."""
    limited = Echo()
    limited.effects, limited.max_concurrency, limited.retries = "read", 8, 2
    limited.rate_limit = RateLimit(1_000_000)
    limited.resources = lambda text: {text}
    return _against_plain(limited, "a call with slots, a resource, a rate and retries")


def _timed(what: str, clock: Clock, aim: str = "") -> Comparison:
    """Compare a blocking call with a timeout, which needs a thread, with one without."""
    limited = Echo()
    limited.timeout = 60
    return _against_plain(limited, what, clock, aim)


def _against_plain(limited: Echo, what: str, clock: Clock = PROCESSOR, aim: str = "") -> Comparison:
    call = ToolCall("echo", TEXT, id="call_1")
    ours, other = (Repeated(_executed(Toolbox([each]), call), clock) for each in (limited, Echo()))
    return Comparison(Subject("call", what, "a call without", aim, itself=True), ours, other)


def _executed(box: Toolbox, call: ToolCall) -> Callable[[], str]:
    return lambda: box.execute(call).text
