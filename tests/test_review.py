"""The gate: a call that requires approval runs only when a reviewer agrees, with what the reviewer saw."""

import pytest

from tools import AsyncFunction, Function, call
from toolsemble import Continue, Edit, ExitEarly, InMemoryMetrics, Toolbox, ToolCall, ToolConfigurationError


class Reviewer:
    def __init__(self, answer):
        self.answer = answer
        self.requests = []

    def review(self, request):
        self.requests.append(request)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class AsyncReviewer(Reviewer):
    async def review(self, request):
        return super().review(request)


async def echo(text):
    return text


HALF = "Invalid JSON input for 'function': half of a surrogate pair (\\ud800) at position 5; send whole characters"
KINDS = [Function(lambda text: text, requires_approval=True), AsyncFunction(echo, requires_approval=True)]
both_reviewers = pytest.mark.parametrize("reviewer", [Reviewer, AsyncReviewer])
both_tools = pytest.mark.parametrize("tool", KINDS, ids=["sync", "async"])


async def told(tool, reviewer, asked):
    box = Toolbox([tool], review=reviewer)
    first, second = box.execute(asked).text, (await box.aexecute(asked)).text
    assert first == second
    return first


@both_reviewers
@both_tools
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Continue(), "rm old"),
        (Edit("rm older"), "rm older"),
        (ExitEarly("too risky"), "Error: Rejected by reviewer: too risky"),
        (ExitEarly(), "Error: Rejected by reviewer: function(rm old)"),
        (None, "Error: Rejected by reviewer: the answer was not a decision"),
        (True, "Error: Rejected by reviewer: the answer was not a decision"),
        (Continue, "Error: Rejected by reviewer: the answer was not a decision"),
        (EOFError("no terminal"), "Error: Rejected by reviewer: the reviewer failed to answer"),
        (ToolConfigurationError("x"), "Error: Rejected by reviewer: the reviewer failed to answer"),
        (Edit("half \ud800"), f"Error: Rejected by reviewer: the edit does not fit: {HALF}"),
    ],
)
async def test_only_a_clear_yes_lets_a_call_run(reviewer, tool, answer, text):
    assert await told(tool, reviewer(answer), call("function", "rm old")) == text


@both_tools
def test_a_call_that_nobody_can_approve_is_a_configuration_error(tool):
    metrics = InMemoryMetrics()
    with pytest.raises(
        ToolConfigurationError, match=r"^Tool 'function' requires approval but no ReviewHandler is configured$"
    ):
        Toolbox([tool], metrics=metrics).execute(call("function"))
    assert metrics.count("function", "error") == 1


def test_the_reviewer_sees_the_final_arguments_of_the_call():
    reviewer = Reviewer(Continue())
    Toolbox([KINDS[0]], review=reviewer).execute(call("function", "rm old", id="c1"), run_id="r1")
    (request,) = reviewer.requests
    assert (request.tool_name, request.description) == ("function", "Does what the test says")
    assert (request.arguments, request.call_id, request.run_id) == ("rm old", "c1", "r1")


def test_nobody_is_asked_about_a_call_that_could_not_run():
    reviewer = Reviewer(Continue())
    reply = Toolbox([KINDS[0]], review=reviewer).execute(ToolCall("function", "{}"))
    assert reply.text == "Error: Missing required parameter(s) for 'function': input"
    assert reviewer.requests == []


def test_a_rejection_is_a_failure_not_an_error():
    metrics = InMemoryMetrics()
    Toolbox([KINDS[0]], review=Reviewer(ExitEarly()), metrics=metrics).execute(call("function"))
    assert (metrics.count("function", "failure"), metrics.count("function", "error")) == (1, 0)


def test_a_plain_object_can_require_approval():
    plain = type("Plain", (), {"name": "plain", "description": "", "requires_approval": True})()
    type(plain).execute = lambda _self, input: input
    assert Toolbox([plain], review=Reviewer(ExitEarly("no"))).execute(call("plain")).is_error


def test_tools_without_a_gate_ask_nobody():
    reviewer = Reviewer(ExitEarly())
    assert not Toolbox([Function(str.upper)], review=reviewer).execute(call("function")).is_error
    assert reviewer.requests == []


def test_an_interrupted_prompt_passes_and_the_call_does_not_run():
    ran = []
    tool = Function(ran.append, requires_approval=True)
    with pytest.raises(KeyboardInterrupt):
        Toolbox([tool], review=Reviewer(KeyboardInterrupt())).execute(call("function"))
    assert ran == []
