import asyncio
import multiprocessing
import os
import sqlite3
import stat
import subprocess
import sys
import threading

import pytest

from helpers.agent_scripts import add, assert_valid, sum_of, told
from helpers.full_disk import run_in_process
from toolsemble import (
    Agent,
    AgentExecutionError,
    ConversationMemory,
    ImageContent,
    ToolCall,
    ToolConfigurationError,
    ToolDefinitionError,
    ToolReply,
    ToolResult,
    tool,
)
from toolsemble.agent._conversation import estimate_tokens
from toolsemble.models import AssistantMessage, SystemMessage, ToolMessage, Transcript, UserMessage
from toolsemble.testing import FunctionModel, ScriptedModel

pytestmark = pytest.mark.slow

IMAGE = ImageContent(b"...", "image/png")


@pytest.fixture(params=["memory", "file", "postgres"])
def memory(request, tmp_path):
    places = {"memory": lambda: None, "file": lambda: tmp_path / "conversations.db"}
    made = ConversationMemory(places.get(request.param, lambda: request.getfixturevalue("postgres_url"))())
    yield made
    made.close()


def make_conversation(*texts):
    """Return a conversation: a user's text, an answer, and so on."""
    return [UserMessage(text) if index % 2 == 0 else AssistantMessage(text) for index, text in enumerate(texts)]


async def test_memory_id_continues_conversation(memory):
    model = ScriptedModel([sum_of(1, 2, "c1"), "one", "two", "three"])
    agent = Agent(model, [add], memory=memory, memory_id="default")
    first = await agent.run("a", memory_id="ada")
    await agent.run("b", memory_id="bob")
    third = await agent.run("c", memory_id="ada")
    assert [message.text for message in model.requests[-1]] == ["a", "", "3", "one", "c"]
    assert model.requests[-2] == [UserMessage("b")]
    assert third.messages[:-2] == list(first.messages)
    assert memory.ids() == ["ada", "bob"]
    assert (memory.load("ada") == third.messages, memory.load("unknown")) == (True, [])


async def test_agent_memory_id_is_the_default(memory):
    await Agent(ScriptedModel(["hi"]), memory=memory, memory_id="mine").run("hello")
    assert memory.ids() == ["mine"]


@pytest.mark.parametrize("memory_id", ["", " "])
async def test_blank_memory_id_is_rejected(memory_id):
    agent = Agent(ScriptedModel(["one"]), memory=ConversationMemory())
    with pytest.raises(ToolConfigurationError, match="has no memory_id, but its memory needs one"):
        await agent.run("a", memory_id=memory_id)


async def test_without_a_memory_nothing_is_remembered():
    model = ScriptedModel(["one", "two"])
    agent = Agent(model)
    await agent.run("a")
    await agent.run("b")
    assert model.requests == [[UserMessage("a")], [UserMessage("b")]]


async def test_clear_deletes_conversation(memory):
    agent = Agent(ScriptedModel(["one", "two"]), memory=memory, memory_id="default")
    await agent.run("a")
    memory.clear("default")
    memory.clear("unknown")
    assert (memory.ids(), memory.load("default")) == ([], [])
    assert (await agent.run("b")).messages == make_conversation("b", "two")


async def test_system_message_is_not_stored(memory):
    model = ScriptedModel(["one", "two", "three", "four"])
    for role in ("a poet", "a clerk", "a clerk", ""):
        await Agent(model, role=role, memory=memory, memory_id="default").run(role or "no role")
    assert [[message.text for message in messages] for messages in model.requests] == [
        ["You are a poet.", "a poet"],
        ["You are a clerk.", "a poet", "one", "a clerk"],
        ["You are a clerk.", "a poet", "one", "a clerk", "two", "a clerk"],
        ["a poet", "one", "a clerk", "two", "a clerk", "three", "no role"],
    ]
    assert {message.role for message in memory.load("default")} == {"user", "assistant"}


async def test_system_message_in_prompt_is_stored_once(memory):
    model = ScriptedModel(["one", "two", "three"])
    agent = Agent(model, memory=memory, memory_id="default", role="a poet")
    for question in ("a", "b"):
        await agent.run([SystemMessage("Be brief."), UserMessage(question)])
    await agent.run("c")
    assert [messages[0].text for messages in model.requests] == ["You are a poet.\n\nBe brief."] * 3
    stored = make_conversation("a", "one", "b", "two", "c", "three")
    assert memory.load("default") == [SystemMessage("Be brief."), *stored]


