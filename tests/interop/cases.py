"""The same cases for every framework: what a toolbox answers, the framework shows, and each body runs once."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from interop.kit import Seen, flag
from toolsemble import (
    Continue,
    Edit,
    ImageContent,
    Reject,
    SchemaTool,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolDefinitionError,
    ToolReply,
    ToolResult,
    tool,
)
from toolsemble.interop._exporting import full_text_of, text_of

RESERVED = ("config", "input", "args", "self", "ctx", "tool_context", "run_manager")
TEA = {"item": "tea", "count": 3}
PIXEL = b64decode(  # a PNG of one pixel
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
Run = Callable[..., Awaitable[list[Seen]]]


class Shop:
    """Tools that count how often their bodies run."""

    def __init__(self, timeout: float = 0.05) -> None:
        self.timeout = timeout
        self.ran: list[Any] = []
        self.contexts: list[ToolContext] = []
        self.started, self.ended = asyncio.Event(), asyncio.Event()

    def box(self, **settings: Any) -> Toolbox:
        """Return a toolbox with all of them."""
        names = {name: {"type": "integer"} for name in RESERVED}
        schema = {"type": "object", "properties": names, "required": list(RESERVED)}

        def echo(arguments: dict[str, Any]) -> dict[str, Any]:
            self.ran.append(arguments)
            return arguments

        @tool(timeout=self.timeout)
        async def slow(item: str) -> str:
            """Take too long."""
            self.ran.append(item)
            await asyncio.Event().wait()
            return item

        bound = [self.order, self.aorder, self.fail, self.draw, self.wait, slow]
        return Toolbox([*bound, SchemaTool("echo", "Return the arguments.", echo, schema)], **settings)

    @tool
    def order(self, item: str, count: int, context: ToolContext, price: float = 1.0) -> str:
        """Order something."""
        self.ran.append((item, count, price))
        self.contexts.append(context)
        return f"{count} {item} for {count * price:g}"

    @tool
    async def aorder(self, item: str, count: int) -> dict[str, Any]:
        """Order something, without blocking."""
        self.ran.append((item, count))
        return {"item": item, "count": count}

    @tool
    def fail(self, city: str) -> str:
        """Look for a city."""
        self.ran.append(city)
        raise ValueError(f"no such city: {city}")

    @tool
    def draw(self, place: str) -> ToolResult:
        """Draw a map."""
        self.ran.append(place)
        image = ImageContent(PIXEL, "image/png")
        return ToolResult.success(f"a map of {place}", {"place": place, "size": (3, 4)}, contents=[image])

    @tool
    async def wait(self, item: str) -> str:
        """Wait until the end of the world."""
        self.ran.append(item)
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()
        return item


class Answering:
    """A reviewer with one answer, who remembers what was asked."""

    def __init__(self, decision: Any) -> None:
        self.decision, self.asked = decision, list[Any]()

    def review(self, request: Any) -> Any:
        """Return the answer."""
        self.asked.append(request.arguments)
        return self.decision


def show_media(driver: Any, media: list[tuple[str, bytes]]) -> Any:
    """Return what is compared of media: some frameworks re-encode an image's bytes."""
    return [kind for kind, data in media if data] if flag(driver, "REENCODES") else media


def check_same(driver: Any, seen: Seen, reply: ToolReply) -> None:
    """Check that a framework shows what a toolbox answers."""
    expected = text_of(reply) if flag(driver, "MEDIA") else full_text_of(reply)
    if reply.is_error and flag(driver, "WRAPS"):
        assert expected in seen.text
    else:
        assert seen.text == expected
    assert seen.is_error in (None, reply.is_error)
    if flag(driver, "MEDIA"):
        assert show_media(driver, seen.media) == show_media(
            driver, [(each.mime_type, each.data) for each in reply.contents]
        )
    if flag(driver, "PAYLOAD") and not reply.is_error:
        assert seen.payload == json.loads(json.dumps(reply.result.structured_output))


async def compare(driver: Any, module: Any, run: Run, call: ToolCall, *, bodies: int, **settings: Any) -> Shop:
    """Let the framework and a toolbox make the same call; compare the replies, and count the bodies."""
    shop, twin = Shop(), Shop()
    [seen] = await run(module.export(shop.box(**settings)), [call])
    check_same(driver, seen, await twin.box(**settings).aexecute(call))
    assert len(shop.ran) == bodies
    assert shop.ran == twin.ran
    return shop


async def valid(driver: Any, module: Any, run: Run) -> None:
    await compare(driver, module, run, ToolCall("aorder", TEA, id="call_1"), bodies=1)
    shop = Shop()
    exported = module.export(shop.box(), memory_id="ada", run_id="run_7", parameters={"shop": 1})
    [seen] = await run(exported, [ToolCall("order", TEA, id="call_1")])
    assert seen.text == "3 tea for 3"
    [context] = shop.contexts
    assert (context.memory_id, context.run_id, context.parameters["shop"]) == ("ada", "run_7", 1)
    assert context.call_id == "call_1" or not flag(driver, "CALL_ID")


