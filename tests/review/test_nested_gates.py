"""Gates of a toolbox, and the tools of agents inside it."""

import pytest

from helpers.agent_scripts import told
from toolsemble import (
    Agent,
    Continue,
    Edit,
    ExitEarly,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolDefinitionError,
    tool,
)
from toolsemble.testing import FunctionModel, ScriptedModel


class Reviewer:
    """Says the same to whatever it is asked, or the next of several things, and keeps the questions."""

    def __init__(self, *answers):
        self._answers = list(answers or [Continue()])
        self.seen = []

    def review(self, request):
        self.seen.append((request.tool_name, request.arguments))
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    @property
    def names(self):
        return [name for name, _ in self.seen]


RAN = []


@pytest.fixture(autouse=True)
def _clear_ran():
    RAN.clear()


@tool
def delete(path: str) -> str:
    """Delete a file."""
    RAN.append(path)
    return f"deleted {path}"


@tool
def look(path: str) -> str:
    """Look at a file."""
    return f"looked at {path}"


@tool(requires_approval=True)
def drop(table: str) -> str:
    """Drop a table."""
    RAN.append(table)
    return f"dropped {table}"


DELETE = ToolCall("delete", {"path": "a"})
LOOK = ToolCall("look", {"path": "a"})
DROP = ToolCall("drop", {"table": "t"})


def make_agent_tool(*calls, tools=(delete, look, drop), name="helper", **settings):
    """Return an agent as a tool that makes calls, and answers with what came of them."""

    def say(request):
        answered = told(request.messages)
        return "; ".join(answered) if answered else list(calls)

    given = tools if isinstance(tools, Toolbox) or callable(tools) else list(tools)
    return Agent(FunctionModel(say), given, **settings).as_tool(name, "Helps")


def run_helper(box, name="helper"):
    return box.execute(ToolCall(name, {"input": "go"})).text


async def run_helper_async(box):
    (reply,) = await box.aexecute_all([ToolCall("helper", {"input": "go"})])
    return reply.text


GATES = {
    "a pattern": ["del*"],
    "a name": ["delete"],
    "a predicate": lambda arguments, context: context.tool_name == "delete",
}


@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_toolbox_gate_applies_to_the_tools_of_a_nested_agent(gate):
    no, yes = Reviewer(ExitEarly("not that one")), Reviewer()
    refused = run_helper(Toolbox([make_agent_tool(DELETE, LOOK)], review=no, approve=gate))
    assert (refused, RAN) == ("Error: Rejected by reviewer: not that one; looked at a", [])
    assert no.seen == [("delete", {"path": "a"})]
    assert run_helper(Toolbox([make_agent_tool(DELETE, LOOK)], review=yes, approve=gate)) == "deleted a; looked at a"
    assert (yes.seen, RAN) == ([("delete", {"path": "a"})], ["a"])


async def test_toolbox_gate_applies_to_async_calls():
    no = Reviewer(ExitEarly("no"))
    assert (
        await run_helper_async(Toolbox([make_agent_tool(DELETE)], review=no, approve=["del*"]))
        == "Error: Rejected by reviewer: no"
    )
    assert RAN == []


def make_nested_agent(**settings):
    worker = make_agent_tool(DELETE, name="worker")
    return make_agent_tool(ToolCall("worker", {"input": "go"}), tools=[worker], **settings)


def test_toolbox_gate_applies_to_agents_inside_agents():
    no = Reviewer(ExitEarly("no"))
    assert run_helper(Toolbox([make_nested_agent()], review=no, approve=["del*"])) == "Error: Rejected by reviewer: no"
    assert (no.names, RAN) == (["delete"], [])


@pytest.mark.parametrize("way", ["run", "stream"])
async def test_gate_of_an_agents_toolbox_applies_to_nested_agents(way):
    no = Reviewer(ExitEarly("no"))
    box = Toolbox([make_nested_agent()], approve=["del*"])
    boss = Agent(ScriptedModel([ToolCall("helper", {"input": "go"}), "done"]), box, review=no)
    if way == "run":
        result = await boss.run("go")
    else:
        result = [event async for event in boss.stream("go")][-1].result
    assert told(result.messages) == ["Error: Rejected by reviewer: no"]
    assert (no.names, RAN) == (["delete"], [])


