"""Progress, cancellation, time limits, pages and questions of tools over the wire."""

import asyncio
import threading

import pytest
from mcp import MCPError
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitResult,
    ListRootsRequest,
    SamplingMessage,
    TextContent as SdkText,
)

from helpers.mcp_server import ERAS, SECONDS, connect, run_app, serve_http, text_of
from toolsemble import (
    EffectLedger,
    Idempotency,
    RateLimit,
    Toolbox,
    ToolConfigurationError,
    ToolContext,
    ToolExecutionError,
    tool,
)
from toolsemble.mcp import asgi, ask_client, elicit, log_to_client
from toolsemble.mcp._server import calls as progress_module

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("era", ERAS)]


class Reports(list):
    """The reports of progress that a client receives."""

    async def __call__(self, progress, total, message):
        self.append((progress, total, message))


@tool
def climb(fractions: list[float | None], context: ToolContext) -> str:
    """Report progress from a thread."""
    for number, fraction in enumerate(fractions):
        context.progress(fraction, f"step {number}")
    return "done"


@tool
async def climb_later(fractions: list[float | None], context: ToolContext) -> str:
    """Report progress on the loop."""
    for number, fraction in enumerate(fractions):
        context.progress(fraction, f"step {number}")
    return "done"


@pytest.mark.parametrize("name", ["climb", "climb_later"])
async def test_progress_arrives_in_order_before_the_result(era, name):
    reports = Reports()
    async with serve_http(Toolbox([climb, climb_later]), era) as client:
        result = await client.call_tool(name, {"fractions": [0, 0.25, 1]}, progress_callback=reports)
    assert text_of(result) == "done"
    assert reports == [(0, 1, "step 0"), (0.25, 1, "step 1"), (1, 1, "step 2")]


async def test_progress_only_increases(era):
    reports = Reports()
    async with serve_http(Toolbox([climb]), era) as client:
        await client.call_tool("climb", {"fractions": [0.5, 0.5, 0.1, 0.6, 7, 1]}, progress_callback=reports)
    assert [each[0] for each in reports] == [0.5, 0.6, 1]


async def test_progress_without_a_fraction_has_no_total(era):
    reports = Reports()
    async with serve_http(Toolbox([climb]), era) as client:
        await client.call_tool("climb", {"fractions": [None, None, 0.5]}, progress_callback=reports)
    first, second, third = reports
    assert 0 < first[0] < second[0] < third[0] == 0.5
    assert [each[1] for each in reports] == [None, None, 1]


async def test_a_call_without_progress_reports_none(era):
    reports = Reports()
    async with serve_http(Toolbox([climb]), era) as client:
        await client.call_tool("climb", {"fractions": []}, progress_callback=reports)
    assert reports == []


async def test_progress_is_not_sent_without_a_request_for_it(era):
    async with serve_http(Toolbox([climb]), era) as client:
        assert text_of(await client.call_tool("climb", {"fractions": [0.5]})) == "done"


async def test_a_client_that_does_not_take_progress_does_not_fail_the_call(era, monkeypatch):
    async def fail(self, progress, total, message):
        raise OSError("gone")

    monkeypatch.setattr(progress_module.Exchange, "report_progress", fail)
    reports = Reports()
    async with serve_http(Toolbox([climb]), era) as client:
        result = await client.call_tool("climb", {"fractions": [0.5]}, progress_callback=reports)
    assert (text_of(result), reports) == ("done", [])


async def test_progress_stays_silent_while_a_call_is_parked_and_goes_on_after(era):
    reports = Reports()

    @tool
    async def stages(context: ToolContext) -> str:
        context.progress(0.1)
        asking = asyncio.ensure_future(context.arequest_approval("Go on?"))
        await asyncio.to_thread(asked.wait, SECONDS)
        context.progress(0.5)
        await asyncio.sleep(0)
        reported.set()
        await asking
        context.progress(0.9)
        return "done"

    asked, reported = threading.Event(), threading.Event()

    async def answer(context, params):
        asked.set()
        await asyncio.to_thread(reported.wait, SECONDS)
        return ElicitResult(action="accept", content={"approve": True})

    async with serve_http(Toolbox([stages]), era, client={"elicitation_callback": answer}) as client:
        assert text_of(await client.call_tool("stages", {}, progress_callback=reports)) == "done"
    assert [each[0] for each in reports] == ([0.1, 0.9] if era == "2026-07-28" else [0.1, 0.5, 0.9])


