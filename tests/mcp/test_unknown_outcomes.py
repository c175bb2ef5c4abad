"""A call that may not be repeated takes effect once, or its outcome is unknown, whatever a server answers."""

import sys
import threading
from types import SimpleNamespace

import pytest

from helpers.mcp_plain_http import EventsHandler, MovedEventsHandler, MovedHandler, PlainHandler, StatelessHandler
from helpers.mcp_servers import PLAIN, run_handler
from helpers.wait import until
from toolsemble import Agent, RunJournal, Toolbox, ToolCall
from toolsemble._engine.limits.effect_ledger import EffectLedger
from toolsemble.mcp import MCPClient
from toolsemble.models import ScriptedModel

pytestmark = pytest.mark.slow

LARGEST = 100_000
HANDLERS = {
    "http": PlainHandler,
    "stateless": StatelessHandler,
    "moved": MovedHandler,
    "sse": EventsHandler,
    "moved sse": MovedEventsHandler,
}


@pytest.fixture
def serve(tmp_path):
    """Return a function that starts a server of a transport, and returns how to connect, and what it has done."""
    PlainHandler.release.clear()
    PlainHandler.log.clear()
    servers = []

    def start(transport, **options):
        given = {"name": "shop", "max_message": LARGEST, **options}
        if transport == "stdio":
            log = tmp_path / "log"
            log.touch()
            client = MCPClient.stdio(sys.executable, "-u", PLAIN, "", str(log), **given)
            return SimpleNamespace(client=client, effects=lambda name: log.read_text().count(name))
        servers.append(run_handler(HANDLERS[transport]))
        wire = "sse" if transport.endswith("sse") else "http"
        client = MCPClient.http(servers[-1].__enter__(), transport=wire, **given)
        return SimpleNamespace(client=client, effects=PlainHandler.log.count)

    yield start
    PlainHandler.release.set()
    for stream in EventsHandler.streams.values():
        stream.put(None)
    for server in servers:
        server.__exit__(None, None, None)


def execute_twice(shop, name, **settings):
    """Return the texts of one idempotent call that is made twice, the number of effects, and of unknown outcomes."""
    ledger = EffectLedger()
    with shop.client as client:
        box = Toolbox([*client], ledger=ledger, **settings)
        first = box.execute(ToolCall(name, {"text": name}), run_id="r1")
        effects = shop.effects(name)
        second = box.execute(ToolCall(name, {"text": name}), run_id="r1")
        after = box.execute(ToolCall("echo", {"text": "still there"}), run_id="r1").text
    return SimpleNamespace(
        texts=(first.text, second.text),
        effects=(effects, shop.effects(name)),
        unknown=len(ledger.unknown()),
        after=after,
    )


UNKNOWN = [
    ("http", "big_event", "it sent a message larger than 100000 bytes (max_message)"),
    ("http", "huge", "it sent a message larger than 100000 bytes (max_message)"),
    ("http", "packed", "it sent a message larger than 0 bytes (max_message)"),
    ("http", "page", "Unexpected content type: text/html"),
    ("http", "plain_text", "Unexpected content type: text/plain"),
    ("http", "accepted", "202 Accepted"),
    ("http", "gone", "it has ended the session"),
    ("http", "gone_page", "it has ended the session"),
    ("http", "moved", "it redirected the request"),
    ("http", "redirected", "it redirected the request"),
    ("http", "empty", "Failed to parse JSON response"),
    ("http", "broken_json", "Failed to parse JSON response"),
    ("http", "other_json", "Failed to parse JSON response"),
    ("http", "failed", "HTTP 500 Internal Server Error"),
    ("http", "bad_gateway", "HTTP 502 Bad Gateway"),
    ("http", "unavailable", "HTTP 503 Service Unavailable"),
    ("http", "slow_gateway", "HTTP 504 Gateway Timeout"),
    ("http", "too_many", "HTTP 429 Too Many Requests"),
    ("http", "forbidden", "HTTP 403 Forbidden"),
    ("http", "internal", "reported an error: boom"),
    ("http", "cut", "ended before it answered"),
    ("http", "cut_body", "ended before it answered"),
    ("http", "cut_stream", "it closed the stream"),
    ("stateless", "gone", "HTTP 404 Not Found"),
    ("stateless", "gone_page", "HTTP 404 Not Found"),
    ("stateless", "page", "Unexpected content type: text/html"),
    ("sse", "big_event", "it sent a message larger than 100000 bytes (max_message)"),
    ("sse", "huge", "it sent a message larger than 100000 bytes (max_message)"),
    ("sse", "cut_stream", "ended before it answered"),  # a reset, or the end of the stream
    ("sse", "redirected", "it redirected the request"),
    ("sse", "broken_json", "it is not an answer of JSON-RPC"),
    ("sse", "gone", "it has ended the session"),
    ("sse", "gone_page", "it has ended the session"),
    ("sse", "failed", "HTTP 500 Internal Server Error"),
    ("sse", "bad_gateway", "HTTP 502 Bad Gateway"),
    ("sse", "forbidden", "HTTP 403 Forbidden"),
    ("sse", "internal", "reported an error: boom"),
    ("sse", "cut", "ended before it answered"),
    ("stdio", "die", "ended before it answered; it is unknown"),
]


