"""What notebooks show of results, toolboxes and explanations."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import Annotated

import pytest

from toolsemble import Agent, Catalog, Param, Secret, Toolbox, ToolCall, ToolResult, tool
from toolsemble._vocabulary.result import ImageContent
from toolsemble.models import ScriptedModel
from toolsemble.review import PauseReview

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&\x1b[2J\u202e"
TAGS = {"div", "em", "table", "thead", "tbody", "tr", "th", "td"}


class Reader(HTMLParser):
    """Reads HTML: its tags, attributes and text; all tags must be closed in order."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = set(), set(), "", []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += f"{data}\n"


@tool
def weather(city: str, days: int = 1) -> str:
    """Return the weather."""
    return f"sunny in {city}"


def run(*replies, tools=(weather,), **settings):
    return Agent(ScriptedModel(list(replies)), list(tools), **settings).run_sync("What is the weather?")


def make_hostile(**settings):
    @tool(name="odd", description=HOSTILE, **settings)
    def odd(text: Annotated[str, Param(HOSTILE, name="te<b>xt")]) -> str:
        return text

    return odd


def make_result():
    contents = [ImageContent(b"...", "image/<b>")]
    return ToolResult.success(HOSTILE, {HOSTILE: HOSTILE}, contents=contents, attributes={HOSTILE: HOSTILE})


def make_paused():
    call = ToolCall("odd", {"te<b>xt": HOSTILE})
    return run(call, tools=[make_hostile(requires_approval=True)], review=PauseReview())


@pytest.mark.parametrize(
    "make",
    [
        lambda: run(ToolCall("odd", {"te<b>xt": HOSTILE}), HOSTILE, tools=[make_hostile()]),
        make_paused,
        make_result,
        lambda: ToolResult.failure(HOSTILE),
        lambda: Toolbox([make_hostile()]),
        lambda: Catalog([make_hostile()]).explain(),
    ],
)
def test_everything_is_escaped(make):
    html = make()._repr_html_()
    read = Reader(html)
    assert (read.tags <= TAGS, read.attributes) == (True, {"style"})
    assert not re.search("[\x00-\x09\x0b-\x1f\u202a-\u202e]", html)
    assert not re.search(r"color|background|url\(|http", html)


def test_an_agent_result_shows_its_answer_its_calls_and_how_it_ended():
    result = run(ToolCall("weather", {"city": "Rome"}), "Take sunglasses.")
    assert Reader(result._repr_html_()).text.split("\n") == [
        "Take sunglasses.",
        "call",
        "arguments",
        "result",
        "weather",
        'city="Rome", days=1',
        "sunny in Rome",
        "stopped: answer; 2 model calls, 1 tool call, 0 tokens",
        "",
    ]


def test_an_agent_result_shows_what_waits_for_approval():
    result = run(
        ToolCall("pay", {"order": 7}), tools=[tool(name="pay", requires_approval=True)(pay)], review=PauseReview()
    )
    text = Reader(result._repr_html_()).text
    assert text.split("\n")[:6] == [
        "waits for approval",
        "arguments",
        "request",
        "pay",
        "order=7",
        result.pending[0].id,
    ]


def pay(order: int) -> str:
    """Pay an order."""
    return "paid"


def test_a_tool_result_shows_its_parts():
    result = ToolResult.success(
        "21 °C", {"celsius": 21}, contents=[ImageContent(b"...", "image/png")], attributes={"station": 7}
    )
    assert Reader(result._repr_html_()).text.split("\n")[:7] == [
        "21 °C",
        "structured_output",
        "{'celsius': 21}",
        "content",
        "ImageContent(<3 bytes>, mime_type='image/png')",
        "station",
        "7",
    ]
    assert Reader(ToolResult.failure("no such city")._repr_html_()).text == "Error: no such city\nfailure\n"


def test_a_toolbox_shows_its_tools():
    text = Reader(Toolbox([weather])._repr_html_()).text
    assert text.split("\n")[:-1] == [
        "Toolbox with 1 tool",
        "tool",
        "parameters",
        "description",
        "weather",
        "city, days?",
        "Return the weather.",
    ]


def forecast(number):
    return ToolCall("weather", {"city": f"{number}" + "x" * 10**5})


def make_tools(number):
    return [tool(name=f"tool_{each}", description="Text " * 1000)(lambda city: city) for each in range(number)]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ToolResult.success("x" * 10**6, "y" * 10**6), "… and 998,000 more characters"),
        (
            lambda: ToolResult.success("", attributes={f"a{number}": "x" * 10**5 for number in range(200)}),
            "… and 150 more",
        ),
        (lambda: Toolbox(make_tools(120)), "… and 70 more"),
        (lambda: Catalog(make_tools(120)).explain(), "… and 115 more"),
        (lambda: run(*(forecast(number) for number in range(60)), "y" * 10**6, max_tool_calls=60), "… and 10 more"),
    ],
)
def test_size_is_bounded(make, words):
    html = make()._repr_html_()
    assert len(html) < 100_000
    assert words in Reader(html).text


def test_secrets_are_masked_as_in_the_text():
    @tool
    def login(password: Secret[str]) -> str:
        """Log in."""
        return f"welcome {password}"

    result = run(ToolCall("login", {"password": "hunter2-hunter2"}), "Done.", tools=[login])
    assert "hunter2" not in result._repr_html_() + str(result) + repr(result)


def test_the_repr_of_an_agent_result_is_one_short_line():
    result = run(ToolCall("weather", {"city": "Rome"}), "Take \n sunglasses. " * 100)
    assert repr(result) == (
        "<AgentResult 'Take \\n sunglasses. Take \\n sunglasses. Take \\n sunglasse...', "
        "stopped: answer; 2 model calls, 1 tool call, 0 tokens>"
    )


def test_nothing_is_loaded_before_a_notebook_shows_something():
    code = (
        "import sys; from toolsemble import Agent, Toolbox, tool; print('toolsemble._runtime.notebook' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
