"""The stream of events: nothing is lost, nothing is doubled."""

import asyncio
import json
from pathlib import Path

import pytest

from helpers import ui_shop
from helpers.ui_client import Desk
from helpers.wait import auntil
from toolsemble import Toolbox, ToolCall, ToolConfigurationError
from toolsemble._ui.feed import count_waiting, follow
from toolsemble._ui.people import add_person
from toolsemble.review import ReviewRequest

LONG = 60


def execute(desk, *ids):
    box = Toolbox([ui_shop.echo], sinks=[desk.folder.history(create=True)])
    for id_ in ids:
        box.execute(ToolCall("echo", {"text": id_}, id_), run_id="a")
    box.flush(LONG)


def parse(message):
    """Return the kind, the id and the data of a message."""
    lines = dict(line.split(": ", 1) for line in message.split("\n\n")[0].splitlines())
    return lines.get("event"), lines.get("id"), json.loads(lines["data"])


async def read(stream, kind):
    """Return the next message of a kind."""
    async for message in stream:
        if not message.startswith(":") and parse(message)[0] == kind:
            return parse(message)
    raise AssertionError(kind)


async def read_calls(stream, count):
    """Return the ids of calls that were started, until there are so many events, and the last id."""
    found, last = [], None
    while len(found) < count:
        _, last, events = await asyncio.wait_for(read(stream, "events"), LONG)
        found += events
    return [event["call_id"] for event in found if event["kind"] == "call_started"], int(last)


async def test_a_new_page_gets_what_happens_from_now_on(desk):
    execute(desk, "c1")
    stream = follow(desk.interface, None)
    _, number, data = await read(stream, "hello")
    assert data == {"number": int(number)}
    await asyncio.to_thread(execute, desk, "c2")
    assert (await read_calls(stream, 2))[0] == ["c2"]
    await stream.aclose()


async def test_a_page_that_comes_back_gets_what_it_missed_once(desk):
    execute(desk, "c1", "c2")
    first = follow(desk.interface, 0)
    seen, last = await read_calls(first, 4)
    await first.aclose()
    await asyncio.to_thread(execute, desk, "c3")
    second = follow(desk.interface, last)
    again, _ = await read_calls(second, 2)
    await second.aclose()
    assert (seen, again) == (["c1", "c2"], ["c3"])


async def test_many_events_come_in_several_messages(desk, monkeypatch):
    monkeypatch.setattr("toolsemble._ui.feed._MAX_EVENTS", 3)
    execute(desk, "c1", "c2", "c3", "c4")
    stream = follow(desk.interface, 0)
    assert (await read_calls(stream, 8))[0] == ["c1", "c2", "c3", "c4"]
    await stream.aclose()


async def test_a_number_of_a_history_that_is_gone_starts_at_the_end(desk):
    execute(desk, "c1")
    stream = follow(desk.interface, 10**9)
    assert (await read(stream, "hello"))[2] == {"number": desk.folder.history().last()}
    await stream.aclose()


async def test_what_waits_is_told_when_it_changes(desk, monkeypatch):
    monkeypatch.setattr("toolsemble._ui.feed.POLL", 0.001)
    stream = follow(desk.interface, None)
    assert (await asyncio.wait_for(read(stream, "changed"), LONG))[2]["approvals"] == 0
    looks = []
    monkeypatch.setattr("toolsemble._ui.feed.count_waiting", lambda given: looks.append(given) or count_waiting(given))
    following = asyncio.create_task(read(stream, "changed"))
    await auntil(lambda: len(looks) > 2)  # nothing is sent while nothing changes
    assert not following.done()
    store = desk.folder.reviews(create=True)
    await asyncio.to_thread(store.ask, [ReviewRequest("Pays", "pay", {}, timeout=None)])
    assert (await asyncio.wait_for(following, LONG))[2]["approvals"] == 1
    await stream.aclose()


