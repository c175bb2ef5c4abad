"""Changes of tools, resources and prompts: the clients of a server are told, in both versions of the protocol."""

import asyncio
import logging
import threading
from contextlib import asynccontextmanager

import pytest
from mcp import MCPError
from mcp.server.auth.provider import AccessToken
from mcp.server.session import ServerSession
from mcp_types import (
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    ToolListChangedNotification,
)

from helpers.mcp_server import ERAS, SECONDS, connect, run_app, serve_http, serve_program
from helpers.wait import until
from toolsemble import Toolbox, ToolCall, tool
from toolsemble.mcp import MCPClient, announce_changes, announce_resource, asgi
from toolsemble.mcp._server import listeners, source

pytestmark = pytest.mark.slow

MODERN, LEGACY = "2026-07-28", "2025-11-25"
KINDS = {
    ToolListChangedNotification: "tools",
    ResourceListChangedNotification: "resources",
    PromptListChangedNotification: "prompts",
    ResourceUpdatedNotification: "resource",
}


class Shop:
    """Tools that change: a function of the caller, and the tool that adds one."""

    def __init__(self):
        @tool
        def open_till() -> str:
            """Add a tool."""
            self.tools.append(self.pay)
            return "open"

        @tool
        def pay() -> str:
            """Pay."""
            return "paid"

        self.pay = pay
        self.tools = [open_till]
        self.calls = 0

    def __call__(self, caller):
        self.calls += 1
        return list(self.tools)


@asynccontextmanager
async def hear(url, era, resource_subscriptions=(), **settings):
    """Yield the official client, and a queue of what it hears about changes."""
    heard = asyncio.Queue()

    async def receive(message):
        if type(message) in KINDS:
            await heard.put(KINDS[type(message)])

    async with connect(url, era, message_handler=receive, **settings) as client:
        if era == LEGACY:
            yield client, heard
            return
        kinds = {"tools_list_changed": True, "resources_list_changed": True, "prompts_list_changed": True}
        async with client.listen(**kinds, resource_subscriptions=resource_subscriptions):
            yield client, heard


async def next_of(heard):
    return await asyncio.wait_for(heard.get(), SECONDS)


async def names_of(client):
    return [each.name for each in (await client.list_tools(cache_mode="bypass")).tools]


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_changes_the_tools_is_followed_by_a_notification(era):
    with run_app(asgi(Shop())) as url:
        async with hear(url, era) as (client, heard):
            assert client.server_capabilities.tools.list_changed
            assert await names_of(client) == ["open_till"]
            await client.call_tool("open_till", {})
            assert await next_of(heard) == "tools"
            assert await names_of(client) == ["open_till", "pay"]
    assert heard.empty()


@pytest.mark.parametrize("era", ERAS)
async def test_an_announced_change_reaches_clients_from_any_thread(era):
    shop = Shop()
    with run_app(asgi(shop)) as url:
        async with hear(url, era) as (client, heard):
            await names_of(client)
            shop.tools.append(shop.pay)
            thread = threading.Thread(target=announce_changes)
            thread.start()
            thread.join()
            assert await next_of(heard) == "tools"


@pytest.mark.parametrize("era", ERAS)
async def test_an_announcement_without_a_change_is_not_passed_on(era):
    shop = Shop()
    with run_app(asgi(shop)) as url:
        async with hear(url, era) as (client, heard):
            await names_of(client)
            calls = shop.calls
            announce_changes()
            async with asyncio.timeout(SECONDS):
                while shop.calls == calls:
                    await asyncio.sleep(0.01)
            shop.tools.append(shop.pay)
            announce_changes()
            assert await next_of(heard) == "tools"
    assert heard.empty()


@pytest.mark.parametrize("era", ERAS)
async def test_another_client_of_the_caller_hears_of_a_change_that_a_request_shows(era):
    shop = Shop()
    with run_app(asgi(shop)) as url:
        async with hear(url, era) as (first, heard), connect(url, era) as second:
            await names_of(first)
            shop.tools.append(shop.pay)
            await names_of(second)
            assert await next_of(heard) == "tools"


async def test_a_change_between_the_listing_and_the_listening_is_not_missed():
    shop = Shop()
    with run_app(asgi(shop)) as url:
        async with connect(url) as client:
            await names_of(client)
            shop.tools.append(shop.pay)
            async with client.listen(tools_list_changed=True) as changes, asyncio.timeout(SECONDS):
                await anext(changes)


