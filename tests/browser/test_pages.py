"""Every page in a real browser: hostile texts, sizes, a server that is killed, and long runs."""

import json
import re
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from statistics import median

import pytest
from playwright.sync_api import expect

from helpers import ui_shop
from helpers.journal_runs import Killed, answer, clerk
from helpers.wait import LONG, until
from toolsemble import Agent, EffectLedger, RunJournal, RunParkedError, Toolbox, ToolCall, tool
from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble.events import CallStarted
from toolsemble.review import ExitEarly, QueueReview, ReviewRequest, ReviewStore
from toolsemble.telemetry import RunHistory
from toolsemble.testing import ScriptedModel

HOSTILE = (
    "<img src=x onerror=\"document.title='hacked'\"> <script>document.title='hacked'</script> "
    "[click](javascript:document.title='hacked') ![x](https://evil.example/x.png) </textarea></title><svg onload=x> "
    "\u202egnp.exe \x1b[2J **bold** `code` https://evil.example/?q=<b> {{7*7}} ${7*7}"
)
HOSTILE_TOOLS = f"""
from pydantic import Field
from typing import Annotated
from toolsemble import Agent, tool
from toolsemble.testing import FunctionModel
HOSTILE = {HOSTILE!r}

@tool(description=HOSTILE)
def attack(text: Annotated[str, Field(description=HOSTILE)] = HOSTILE) -> str:
    return HOSTILE

pipeline = attack | attack
villain = Agent(FunctionModel(lambda request: HOSTILE), [attack], name=HOSTILE.replace("\\x1b", ""))
"""
PAGES = [
    "/runs",
    "/compare",
    "/durable",
    "/approvals",
    "/audit",
    "/outcomes",
    "/playground",
    "/chat",
    "/pipelines",
]


def write_hostile_data(folder):
    """Put hostile texts into every field of every file."""

    @tool
    def fail(text: str) -> str:
        """Fail."""
        raise ToolExecutionError(HOSTILE)

    @tool(effects="write", idempotency=True)
    def lose(text: str) -> str:
        """Lose the outcome."""
        raise Killed

    folder.mkdir(exist_ok=True)
    with RunHistory(folder / "history.db") as history, RunJournal(folder / "runs.db") as journal:
        for run_id in (HOSTILE, "other"):
            calls = [ToolCall("echo", {"text": HOSTILE}, HOSTILE), ToolCall("fail", {"text": HOSTILE}), HOSTILE]
            settings = {"role": HOSTILE, "sinks": [history], "instructions": HOSTILE, "journal": journal}
            agent = Agent(ScriptedModel(calls), [ui_shop.echo, fail], name=HOSTILE, **settings)
            agent.run_sync(HOSTILE, run_id=run_id, memory_id=HOSTILE)
            agent.flush(LONG)
    with ReviewStore(folder / "reviews.db") as store:
        request = ReviewRequest(HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, prompt=HOSTILE, agent_role=HOSTILE, timeout=None)
        answered = ReviewRequest("x", HOSTILE, HOSTILE, timeout=None, memory_id=HOSTILE)
        store.ask([request, answered])
        store.answer(answered, ExitEarly(HOSTILE), person=HOSTILE, role=HOSTILE)
    with EffectLedger(folder / "effects.db") as ledger, pytest.raises(Killed):
        Toolbox([lose], ledger=ledger).execute(ToolCall("lose", {"text": HOSTILE}), run_id=HOSTILE)


def test_hostile_texts_change_nothing_on_any_page(make_server, session, tmp_path):
    (tmp_path / "tools.py").write_text(HOSTILE_TOOLS)
    write_hostile_data(tmp_path / ".toolsemble")
    server = make_server("tools.py")
    page = session.open()
    page.goto(server.link)
    titles = set()
    links = [
        "/runs",
        "/compare?first=other&second=other",
        "/durable",
        "/approvals",
        "/audit",
        "/outcomes",
    ]
    for path in links:
        page.goto(server.base + path)
        shown = page.locator("main").get_by_text("onerror").locator("visible=true").first
        expect(shown, path).to_be_visible()
        titles.add(page.title())
    page.goto(f"{server.base}/pipelines")
    page.get_by_label("The steps of").wait_for()
    page.goto(f"{server.base}/runs")
    page.get_by_role("link", name="onerror").first.click()
    for tab in ("Timeline", "Tree", "Raw", "Conversation"):
        page.get_by_role("tab", name=tab).click()
        page.get_by_role("listitem").first.wait_for()
        if tab in ("Raw", "Conversation"):
            page.locator("main summary").first.click()
    page.goto(f"{server.base}/playground?tool=attack")
    page.get_by_role("button", name="Call", exact=True).click()
    expect(page.get_by_label("Reply")).to_contain_text("onerror")
    page.goto(f"{server.base}/chat")
    page.get_by_label("Message").fill(HOSTILE)
    page.keyboard.press("Enter")
    expect(page.locator(".say.assistant")).to_contain_text("onerror")
    titles.add(page.title())
    assert not [title for title in titles if "hacked" in title]
    assert page.locator("main script, main img[src='x'], main svg[onload], main a[href^='javascript']").count() == 0
    assert session.foreign(server) == []
    link = page.locator("main a[href^='https://evil.example']").first
    expect(link).to_have_attribute("rel", "noreferrer noopener nofollow")