def test_gate_applies_to_pipelines_inside_agents():
    no, both = Reviewer(ExitEarly("no")), look | delete
    box = Toolbox([make_agent_tool(ToolCall(both.name, {"path": "a"}), tools=[both])], review=no, approve=["delete"])
    assert run_helper(box).endswith("Rejected by reviewer: no")
    assert (no.names, RAN) == (["delete"], [])


def test_gate_applies_to_agents_inside_pipelines():
    no, both = Reviewer(ExitEarly("no")), make_agent_tool(DELETE) | make_agent_tool(LOOK, name="other")
    box = Toolbox([both], review=no, approve=["delete"])
    assert box.execute(ToolCall(both.name, {"input": "go"})).text == "looked at a"
    assert (no.names, RAN) == (["delete"], [])


def test_gate_applies_to_a_toolbox_used_by_a_tool():
    no = Reviewer(ExitEarly("no"))

    @tool
    def tidy() -> str:
        """Tidy up."""
        return Toolbox([delete, look]).execute_all([DELETE, LOOK])[0].text

    box = Toolbox([tidy, look], review=no, approve=["del*"])
    assert box.execute(ToolCall("tidy")).text == "Error: Rejected by reviewer: no"
    assert RAN == []


def test_new_context_inside_a_tool_does_not_bypass_the_gate():
    no, worker = Reviewer(ExitEarly("no")), make_agent_tool(DELETE, tools=[delete])

    @tool
    def hand_on() -> str:
        """Delegate it to another reviewer."""
        return worker.execute("go", ToolContext()).text

    box = Toolbox([hand_on, worker], review=no, approve=["delete"])
    assert box.execute(ToolCall("hand_on")).text == "Error: Rejected by reviewer: no"
    assert (no.names, RAN) == (["delete"], [])


def test_gates_of_tool_and_toolbox_ask_once():
    yes = Reviewer()
    assert run_helper(Toolbox([make_agent_tool(DROP)], review=yes, approve=["drop"])) == "dropped t"
    assert yes.names == ["drop"]
    within = Toolbox([delete], approve=["delete"])
    assert run_helper(Toolbox([make_agent_tool(DELETE, tools=within)], review=yes, approve=["del*"])) == "deleted a"
    assert yes.names == ["drop", "delete"]


def test_gate_asks_the_reviewer_of_its_toolbox():
    outer, within = Reviewer(), Reviewer()
    assert run_helper(Toolbox([make_agent_tool(DELETE, review=within)], review=outer, approve=["del*"])) == "deleted a"
    assert (outer.names, within.names) == (["delete"], [])
    assert run_helper(Toolbox([make_agent_tool(DROP, review=within)], review=outer)) == "dropped t"
    assert (outer.names, within.names) == (["delete"], ["drop"])


def test_two_gates_with_different_reviewers_need_both_approvals():
    outer, within = Reviewer(), Reviewer()
    assert run_helper(Toolbox([make_agent_tool(DROP, review=within)], review=outer, approve=["drop"])) == "dropped t"
    assert (outer.names, within.names) == (["drop"], ["drop"])
    for no, yes in ((outer, within), (within, outer)):
        no._answers, yes._answers = [ExitEarly("no")], [Continue()]
        refused = run_helper(Toolbox([make_agent_tool(DROP, review=within)], review=outer, approve=["drop"]))
        assert refused == "Error: Rejected by reviewer: no"
    assert RAN == ["t"]


def test_edit_of_one_reviewer_is_reviewed_by_the_other():
    outer, within = Reviewer(Edit('{"table": "other"}'), Continue()), Reviewer()
    assert run_helper(Toolbox([make_agent_tool(DROP, review=within)], review=outer, approve=["drop"])) == (
        'dropped other\n\nNote: a reviewer changed the arguments of \'drop\' to {"table":"other"}'
    )
    assert within.seen == [("drop", {"table": "t"}), ("drop", {"table": "other"})]
    assert outer.seen == [("drop", {"table": "t"})]


