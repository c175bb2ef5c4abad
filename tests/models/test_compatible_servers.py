"""Servers that are compatible with OpenAI's chat completions, with their deviations."""

import asyncio

import pytest

from helpers.openai_wire import (
    CHAT,
    called,
    chunks,
    completion,
    delta,
    header,
    in_turn,
    model_at,
    put_together,
    sent,
    streamed,
    tokens,
    whole,
)
from helpers.web_server import serving
from toolsemble import Agent, ModelError, ToolCall, ToolConfigurationError, tool
from toolsemble._vocabulary.call import received_call
from toolsemble.models import (
    CallDelta,
    ChatReply,
    ChatRequest,
    OpenAIModel,
    StreamEnd,
    TextDelta,
    TokenUsage,
    UserMessage,
    _model_list as model_list,
    model_of,
)
from toolsemble.models.openai._compatible import SERVERS

pytestmark = pytest.mark.slow

HELLO = ChatRequest([UserMessage("hello")])
ROME = '{"city": "Rome"}'
OSLO = '{"city": "Oslo"}'
LOCAL = {"ollama": 11434, "lmstudio": 1234, "llamacpp": 8080, "vllm": 8000}
HOSTS = ["OLLAMA_HOST", "LMSTUDIO_HOST", "LLAMACPP_HOST", "VLLM_HOST"]


@pytest.fixture
def web():
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch):
    for name in [*HOSTS, *(server.key_variable for server in SERVERS.values())]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(model_list, "SECONDS", 30.0)  # this machine may be busy


def make_weather_calls(*cities):
    return tuple(ToolCall("weather", arguments, own) for own, arguments in cities)


# --- streams