@pytest.mark.parametrize(("width", "height"), [(360, 740), (1360, 850), (3840, 2160)])
def test_every_page_fits_its_window(server, new_session, width, height):
    write_hostile_data(server.data)
    session = new_session(width, height)
    page = session.open()
    page.goto(server.link)
    for path in [*PAGES, "/run?id=other", "/run?id=other&tab=timeline", "/run?id=other&tab=raw", "/durable?id=other"]:
        page.goto(server.base + path)
        page.locator("main h1").wait_for()
        page.wait_for_load_state("load")
        sizes = page.evaluate("[document.documentElement.scrollWidth, document.querySelector('main').scrollWidth]")
        inner = page.evaluate("[innerWidth, document.querySelector('main').clientWidth]")
        assert sizes[0] <= inner[0], path
        assert sizes[1] <= inner[1], path


def test_every_control_has_a_name(page, server):
    write_hostile_data(server.data)
    for path in [*PAGES, "/playground?tool=refund", "/run?id=other"]:
        page.goto(server.base + path)
        page.locator("main h1").wait_for()
        for control in page.locator("main button, main input, main select, main textarea, nav a").all():
            name = control.evaluate(
                "each => each.getAttribute('aria-label') || each.innerText || each.labels?.[0]?.innerText || ''"
            )
            assert name.strip(), f"{path}: {control.evaluate('each => each.outerHTML')[:200]}"


STOP = """() => {
    const { activeElement: each } = document;
    if (!each || each === document.body) return null;
    const { outlineStyle } = getComputedStyle(each);
    const { top, bottom, left, right } = each.getBoundingClientRect();
    const isCovered = [...document.querySelectorAll(".answer:not(.still)")].some((bar) => {
        const over = bar.getBoundingClientRect();
        return !bar.contains(each) && top >= over.top && left < over.right && right > over.left;
    });
    return { outline: outlineStyle, isSeen: bottom > 0 && top < innerHeight && !isCovered, html: each.outerHTML };
}"""


def test_each_page_can_be_walked_through_with_the_tab_key(page, server):
    write_hostile_data(server.data)
    for path in [*PAGES, "/run?id=other", "/run?id=other&tab=raw", "/durable?id=other"]:
        page.goto(server.base + path)
        page.locator("main h1").wait_for()
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text("Skip to the page")
        page.keyboard.press("Enter")
        expect(page.locator(":focus")).to_have_attribute("id", "main")
        for _ in range(20):
            page.keyboard.press("Tab")
            stop = page.evaluate(STOP)
            if stop is None:
                break
            assert stop["outline"] != "none", f"{path}: {stop['html'][:300]}"
            assert stop["isSeen"], f"{path}: {stop['html'][:300]}"


def test_the_focus_and_the_title_follow_the_page(page, server):
    write_hostile_data(server.data)
    page.get_by_role("link", name="Audit").focus()
    page.keyboard.press("Enter")
    expect(page).to_have_title("Audit · toolsemble")
    expect(page.locator("main:focus")).to_have_attribute("aria-label", "Audit")
    page.go_back()
    expect(page).to_have_title("Runs · toolsemble")


def test_nothing_moves_for_those_who_want_no_motion(server, new_session):
    with RunHistory(server.data / "history.db") as history:
        history.emit(CallStarted("echo", "c0", {}, run_id="live"))
        session = new_session(reduced_motion="reduce")
        page = session.open()
        page.goto(server.link)
        running = page.get_by_label("running").first
        running.wait_for()
        assert running.evaluate("each => getComputedStyle(each).animationName") == "none"