async def test_system_messages_of_several_runs_are_joined(memory):
    model = ScriptedModel(["one", "two", "three"])
    agent = Agent(model, memory=memory, memory_id="default")
    await agent.run([SystemMessage("Be brief."), UserMessage("a")])
    await agent.run([UserMessage("b"), SystemMessage("Be kind."), UserMessage("c")])
    result = await agent.run("d")
    assert [message.text for message in model.requests[-1]] == [
        "Be brief.\n\nBe kind.", "a", "one", "b", "c", "two", "d"
    ]  # fmt: skip
    assert memory.load("default") == result.messages


async def test_system_message_of_a_history_is_stored(memory):
    model = ScriptedModel(["one", "two", "three"])
    agent = Agent(model, memory=memory, memory_id="default")
    first = await agent.run([SystemMessage("Be brief."), UserMessage("a")])
    await agent.run("b", history=first.messages)
    await agent.run("c")
    assert [message.text for message in model.requests[-1]] == ["Be brief.", "a", "one", "b", "two", "c"]


async def test_system_message_outlasts_the_process(tmp_path):
    model = ScriptedModel(["one", "two"])
    for question in ([SystemMessage("Be brief."), UserMessage("a")], "b"):
        memory = ConversationMemory(tmp_path / "conversations.db")
        await Agent(model, memory=memory, memory_id="default").run(question)
        memory.close()
    assert [message.text for message in model.requests[-1]] == ["Be brief.", "a", "one", "b"]


async def test_failed_run_stores_only_completed_turns(memory):
    agent = Agent(
        ScriptedModel([ValueError("x"), sum_of(1, 2), ValueError("y"), "on"]), [add], memory=memory, memory_id="default"
    )
    with pytest.raises(AgentExecutionError, match="x"):
        await agent.run("a")
    assert memory.load("default") == []
    with pytest.raises(AgentExecutionError, match="y"):
        await agent.run("b")
    assert [message.text for message in memory.load("default")] == ["b", "", "3"]
    result = await agent.run("c")
    assert [message.text for message in result.messages] == ["b", "", "3", "c", "on"]


async def test_history_replaces_the_stored_conversation(memory):
    model = ScriptedModel(["one", "two", "three"])
    agent = Agent(model, memory=memory, memory_id="default")
    await agent.run("b", history=make_conversation("a", "zero"))
    assert memory.load("default") == make_conversation("a", "zero", "b", "one")
    await agent.run("d", history=make_conversation("c", "other"))
    assert model.requests[-1] == [*make_conversation("c", "other"), UserMessage("d")]
    assert memory.load("default") == make_conversation("a", "zero", "b", "one", "d", "two")
    await agent.run("e")
    assert [message.text for message in model.requests[-1]] == ["a", "zero", "b", "one", "d", "two", "e"]


@pytest.mark.parametrize("role", ["", "a clerk"])
async def test_continuing_partial_result_stores_question(memory, role):
    agent = Agent(ScriptedModel(["one", ValueError("x"), "two"]), memory=memory, memory_id="default", role=role)
    await agent.run("a")
    with pytest.raises(AgentExecutionError) as caught:
        await agent.run("b")
    await agent.run("go on", history=caught.value.partial.messages)
    assert memory.load("default") == [
        *make_conversation("a", "one"),
        UserMessage("b"),
        *make_conversation("go on", "two"),
    ]


@pytest.mark.parametrize("history", [None, make_conversation("a", "one")])
async def test_unreadable_memory_fails_run(history):
    class Lost(ConversationMemory):
        def load(self, memory_id):
            raise OSError("no disk")

    with pytest.raises(AgentExecutionError, match="no disk") as caught:
        await Agent(ScriptedModel([]), memory=Lost(), memory_id="default").run("b", history=history)
    assert caught.value.partial.messages == [*(history or []), UserMessage("b")]


async def test_unanswered_question_is_not_stored(memory):
    agent = Agent(ScriptedModel(["", "", "two"]), memory=memory, memory_id="default")
    with pytest.raises(AgentExecutionError, match="returned an empty answer twice"):
        await agent.run("a")
    await agent.run("b")
    assert [message.text for message in memory.load("default")] == ["b", "two"]