@pytest.mark.parametrize("era", ERAS)
async def test_changes_of_a_live_client_reach_the_clients_of_its_server(era):
    with run_app(asgi(Shop())) as address:
        async with MCPClient.http(f"{address}/mcp") as upstream:
            with run_app(asgi(upstream.current)) as url:
                async with hear(url, era) as (client, heard):
                    assert await names_of(client) == ["open_till"]
                    await Toolbox([*upstream]).aexecute(ToolCall("open_till", {}))
                    assert await next_of(heard) == "tools"
                    assert await names_of(client) == ["open_till", "pay"]


async def test_our_client_follows_a_server_whose_tools_change():
    shop = Shop()
    with run_app(asgi(shop)) as url:
        async with MCPClient.http(f"{url}/mcp") as client:
            assert [each.name for each in client.current()] == ["open_till"]
            shop.tools.append(shop.pay)
            announce_changes()
            await asyncio.to_thread(until, lambda: [each.name for each in client.current()] == ["open_till", "pay"])
            shop.tools.pop(0)
            announce_changes()
            await asyncio.to_thread(until, lambda: [each.name for each in client.current()] == ["pay"])


PROGRAM = """
from toolsemble import tool
from toolsemble.mcp import serve

tools = []

@tool
def grow() -> str:
    tools.append(grown)
    return "grown"

@tool
def grown() -> str:
    return "here"

tools.append(grow)
serve(lambda caller: list(tools))
"""


@pytest.mark.parametrize("era", ERAS)
async def test_clients_on_standard_streams_are_told(era, tmp_path):
    heard = asyncio.Queue()

    async def receive(message):
        if type(message) in KINDS:
            await heard.put(KINDS[type(message)])

    program = tmp_path / "grow.py"
    program.write_text(PROGRAM)
    async with serve_program(program, era, message_handler=receive) as client:
        await names_of(client)
        if era == LEGACY:
            await client.call_tool("grow", {})
            assert await next_of(heard) == "tools"
            return
        async with client.listen(tools_list_changed=True) as changes, asyncio.timeout(SECONDS):
            await client.call_tool("grow", {})
            await anext(changes)


class Verifier:
    async def verify_token(self, token):
        return AccessToken(token=token, client_id="cli", scopes=[], subject=token)


@pytest.mark.parametrize("era", ERAS)
async def test_only_the_callers_whose_tools_changed_are_told(era):
    shops = {"ada": Shop(), "bob": Shop()}
    headers = {name: {"authorization": f"Bearer {name}"} for name in shops}
    with run_app(asgi(lambda caller: shops[caller.subject](caller), auth=Verifier())) as url:
        async with (
            hear(url, era, headers=headers["ada"]) as (ada, heard_by_ada),
            hear(url, era, headers=headers["bob"]) as (bob, heard_by_bob),
        ):
            await names_of(ada)
            await names_of(bob)
            shops["ada"].tools.append(shops["ada"].pay)
            announce_changes()
            assert await next_of(heard_by_ada) == "tools"
            shops["bob"].tools.append(shops["bob"].pay)
            announce_changes()
            assert await next_of(heard_by_bob) == "tools"
    assert heard_by_ada.empty()
    assert heard_by_bob.empty()


def first() -> str:
    """The first one."""
    return "1"


def second() -> str:
    """The second one."""
    return "2"


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("era", ERAS)
async def test_changed_resources_and_prompts_are_reported(era, is_async):
    functions = {"docs://first": first}

    async def resources_later(caller):
        return functions

    def prompts_for(caller):
        return list(functions.values())

    resources = resources_later if is_async else lambda caller: dict(functions)
    with run_app(asgi(Toolbox([]), resources=resources, prompts=prompts_for)) as url:
        async with hear(url, era) as (client, heard):
            assert client.server_capabilities.resources.list_changed
            assert client.server_capabilities.prompts.list_changed
            assert not client.server_capabilities.tools.list_changed
            await client.list_resources()
            await client.list_resource_templates()
            await client.list_prompts()
            functions["docs://second"] = second
            announce_changes()
            assert {await next_of(heard), await next_of(heard)} == {"resources", "prompts"}
            listed = (await client.list_resources(cache_mode="bypass")).resources
            assert [str(each.uri) for each in listed] == ["docs://first", "docs://second"]
            assert (await client.read_resource("docs://second")).contents[0].text == "2"
            assert (await client.get_prompt("second")).messages[0].content.text == "2"


