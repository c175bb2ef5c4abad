"""Take the pictures of the web interface for the pages: start a server with the shop below, and photograph it.

``make screenshots`` runs this; it needs Chromium and Playwright, as ``make browser`` does.
"""

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from toolsemble import Agent, Prices, RunJournal, ToolCall, tool
from toolsemble.models import AssistantMessage, FunctionModel, TokenUsage, UserMessage
from toolsemble.review import Continue, QueueReview, ReviewStore
from toolsemble.telemetry import RunHistory

IMAGES = Path(__file__).parents[1] / "docs" / "images"
FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
SIZE = {"width": 1180, "height": 720}
LONG = 60


class Card(BaseModel):
    """A card."""

    kind: Literal["card"]
    last4: Annotated[str, Field(min_length=4, max_length=4)]


class Bank(BaseModel):
    """A bank account."""

    kind: Literal["bank"]
    iban: str


@tool
def find_order(order: int) -> str:
    """Find an order by its number."""
    time.sleep(0.12)
    return f"Order {order}: 3 boxes of green tea, 14.40 euros, paid by card 4242"


@tool
def find_customer(order: int) -> str:
    """Find the customer of an order."""
    time.sleep(0.2)
    return "Ada Lovelace, customer since 2019, no refunds so far"


@tool(requires_approval=True, effects="write")
def refund(
    order: Annotated[int, Field(description="The number of the order.")],
    amount: Annotated[float, Field(gt=0, le=500, description="How much, in euros.")],
    to: Annotated[Card | Bank, Field(description="Where the money goes.")],
    reason: Annotated[str, Field(description="Why, for the books.")] = "",
) -> str:
    """Refund an order to a card or a bank account."""
    time.sleep(0.3)
    return f"Refunded {amount:.2f} euros of order {order}"


PROMPTS = {
    "order-31": "Where is order 31? It should have come on Friday.",
    "order-28": "Was the tea of order 28 organic?",
    "order-25": "Refund order 25: the tea was stale.",
    "order-22": "What did I pay for order 22?",
}


def reply(request: object) -> object:
    """Return the next reply: look up the order and the customer, refund if asked to, and answer."""
    messages = request.messages  # type: ignore[attr-defined]
    prompt = next(each.text for each in reversed(messages) if isinstance(each, UserMessage))
    turn = 0
    for message in messages:
        turn = 0 if isinstance(message, UserMessage) else turn + isinstance(message, AssistantMessage)
    order = int(re.findall(r"\d+", prompt)[0])
    calls = [[ToolCall("find_order", {"order": order}), ToolCall("find_customer", {"order": str(order)})]]
    if "Refund" in prompt:
        where = {"kind": "card", "last4": "4242"}
        calls.append([ToolCall("refund", {"order": order, "amount": 14.4, "to": where, "reason": "stale tea"})])
    time.sleep(0.25)
    return calls[turn] if turn < len(calls) else f"Order **{order}** is settled. Is there anything else?"


def make_clerk(**more: object) -> Agent:
    """Return the agent of the shop."""
    return Agent(
        FunctionModel(reply, usage=TokenUsage(1240, 86)),
        [find_order, find_customer, refund],
        role="Shop clerk",
        name="clerk",
        instructions="Look up every order before you answer.",
        prices=Prices(0.25, 2.0),
        **more,
    )


clerk = make_clerk()
order_report = find_order | find_customer


def write_data(folder: Path) -> None:
    """Do some runs; the last one waits for an approval until the program ends."""
    store = ReviewStore(folder / "reviews.db")
    made = make_clerk(
        sinks=[RunHistory(folder / "history.db")],
        review=QueueReview(store),
        journal=RunJournal(folder / "runs.db"),
    )
    threading.Thread(target=answer_first, args=(store,), daemon=True).start()
    for run_id, prompt in reversed(PROMPTS.items()):
        made.run_sync(prompt, run_id=run_id)
    run = {"run_id": "order-36"}
    threading.Thread(
        target=made.run_sync, args=("Refund order 36: the box was open.",), kwargs=run, daemon=True
    ).start()
    wait_until(lambda: len(store.pending()) == 1)


def answer_first(store: ReviewStore) -> None:
    """Approve the first request, as a person would after a while."""
    wait_until(lambda: bool(store.pending()))
    time.sleep(4)
    store.answer(store.pending()[0], Continue(), person="ada")


def wait_until(is_so: object) -> None:
    """Wait until a function returns something true."""
    ends = time.monotonic() + LONG
    while not is_so():  # type: ignore[operator]
        if time.monotonic() > ends:
            raise SystemExit("screenshots: nothing happens")
        time.sleep(0.05)


def start_server(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Return the server and its link."""
    log = folder / "server.log"
    command = [sys.executable, "-m", "toolsemble", "ui", __file__, "--no-open", "--port", "0", "--data", str(folder)]
    with log.open("wb") as file:
        person = {**os.environ, "LOGNAME": "ada"}  # who is signed in
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=person)  # noqa: S603 - this program
    wait_until(lambda: "Ctrl-C" in log.read_text() or process.poll() is not None)
    return process, re.findall(r"http://\S+", log.read_text())[0]


def take_pictures(link: str) -> None:
    """Photograph the pages."""
    from playwright.sync_api import sync_playwright

    base = link.partition("/login")[0]
    with sync_playwright() as playwright:
        chromium = os.environ.get("TOOLSEMBLE_CHROMIUM") or "/usr/bin/chromium"
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_context(viewport=SIZE).new_page()
        page.goto(link)
        page.locator(".frame").wait_for()

        def take(name: str, path: str, ready: str, *, dark: bool = False) -> None:
            page.emulate_media(color_scheme="dark" if dark else "light")
            page.goto(base + path)
            page.locator(ready).first.wait_for()
            page.wait_for_timeout(700)
            page.screenshot(path=IMAGES / f"{name}.png")

        take("ui-runs", "/runs", ".run .dot.waiting")
        take("ui-approval", "/approvals", "[data-request] .form")
        take("ui-timeline", "/run?id=order-25&tab=timeline", ".time-row", dark=True)
        take("ui-compare", "/compare?first=order-22&second=order-25", ".versus")
        take("ui-playground", "/playground?tool=refund", "[aria-label='The call as code']")
        browser.close()


def main() -> None:
    """Take all pictures."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_data(folder)
        process, link = start_server(folder)
        try:
            take_pictures(link)
        finally:
            process.terminate()
            process.wait(LONG)
    for path in sorted(IMAGES.glob("ui-*.png")):
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
    os._exit(0)  # a run waits for an approval that does not come