async def test_concurrent_runs_keep_calls_with_replies(memory):
    def answer(request):
        return "done" if isinstance(request.messages[-1], ToolMessage) else [sum_of(1, 2, "a"), sum_of(3, 4, "b")]

    agent = Agent(FunctionModel(answer), [add], memory=memory, memory_id="default")
    await asyncio.gather(*(agent.run(f"run {number}") for number in range(20)))
    kept = memory.load("default")
    assert_valid(kept)
    assert len(kept) == 20 * 5
    assert sorted(m.text for m in kept if isinstance(m, UserMessage)) == sorted(f"run {n}" for n in range(20))


def test_threads_can_share_a_memory(memory):
    def work(number):
        agent = Agent(ScriptedModel([sum_of(1, number), "done"]), [add], memory=memory, memory_id="default")
        agent.run_sync(f"run {number}", memory_id=str(number % 2))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for name in "01":
        assert_valid(memory.load(name))
        assert len(memory.load(name)) == 5 * 4


# --- files


def test_file_memory_persists_across_processes(tmp_path):
    path = tmp_path / "conversations.db"
    memory = ConversationMemory(path)
    image = ToolMessage(ToolReply(sum_of(1, 2), ToolResult.success("3", contents=[IMAGE])))
    prompt = [UserMessage("a", (IMAGE,)), AssistantMessage("x", (sum_of(1, 2),)), image]
    Agent(ScriptedModel(["one"]), memory=memory, memory_id="default").run_sync(prompt)
    memory.close()
    code = (
        f"from toolsemble import Agent, ConversationMemory; from toolsemble.testing import ScriptedModel; "
        f"memory = ConversationMemory({str(path)!r}); "
        f"Agent(ScriptedModel(['two']), memory=memory, memory_id='default').run_sync('b'); memory.close()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert memory.load("default") == [*prompt, AssistantMessage("one"), UserMessage("b"), AssistantMessage("two")]
    memory.close()


async def test_memories_share_a_file(tmp_path):
    one, other = (ConversationMemory(tmp_path / "conversations.db") for _ in range(2))
    await Agent(ScriptedModel(["one"]), memory=one, memory_id="default").run("a")
    await Agent(ScriptedModel(["two"]), memory=other, memory_id="default").run("b")
    assert one.load("default") == make_conversation("a", "one", "b", "two")
    before = one.load("default")
    other.clear("default")
    assert one.load("default") == []
    await Agent(ScriptedModel(["three"]), memory=other, memory_id="default").run("c")
    one.extend("default", before, before.plus(UserMessage("d")), 1)
    assert one.load("default") == other.load("default") == [*make_conversation("c", "three"), UserMessage("d")]
    one.close()
    other.close()


async def test_evicted_conversations_are_read_from_file(tmp_path):
    memory = ConversationMemory(tmp_path / "conversations.db")
    for number in range(70):
        memory.extend(str(number), Transcript(), Transcript([UserMessage(str(number))]), 1)
    assert [memory.load(str(number))[0].text for number in range(70)] == [str(number) for number in range(70)]
    memory.close()


@pytest.mark.skipif(os.name != "posix", reason="forks and modes are POSIX's")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # the process has threads of earlier tests
def test_forked_process_reopens_file(tmp_path):
    memory = ConversationMemory(tmp_path / "conversations.db")
    Agent(ScriptedModel(["one"]), memory=memory, memory_id="default").run_sync("a")

    def work(queue):
        Agent(ScriptedModel(["two"]), memory=memory, memory_id="default").run_sync("b")
        queue.put(len(memory.load("default")))
        memory.close()

    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=work, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == 4
    child.join(60)
    assert memory.load("default") == make_conversation("a", "one", "b", "two")
    memory.close()


HELD = """
    import os, signal, threading, warnings
    from toolsemble import Agent, ConversationMemory, ToolCall, tool
    from toolsemble.agent._run.spending import current_spending
    from toolsemble.testing import ScriptedModel

    memory = ConversationMemory()
    Agent(ScriptedModel(["one"]), memory=memory, memory_id="default").run_sync("a", memory_id="inside")
    warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what this is about

    def hold(owners, holds, go):
        for owner in owners:
            owner._lock.acquire()
        holds.set()
        go.wait(60)

    @tool
    def split() -> str:
        owners = [memory._store, memory.load("inside")._shared, current_spending.get().tallies[-1]]
        holds, go = threading.Event(), threading.Event()
        thread = threading.Thread(target=hold, args=(owners, holds, go), daemon=True)
        thread.start()
        assert holds.wait(60)
        child = os.fork()
        if child == 0:
            signal.alarm(30)  # or it would wait for ever
            Agent(ScriptedModel(["two"]), memory=memory, memory_id="default").run_sync("b", memory_id="inside")
            print([message.text for message in memory.load("inside")], flush=True)
            os._exit(0)
        code = os.waitpid(child, 0)[1]
        for owner in owners:
            owner._lock = threading.RLock()  # the thread that has the others ends with them
        go.set()
        thread.join(60)
        return str(code)

    model = ScriptedModel([ToolCall("split"), lambda said: said[-1].text])
    print(Agent(model, [split], memory=memory, memory_id="default").run_sync("a").text)
"""


@pytest.mark.skipif(os.name != "posix", reason="forks and modes are POSIX's")
def test_fork_does_not_deadlock_on_held_lock():
    assert run_in_process(HELD) == ["['a', 'one', 'b', 'two']", "0"]


def test_concurrent_writes_are_visible(tmp_path):
    memories = [ConversationMemory(tmp_path / "conversations.db") for _ in range(2)]

    def write(memory):
        for _ in range(200):
            memory.extend("x", None, Transcript([UserMessage("a")]), 1)

    threads = [threading.Thread(target=write, args=(memory,)) for memory in memories]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [len(memory.load("x")) for memory in memories] == [400, 400]
    for memory in memories:
        memory.close()


@pytest.mark.skipif(os.name != "posix", reason="forks and modes are POSIX's")
def test_file_is_readable_by_owner_only(tmp_path):
    ConversationMemory(tmp_path / "conversations.db").close()
    assert stat.S_IMODE((tmp_path / "conversations.db").stat().st_mode) == 0o600


def test_unusable_file_is_rejected(tmp_path):
    (tmp_path / "notes.txt").write_text("not a database, whatever its length may be " * 100)
    for path in (tmp_path, tmp_path / "missing" / "x.db", tmp_path / "notes.txt"):
        with pytest.raises(ToolConfigurationError, match=r"The conversation memory '.*' cannot be used"):
            ConversationMemory(path)


@pytest.mark.parametrize("path", ["", ":memory:", 5, b"talks.db", True])
def test_invalid_path_is_rejected(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ToolDefinitionError) as caught:
        ConversationMemory(path)
    assert str(caught.value) == (
        f"ConversationMemory path must be the path of a file, or None to use memory, not {path!r}"
    )
    assert list(tmp_path.iterdir()) == []


def test_invalid_token_counter_is_rejected():
    with pytest.raises(ToolDefinitionError, match="count_tokens must be a function of a message, not 5"):
        ConversationMemory(count_tokens=5)


def test_relative_path_survives_chdir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    memory = ConversationMemory("conversations.db")
    memory.extend("x", None, Transcript([UserMessage("a")]), 1)
    memory.close()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert memory.load("x") == [UserMessage("a")]
    memory.close()


def test_invalid_row_is_reported(tmp_path):
    memory = ConversationMemory(tmp_path / "conversations.db")
    connection = sqlite3.connect(tmp_path / "conversations.db")
    with connection:
        connection.execute("INSERT INTO messages (memory_id, message) VALUES ('x', 'y')")
    connection.close()
    with pytest.raises(ToolConfigurationError, match="This is not a message: 'y'"):
        memory.load("x")
    memory.close()


def test_failed_write_leaves_file_unchanged(tmp_path):
    memory = ConversationMemory(tmp_path / "conversations.db")
    transcript = Transcript([UserMessage("a"), AssistantMessage("b", (), {"details": object()})])
    with pytest.raises(TypeError):
        memory.extend("x", Transcript(), transcript, 2)
    assert memory.load("x") == []
    memory.close()


def test_close_without_file_does_nothing():
    memory = ConversationMemory()
    memory.extend("x", Transcript(), Transcript(make_conversation("a")), 1)
    memory.close()
    assert memory.load("x") == make_conversation("a")


# --- windows


def make_turn(*numbers):
    """Return a turn with as many calls as there are numbers, and their replies."""
    calls = tuple(sum_of(number, 0, f"c{number}") for number in numbers)
    return [
        AssistantMessage("", calls),
        *(ToolMessage(ToolReply(call, ToolResult.success(call.id))) for call in calls),
    ]


SYSTEM = SystemMessage("You are brief.")
LONG = [
    SYSTEM,
    *make_conversation("a", "b"),
    UserMessage("c"),
    *make_turn(1, 2),
    AssistantMessage("d"),
    UserMessage("e"),
]

# messages, limit, the texts (or ids of calls) that are shown
WINDOWS = [
    (LONG, 9, LONG),
    (LONG, 8, LONG),
    (LONG, 7, [SYSTEM, *LONG[3:]]),
    (LONG, 6, [SYSTEM, *LONG[3:]]),
    (LONG, 5, [SYSTEM, LONG[-1]]),
    (LONG, 1, [SYSTEM, LONG[-1]]),
    (LONG[1:], 6, LONG[3:]),
    (
        [UserMessage("q"), *make_turn(1), *make_turn(2), *make_turn(3)],
        7,
        [UserMessage("q"), *make_turn(1), *make_turn(2), *make_turn(3)],
    ),
    (
        [UserMessage("q"), *make_turn(1), *make_turn(2), *make_turn(3)],
        6,
        [UserMessage("q"), *make_turn(2), *make_turn(3)],
    ),
    ([UserMessage("q"), *make_turn(1), *make_turn(2), *make_turn(3)], 3, [UserMessage("q"), *make_turn(3)]),
    ([UserMessage("q"), *make_turn(1), *make_turn(2, 3, 4)], 1, [UserMessage("q"), *make_turn(2, 3, 4)]),
    ([*make_conversation("a", "b", "q"), *make_turn(1), *make_turn(2)], 3, [UserMessage("q"), *make_turn(2)]),
    (
        [*make_conversation("a", "b", "q"), *make_turn(1), *make_turn(2)],
        6,
        [UserMessage("q"), *make_turn(1), *make_turn(2)],
    ),
    ([*make_turn(1), *make_turn(2)], 4, [*make_turn(1), *make_turn(2)]),
    ([*make_turn(1), *make_turn(2)], 3, make_turn(2)),
    ([SYSTEM, *make_turn(1), *make_turn(2)], 1, [SYSTEM, *make_turn(2)]),
]


@pytest.mark.parametrize(("messages", "limit", "shown"), WINDOWS)
async def test_window_keeps_calls_with_replies(messages, limit, shown):
    model = ScriptedModel(["x"])
    result = await Agent(model, memory=ConversationMemory(max_messages=limit), memory_id="default").run(
        [], history=messages
    )
    assert model.requests == [shown]
    assert result.messages == [*messages, AssistantMessage("x")]


async def test_window_applies_within_a_run():
    model = ScriptedModel([*(sum_of(number, 0) for number in range(6)), "done"])
    memory = ConversationMemory(max_messages=5)
    result = await Agent(model, [add], role="brief", memory=memory, memory_id="default").run("go")
    assert [len(messages) for messages in model.requests] == [2, 4, 6, 6, 6, 6, 6]
    for messages in model.requests:
        assert_valid(messages)
        assert [message.text for message in messages[:2]] == ["You are brief.", "go"]
    assert told(model.requests[-1]) == ["4", "5"]
    assert memory.load("default") == result.messages[1:]
    assert len(result.messages) == 2 + 12 + 1


async def test_window_can_limit_tokens():
    def count(message):
        return len(message.text)

    messages = [*make_conversation("a" * 50, "b" * 50, "c" * 50, "d" * 50), UserMessage("e" * 10)]
    for settings, first in (
        ({"max_tokens": 210}, "a"),
        ({"max_tokens": 209}, "c"),
        ({"max_tokens": 110}, "c"),
        ({"max_tokens": 109}, "e"),
        ({"max_tokens": 1}, "e"),
        ({"max_tokens": 110, "max_messages": 2}, "e"),
        ({"max_tokens": 10, "max_messages": 3}, "e"),
    ):
        model = ScriptedModel(["x"])
        await Agent(model, memory=ConversationMemory(count_tokens=count, **settings), memory_id="default").run(
            [], history=messages
        )
        assert model.requests[0][0].text[0] == first


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (UserMessage("x" * 40), 14),
        (UserMessage("", (IMAGE, IMAGE)), 1604),
        (SYSTEM, 7),
        (AssistantMessage("", (sum_of(1, 2),)), 8),
        (make_turn(1)[1], 4),
        (ToolMessage(ToolReply(sum_of(1, 2), ToolResult.success("", contents=[IMAGE]))), 804),
    ],
)
def test_tokens_are_estimated_by_length(message, tokens):
    assert estimate_tokens(message) == tokens


