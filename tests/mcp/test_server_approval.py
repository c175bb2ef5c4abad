"""Approval of served tools: the user of the client is asked, in both eras of the protocol."""

import asyncio
import threading

import pytest
from mcp import MCPError
from mcp_types import ElicitRequest, ElicitResult, InputRequiredResult, ListRootsResult

from helpers.mcp_server import ERAS, SECONDS, connect, run_app, serve_http, serve_program, text_of
from toolsemble import Continue, ExitEarly, Secret, Tool, Toolbox, ToolContext, fan_out, tool
from toolsemble.builtin import HumanInputTool
from toolsemble.mcp import asgi
from toolsemble.mcp._server import parking
from toolsemble.testing import FakeReviewer

pytestmark = pytest.mark.slow


class Disk(Tool):
    """A tool that records what it did."""

    name = "delete"
    description = "Delete a file"
    requires_approval = True

    def __init__(self):
        self.deleted = []

    def run(self, input: str) -> str:
        self.deleted.append(input)
        return f"deleted {input}"


class User:
    """A user of the client, who answers the same to every question."""

    def __init__(self, action="accept", **content):
        self.answer = ElicitResult(action=action, content=content or None)
        self.questions = []

    async def __call__(self, context, params):
        self.questions.append(params)
        return self.answer


@pytest.mark.parametrize("era", ERAS)
async def test_a_gated_tool_asks_and_runs_once(era):
    disk, user = Disk(), User(approve=True)
    async with serve_http(Toolbox([disk]), era, client={"elicitation_callback": user}) as client:
        result = await client.call_tool("delete", {"input": "old.log"})
    assert (text_of(result), result.is_error, disk.deleted) == ("deleted old.log", False, ["old.log"])
    (question,) = user.questions
    assert question.message == "May this call run? delete\nDelete a file\nArguments:\nold.log"
    assert list(question.requested_schema["properties"]) == ["approve"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_gated_tool_asks_over_standard_streams(era, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "from toolsemble import Toolbox, tool\n"
        "from toolsemble.mcp import serve\n"
        "@tool\n"
        "def delete(path: str) -> str:\n"
        "    return f'deleted {path}'\n"
        "serve(Toolbox([delete], approve=['del*']))\n"
    )
    user = User(approve=True)
    async with serve_program(program, era, elicitation_callback=user) as client:
        assert text_of(await client.call_tool("delete", {"path": "old.log"})) == "deleted old.log"
    assert len(user.questions) == 1


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("user", "reason"),
    [
        (User("decline"), "the user declined"),
        (User("cancel"), "the user gave no answer"),
        (User(approve=False), "the user did not approve"),
        (User(approve="true"), "the user did not approve"),
        (User(approve=1), "the user did not approve"),
        (User(), "the user did not approve"),
    ],
    ids=["decline", "cancel", "no", "text", "number", "nothing"],
)
async def test_anything_but_a_checked_box_rejects(era, user, reason):
    disk = Disk()
    async with serve_http(Toolbox([disk]), era, client={"elicitation_callback": user}) as client:
        result = await client.call_tool("delete", {"input": "old.log"})
    assert (text_of(result), result.is_error) == (f"Error: Rejected by reviewer: {reason}", True)
    assert disk.deleted == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_cannot_ask_is_refused_in_words(era):
    disk = Disk()
    async with serve_http(Toolbox([disk]), era) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["delete"]
        result = await client.call_tool("delete", {"input": "old.log"})
    assert result.is_error
    assert "this client cannot ask one: it does not declare the capability 'elicitation'" in text_of(result)
    assert disk.deleted == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_reviewer_of_the_toolbox_is_asked_instead(era):
    disk, user, reviewer = Disk(), User(approve=True), FakeReviewer(Continue(), ExitEarly("not today"))
    async with serve_http(Toolbox([disk], review=reviewer), era, client={"elicitation_callback": user}) as client:
        first = await client.call_tool("delete", {"input": "a"})
        second = await client.call_tool("delete", {"input": "b"})
    assert (text_of(first), text_of(second)) == ("deleted a", "Error: Rejected by reviewer: not today")
    assert (user.questions, disk.deleted) == ([], ["a"])


