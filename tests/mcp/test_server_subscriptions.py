"""Subscriptions to resources, in the versions of the protocol that have sessions."""

import asyncio

import pytest
from mcp import MCPError
from mcp.server.session import ServerSession
from mcp_types import ResourceUpdatedNotification

from helpers.mcp_server import SECONDS, connect, run_app, serve_http
from toolsemble import Toolbox, tool
from toolsemble.mcp import announce_resource, asgi
from toolsemble.mcp._server import listeners

pytestmark = pytest.mark.filterwarnings("ignore:resources/")
ERA = "2025-11-25"


def readme() -> str:
    return "Read me"


def order(id: int, part: str) -> str:
    return f"{id} {part}"


RESOURCES = {"docs://readme": readme, "docs://logo": readme, "orders://{id}/{part}": order}


@tool
async def change(uris: list[str]) -> str:
    """Change resources."""
    for uri in uris:
        await announce_resource(uri)
    return "changed"


@tool
def change_in_a_thread() -> str:
    """Change a resource from a thread."""
    asyncio.run(announce_resource("docs://readme"))
    return "changed"


async def test_subscribers_receive_changes():
    updates = asyncio.Queue()

    async def receive(message):
        if isinstance(message, ResourceUpdatedNotification):
            await updates.put(str(message.params.uri))

    box = Toolbox([change, change_in_a_thread])
    async with serve_http(box, ERA, resources=RESOURCES, client={"message_handler": receive}) as client:
        assert client.server_capabilities.resources.subscribe
        for _ in range(2):
            await client.subscribe_resource("docs://readme")
        await client.subscribe_resource("orders://7/head")
        others = ["docs://logo", "orders://8/head"]
        await client.call_tool("change", {"uris": [*others, "docs://readme", "orders://7/head"]})
        told = [await asyncio.wait_for(updates.get(), SECONDS) for _ in range(2)]
        await client.unsubscribe_resource("docs://readme")
        await client.unsubscribe_resource("docs://readme")
        await client.call_tool("change", {"uris": ["docs://readme", "orders://7/head"]})
        told.append(await asyncio.wait_for(updates.get(), SECONDS))
        await client.subscribe_resource("docs://readme")
        await client.call_tool("change_in_a_thread", {})
        told.append(await asyncio.wait_for(updates.get(), SECONDS))
    assert told == ["docs://readme", "orders://7/head", "orders://7/head", "docs://readme"]
    assert updates.empty()


async def test_subscriptions_are_bounded_and_end_with_their_connection(monkeypatch):
    monkeypatch.setattr(listeners, "_MOST_SUBSCRIPTIONS", 1)
    with run_app(asgi(Toolbox([change]), resources=RESOURCES)) as url:
        async with connect(url, ERA) as client:
            await client.subscribe_resource("docs://readme")
            with pytest.raises(MCPError, match="Too many subscriptions"):
                await client.subscribe_resource("docs://logo")
            with pytest.raises(MCPError, match="Unknown resource"):
                await client.subscribe_resource("docs://other")
        async with connect(url, ERA) as client, asyncio.timeout(SECONDS):
            while True:
                try:
                    await client.subscribe_resource("docs://logo")
                except MCPError:
                    await asyncio.sleep(0.01)  # the other connection is about to end
                else:
                    break


async def test_a_connection_that_fails_does_not_fail_the_call(monkeypatch):
    async def fail(self, uri):
        raise OSError("gone")

    monkeypatch.setattr(ServerSession, "send_resource_updated", fail)
    async with serve_http(Toolbox([change]), ERA, resources=RESOURCES) as client:
        await client.subscribe_resource("docs://readme")
        assert not (await client.call_tool("change", {"uris": ["docs://readme"]})).is_error


async def test_a_subscription_of_another_connection_stays():
    updates = asyncio.Queue()

    async def receive(message):
        if isinstance(message, ResourceUpdatedNotification):
            await updates.put(str(message.params.uri))

    with run_app(asgi(Toolbox([change]), resources=RESOURCES)) as url:
        async with connect(url, ERA, message_handler=receive) as stays, connect(url, ERA) as leaves:
            for client in (stays, leaves):
                await client.subscribe_resource("docs://readme")
            await leaves.unsubscribe_resource("docs://readme")
            await leaves.call_tool("change", {"uris": ["docs://readme"]})
            assert await asyncio.wait_for(updates.get(), SECONDS) == "docs://readme"
