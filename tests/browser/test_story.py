"""The whole story: a run in another process is watched, approved with an edit, compared, and run again from a step."""

import getpass
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from helpers.wait import LONG
from toolsemble._ui.people import add_person

CLERK = Path(__file__).with_name("clerk_process.py")
ENV = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}


@pytest.fixture
def start_clerk(server):
    """Start the program; it is ended with the test."""
    started = []

    def start(run_id, prompt="Refund order 7"):
        command = [sys.executable, CLERK, server.data, run_id, prompt]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENV))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=LONG)


def approve(page, amount=None):
    """Approve what waits, with another amount."""
    card = page.locator("[data-request]")
    if amount is not None:
        card.get_by_label("amount").fill(amount)
        expect(card.locator(".field.changed")).to_have_count(1)
        expect(card.get_by_text("was 14.4")).to_be_visible()
        expect(card.get_by_role("button", name="Approve a", exact=True)).to_be_disabled()
        card.get_by_role("button", name="Approve as edited").click()
    else:
        card.get_by_role("button", name="Approve", exact=False).first.click()


def test_a_run_is_watched_approved_with_an_edit_compared_and_run_again(page, server, start_clerk):
    process = start_clerk("order-7")
    row = page.get_by_role("link", name="Refund order 7")
    expect(row.get_by_label("waiting")).to_be_visible()
    row.click()
    expect(page.get_by_text("1 call waits for approval")).to_be_visible()
    page.get_by_role("link", name="Decide").click()
    approve(page, "12.5")
    expect(page.get_by_text("Nothing waits for a decision.")).to_be_visible()
    assert process.communicate(timeout=LONG)[0] == "Refunded 12.50 euros of order 7 to a card\n"

    page.get_by_role("link", name="Runs", exact=True).click()
    page.get_by_role("link", name="Refund order 7").click()
    expect(page.locator(".facts").get_by_text("done")).to_be_visible()
    expect(page.get_by_text(f"approved as edited by {getpass.getuser()}")).to_be_visible()
    page.get_by_text("approved as edited by").click()
    expect(page.get_by_text("Refunded 12.50 euros of order 7 to a card")).to_be_visible()
    expect(page.get_by_text("Arguments that ran")).to_be_visible()

    second = start_clerk("order-7-again")
    page.get_by_role("link", name="Approvals").click()
    approve(page)
    second.communicate(timeout=LONG)
    page.get_by_role("link", name="Audit").click()
    expect(page.get_by_role("cell", name="answered")).to_have_count(2)

    page.get_by_role("link", name="Compare", exact=True).click()
    page.get_by_label("First run").select_option("order-7")
    page.get_by_label("Second run").select_option("order-7-again")
    expect(page.get_by_text("The runs diverge at call 2 of 2.")).to_be_visible()
    page.locator("summary", has_text="refund").click()
    expect(page.locator(".diff .removed").first).to_contain_text("12.5")
    expect(page.locator(".diff .added").first).to_contain_text("14.4")

    page.goto(f"{server.base}/run?id=order-7")
    page.get_by_role("button", name="Re-run from here").first.click()
    expect(page).to_have_url(re.compile("/durable"))
    page.get_by_role("link", name="Approvals").click()
    approve(page)
    page.get_by_role("link", name="Durable runs").click()
    expect(page.locator("tr", has_text="order-7-").get_by_text("done")).to_have_count(2)


def test_a_new_call_is_on_the_page_while_the_run_goes_on(page, server, start_clerk):
    start_clerk("order-7")
    page.get_by_role("link", name="Refund order 7").click()
    calls = page.locator("[data-calls]")
    expect(calls).to_have_attribute("data-calls", "2")
    for tab in ("Timeline", "Tree", "Raw"):
        page.get_by_role("tab", name=tab).click()
        expect(
            page.get_by_role("listitem").filter(has_text="refund" if tab != "Raw" else "call_started").first
        ).to_be_visible()


def test_of_two_people_who_answer_one_is_told_who_was_first(make_server, new_session, tmp_path, request):
    people = tmp_path / "people.toml"
    tokens = {name: add_person(people, name, []) for name in ("ada", "bob")}
    server = make_server("--people", people)
    pages = {}
    for name, token in tokens.items():
        page = new_session().open()
        page.goto(server.base)
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.locator(".frame").wait_for()
        pages[name] = page
    command = [sys.executable, CLERK, server.data, "order-7", "Refund order 7"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENV)
    request.addfinalizer(process.kill)
    for page in pages.values():
        page.goto(f"{server.base}/approvals")
        page.locator("[data-request]").wait_for()
    # Bob's page is not notified that Ada was faster: his answer is in flight.
    pages["bob"].route("**/api/approvals*", lambda route: route.abort())
    approve(pages["ada"])
    expect(pages["ada"].get_by_text("Approved as ada")).to_be_visible()
    assert process.communicate(timeout=LONG)[0] == "Refunded 14.40 euros of order 7 to a card\n"
    pages["bob"].locator("[data-request]").get_by_role("button", name="Reject").click()
    expect(pages["bob"].locator("[data-request]").get_by_role("alert")).to_contain_text("already answered by 'ada'")


def test_everything_can_be_done_with_the_keyboard(page, server, start_clerk):
    process = start_clerk("order-7")
    page.keyboard.press("4")
    expect(page).to_have_url(re.compile("/approvals"))
    page.locator("[data-request]").wait_for()
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("e")
    focused = page.locator("input:focus")
    expect(focused).to_have_attribute("aria-label", "order")
    page.keyboard.press("Tab")
    expect(page.locator("input:focus")).to_have_attribute("aria-label", "amount")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("11.5")
    expect(page.locator("input:focus")).to_have_value("11.5")
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    expect(page.get_by_text("Approved as edited as")).to_be_visible()
    assert "11.50" in process.communicate(timeout=LONG)[0]
    start_clerk("order-8")
    page.locator("[data-request]").wait_for()
    page.keyboard.press("r")
    page.keyboard.type("not today")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Rejected as")).to_be_visible()
    page.keyboard.press("5")
    expect(page.get_by_text("not today")).to_be_visible()


def test_a_read_only_server_shows_and_changes_nothing(make_server, new_session):
    server = make_server("--read-only")
    page = new_session().open()
    page.goto(server.link)
    expect(page.get_by_text("read-only")).to_be_visible()