def test_reviewers_editing_in_turn_are_stopped():
    outer, within = Reviewer(Edit('{"table": "a"}')), Reviewer(Edit('{"table": "b"}'))
    said = run_helper(Toolbox([make_agent_tool(DROP, review=within)], review=outer, approve=["drop"]))
    assert said == "Error: Rejected by reviewer: the reviewers do not agree on the arguments"
    assert (len(outer.seen), len(within.seen), RAN) == (3, 3, [])


def test_gate_without_any_reviewer_is_a_configuration_error():
    with pytest.raises(ToolConfigurationError, match="Tool 'delete' requires approval but no ReviewHandler"):
        run_helper(Toolbox([make_agent_tool(DELETE, tools=[delete])], approve=["del*"]))
    assert RAN == []


def test_gate_without_a_reviewer_uses_the_nested_agents_reviewer():
    within = Reviewer(ExitEarly("no"))
    assert (
        run_helper(Toolbox([make_agent_tool(DELETE, review=within)], approve=["del*"]))
        == "Error: Rejected by reviewer: no"
    )


def test_recursive_agent_asks_once_per_call():
    yes = Reviewer()
    depth = iter([[ToolCall("helper", {"input": "deeper"})], [DELETE]])

    def say(request):
        answered = told(request.messages)
        return answered[0] if answered else next(depth)

    agent = Agent(FunctionModel(say), lambda view: box)
    box = Toolbox([agent.as_tool("helper", "Helps"), delete], review=yes, approve=lambda arguments, context: True)
    assert run_helper(box) == "deleted a"
    assert yes.names == ["helper", "helper", "delete"]


def test_approve_accepts_names_of_nested_tools():
    within = make_nested_agent()
    Toolbox([within], approve=["delete", "worker", "helper"])
    with pytest.raises(ToolDefinitionError, match="approve names 'delet', but the tools are helper, worker, delete"):
        Toolbox([within], approve=["delet"])


def test_approve_accepts_unknown_names_with_dynamic_tools(caplog):
    dynamic = make_agent_tool(DELETE, tools=lambda view: [delete])
    no = Reviewer(ExitEarly("no"))
    assert run_helper(Toolbox([dynamic], review=no, approve=["delete"])) == "Error: Rejected by reviewer: no"
    assert "approve: the pattern 'delete' matches none of the tools helper" in caplog.text


def test_read_more_needs_no_approval():
    yes = Reviewer()

    @tool
    def read() -> str:
        """Read something long."""
        return "\n".join(str(number) for number in range(60))

    def say(request):
        answered = told(request.messages)
        if len(answered) == 1:
            return ToolCall("read_more", {"result": answered[0].split('"')[1], "page": 2})
        return answered[-1] if answered else [ToolCall("read")]

    box = Toolbox([read], max_output=100, pages=True)
    worker = Agent(FunctionModel(say), box).as_tool("helper", "Helps")
    said = run_helper(Toolbox([worker], review=yes, approve=lambda arguments, context: True))
    assert said.endswith("59\n[page 2 of 2, the last one]")
    assert yes.names == ["helper", "read"]


@tool(isolation="process")
def delete_in_process() -> str:
    """Use a toolbox in another process."""
    return Toolbox([delete]).execute(DELETE).text


def test_gate_rejects_calls_in_a_worker_process():
    yes = Reviewer()
    said = Toolbox([delete_in_process, look], review=yes, approve=["del*"]).execute(ToolCall("delete_in_process")).text
    assert said == "Error: Rejected by reviewer: the reviewer cannot be asked from a worker process"


def test_outer_predicate_checks_parallel_calls():
    asked = []

    @tool
    def tidy() -> str:
        """Tidy up."""
        return "; ".join(reply.text for reply in Toolbox([delete, look]).execute_all([DELETE, LOOK]))

    def is_needed(arguments, context):
        asked.append(context.tool_name)
        return False

    assert Toolbox([tidy], approve=is_needed).execute(ToolCall("tidy")).text == "deleted a; looked at a"
    assert sorted(asked) == ["delete", "look", "tidy"]