def test_a_small_screen_has_a_menu(server, new_session):
    page = new_session(360, 740).open()
    page.goto(server.link)
    menu = page.get_by_role("button", name="Menu")
    expect(menu).to_have_attribute("aria-expanded", "false")
    expect(page.get_by_role("link", name="Audit")).to_be_hidden()
    menu.click()
    page.get_by_role("link", name="Audit").click()
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    expect(page.get_by_role("link", name="Audit")).to_be_hidden()


def test_a_run_of_a_chat_folds_what_was_said_before(page, server):
    with RunHistory(server.data / "history.db") as history:
        agent = Agent(ScriptedModel(["Friday.", "Green tea."]), role="a clerk", sinks=[history])
        before = agent.run_sync("When does it come?", run_id="first").messages
        agent.run_sync("What is in it?", run_id="second", history=before)
        agent.flush(LONG)
    page.goto(f"{server.base}/run?id=second")
    expect(page.get_by_text("Green tea.")).to_be_visible()
    expect(page.get_by_text("Friday.")).to_have_count(0)
    page.get_by_text("Earlier in this conversation").click()
    expect(page.get_by_text("Friday.")).to_be_visible()
    page.get_by_role("link", name="Open the run before").click()
    expect(page.get_by_role("heading", name="When does it come?")).to_be_visible()


def test_a_run_that_was_parked_is_shown_as_one_run(page, server):
    @tool(requires_approval=True, approval_timeout=None)
    def wire(order: int) -> str:
        """Send money."""
        return f"sent {order}"

    with (
        RunHistory(server.data / "history.db") as history,
        ReviewStore(server.data / "reviews.db") as store,
        RunJournal(server.data / "runs.db", park_after=0) as journal,
    ):
        replies = ToolCall("wire", {"order": "7"}), "It was sent."
        agent = clerk(journal, [wire], *replies, review=QueueReview(store), sinks=[history])
        for run_id in ("parked", "dropped"):
            with pytest.raises(RunParkedError):
                agent.run_sync("Send money for order 7.", run_id=run_id)
        page.goto(f"{server.base}/run?id=parked")
        expect(page.get_by_text("1 call waits for approval.")).to_be_visible()
        expect(page.get_by_text("Waits for a person. It continues after the answer.")).to_be_visible()
        answer(store)
        agent.run_sync("Send money for order 7.", run_id="parked")
        expect(page.get_by_text("It was sent.")).to_be_visible()
        expect(page.get_by_text("waits for approval")).to_have_count(0)
        expect(page.get_by_text("Waits for a person.")).to_have_count(0)
        expect(page.locator(".say.user")).to_have_count(1)
        expect(page.locator("details.call")).to_have_count(1)
        expect(page.locator(".facts")).to_contain_text("Calls1")
        expect(page.locator(".facts")).not_to_contain_text("Agents inside")
        page.get_by_role("tab", name="Tree").click()
        expect(page.locator(".tree .dot.done")).to_have_count(1)
        expect(page.locator(".tree .dot.failed")).to_have_count(0)
        page.goto(f"{server.base}/run?id=dropped")
        expect(page.locator(".facts .tag.waiting")).to_be_visible()
        journal.cancel("dropped")  # no event says so: the journal is the truth
        expect(page.locator(".facts .tag.cancelled")).to_be_visible()
        expect(page.get_by_text("waits for approval")).to_have_count(0)


def test_a_run_without_a_journal_says_how_to_give_it_one(page, server):
    with RunHistory(server.data / "history.db") as history:
        agent = Agent(ScriptedModel(["Yes."]), sinks=[history])
        agent.run_sync("Is it there?", run_id="plain")
        agent.flush(LONG)
    page.goto(f"{server.base}/run?id=plain")
    page.get_by_role("button", name="Re-run from a step").click()
    expect(page.get_by_text('RunJournal(".toolsemble/runs.db")')).to_be_visible()


def test_the_audit_shows_lines_as_lines_and_a_request_whole(page, server):
    with ReviewStore(server.data / "reviews.db") as store:
        request = ReviewRequest("x", "send", {"text": "a" * 500}, timeout=None)
        store.ask([request])
        store.answer(request, ExitEarly("First line.\nSecond line."), person="ada")
    page.goto(f"{server.base}/audit")
    detail = page.get_by_role("cell", name="First line.")
    expect(detail.get_by_text("rejected")).to_be_visible()
    assert "First line.\nSecond line." in detail.inner_text()
    page.get_by_role("link", name=request.id[:10]).first.click()
    expect(page.get_by_label("Request")).to_contain_text("a" * 500)