async def repaired(driver: Any, module: Any, run: Run) -> None:
    call = ToolCall("order", {"item": "tea", "count": "3", "price": "2.5"}, id="call_1")
    await compare(driver, module, run, call, bodies=1)


async def three_problems(driver: Any, module: Any, run: Run) -> None:
    call = ToolCall("order", {"count": "many", "price": [], "item": None}, id="call_1")
    await compare(driver, module, run, call, bodies=0)


async def unknown_parameter(driver: Any, module: Any, run: Run) -> None:
    call = ToolCall("order", {**TEA, "colour": "green"}, id="call_1")
    await compare(driver, module, run, call, bodies=1)
    await compare(driver, module, run, call, bodies=0, repair=False)


async def raises(driver: Any, module: Any, run: Run) -> None:
    await compare(driver, module, run, ToolCall("fail", {"city": "Rome"}, id="call_1"), bodies=1)


async def media(driver: Any, module: Any, run: Run) -> None:
    await compare(driver, module, run, ToolCall("draw", {"place": "Rome"}, id="call_1"), bodies=1)


async def rejected(driver: Any, module: Any, run: Run) -> None:
    settings = {"review": Answering(Reject("too much tea")), "approve": ["order"]}
    await compare(driver, module, run, ToolCall("order", TEA, id="call_1"), bodies=0, **settings)


async def edited(driver: Any, module: Any, run: Run) -> None:
    settings = {"review": Answering(Edit('{"item": "tea", "count": 2}')), "approve": ["order"]}
    shop = await compare(driver, module, run, ToolCall("order", TEA, id="call_1"), bodies=1, **settings)
    assert shop.ran == [("tea", 2, 1.0)]


async def times_out(driver: Any, module: Any, run: Run) -> None:
    call, ran = ToolCall("slow", {"item": "tea"}, id="call_1"), list[Any]()
    for timeout in (0.05, 1, 10):  # on a busy machine, the time may be over before the body begins
        shop, twin = Shop(timeout), Shop(timeout)
        [seen] = await run(module.export(shop.box()), [call])
        check_same(driver, seen, await twin.box().aexecute(call))
        ran += shop.ran
        if ran:
            break
    assert ran == ["tea"]


