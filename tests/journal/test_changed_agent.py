"""Runs whose agent has changed between the kill and the next driver."""

import pytest

from helpers.journal_runs import LOOK, REFUND, Killed, Shop, clerk, kill
from toolsemble import RunChangedError, RunJournal, Toolbox, ToolCall, ToolPipeline, tool
from toolsemble._tools.pipeline.step import Step
from toolsemble.agent._journal.records import find_changes
from toolsemble.catalog import Catalog


def kill_before_the_call(runs):
    """Do a run that is killed when the reply of its model is recorded, and none of its calls has begun."""

    def die(call, context):
        raise Killed

    kill(clerk(runs, Toolbox([Shop()], before_call=die), REFUND, "Done."))


def test_a_call_that_was_not_begun_is_read_by_the_tool_of_today(runs):
    @tool(effects="irreversible")
    def refund(order: int, reason: str) -> str:
        """Refund an order."""
        return "refunded"

    kill_before_the_call(runs)
    result = clerk(runs, [refund], REFUND, "Done.").run_sync("Refund order 7", run_id="r1")
    assert result.tool_calls[0].reply.text == "Error: Missing required parameter(s) for 'refund': reason"


def test_a_call_that_was_not_begun_is_refused_if_its_tool_is_gone(runs):
    kill_before_the_call(runs)
    result = clerk(runs, [], REFUND, "Done.").run_sync("Refund order 7", run_id="r1")
    assert result.tool_calls[0].reply.text.startswith("Error: Unknown tool 'refund'")


def test_a_call_of_unknown_outcome_keeps_the_name_of_a_tool_that_is_gone(runs):
    kill(clerk(runs, [Shop(kill=["refund 7"])], REFUND, "Done."))
    result = clerk(runs, [], REFUND, "Done.").run_sync("Refund order 7", run_id="r1")
    assert "the process ended while 'refund' ran" in result.tool_calls[0].reply.text
    assert [call.tool for call in runs.unknown()] == ["refund"]


def test_another_tool_at_the_place_of_a_step_is_refused(runs):
    shop = Shop(kill=["refund 5"])
    call = ToolCall("settle", {"order": 7})

    def settle(*steps):
        return ToolPipeline("settle", "Settles an order", [*steps])

    first = Step(shop.look, lambda result: {"order": 5})
    kill(clerk(runs, [settle(first, shop.refund)], call, "Done."))
    changed = [settle(shop.refund, shop.look)]
    with pytest.raises(
        RunChangedError, match=r"recorded a call of 'look' at /1\.1\.1, where the current agent calls 'refund'"
    ):
        clerk(runs, changed, call, "Done.").run_sync("Refund order 7", run_id="r1")
    assert runs.find("r1").state == "failed"
    assert shop.done == ["look 7", "refund 5"]
    assert clerk(runs, [settle(first, shop.refund)], call, "Done.").run_sync("Refund order 7", run_id="r1").text


def test_a_pinned_run_is_not_continued_with_another_agent(tmp_path):
    with RunJournal(tmp_path / "pinned.db", pin=True) as runs:
        kill(clerk(runs, [Shop()], LOOK, Killed, instructions="Be brief."))
        with pytest.raises(RunChangedError, match="Run 'r1' was recorded with another model, other"):
            clerk(runs, [Shop()], LOOK, "Done.", instructions="Be kind.").run_sync("Refund order 7", run_id="r1")
        again = clerk(runs, [Shop()], LOOK, "Done.", instructions="Be brief.")
        assert again.run_sync("Refund order 7", run_id="r1").text == "Done."


def test_functions_for_instructions_count_by_their_names(tmp_path):
    def kind():
        return "Be kind."

    with RunJournal(tmp_path / "pinned.db", pin=True) as runs:
        kill(clerk(runs, [Shop()], LOOK, Killed, instructions=kind))
        agent = clerk(runs, [Shop()], LOOK, "Done.", instructions=kind)
        assert agent.run_sync("Refund order 7", run_id="r1").text == "Done."


def find_marks(runs):
    return [step.data["agent"] for step in runs.steps("r1") if step.kind == "reply"]


def do_with(runs, tools, *replies, **settings):
    """Do a run to its end, with other tools than before if it was killed."""
    clerk(runs, tools, *replies, **settings).run_sync("Refund order 7", run_id="r1")


def test_tools_that_a_catalog_shows_later_do_not_change_the_agent(runs):
    shop = Shop()
    catalog = Catalog([shop.look, shop.refund, shop.note], budget=150)
    do_with(runs, catalog, ToolCall("find_tools", {"query": "refund an order"}), REFUND, "Done.")
    assert len(set(find_marks(runs))) == 1
    assert (shop.done, find_changes(runs.steps("r1"))) == (["refund 7"], [])


def test_another_tool_in_a_catalog_changes_the_agent(runs):
    shop = Shop()
    kill(clerk(runs, Catalog([shop.look, shop.refund], budget=150), LOOK, Killed))
    do_with(runs, Catalog([shop.look], budget=150), LOOK, "Done.")
    assert find_changes(runs.steps("r1")) == ["2"]


def test_a_function_that_returns_other_tools_each_turn_is_not_a_change_but_is_pinned(tmp_path):
    shop = Shop()

    def choose(run):
        return [shop.look, shop.refund] if len(run.messages) > 1 else [shop.look]

    with RunJournal(tmp_path / "runs.db", pin=True) as runs:
        kill(clerk(runs, choose, LOOK, Killed))
        do_with(runs, choose, LOOK, "Done.")
        assert (len(set(find_marks(runs))), find_changes(runs.steps("r1"))) == (2, [])
        kill(clerk(runs, choose, LOOK, Killed), run_id="r2")
        shop.look = shop.note  # the function has the same name, and returns something else
        with pytest.raises(RunChangedError, match="with another model, other instructions or other tools at turn /1"):
            clerk(runs, choose, LOOK, "Done.").run_sync("Refund order 7", run_id="r2")