async def test_pages_share_one_poll_that_ends_with_the_last_of_them(desk, monkeypatch):
    monkeypatch.setattr("toolsemble._ui.feed.POLL", 0.001)
    polls = []
    monkeypatch.setattr("toolsemble._ui.feed.count_waiting", lambda given: polls.append(given) or count_waiting(given))
    others = asyncio.all_tasks()
    pages = [follow(desk.interface, None) for _ in range(3)]
    for page in pages:
        await asyncio.wait_for(read(page, "changed"), LONG)
    reading = [asyncio.create_task(read_calls(page, 2)) for page in pages]
    await auntil(lambda: len(polls) > 5)
    assert len(polls) <= desk.interface.poller.rounds + 1  # one may be under way
    await asyncio.to_thread(execute, desk, "c1")
    assert [(await asyncio.wait_for(each, LONG))[0] for each in reading] == [["c1"]] * 3
    for page in pages:
        await page.aclose()
    await auntil(lambda: asyncio.all_tasks() == others)
    again = follow(desk.interface, 0)
    assert (await read_calls(again, 2))[0] == ["c1"]
    await again.aclose()


async def test_a_page_that_leaves_does_not_end_the_poll_of_the_others(desk):
    first, second = follow(desk.interface, None), follow(desk.interface, None)
    for page in (first, second):
        await asyncio.wait_for(read(page, "changed"), LONG)
    leaving, staying = (asyncio.create_task(read_calls(page, 2)) for page in (first, second))
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await asyncio.to_thread(execute, desk, "c1")
    assert (await asyncio.wait_for(staying, LONG))[0] == ["c1"]
    await second.aclose()


async def test_a_history_that_cannot_be_read_ends_the_streams_until_a_page_opens_again(desk, monkeypatch):
    pages = [follow(desk.interface, None) for _ in range(2)]
    for page in pages:
        await asyncio.wait_for(read(page, "changed"), LONG)
    with monkeypatch.context() as broken:
        broken.setattr("toolsemble._ui.feed._find_last", fail)
        for page in pages:
            with pytest.raises(ToolConfigurationError, match="damaged"):
                await asyncio.wait_for(read(page, "events"), LONG)
    again = follow(desk.interface, None)
    assert (await asyncio.wait_for(read(again, "changed"), LONG))[2]["approvals"] == 0
    await again.aclose()


def fail(interface):
    raise ToolConfigurationError("The run history is damaged")


@pytest.mark.parametrize("after", ["x", "-1", "9" * 20, "\u0661"])
def test_a_wrong_number_is_refused(desk, after):
    assert desk.refused("/api/feed", {"after": after}) == (400, "'after' must be the number of an event")


def test_the_id_from_the_browser_comes_before_the_id_in_the_address(desk):
    answer = desk.client.get("/api/feed", params={"after": "0"}, headers={"last-event-id": "x"})
    assert answer.status_code == 400


async def test_the_stream_is_sent_as_server_sent_events(desk):
    sent, left = [], asyncio.Event()

    async def receive():
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)
        if message["type"] == "http.response.body":
            left.set()

    cookie = "; ".join(f"{name}={value}" for name, value in desk.client.cookies.items())
    headers = [(b"host", b"localhost"), (b"cookie", cookie.encode())]
    scope = {"type": "http", "method": "GET", "path": "/api/feed", "query_string": b"", "headers": headers}
    await asyncio.wait_for(desk.app(scope, receive, send), LONG)
    assert dict(sent[0]["headers"])[b"content-type"].startswith(b"text/event-stream")
    assert sent[1]["body"].startswith(b"id: 0\nevent: hello\n")


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_text("")])
async def test_the_stream_of_a_person_who_is_removed_ends(tmp_path, change):
    people = tmp_path / "people.toml"
    token, sent = add_person(people, "ada", []), []

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)
        if len(sent) == 3:  # the response, hello, and what waits
            change(people)

    with Desk(tmp_path / "data", people=people) as desk:
        headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())]
        scope = {"type": "http", "method": "GET", "path": "/api/feed", "query_string": b"", "headers": headers}
        await asyncio.wait_for(desk.app(scope, receive, send), LONG)
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