async def test_a_call_that_the_client_gives_up_is_cancelled(era):
    started, cancelled = threading.Event(), threading.Event()

    @tool
    async def endless() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "never"

    async def answer(context, params):
        return ElicitResult(action="accept", content={})

    async with serve_http(Toolbox([endless]), era, client={"elicitation_callback": answer}) as client:
        call = asyncio.create_task(client.call_tool("endless", {}))
        assert await asyncio.to_thread(started.wait, SECONDS)
        call.cancel()
        assert await asyncio.to_thread(cancelled.wait, SECONDS)


async def test_a_server_that_ends_cancels_its_calls(era):
    started, cancelled = threading.Event(), threading.Event()

    @tool
    async def endless() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "never"

    with run_app(asgi(Toolbox([endless]))) as url:
        async with connect(url, era) as client:
            call = asyncio.create_task(client.call_tool("endless", {}))
            assert await asyncio.to_thread(started.wait, SECONDS)
            call.cancel()
            await asyncio.wait([call])
    assert cancelled.wait(SECONDS)


async def test_the_time_limit_of_a_tool_is_an_error_in_words(era):
    @tool(timeout=0.01)
    async def slow() -> str:
        await asyncio.Event().wait()
        return "never"

    async with serve_http(Toolbox([slow]), era) as client:
        result = await client.call_tool("slow", {})
    assert result.is_error
    assert "0.01 s" in text_of(result)


async def test_a_rate_limit_holds_for_all_clients_together(era):
    @tool(rate_limit=RateLimit(1, per=3600), timeout=30)
    def rare() -> str:
        return "once"

    with run_app(asgi(Toolbox([rare]))) as url:
        async with connect(url, era) as first, connect(url, era) as second:
            assert text_of(await first.call_tool("rare", {})) == "once"
            refused = await second.call_tool("rare", {})
    assert refused.is_error
    assert "The rate limit of 1 calls in 3600 s is used up" in text_of(refused)


async def test_further_pages_of_a_long_result_can_be_read(era):
    @tool
    def book() -> str:
        return "word " * 100

    async with serve_http(Toolbox([book], max_output=100, pages=True), era) as client:
        first = text_of(await client.call_tool("book", {}))
        identity = first.split('result="')[1].split('"')[0]
        second = text_of(await client.call_tool("read_more", {"result": identity, "page": 2}))
    assert second.startswith("word word")


async def test_an_idempotent_call_takes_effect_once(era, tmp_path):
    orders = []

    @tool(idempotency=Idempotency(scope="ledger"), effects="write")
    def order(item: str) -> str:
        orders.append(item)
        return f"ordered {item}"

    box = Toolbox([order], ledger=EffectLedger(tmp_path / "effects.db"))
    async with serve_http(box, era) as client:
        texts = [text_of(await client.call_tool("order", {"item": "tea"})) for _ in range(2)]
    assert (texts, orders) == (["ordered tea"] * 2, ["tea"])


async def test_a_missing_reviewer_inside_a_tool_keeps_its_secrets(era):
    inner = Toolbox([climb], approve=["climb"], review=None)

    @tool
    async def outer() -> str:
        raise ToolConfigurationError(f"the key is hunter2 {inner.names}")

    async with serve_http(Toolbox([outer]), era) as client:
        result = await client.call_tool("outer", {})
    assert (result.is_error, text_of(result)) == (True, "Error: The tool is not set up; see the server's log")


NAME = {"type": "object", "properties": {"name": {"type": "string", "default": "Bob"}}, "required": ["name"]}