async def test_a_call_of_a_fixed_toolbox_may_change_the_prompts():
    prompts = [first]

    @tool
    def add_prompt() -> str:
        prompts.append(second)
        return "added"

    with run_app(asgi(Toolbox([add_prompt]), prompts=lambda caller: list(prompts))) as url:
        async with hear(url, MODERN) as (client, heard):
            await client.list_prompts()
            await client.call_tool("add_prompt", {})
            assert await next_of(heard) == "prompts"


async def test_resources_of_one_caller_cannot_be_read_by_another():
    def resources_for(caller):
        return {f"docs://{caller.subject}": first}

    with run_app(asgi(Toolbox([]), resources=resources_for, auth=Verifier())) as url:
        async with connect(url, headers={"authorization": "Bearer ada"}) as client:
            assert (await client.read_resource("docs://ada")).contents[0].text == "1"
            with pytest.raises(MCPError, match="Unknown resource"):
                await client.read_resource("docs://bob")


async def test_many_sets_of_functions_are_served_in_turn():
    numbers = iter(range(1000))

    def prompts_for(caller):
        number = next(numbers)

        def numbered() -> str:
            return str(number)

        return [numbered]

    async with serve_http(Toolbox([]), prompts=prompts_for) as client:
        texts = [(await client.get_prompt("numbered")).messages[0].content.text for _ in range(70)]
    assert texts == [str(number) for number in range(70)]


@tool
async def change(uri: str) -> str:
    """Change a resource."""
    await announce_resource(uri)
    return "changed"


async def test_a_client_that_listens_for_a_resource_hears_of_its_changes():
    with run_app(asgi(Toolbox([change]), resources={"docs://first": first, "docs://second": second})) as url:
        async with hear(url, MODERN, ["docs://second"]) as (client, heard):
            assert client.server_capabilities.resources.subscribe
            await client.call_tool("change", {"uri": "docs://first"})
            await client.call_tool("change", {"uri": "docs://second"})
            assert await next_of(heard) == "resource"
    assert heard.empty()


@pytest.mark.parametrize("era", ERAS)
async def test_a_toolbox_that_is_the_same_for_all_does_not_promise_changes(era):
    async with serve_http(Toolbox([change]), era) as client:
        assert not client.server_capabilities.tools.list_changed
        if era == MODERN:
            with pytest.raises(MCPError, match="Method not found"):
                async with client.listen(tools_list_changed=True):
                    pass


@pytest.mark.parametrize("bound", ["_MOST", "_MOST_OF_A_CALLER"])
async def test_the_requests_that_listen_are_bounded_and_a_place_is_free_again(bound, monkeypatch):
    monkeypatch.setattr(listeners, bound, 2)
    with run_app(asgi(Shop())) as url:
        async with connect(url) as client:
            async with client.listen(tools_list_changed=True), client.listen(tools_list_changed=True):
                with pytest.raises(MCPError, match="Too many requests listen already"):
                    async with client.listen(tools_list_changed=True):
                        pass
            async with asyncio.timeout(SECONDS):
                while True:
                    try:
                        async with client.listen(tools_list_changed=True):
                            break
                    except MCPError:
                        await asyncio.sleep(0.01)  # the others are about to end


async def test_a_caller_does_not_use_up_the_places_of_others(monkeypatch):
    monkeypatch.setattr(listeners, "_MOST_OF_A_CALLER", 1)
    with run_app(asgi(Shop(), auth=Verifier())) as url:
        async with (
            connect(url, headers={"authorization": "Bearer ada"}) as ada,
            connect(url, headers={"authorization": "Bearer bob"}) as bob,
            ada.listen(tools_list_changed=True),
            bob.listen(tools_list_changed=True),
        ):
            with pytest.raises(MCPError, match="Too many requests listen already"):
                async with ada.listen(tools_list_changed=True):
                    pass