QUIRKS = {
    "no numbers of tokens": ([delta(content="Rome"), delta("stop")], ChatReply("Rome")),
    "no text beside nothing": ([delta(content=None), delta("stop", content="Rome")], ChatReply("Rome")),
    "text in parts": ([delta("stop", content=[{"type": "text", "text": "Ro"}, {"text": "me"}])], ChatReply("Rome")),
    "whole arguments in one piece": (
        [delta("tool_calls", tool_calls=[called(0, "a", "weather", ROME), called(1, "b", "weather", OSLO)])],
        make_weather_calls(("a", ROME), ("b", OSLO)),
    ),
    "no ids": (
        [
            delta(tool_calls=[called(0, None, "weather", ROME)]),
            delta("tool_calls", tool_calls=[called(1, None, "weather", OSLO)]),
        ],
        make_weather_calls((None, ROME), (None, OSLO)),
    ),
    "empty ids": (
        [
            delta(tool_calls=[called(0, "", "weather", ROME[:5])]),
            delta("tool_calls", tool_calls=[called(0, "", "", ROME[5:])]),
        ],
        make_weather_calls((None, ROME)),
    ),
    "ids that are numbers": (
        [delta("tool_calls", tool_calls=[called(0, 7, "weather", ROME)])],
        make_weather_calls(("7", ROME)),
    ),
    "no index, with ids": (
        [
            delta(tool_calls=[called(None, "a", "weather", ROME[:5])]),
            delta(tool_calls=[called(None, None, None, ROME[5:])]),
            delta(tool_calls=[called(None, "b", "weather", OSLO[:5])]),
            delta("tool_calls", tool_calls=[called(None, "b", None, OSLO[5:])]),
        ],
        make_weather_calls(("a", ROME), ("b", OSLO)),
    ),
    "no index, ids in turn": (
        [
            delta(tool_calls=[called(None, "a", "weather", ROME[:5]), called(None, "b", "weather", OSLO[:5])]),
            delta("tool_calls", tool_calls=[called(None, "a", None, ROME[5:]), called(None, "b", None, OSLO[5:])]),
        ],
        make_weather_calls(("a", ROME), ("b", OSLO)),
    ),
    "neither index nor ids": (
        [
            delta(
                "tool_calls",
                tool_calls=[called(name="weather", arguments=ROME), called(name="weather", arguments=OSLO)],
            )
        ],
        make_weather_calls((None, ROME), (None, OSLO)),
    ),
    "always the same index": (
        [
            delta(tool_calls=[called(0, "a", "weather", ROME)]),
            delta("tool_calls", tool_calls=[called(0, "b", "weather", OSLO)]),
        ],
        make_weather_calls(("a", ROME), ("b", OSLO)),
    ),
    "always the same index, without ids": (
        [
            delta(tool_calls=[called(0, None, "now", "{}")]),
            delta("tool_calls", tool_calls=[called(0, None, "weather", OSLO)]),
        ],
        (ToolCall("now", "{}"), ToolCall("weather", OSLO)),
    ),
    "always the same id": (
        [
            delta(tool_calls=[called(0, "a", "weather", ROME)]),
            delta(tool_calls=[called(1, "a", "weather", OSLO[:5])]),
            delta("tool_calls", tool_calls=[called(1, "a", None, OSLO[5:])]),
        ],
        make_weather_calls(("a", ROME), ("a", OSLO)),
    ),
    "id and name in every piece": (
        [
            delta(tool_calls=[called(0, "a", "weather", ROME[:5])]),
            delta("tool_calls", tool_calls=[called(0, "a", "weather", ROME[5:])]),
        ],
        make_weather_calls(("a", ROME)),
    ),
    "empty names in later pieces": (
        [
            delta(tool_calls=[called(0, "a", "weather", ROME[:5])]),
            delta("tool_calls", tool_calls=[called(0, "a", "", ROME[5:])]),
        ],
        make_weather_calls(("a", ROME)),
    ),
    "the name after the id": (
        [
            delta(tool_calls=[called(0, "a")]),
            delta(tool_calls=[called(0, arguments=ROME[:5])]),
            delta(tool_calls=[called(0, name="weather")]),
            delta("tool_calls", tool_calls=[called(0, arguments=ROME[5:])]),
        ],
        make_weather_calls(("a", ROME)),
    ),
    "a new id in every piece": (
        [
            delta(tool_calls=[called(0, "a", "weather", ROME[:5])]),
            delta("tool_calls", tool_calls=[called(0, "b", None, ROME[5:])]),
        ],
        make_weather_calls(("a", ROME)),
    ),
    "an index that grows within a call": (
        [
            delta(tool_calls=[called(0, "a", "weather", ROME[:5])]),
            delta("tool_calls", tool_calls=[called(1, arguments=ROME[5:])]),
        ],
        make_weather_calls(("a", ROME)),
    ),
    "arguments that are an object": (
        [delta("tool_calls", tool_calls=[called(0, "a", "weather", {"city": "Rome"}), called(1, "b", "now", {})])],
        (ToolCall("weather", ROME, "a"), ToolCall("now", "", "b")),
    ),
    "no name at all": ([delta("tool_calls", tool_calls=[called(0, "a", None, ROME)])], (received_call("", ROME, "a"),)),
    "a call of another kind": (
        [delta("tool_calls", tool_calls=[{"index": 0, "id": "a", "custom": {"name": "sql", "input": "select 1"}}])],
        (ToolCall("sql", "select 1", "a"),),
    ),
    "calls that end as text does": (
        [delta("stop", tool_calls=[called(0, "a", "weather", ROME)])],
        make_weather_calls(("a", ROME)),
    ),
    "an unknown end": (
        [delta("eos", tool_calls=[called(0, "a", "weather", ROME)])],
        make_weather_calls(("a", ROME)),
    ),
    "two answers to one question": (
        [
            {
                **delta(content="Ro"),
                "choices": [delta(content="Ro")["choices"][0], {"index": 1, "delta": {"content": "No"}}],
            },
            delta("stop", content="me"),
        ],
        ChatReply("Rome"),
    ),
    "pieces without anything": (
        [
            {"id": "x"},
            {"choices": None},
            {"choices": [{"delta": None}]},
            ": a comment\n\n",
            delta("stop", content="Rome"),
        ],
        ChatReply("Rome"),
    ),
}


@pytest.mark.parametrize("quirk", QUIRKS)
async def test_stream_with_missing_fields_is_read(web, quirk):
    events, expected = QUIRKS[quirk]
    web.answers[CHAT] = streamed(*events)
    reply = expected if isinstance(expected, ChatReply) else ChatReply("", expected, stop_reason="calls")
    assert await put_together(model_at(web), HELLO) == reply


async def test_stream_without_done_marker_is_read(web):
    web.answers[CHAT] = streamed(delta("stop", content="Rome"), tokens(), done=False)
    expected = [TextDelta("Rome"), StreamEnd(TokenUsage(9, 2, 4, 1))]
    assert await chunks(model_at(web), HELLO) == expected