@pytest.mark.parametrize(("transport", "name", "words"), UNKNOWN)
def test_only_an_answer_of_the_server_says_what_happened(serve, transport, name, words):
    found = execute_twice(serve(transport, idempotency=True), name)
    assert words in found.texts[0]
    assert (found.effects, found.unknown, found.after) == ((1, 1), 1, "still there")


WORDS = [
    ("http", "own_code", "The MCP server 'shop' reported an error: out of tea"),
    ("http", "is_error", "out of tea"),
    ("http", "continued", "The MCP server 'shop' reported an error: out of tea"),
    ("stateless", "gone_in_words", "The MCP server 'shop' reported an error: Session not found"),
    ("http", "gone_in_words", "The MCP server 'shop' reported an error: Session not found"),
    ("sse", "own_code", "The MCP server 'shop' reported an error: out of tea"),
    ("sse", "is_error", "out of tea"),
]


@pytest.mark.parametrize(("transport", "name", "message"), WORDS)
def test_an_error_in_the_words_of_the_server_is_a_failure_that_may_be_tried_again(serve, transport, name, message):
    found = execute_twice(serve(transport, idempotency=True), name)
    assert found.texts == (f"Error: {message}",) * 2
    assert (found.effects, found.unknown, found.after) == ((1, 2), 0, "still there")


KINDS = [
    ("echo", {"text": "a"}, None),
    ("is_error", {}, "execution"),
    ("own_code", {}, "execution"),
    ("sign_out", {}, "execution"),
    ("internal", {}, "unknown_outcome"),
    ("cut", {}, "unknown_outcome"),
    ("page", {}, "unknown_outcome"),
    ("echo", "[]", "arguments"),
    ("echo", "{", "json"),
    ("eco", {}, "unknown_tool"),
]


def test_the_kind_of_an_error_says_whether_the_outcome_is_known(serve):
    with serve("http").client as client:
        box = Toolbox([*client])
        found = [(name, given, box.execute(ToolCall(name, given)).error_kind) for name, given, _ in KINDS]
    assert found == KINDS


@pytest.mark.parametrize(("effects", "kind"), [("read", "timeout"), (None, "unknown_outcome")])
def test_the_kind_of_a_timeout_says_whether_the_call_may_be_repeated(serve, effects, kind):
    with serve("http", timeout=1.0, effects=effects).client as client:
        assert Toolbox([*client]).execute(ToolCall("hang", {})).error_kind == kind


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a_refusal_of_credentials_took_no_effect(serve, transport):
    found = execute_twice(serve(transport, idempotency=True), "sign_out")
    assert found.texts == ("Error: The MCP server 'shop' refused the request: HTTP 401 Unauthorized",) * 2
    assert (found.effects, found.unknown, found.after) == ((1, 2), 0, "still there")