def test_a_text_that_hides_characters_shows_them(page, server):
    with ReviewStore(server.data / "reviews.db") as store:
        schema = {"type": "object", "properties": {"file": {"type": "string"}}}
        store.ask(
            [ReviewRequest("x", "run", {"file": "\u202egnp.exe"}, timeout=None, schema_digest="d", schema=schema)]
        )
    page.goto(f"{server.base}/approvals")
    card = page.locator("[data-request]")
    expect(card.get_by_text("With its hidden characters")).to_contain_text("\\u202egnp.exe")
    card.get_by_role("tab", name="JSON").click()
    expect(card.get_by_label("Arguments as JSON")).to_have_value('{\n  "file": "\\u202egnp.exe"\n}')
    expect(card.get_by_role("button", name="Approve a", exact=True)).to_be_enabled()


def test_a_server_that_is_killed_loses_and_doubles_nothing(page, server):
    history = RunHistory(server.data / "history.db")
    box = Toolbox([ui_shop.echo], sinks=[history])
    wanted, done = 300, threading.Event()

    def write():
        for number in range(wanted):
            box.execute(ToolCall("echo", {"text": str(number)}, f"c{number}"), run_id="long")
            done.wait(0.01)

    box.execute(ToolCall("echo", {"text": "first"}, "first"), run_id="long")
    page.goto(f"{server.base}/run?id=long")
    calls = page.locator("[data-calls]")
    expect(calls).to_have_attribute("data-calls", "1")
    writing = threading.Thread(target=write)
    writing.start()
    until(lambda: int(calls.get_attribute("data-calls")) > 40)
    server.kill()
    expect(page.locator("[data-connection='reconnecting']")).to_be_visible()
    server.start()
    writing.join(LONG)
    box.flush(LONG)
    expect(page.locator("[data-connection='live']")).to_be_visible(timeout=30_000)
    expect(calls).to_have_attribute("data-calls", str(wanted + 1), timeout=30_000)
    numbers = page.evaluate(
        "fetch('/api/run?id=long&limit=5000').then((answer) => answer.json())"
        ".then((run) => run.calls.rows.map((row) => row[0]))"
    )
    assert len(numbers) == len(set(numbers)) == wanted + 1
    history.close()


def test_more_tabs_than_connections_all_load(session, server):
    first = session.open()
    first.goto(server.link)
    for _ in range(8):
        page = session.open()
        page.goto(f"{server.base}/runs")
        page.bring_to_front()
        expect(page.get_by_role("heading", name="Runs")).to_be_visible()


def test_an_event_of_another_process_is_on_the_page_soon(page, server):
    """Compares this process's clock with the browser's, which is the same one."""
    with RunHistory(server.data / "history.db") as history:
        history.emit(CallStarted("echo", "c0", {}, run_id="live"))
        page.goto(f"{server.base}/run?id=live")
        region = page.locator("[data-calls]")
        expect(region).to_have_attribute("data-calls", "1")
        region.evaluate(
            "each => { window.seen = []; new MutationObserver(() => window.seen.push(Date.now()))"
            ".observe(each, { attributes: true, attributeFilter: ['data-calls'] }); }"
        )
        delays = []
        for number in range(1, 16):
            written = time.time()
            history.emit(CallStarted("echo", f"c{number}", {}, run_id="live"))
            expect(region).to_have_attribute("data-calls", str(number + 1))
            delays.append(page.evaluate("window.seen.at(-1)") - written * 1000)
    print(json.dumps({"event to page, ms": {"median": round(median(delays)), "max": round(max(delays))}}))
    assert median(delays) < 5000  # the aim is 200; a busy machine may take longer


def test_the_server_stays_small(page, server):
    write_long_run(server.data, 10_000)
    page.goto(f"{server.base}/run?id=long&tab=timeline")
    page.get_by_role("listitem").first.wait_for()
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    megabytes = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024
    print(json.dumps({"memory of the server with 10,000 calls, MB": round(megabytes)}))
    assert megabytes < 150