async def test_usage_may_be_sent_with_every_chunk(web):
    first = {**delta(content="Ro"), **tokens((9, 1, 0)), "choices": delta(content="Ro")["choices"]}
    last = {**tokens((9, 2, 0)), "choices": delta("stop", content="me")["choices"]}
    web.answers[CHAT] = streamed(first, last)
    assert (await chunks(model_at(web), HELLO))[-1] == StreamEnd(TokenUsage(9, 2, 0, 1))


async def test_call_starts_when_its_name_arrives(web):
    web.answers[CHAT] = streamed(delta(tool_calls=[called(0, "a")]), delta("stop", tool_calls=[called(0, name="now")]))
    assert await chunks(model_at(web), HELLO) == [CallDelta(0, "now", "a"), StreamEnd(stop_reason="calls")]


# --- whole answers


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (completion({"content": "Rome"}, None, None), ChatReply("Rome")),
        (completion({"content": [{"type": "text", "text": "Rome"}]}, usage=None), ChatReply("Rome")),
        (
            completion({"tool_calls": [called(name="weather", arguments={"city": "Rome"})]}, "stop", None),
            ChatReply("", make_weather_calls((None, ROME)), stop_reason="calls"),
        ),
        (
            completion({"tool_calls": [called(id="a", name="now", arguments=None)] * 2}, "tool_calls", None),
            ChatReply("", (ToolCall("now", "", "a"),) * 2, stop_reason="calls"),
        ),
        (
            {**completion({"content": "Rome"}), "usage": {"prompt_tokens": None, "completion_tokens": -1}},
            ChatReply("Rome"),
        ),
        (
            {**completion({"content": "Rome"}), "usage": {"prompt_tokens": "x", "completion_tokens": 2.5}},
            ChatReply("Rome"),
        ),
    ],
)
async def test_reply_with_missing_fields_is_read(web, body, expected):
    web.answers[CHAT] = whole(body)
    assert await model_at(web).reply(HELLO) == expected


def test_agent_works_with_a_server_that_omits_all_optional_fields(web):
    @tool
    def weather(city: str) -> str:
        """The weather in a city."""
        return f"sunny in {city}"

    calls = [called(name="weather", arguments={"city": "Rome"}), called(name="weather", arguments={"city": "Oslo"})]
    web.answers[CHAT] = in_turn(
        whole({"choices": [{"message": {"tool_calls": calls}}]}), whole(completion({"content": "Sun"}))
    )
    result = Agent(model_at(web), [weather]).run_sync("How is the weather?")
    assert (result.text, [record.reply.text for record in result.tool_calls]) == (
        "Sun",
        ["sunny in Rome", "sunny in Oslo"],
    )
    asked, *replies = sent(web)["messages"][1:]
    assert [call["id"] for call in asked["tool_calls"]] == [reply["tool_call_id"] for reply in replies]
    assert len({reply["tool_call_id"] for reply in replies}) == 2


# --- names


@pytest.mark.parametrize("provider", LOCAL)
def test_local_server_has_default_address_and_needs_no_key(provider):
    model = model_of(f"{provider}:qwen3:8b")
    assert repr(model) == f"OpenAIModel('qwen3:8b', api='chat', base_url='http://127.0.0.1:{LOCAL[provider]}/v1')"
    assert not model.native_output


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        (" ", "http://127.0.0.1:11434/v1"),
        ("box", "http://box:11434/v1"),
        ("box:7", "http://box:7/v1"),
        (":7", "http://127.0.0.1:7/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),  # noqa: S104 - nothing is bound
        ("0.0.0.0:7", "http://127.0.0.1:7/v1"),
        ("[::]:7", "http://[::1]:7/v1"),
        ("[fe80::1]", "http://[fe80::1]:11434/v1"),
        ("http://box", "http://box/v1"),
        ("https://box.example", "https://box.example/v1"),
        ("https://box.example:7/", "https://box.example:7/v1"),
        ("https://box.example/ollama/v1/", "https://box.example/ollama/v1"),
    ],
)
def test_host_variable_sets_local_server_address(monkeypatch, host, address):
    monkeypatch.setenv("OLLAMA_HOST", host)
    assert SERVERS["ollama"].address == address
    assert model_of("ollama:m").name == "m"


@pytest.mark.parametrize("host", ["box:port", "[::", "box:99999"])
def test_invalid_host_variable_is_rejected(monkeypatch, host):
    monkeypatch.setenv("VLLM_HOST", host)
    with pytest.raises(ToolConfigurationError, match="VLLM_HOST must be a host, a host with a port, or a URL, not"):
        model_of("vllm:m")


