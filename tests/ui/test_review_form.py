"""Forms of waiting calls: what a person changes is the edit, and nothing else."""

import asyncio
import json

import pytest

from helpers.wait import LONG, auntil
from toolsemble import Agent, Continue, Edit, Secret, ToolCall, tool
from toolsemble._ui.forms import build_request_form, to_json_values, write_edit
from toolsemble.review import QueueReview, ReviewRequest, ReviewStore, ReviewTiming
from toolsemble.testing import ScriptedModel

SCHEMA = {"properties": {"order": {"type": "integer"}, "note": {"type": "string"}}}


def fields(form):
    return {each["name"]: each for each in form["fields"]}


async def test_an_edit_in_the_form_reaches_the_call(tmp_path):
    @tool(requires_approval=True)
    def pay(order: int, amounts: list[float], key: Secret[str], note: str | None = None) -> str:
        """Pay an order."""
        return f"{order} {amounts} {note} {key.get_secret_value()[:3]}"

    with ReviewStore(tmp_path / "reviews.db") as store, ReviewStore(tmp_path / "reviews.db") as inbox:
        call = ToolCall("pay", {"order": 7, "amounts": [1.5], "key": "hunter2"})
        agent = Agent(ScriptedModel([call, "Done."]), [pay], review=QueueReview(store))
        task = asyncio.create_task(agent.run("Pay.", run_id="r1"))
        await auntil(inbox.pending)
        (request,) = inbox.pending()
        form = to_json_values(build_request_form(request, inbox.schema(request.schema_digest)))
        assert "hunter2" not in json.dumps(form)
        assert write_edit(request, form) is None
        assert {name: (each["kind"], each["state"]) for name, each in fields(form).items()} == {
            "order": ("integer", "value"),
            "amounts": ("array", "value"),
            "key": ("text", "value"),
            "note": ("text", "null"),
        }
        fields(form)["order"]["text"] = "8"
        amounts = fields(form)["amounts"]
        amounts["fields"].append(amounts["item"] | {"state": "value", "text": "2"})
        inbox.answer(request, Edit(write_edit(request, form)), person="ada")
        result = await asyncio.wait_for(task, LONG)
    # The reply has a note about the edit, and the secret is the one that the model sent.
    assert result.tool_calls[0].reply.result.output == "8 [1.5, 2.0] None hun"


def test_a_text_is_edited_as_text():
    request = ReviewRequest("Deletes", "delete", "old.log")
    form = to_json_values(build_request_form(request, {"properties": {"input": {"type": "string"}}}))
    assert (form["kind"], form["text"], write_edit(request, form)) == ("text", "old.log", None)
    assert write_edit(request, form | {"text": "new.log"}) == "new.log"


def test_only_the_editable_field_is_in_the_form():
    request = ReviewRequest("Sends", "send", {"to": "ada", "text": "Hi"}, editable="text")
    form = to_json_values(build_request_form(request, SCHEMA))
    assert (form["label"], form["text"]) == ("text", "Hi")
    assert write_edit(request, form | {"text": "Hello"}) == "Hello"


def test_a_question_during_a_call_has_an_empty_text():
    request = ReviewRequest("Which one?", "ask", {}, timing=ReviewTiming.DURING_EXECUTION)
    assert build_request_form(request, SCHEMA).text == ""


def test_arguments_of_an_unknown_schema_are_shown_as_json():
    request = ReviewRequest("Pays", "pay", {"order": 7})
    form = to_json_values(build_request_form(request, None))
    assert (form["kind"], write_edit(request, form)) == ("json", None)
    assert write_edit(request, form | {"text": '{"order": 8}'}) == '{"order":8}'


def test_a_form_without_arguments_is_refused():
    with pytest.raises(ValueError, match="reject the call instead"):
        write_edit(ReviewRequest("Pays", "pay", {"order": 7}), {"state": "unset"})


def test_decisions_of_different_people_are_equal():
    assert Continue(person="ada") == Continue()
    assert repr(Edit("x", person="ada")) == "Edit(revised='x')"