@pytest.mark.parametrize(
    ("transport", "name"), [("http", "gone"), ("http", "gone_in_words"), ("sse", "gone"), ("sse", "cut_stream")]
)
def test_what_may_be_repeated_is_sent_once_more_in_a_new_session(serve, transport, name):
    shop = serve(transport, effects="read")
    with shop.client as client:
        Toolbox([*client]).execute(ToolCall(name, {}))
    assert shop.effects(name) == 2


@pytest.mark.parametrize("transport", ["moved", "moved sse"])
def test_calls_go_to_the_url_at_which_the_handshake_was_answered(serve, transport):
    shop = serve(transport)
    with shop.client as client:
        redirects = shop.effects("redirect")
        texts = [Toolbox([*client]).execute(ToolCall("echo", {"text": str(number)})).text for number in range(3)]
    assert (texts, shop.effects("echo")) == (["0", "1", "2"], 3)
    assert redirects > 0
    assert shop.effects("redirect") == redirects


def test_a_redirected_request_that_fails_does_not_end_the_session(serve):
    shop = serve("moved", effects="read")
    with shop.client as client:
        box = Toolbox([*client])
        text = box.execute(ToolCall("redirected", {})).text
        after = box.execute(ToolCall("echo", {"text": "still there"})).text
    assert "HTTP 500 Internal Server Error" in text
    assert (after, shop.effects("session")) == ("still there", 1)


# --- a caller that does not wait any longer

TRANSPORTS = ["stdio", "http", "sse"]
STARTED = {"stdio": "hangs", "http": "hang", "sse": "hang"}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("where", ["client", "toolbox"])
def test_a_timeout_leaves_the_outcome_unknown(serve, transport, where):
    limit = {"timeout": 1.0}
    shop = serve(transport, idempotency=True, **(limit if where == "client" else {}))
    ledger = EffectLedger()
    with shop.client as client:
        box = Toolbox([*client], ledger=ledger, **(limit if where == "toolbox" else {}))
        texts = [box.execute(ToolCall("hang", {}), run_id="r1").text for _ in range(2)]
    assert texts[0].startswith("Error: ")
    assert len(ledger.unknown()) == 1
    assert shop.effects(STARTED[transport]) <= 1  # none, if the machine was too busy to begin


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_closing_the_client_leaves_the_outcome_unknown(serve, transport):
    shop = serve(transport, idempotency=True)
    ledger = EffectLedger()
    with shop.client as client:
        box = Toolbox([*client], ledger=ledger)
        replies = []
        caller = threading.Thread(target=lambda: replies.append(box.execute(ToolCall("hang", {}), run_id="r1").text))
        caller.start()
        until(lambda: shop.effects(STARTED[transport]))
        client.close()
        caller.join()
        client.start()
        box.execute(ToolCall("hang", {}), run_id="r1")
    assert replies == [
        "Error: The MCP server 'shop' ended before it answered; it is unknown whether the call took effect"
    ]
    assert (shop.effects(STARTED[transport]), len(ledger.unknown())) == (1, 1)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_journal_lists_a_call_that_timed_out(serve, transport, tmp_path):
    shop = serve(transport, timeout=1.0)
    with RunJournal(tmp_path / "runs.db") as runs, shop.client as client:
        model = ScriptedModel([ToolCall("hang", {}), "done"])
        Agent(model, [*client], journal=runs, name="clerk").run_sync("Pay", run_id="r1")
        unknown = [call.tool for call in runs.unknown()]
    assert unknown == ["hang"]


def test_a_server_that_cannot_be_reached_got_nothing(serve):
    class Briefly(PlainHandler):
        protocol_version = "HTTP/1.0"  # a connection for each request

    ledger = EffectLedger()
    with run_handler(Briefly) as address:
        client = MCPClient.http(address, name="shop", idempotency=True).start()
        box = Toolbox([*client], ledger=ledger)
    text = box.execute(ToolCall("echo", {"text": "a"}), run_id="r1").text
    client.close()
    assert text.startswith("Error: The MCP server 'shop' cannot be reached: ")
    assert ledger.unknown() == []