@tool
async def hello() -> str:
    """Ask for a name."""
    answer = await elicit("What is your name?", NAME)
    return "no name" if answer is None else f"Hello {answer['name']}"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (ElicitResult(action="accept", content={"name": "Ada"}), "Hello Ada"),
        (ElicitResult(action="accept", content={}), "Hello Bob"),
        (ElicitResult(action="accept"), "Hello Bob"),
        (ElicitResult(action="accept", content={"name": 5}), "Error: The answer of the client's user does not fit"),
        (ElicitResult(action="decline"), "no name"),
        (ElicitResult(action="cancel"), "no name"),
    ],
)
async def test_a_tool_asks_with_a_form(era, answer, text):
    async def respond(context, params):
        assert (params.message, params.requested_schema["required"]) == ("What is your name?", ["name"])
        return answer

    async with serve_http(Toolbox([hello]), era, client={"elicitation_callback": respond}) as client:
        assert text_of(await client.call_tool("hello", {})).startswith(text)


async def test_a_form_that_is_no_schema_is_an_error(era):
    @tool
    async def wrong() -> str:
        await elicit("What?", {"type": "nothing"})
        return "never"

    async with serve_http(Toolbox([wrong]), era) as client:
        assert (await client.call_tool("wrong", {})).is_error


async def test_a_question_to_a_client_that_cannot_answer_fails(era):
    @tool
    async def roots() -> str:
        return str(await ask_client(ListRootsRequest()))

    async with serve_http(Toolbox([hello, roots]), era) as client:
        if era == "2025-11-25":
            text = text_of(await client.call_tool("hello", {}))
            assert text.endswith("it does not declare the capability 'elicitation'")
        else:
            for name, missing in (("hello", "elicitation"), ("roots", "roots")):
                with pytest.raises(MCPError, match="does not declare the capability") as raised:
                    await client.call_tool(name, {})
                assert raised.value.code == -32021
                assert raised.value.data == {"requiredCapabilities": {missing: {}}}


async def test_a_tool_can_handle_a_client_that_cannot_answer(era):
    @tool
    async def polite() -> str:
        try:
            await elicit("What is your name?", NAME)
        except ToolExecutionError:
            return "Hello stranger"
        return "never"

    async with serve_http(Toolbox([polite]), era) as client:
        assert text_of(await client.call_tool("polite", {})) == "Hello stranger"


async def test_a_tool_asks_the_model_of_the_client(era):
    @tool
    async def poem() -> str:
        message = SamplingMessage(role="user", content=SdkText(type="text", text="A poem!"))
        request = CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=50))
        return (await ask_client(request)).content.text

    async def sample(context, params):
        return CreateMessageResult(
            role="assistant", content=SdkText(type="text", text="Roses are red"), model="test", stop_reason="endTurn"
        )

    async with serve_http(Toolbox([poem]), era, client={"sampling_callback": sample}) as client:
        assert text_of(await client.call_tool("poem", {})) == "Roses are red"


@pytest.mark.filterwarnings("ignore:The logging capability is deprecated")
async def test_log_messages_reach_a_client_that_wants_them(era):
    messages = []

    @tool
    async def chatty() -> str:
        await log_to_client("info", "page 1 of 10")
        await log_to_client("error", {"page": 2})
        return "done"

    @tool
    def thread() -> str:
        asyncio.run(log_to_client("error", "from a thread"))
        return "done"

    async def receive(params):
        messages.append((params.level, params.data))

    wanted = {"io.modelcontextprotocol/logLevel": "error"} if era == "2026-07-28" else None
    async with serve_http(Toolbox([chatty, thread]), era, client={"logging_callback": receive}) as client:
        if wanted is None:
            await client.set_logging_level("error")
        await client.call_tool("chatty", {}, meta=wanted)
        await client.call_tool("thread", {}, meta=wanted)
        await client.call_tool("chatty", {}, meta=wanted)
    expected = [("error", {"page": 2}), ("error", "from a thread"), ("error", {"page": 2})]
    assert messages == expected


async def test_an_answer_can_be_sent_before_the_question(era):
    if era == "2025-11-25":
        pytest.skip("only requests that are repeated carry answers")

    @tool
    async def named() -> str:
        return f"Hello {(await elicit('What is your name?', NAME, key='user_name'))['name']}"

    async def respond(context, params):
        return ElicitResult(action="decline")

    async with serve_http(Toolbox([named]), era, client={"elicitation_callback": respond}) as client:
        answers = {"user_name": ElicitResult(action="accept", content={"name": "Ada"})}
        assert text_of(await client.session.call_tool("named", {}, input_responses=answers)) == "Hello Ada"