@pytest.mark.parametrize(
    ("provider", "address", "variable"),
    [
        ("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        ("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
        ("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    ],
)
def test_remote_server_needs_key(monkeypatch, provider, address, variable):
    with pytest.raises(ToolConfigurationError, match=f"'{provider}' needs a key: set {variable}"):
        model_of(f"{provider}:some/model:free")
    monkeypatch.setenv(variable, "k")
    assert repr(model_of(f"{provider}:some/model:free")) == (
        f"OpenAIModel('some/model:free', api='chat', base_url={address!r})"
    )
    with pytest.raises(ToolConfigurationError, match=f"{provider!r} needs a model name"):
        model_of(provider)


def test_local_server_gets_its_own_key(web, monkeypatch):
    monkeypatch.setenv("LMSTUDIO_HOST", web.url("/v1"))
    monkeypatch.setenv("LM_API_TOKEN", "lm-secret")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    web.answers[CHAT] = whole({"error": {"message": "Wrong: lm-secret"}}, 401)
    with pytest.raises(
        ModelError, match=r"^lmstudio refused the request \(401\): Wrong: \*\*\*; it refused the key from LM_API_TOKEN$"
    ):
        asyncio.run(model_of("lmstudio:m").reply(HELLO))
    assert header(web, "authorization") == "Bearer lm-secret"


def test_a_local_server_that_wants_a_key_is_reported_with_its_variable(web, monkeypatch):
    monkeypatch.setenv("LMSTUDIO_HOST", web.url("/v1"))
    web.answers[CHAT] = whole({"error": {"message": "No key"}}, 401)
    with pytest.raises(ModelError, match=r"\(401\): No key; set LM_API_TOKEN or pass api_key=$"):
        asyncio.run(model_of("lmstudio:m").reply(HELLO))


def list_models(*names):
    return whole({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})


def test_first_model_of_local_server_is_the_default(web, monkeypatch):
    monkeypatch.setenv("LLAMACPP_HOST", web.url("/v1"))
    monkeypatch.setenv("LLAMA_API_KEY", "k")
    web.answers["/v1/models"] = list_models("text-embedding-3", "qwen3:8b", "other")
    model = model_of("llamacpp")
    assert (type(model), model.name, header(web, "authorization")) == (OpenAIModel, "qwen3:8b", "Bearer k")


LONG = "x" * 201


def send_slowly(handler):
    """Send a head that never ends."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while not handler.server.web.closing.wait(0.005):
        handler.wfile.write(b"X")


def send_endlessly(handler):
    """Send a body that never ends."""
    handler.send_response(200)
    handler.end_headers()
    while not handler.server.web.closing.is_set():
        handler.wfile.write(b" " * 100_000)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (list_models(), "the server at http.* has no chat model"),
        (list_models("nomic-Embed-text", "bge-reranker", "whisper-1"), "has no chat model"),
        (list_models("a\nb", LONG, "", 7), "has no chat model"),
        ((200, {}, "<h1>Welcome</h1>"), "the program at http.* is not a model server"),
        (whole({"data": 5}), "is not a model server"),
        (whole({"data": [{}]}), "is not a model server"),
        (whole([]), "is not a model server"),
        ((200, {}, "[" * 100_000), "is not a model server"),
        (whole({}, 404), "/v1/models answers 404"),
        (whole({}, 401), "/v1/models answers 401"),
        (lambda handler: handler.connection.close(), "nothing answers at http"),
        (send_endlessly, "nothing answers at http"),
    ],
)
def test_program_that_is_not_a_model_server_is_rejected(web, monkeypatch, answer, problem):
    monkeypatch.setenv("VLLM_HOST", web.url("/v1"))
    web.answers["/v1/models"] = answer
    with pytest.raises(ToolConfigurationError, match=f"vllm: .*{problem}.*; start the server, or set VLLM_HOST"):
        model_of("vllm")


@pytest.mark.parametrize("answer", [send_slowly, lambda handler: handler.server.web.closing.wait(30)])
def test_slow_server_counts_as_unavailable(web, monkeypatch, answer):
    monkeypatch.setattr(model_list, "SECONDS", 0.2)
    web.answers["/v1/models"] = answer
    assert model_list.fetch_models(web.url("/v1")) == f"nothing answers at {web.url('/v1')}"


def test_https_address_is_probed_with_tls():
    with serving() as web:
        address = web.url("/v1").replace("http:", "https:")
        assert model_list.fetch_models(address) == f"nothing answers at {address}"