async def cancelled(driver: Any, module: Any, run: Run) -> None:
    shop = Shop()
    task = asyncio.ensure_future(run(module.export(shop.box()), [ToolCall("wait", {"item": "tea"}, id="call_1")]))
    await asyncio.wait_for(shop.started.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(shop.ended.wait(), 30)
    assert len(shop.ran) == 1


async def fifty(driver: Any, module: Any, run: Run) -> None:
    shop = Shop()
    calls = [ToolCall("aorder", {"item": "tea", "count": count}, id=f"call_{count}") for count in range(50)]
    seen = await run(module.export(shop.box()), calls)
    replies = await Shop().box().aexecute_all(calls)
    for each, reply in zip(seen, replies, strict=True):
        check_same(driver, each, reply)
    assert sorted(shop.ran) == [("tea", count) for count in range(50)]


async def parameter_names(driver: Any, module: Any, run: Run) -> None:
    call = ToolCall("echo", {name: number for number, name in enumerate(RESERVED)}, id="call_1")
    await compare(driver, module, run, call, bodies=1)


async def adopted(driver: Any, module: Any, run: Run) -> None:
    log: list[Any] = []
    native = driver.native(log)
    with pytest.raises(ToolDefinitionError, match=rf"\*{driver.MODULE}\.adopt\("):
        Toolbox([native[0]])
    for single in native:
        assert len(module.adopt(single)) == 1
    box = Toolbox(module.adopt(native, metadata={"kind": "math"}))
    assert box.names == ["add", "fail"]
    assert [each.metadata["kind"] for each in box.specifications] == ["math", "math"]
    calls = [{"a": 2, "b": 3}, {"a": "2", "b": 3}, {"a": 2}, {"a": "many", "b": 3}]
    replies = [await box.aexecute(ToolCall("add", each)) for each in calls]
    assert [each.text for each in replies] == [
        "5", "5", "Error: Missing required parameter(s) for 'add': b",
        "Error: Invalid arguments for 'add': a: expected an integer",
    ]  # fmt: skip
    assert len(log) == 2
    failed = await box.aexecute(ToolCall("fail", {"city": "Rome"}))
    assert failed.is_error
    assert "no such city" in failed.text
    blocking = await asyncio.to_thread(box.execute, ToolCall("add", {"a": 1, "b": 1}))
    assert blocking.text == "2"
    assert len(log) == 4
    for needs, refusal in driver.refused() if hasattr(driver, "refused") else []:
        with pytest.raises(ToolDefinitionError, match=rf"cannot be adopted: it needs .*{refusal}"):
            module.adopt(needs)


ROUND_TRIP = [
    ("order", TEA), ("order", {"item": "tea", "count": "3"}), ("order", {"count": "many", "price": []}),
    ("order", "{"), ("order", {}), ("order", {**TEA, "colour": "green"}), ("aorder", TEA), ("fail", {"city": "Rome"}),
    ("draw", {"place": "Rome"}), ("slow", {"item": "tea"}), ("echo", dict.fromkeys(RESERVED, 1)),
]  # fmt: skip


async def round_trip(driver: Any, module: Any, run: Run) -> None:
    shop, twin = Shop(), Shop()
    there = module.export(shop.box())
    back, own = Toolbox(module.adopt(there)), twin.box()
    assert back.names == own.names
    for name, arguments in ROUND_TRIP:
        call = ToolCall(name, arguments, id="call_1")
        reply, expected = await back.aexecute(call), await own.aexecute(call)
        shown = text_of(expected) if flag(driver, "MEDIA") else full_text_of(expected)
        assert (reply.text, reply.is_error) == (shown, expected.is_error)
        if flag(driver, "MEDIA"):
            sent, back_again = ([(each.mime_type, each.data) for each in some.contents] for some in (expected, reply))
            assert show_media(driver, back_again) == show_media(driver, sent)
        if flag(driver, "PAYLOAD") and not expected.is_error:
            assert reply.result.structured_output == json.loads(json.dumps(expected.result.structured_output))
    assert shop.ran == twin.ran


async def _pause(driver: Any, module: Any, calls: Sequence[ToolCall], *decisions: Any) -> tuple[Shop, Any, list[Seen]]:
    shop, left, shown = Shop(), list(decisions), list[Any]()

    def decide(arguments: Any) -> Any:
        shown.append(arguments)
        return left.pop(0)

    box = shop.box(approve=["order", "fail"])
    seen = await driver.pause(module.export(box, approval="theirs"), calls, decide)
    assert not left
    return shop, shown, seen


async def asked_by_framework(driver: Any, module: Any, run: Run) -> None:
    repaired_call = ToolCall("order", {"item": "tea", "count": "3"}, id="call_1")
    shop, shown, [seen] = await _pause(driver, module, [repaired_call], Continue())
    assert (seen.text, shown) == ("3 tea for 3", [{"item": "tea", "count": 3, "price": 1.0}])
    assert len(shop.ran) == 1
    shop, shown, [seen] = await _pause(driver, module, [repaired_call], Reject("too much tea"))
    assert "too much tea" in seen.text
    assert shop.ran == []
    broken = ToolCall("order", {"count": "many"}, id="call_1")
    shop, shown, [seen] = await _pause(driver, module, [broken])
    assert seen.text.startswith("Error: Invalid arguments for 'order'")
    assert (shop.ran, shown) == ([], [])
    beside = ToolCall("aorder", {"item": "tea", "count": 1}, id="call_2")
    failing = ToolCall("fail", {"city": "Rome"}, id="call_3")
    shop, shown, seen = await _pause(driver, module, [repaired_call, beside, failing], Continue(), Continue())
    assert seen[1].text == '{"item":"tea","count":1}'
    assert "no such city" in seen[2].text
    assert sorted(shop.ran, key=str) == sorted([("tea", 3, 1.0), ("tea", 1), "Rome"], key=str)
    if flag(driver, "EDITS"):
        shop, shown, [seen] = await _pause(driver, module, [repaired_call], Edit('{"item": "tea", "count": 2}'))
        assert seen.text.startswith("2 tea for 2")
        assert shop.ran == [("tea", 2, 1.0)]


CASES: dict[str, Callable[[Any, Any, Run], Awaitable[None]]] = {
    "valid": valid,
    "repaired": repaired,
    "three problems": three_problems,
    "unknown parameter": unknown_parameter,
    "body raises": raises,
    "text, image, payload": media,
    "rejected": rejected,
    "edited": edited,
    "timeout": times_out,
    "cancelled": cancelled,
    "50 at once": fifty,
    "parameter names": parameter_names,
    "adopted": adopted,
    "round trip": round_trip,
    "asked by the framework": asked_by_framework,
}


def ways(driver: Any, case: str) -> list[Run]:
    """Return the ways of a framework in which a case can be run; none if it has nothing like it."""
    if case == "asked by the framework" and not hasattr(driver, "pause"):
        return []
    if case == "cancelled":
        return [driver.run] if flag(driver, "CANCELS") else []
    blocking = getattr(driver, "run_sync", None)
    return [driver.run, *([_in_thread(blocking)] if blocking is not None else [])]


def _in_thread(run: Callable[..., list[Seen]]) -> Run:
    """Return the blocking way of a framework, for a case: in a thread without an event loop."""
    return lambda *arguments: asyncio.to_thread(run, *arguments)