@pytest.mark.parametrize("era", ERAS)
async def test_a_required_role_is_refused(era):
    user = User(approve=True)

    @tool(requires_approval=True, approval_role="admin")
    def deploy() -> str:
        return "deployed"

    async with serve_http(Toolbox([deploy]), era, client={"elicitation_callback": user}) as client:
        text = text_of(await client.call_tool("deploy", {}))
    assert "the role 'admin' is required, and the user of an MCP client has no proven role" in text
    assert user.questions == []


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("text", "sent"), [("Dear Ada", "sent Dear Ada"), ("Hi", "sent Hi")])
async def test_an_editable_text_can_be_edited(era, text, sent):
    user = User(approve=True, edit=text)

    @tool(requires_approval=True, editable="body")
    def send(body: str) -> str:
        return f"sent {body}"

    async with serve_http(Toolbox([send]), era, client={"elicitation_callback": user}) as client:
        assert text_of(await client.call_tool("send", {"body": "Hi"})).startswith(sent)
    assert user.questions[0].requested_schema["properties"]["edit"]["default"] == "Hi"


@pytest.mark.parametrize("era", ERAS)
async def test_an_edit_that_was_not_asked_for_is_ignored(era):
    disk, user = Disk(), User(approve=True, edit="other.log", answer="other.log")
    async with serve_http(Toolbox([disk]), era, client={"elicitation_callback": user}) as client:
        await client.call_tool("delete", {"input": "old.log"})
    assert disk.deleted == ["old.log"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_question_shows_repairs_and_hides_secrets_and_tricks(era):
    user = User(approve=True)

    @tool(requires_approval=True)
    def pay(amount: int, key: Secret[str], note: str) -> str:
        return str(amount)

    arguments = {"amount": "5", "key": "hunter2", "note": "ok\u202e\x1b[2J"}
    async with serve_http(Toolbox([pay]), era, client={"elicitation_callback": user}) as client:
        assert text_of(await client.call_tool("pay", arguments)) == "5"
    message = user.questions[0].message
    assert "Repaired at amount: '5' -> 5" in message
    assert "hunter2" not in message
    assert "\u202e" not in message
    assert "\x1b" not in message


@pytest.mark.parametrize("era", ERAS)
async def test_arguments_that_are_too_long_to_show_are_refused(era):
    disk, user = Disk(), User(approve=True)
    async with serve_http(Toolbox([disk]), era, client={"elicitation_callback": user}) as client:
        text = text_of(await client.call_tool("delete", {"input": "x" * 100_000}))
    assert "too long to be shown" in text
    assert (disk.deleted, user.questions) == ([], [])


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_asks_while_it_runs_from_a_thread_and_from_the_loop(era):
    user, runs = User(approve=True, answer="the blue one"), []

    @tool
    def blocking(context: ToolContext) -> str:
        runs.append("blocking")
        return context.request_approval("Which one?", arguments={"of": ["red", "blue"]}).revised

    async with serve_http(Toolbox([blocking, HumanInputTool()]), era, client={"elicitation_callback": user}) as client:
        assert text_of(await client.call_tool("blocking", {})) == "the blue one"
        assert text_of(await client.call_tool("human_input", {"input": "Which one?"})) == "the blue one"
    assert runs == ["blocking"]
    assert user.questions[0].message.startswith("blocking asks:\nWhich one?\n{")
    assert user.questions[1].message == "human_input asks:\nWhich one?"


@pytest.mark.parametrize("era", ERAS)
async def test_a_user_who_stops_a_tool_in_the_middle_gets_an_error(era):
    async with serve_http(Toolbox([HumanInputTool()]), era, client={"elicitation_callback": User("decline")}) as client:
        result = await client.call_tool("human_input", {"input": "Which one?"})
    assert (result.is_error, text_of(result)) == (True, "Error: the user declined")


@pytest.mark.parametrize("era", ERAS)
async def test_an_approval_without_an_answer_in_words_continues(era):
    async with serve_http(
        Toolbox([HumanInputTool()]), era, client={"elicitation_callback": User(approve=True)}
    ) as client:
        text = text_of(await client.call_tool("human_input", {"input": "Is it fine?"}))
    assert text == "Understood. Please continue."


@pytest.mark.parametrize("era", ERAS)
async def test_a_question_that_is_not_answered_in_time_rejects(era):
    disk, asked = Disk(), asyncio.Event()
    disk.approval_timeout = 0.05

    async def never(context, params):
        asked.set()
        await asyncio.sleep(0.5)  # the client answers after the deadline, in the era in which it cannot be cancelled
        return ElicitResult(action="accept", content={"approve": True})

    async with serve_http(Toolbox([disk]), era, client={"elicitation_callback": never}) as client:
        text = text_of(await client.call_tool("delete", {"input": "old.log"}))
    assert asked.is_set()
    assert text == "Error: Rejected by reviewer: no answer within 0.05 s"
    assert disk.deleted == []


# Requests by hand, in the era without sessions.

ACCEPT = {"action": "accept", "content": {"approve": True}}


def approve(first, **fields):
    """Return the fields of a repeated request that approves every question of the first answer."""
    return {"input_responses": dict.fromkeys(first.input_requests, ElicitResult(**ACCEPT)), **fields}


async def ask(client, name="delete", arguments=None, **fields):
    """Call a tool, and return what the server answers, without answering its questions."""
    arguments = {"input": "old.log"} if arguments is None else arguments
    return await client.session.call_tool(name, arguments, allow_input_required=True, **fields)


@pytest.fixture
def disk():
    return Disk()


def connected(disk):
    """Return a context manager of a client that can ask its user."""
    return serve_http(Toolbox([disk]), client={"elicitation_callback": User(approve=True)})


async def test_a_parked_call_is_answered_with_its_question_and_a_handle(disk):
    async with connected(disk) as client:
        first = await ask(client)
        assert isinstance(first, InputRequiredResult)
        (question,) = first.input_requests.values()
        assert isinstance(question, ElicitRequest)
        assert len(first.request_state) > 40
        assert disk.deleted == []


async def test_a_handle_works_once(disk):
    async with connected(disk) as client:
        first = await ask(client)
        again = approve(first, request_state=first.request_state)
        assert text_of(await ask(client, **again)) == "deleted old.log"
        with pytest.raises(MCPError, match="Invalid or expired requestState") as raised:
            await ask(client, **again)
        assert (raised.value.code, disk.deleted) == (-32602, ["old.log"])


async def test_two_repetitions_at_once_run_one_call(disk):
    async with connected(disk) as client:
        first = await ask(client)
        again = approve(first, request_state=first.request_state)
        outcomes = await asyncio.gather(ask(client, **again), ask(client, **again), return_exceptions=True)
        assert sorted(type(each).__name__ for each in outcomes) == ["CallToolResult", "MCPError"]
        assert disk.deleted == ["old.log"]


@pytest.mark.parametrize(
    "changed",
    [
        {"arguments": {"input": "other.log"}},
        {"name": "other"},
        {"request_state": "forged"},
        {"request_state": ""},
    ],
    ids=["arguments", "tool", "handle", "empty"],
)
async def test_a_repetition_that_differs_is_refused_and_uses_nothing_up(changed):
    disk, other = Disk(), Disk()
    other.name = "other"
    async with serve_http(Toolbox([disk, other]), client={"elicitation_callback": User(approve=True)}) as client:
        first = await ask(client)
        again = approve(first, request_state=first.request_state)
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await ask(client, **{**again, **changed})
        assert (disk.deleted, other.deleted) == ([], [])
        assert text_of(await ask(client, **again)) == "deleted old.log"


async def test_a_repetition_without_the_answer_is_asked_again(disk):
    async with connected(disk) as client:
        first = await ask(client)
        second = await ask(client, request_state=first.request_state)
        assert list(second.input_requests) == list(first.input_requests)
        assert second.request_state != first.request_state
        answers = {**approve(second)["input_responses"], "unknown": ElicitResult(**ACCEPT)}
        result = await ask(client, request_state=second.request_state, input_responses=answers)
        assert (text_of(result), disk.deleted) == ("deleted old.log", ["old.log"])


async def test_an_approval_cannot_be_sent_in_advance(disk):
    async with connected(disk) as client:
        guesses = {name: ElicitResult(**ACCEPT) for name in ("approve", "delete", "0", "1")}
        assert isinstance(await ask(client, input_responses=guesses), InputRequiredResult)
        assert disk.deleted == []


async def test_an_answer_of_another_kind_rejects(disk):
    async with connected(disk) as client:
        first = await ask(client)
        (name,) = first.input_requests
        result = await ask(client, request_state=first.request_state, input_responses={name: ListRootsResult(roots=[])})
        assert text_of(result) == "Error: Rejected by reviewer: the user did not approve"
        assert disk.deleted == []


async def test_questions_of_parallel_steps_come_together_and_steps_run_once():
    first, second = Disk(), Disk()
    first.name, second.name = "first", "second"
    both = fan_out(first, second)
    both.name = "both"
    async with serve_http(Toolbox([both]), client={"elicitation_callback": User(approve=True)}) as client:
        asked = await ask(client, "both")
        assert len(asked.input_requests) == 2
        one, other = asked.input_requests
        partly = await ask(
            client, "both", request_state=asked.request_state, input_responses={one: ElicitResult(**ACCEPT)}
        )
        assert list(partly.input_requests) == [other]
        result = await ask(client, "both", **approve(partly, request_state=partly.request_state))
    assert not result.is_error
    assert (first.deleted, second.deleted) == (["old.log"], ["old.log"])


@pytest.mark.parametrize("bound", ["_MOST_CALLS_OF_A_CALLER", "_MOST_CALLS"])
async def test_the_parked_calls_of_a_caller_and_of_all_are_bounded(monkeypatch, disk, bound):
    monkeypatch.setattr(parking, bound, 2)
    async with serve_http(Toolbox([disk]), client={"elicitation_callback": User(approve=True)}) as client:
        parked = [await ask(client) for _ in range(2)]
        refused = await ask(client)
        assert "Too many calls of this client wait for an answer already" in text_of(refused)
        for first in parked:
            assert text_of(await ask(client, **approve(first, request_state=first.request_state))) == "deleted old.log"
        assert isinstance(await ask(client), InputRequiredResult)


async def test_a_call_whose_client_does_not_come_back_ends_as_rejected(monkeypatch, disk):
    monkeypatch.setattr(parking, "SECONDS", 0.05)
    ended = threading.Event()
    box = Toolbox([disk], after_call=lambda call, result, context: ended.set())
    async with serve_http(box, client={"elicitation_callback": User(approve=True)}) as client:
        first = await ask(client)
        assert await asyncio.to_thread(ended.wait, SECONDS)
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await ask(client, **approve(first, request_state=first.request_state))
    assert disk.deleted == []


async def test_a_call_that_its_client_abandons_cannot_ask_again(monkeypatch):
    monkeypatch.setattr(parking, "SECONDS", 0.05)
    decisions, ended = [], threading.Event()

    @tool
    async def stubborn(context: ToolContext) -> str:
        decisions.append(await context.arequest_approval("Really?"))
        decisions.append(await context.arequest_approval("Sure?"))
        ended.set()
        return "done"

    async with serve_http(Toolbox([stubborn]), client={"elicitation_callback": User(approve=True)}) as client:
        assert isinstance(await ask(client, "stubborn", {}), InputRequiredResult)
        assert await asyncio.to_thread(ended.wait, SECONDS)
    assert [each.reason for each in decisions] == ["The client did not come back for this call"] * 2


async def test_a_parked_call_that_timed_out_gives_its_result_to_the_repetition(disk):
    disk.approval_timeout = 0.01
    ended = threading.Event()
    box = Toolbox([disk], after_call=lambda call, result, context: ended.set())
    async with serve_http(box, client={"elicitation_callback": User(approve=True)}) as client:
        first = await ask(client)
        assert await asyncio.to_thread(ended.wait, SECONDS)
        result = await ask(client, **approve(first, request_state=first.request_state))
    assert text_of(result) == "Error: Rejected by reviewer: no answer within 0.01 s"
    assert disk.deleted == []


async def test_parked_calls_are_cancelled_when_the_server_ends(disk):
    with run_app(asgi(Toolbox([disk]))) as url:
        async with connect(url, elicitation_callback=User(approve=True)) as client:
            assert isinstance(await ask(client), InputRequiredResult)
    assert disk.deleted == []


async def test_an_edit_of_the_parked_call_is_what_runs():
    user = User(approve=True, edit="new text")

    @tool(requires_approval=True, editable="body")
    def send(body: str) -> str:
        return f"sent {body}"

    async with serve_http(Toolbox([send]), client={"elicitation_callback": user}) as client:
        assert text_of(await client.call_tool("send", {"body": "Hi"})).startswith("sent new text")