def write_long_run(folder, calls):
    """Write a run with many calls, in the form in which a history stores them."""
    started = [f"c{number}" for number in range(calls)]
    with RunHistory(folder / "history.db") as history:
        box = Toolbox([ui_shop.echo], sinks=[history])
        for start in range(0, calls, 500):
            batch = [ToolCall("echo", {"text": id_}, id_) for id_ in started[start : start + 500]]
            box.execute_all(batch, run_id="long")
        box.flush(LONG)


def test_a_run_with_ten_thousand_calls_is_drawn_row_by_row(page, server):
    write_long_run(server.data, 10_000)
    started = time.monotonic()
    page.goto(f"{server.base}/run?id=long")
    page.get_by_role("listitem").first.wait_for()
    painted = time.monotonic() - started
    region = page.locator("[data-calls]")
    expect(region).to_have_attribute("data-complete", "true", timeout=30_000)
    expect(region).to_have_attribute("data-calls", "10000")
    assert page.get_by_role("listitem").count() < 150
    page.locator("main").evaluate("main => { main.scrollTop = main.scrollHeight; }")
    expect(page.get_by_role("listitem").last).to_have_attribute("aria-posinset", "10000")
    assert painted < 20  # the aim is one second; a busy machine may take longer
    print(json.dumps({"first paint of 10,000 calls, s": round(painted, 2)}))


def test_the_theme_is_kept(page, server):
    button = page.get_by_role("button", name="System theme")
    button.click()
    page.get_by_role("button", name="Light theme").click()
    page.reload()
    expect(page.get_by_role("button", name="Dark theme")).to_be_visible()
    assert page.locator("html").get_attribute("data-theme") == "dark"


def test_a_form_sends_only_what_was_touched(page, server):
    page.goto(f"{server.base}/playground?tool=refund")
    page.get_by_label("order").fill("9")
    page.get_by_label("amount").fill("5")
    page.get_by_label("to", exact=True).select_option(label="Bank")
    page.get_by_label("iban").fill("DE00")
    page.get_by_role("tab", name="JSON").click()
    text = page.get_by_label("Arguments as JSON").input_value()
    assert json.loads(text) == {"order": 9, "amount": 5, "to": {"kind": "bank", "iban": "DE00"}}
    page.get_by_label("Arguments as JSON").fill(text.replace("DE00", "DE99"))
    page.get_by_role("tab", name="Form").click()
    expect(page.get_by_label("iban")).to_have_value("DE99")
    page.get_by_role("button", name="Dry run").click()
    expect(page.get_by_label("Reply")).to_contain_text("dry run")
    page.get_by_role("button", name="Call", exact=True).click()
    page.locator("[data-request]").get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_label("Reply")).to_contain_text("Refunded 5.00 euros of order 9 to a bank")


def test_a_chat_streams_with_calls_and_approvals_in_line(page, server):
    page.goto(f"{server.base}/chat")
    page.get_by_label("Message").fill("Refund order 7")
    page.keyboard.press("Enter")
    page.locator("[data-request]").get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_text("I have refunded 14.40 euros.")).to_be_visible()
    expect(page.get_by_text("refund: approved")).to_be_visible()
    page.get_by_label("Message").fill("Again")
    page.keyboard.press("Enter")
    page.locator("[data-request]").get_by_role("button", name="Reject").click()
    expect(page.get_by_text("refund: rejected")).to_be_visible()


def test_unknown_outcomes_are_settled(page, server):
    write_hostile_data(server.data)
    page.goto(f"{server.base}/outcomes")
    page.get_by_label("Result, if it happened").fill("it is there")
    page.get_by_role("button", name="It happened").click()
    expect(page.get_by_text("Every call has an outcome.")).to_be_visible()


def test_a_field_that_repeats_is_expanded(page, server):
    page.goto(f"{server.base}/playground?tool=count_folders")
    page.get_by_label("name").first.fill("top")
    page.get_by_role("group", name="State of inside").first.get_by_role("button", name="value").click()
    page.get_by_role("button", name="Add an item").first.click()
    page.get_by_label("name").nth(1).fill("below")
    page.get_by_role("button", name="Call", exact=True).click()
    expect(page.get_by_label("Reply").locator("pre").first).to_have_text("2")


def test_the_rows_of_a_database_are_read_by_the_page_as_they_are(page, server):
    write_long_run(server.data, 3)
    with closing(sqlite3.connect(server.data / "history.db")) as connection, connection:
        (rows,) = connection.execute("SELECT count(*) FROM calls").fetchone()
    page.goto(f"{server.base}/run?id=long")
    expect(page.locator("[data-calls]")).to_have_attribute("data-calls", str(rows))