@pytest.mark.parametrize("setting", ["max_messages", "max_tokens"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5, "9"])
def test_invalid_window_is_rejected(setting, value):
    with pytest.raises(ToolDefinitionError, match=f"ConversationMemory {setting} must be an int >= 1"):
        ConversationMemory(**{setting: value})


# --- long conversations


def count_calls(work):
    """Count the calls of Python functions that some work makes: its cost, on any machine."""
    count = 0

    def profile(frame, event, arg):
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


async def run_conversation(turns, memory):
    agent = Agent(
        ScriptedModel([each for n in range(turns) for each in (sum_of(n, 1), "ok")]),
        [add],
        memory=memory,
        memory_id="default",
    )
    for _ in range(turns):
        result = await agent.run("go")
    return result


@pytest.mark.parametrize("memory", ["memory", "file"], indirect=True)
async def test_thousand_turns_are_stored(memory):
    result = await run_conversation(1000, memory)
    assert len(result.messages) == 4000
    assert_valid(result.messages)
    assert memory.load("default") == result.messages


@pytest.mark.parametrize("in_file", [False, True])
def test_conversation_cost_is_linear_in_turns(in_file, tmp_path):
    def cost(turns):
        memory = ConversationMemory(tmp_path / f"{turns}.db" if in_file else None)
        counted = count_calls(lambda: asyncio.run(run_conversation(turns, memory)))
        memory.close()
        return counted

    cost(5)
    assert cost(200) < 4.8 * cost(50)