async def test_callers_that_do_not_listen_make_room_for_others(monkeypatch):
    monkeypatch.setattr(listeners, "_MOST", 1)
    with run_app(asgi(Shop(), auth=Verifier())) as url:
        async with (
            connect(url, headers={"authorization": "Bearer ada"}) as ada,
            connect(url, headers={"authorization": "Bearer bob"}) as bob,
        ):
            await names_of(ada)
            async with bob.listen(tools_list_changed=True):
                assert await names_of(ada) == ["open_till"]
                with pytest.raises(MCPError, match="Too many requests listen already"):
                    async with ada.listen(tools_list_changed=True):
                        pass


@pytest.mark.parametrize("bound", ["_MOST", "_MOST_OF_A_CALLER"])
async def test_sessions_that_are_told_are_bounded(bound, monkeypatch, caplog):
    monkeypatch.setattr(listeners, bound, 1)
    caplog.set_level(logging.WARNING, "toolsemble.mcp")
    with run_app(asgi(Shop())) as url:
        async with hear(url, LEGACY) as (told, heard), hear(url, LEGACY) as (other, nothing):
            await names_of(told)
            await names_of(other)
            await other.call_tool("open_till", {})
            assert await next_of(heard) == "tools"
    assert nothing.empty()
    assert "a client is not notified of changes: too many clients are subscribed" in caplog.text


async def test_a_session_that_has_ended_is_not_told():
    shop = Shop()
    with run_app(asgi(shop)) as url:
        async with hear(url, LEGACY) as (stays, heard):
            async with connect(url, LEGACY) as leaves:
                await names_of(leaves)
            await names_of(stays)
            await stays.call_tool("open_till", {})
            assert await next_of(heard) == "tools"


async def test_a_client_that_does_not_read_does_not_hold_up_the_others(monkeypatch):
    monkeypatch.setattr(listeners, "_PATIENCE", 0.05)
    stuck = []
    send = ServerSession.send_tool_list_changed

    async def get_stuck(self):
        if not stuck:
            stuck.append(self)
        if stuck == [self]:
            await asyncio.Event().wait()
        await send(self)

    monkeypatch.setitem(listeners._SENDERS, "tools", get_stuck)
    with run_app(asgi(Shop())) as url:
        async with hear(url, LEGACY) as (first_client, nothing), hear(url, LEGACY) as (client, heard):
            await names_of(first_client)
            await names_of(client)
            await client.call_tool("open_till", {})
            assert await next_of(heard) == "tools"
    assert stuck
    assert nothing.empty()


@pytest.mark.parametrize("era", ERAS)
async def test_a_function_that_fails_leaves_the_clients_as_they_are(era, caplog):
    shop = Shop()
    broken = threading.Event()
    failed = threading.Event()

    def box_for(caller):
        if broken.is_set():
            failed.set()
            raise OSError("no database")
        return shop(caller)

    with run_app(asgi(box_for)) as url:
        async with hear(url, era) as (client, heard):
            await names_of(client)
            broken.set()
            announce_changes()
            assert await asyncio.to_thread(failed.wait, SECONDS)
            shop.tools.append(shop.pay)
            broken.clear()
            announce_changes()
            assert await next_of(heard) == "tools"
    assert "the tools of a caller cannot be listed" in caplog.text


async def test_a_server_that_ends_ends_the_requests_that_listen():
    app = asgi(Shop())
    with run_app(app) as url:
        async with connect(url) as client, client.listen(tools_list_changed=True):
            pass
        announce_changes()
    announce_changes()


async def test_a_call_of_a_caller_that_has_listed_nothing_is_executed():
    async with serve_http(Shop(), LEGACY) as client:
        assert not (await client.call_tool("open_till", {})).is_error


async def test_the_same_tools_stay_in_one_toolbox(monkeypatch):
    class CountedToolbox(Toolbox):
        count = 0

        def __init__(self, tools):
            CountedToolbox.count += 1
            super().__init__(tools)

    monkeypatch.setattr(source, "Toolbox", CountedToolbox)
    async with serve_http(lambda caller: [change]) as client:
        for _ in range(3):
            assert await names_of(client) == ["change"]
    assert CountedToolbox.count == 1


async def test_many_lists_of_tools_are_served_in_turn():
    numbers = iter(range(1000))

    def tools_for(caller):
        @tool(f"tool_{next(numbers)}")
        def numbered() -> str:
            return "x"

        return [numbered]

    async with serve_http(tools_for) as client:
        names = [(await names_of(client))[0] for _ in range(70)]
    assert len(set(names)) == 70