def test_run_cost_is_linear_in_calls():
    def cost(turns):
        agent = Agent(ScriptedModel([*(sum_of(n, 1) for n in range(turns)), "ok"]), [add], max_tool_calls=turns)
        return count_calls(lambda: agent.run_sync("go"))

    cost(5)
    assert cost(400) < 4.8 * cost(100)


async def test_request_messages_are_shared_not_copied():
    model = ScriptedModel([*(sum_of(number, 1) for number in range(25)), "ok"])
    result = await Agent(model, [add]).run("go")
    assert [len(messages) for messages in model.requests] == list(range(1, 53, 2))
    assert all(isinstance(messages, Transcript) for messages in model.requests)
    assert all(messages[0] is result.messages[0] for messages in model.requests)


# --- agents inside agents


async def test_nested_agent_has_own_conversation_in_shared_memory(memory):
    seen = []

    @tool
    def look() -> str:
        seen.append(look.context.memory_id)
        return "seen"

    poet = Agent(ScriptedModel([ToolCall("look"), "one", "two"]), [look], memory=memory).as_tool("poet", "")
    ask = ToolCall("poet", {"input": "a poem"})
    boss = Agent(ScriptedModel([ask, "a", ask, "b"]), [poet], memory=memory, memory_id="default")
    await boss.run("go", memory_id="ada")
    await boss.run("again", memory_id="ada")
    assert memory.ids() == ["ada/poet", "ada"]
    assert [message.text for message in memory.load("ada/poet")] == ["a poem", "", "seen", "one", "a poem", "two"]
    assert [message.text for message in memory.load("ada")] == ["go", "", "one", "a", "again", "", "two", "b"]
    assert seen == ["ada"]


async def test_nested_agent_keeps_explicit_memory_id(memory):
    poet = Agent(ScriptedModel(["one"]), memory=memory, memory_id="poems").as_tool("poet", "")
    await Agent(ScriptedModel([ToolCall("poet", {"input": "x"}), "a"]), [poet]).run("go", memory_id="ada")
    assert memory.ids() == ["poems/poet"]
