"""Where a catalog takes its tools from: functions of the run, cached with their own age, and MCP clients."""

import random
import sys
from types import SimpleNamespace

import pytest

from helpers.mcp_servers import PLAIN
from toolsemble import Agent, Catalog, SchemaTool, Toolbox, ToolCall, ToolDefinitionError, ToolSpecification, tool
from toolsemble._vocabulary.errors import AgentExecutionError, ToolConfigurationError, ToolsembleError
from toolsemble.agent import RunView
from toolsemble.catalog import Source
from toolsemble.mcp import MCPClient
from toolsemble.testing import ScriptedModel


def make(name, description="Does it"):
    return SchemaTool(name, description, lambda given: name)


class Offers(ScriptedModel):
    """A scripted model that keeps what it was offered."""

    def __init__(self, replies):
        super().__init__(replies)
        self.offers = []

    async def reply(self, request):
        self.offers.append([each.to_json() for each in request.specifications])
        return await super().reply(request)

    @property
    def names(self):
        return [[ToolSpecification.from_json(text).name for text in turn] for turn in self.offers]


def run_turns(catalog, replies, **settings):
    model = Offers([*replies, "Done."])
    Agent(model, catalog).run_sync("Go", **settings)
    return model.names


def test_a_function_of_the_run_is_called_before_each_turn():
    views = []

    def find(run):
        views.append(run)
        return [make(f"tool_{run.turn}")]

    names = run_turns(Catalog([find]), [ToolCall("tool_0")], deps="shop", memory_id="ada")
    assert [(view.turn, view.deps, view.memory_id) for view in views] == [(0, "shop", "ada"), (1, "shop", "ada")]
    assert isinstance(views[0], RunView)
    assert names == [["tool_0"], ["tool_1"]]


def test_an_async_function_of_the_run_is_awaited():
    async def find(run):
        return [make("later")]

    catalog = Catalog([make("first"), find, lambda run: Toolbox([make("last")])])
    assert run_turns(catalog, []) == [["first", "later", "last"]]
    assert catalog.box().names == ["first", "later", "last"]
    assert [each.name for each in catalog.search("later")] == ["later"]


async def test_a_box_can_be_made_inside_an_event_loop():
    async def find(run):
        return [make("later")]

    assert Catalog(find).box().names == ["later"]


def test_each_tenant_sees_its_own_tools():
    catalog = Catalog(lambda run: [make(f"{run.deps}_tool")])
    assert run_turns(catalog, [], deps="red") == [["red_tool"]]
    assert run_turns(catalog, [], deps="blue") == [["blue_tool"]]
    assert catalog.box(deps="green").names == ["green_tool"]


def test_a_function_in_ones_own_loop_gets_the_fields_of_a_run():
    seen = []
    Catalog(lambda run: seen.append(run) or []).box(memory_id="ada", deps=5, parameters={"a": 1})
    (run,) = seen
    assert (run.memory_id, run.deps, dict(run.parameters), list(run.messages)) == ("ada", 5, {"a": 1}, [])
    assert (run.run_id, run.turn, run.role) == ("", 0, "")


def test_a_source_is_kept_for_its_age(clock):
    calls = []
    source = Source(lambda run: calls.append(run.deps) or [make(f"tool_{len(calls)}")], 60, by=lambda run: run.deps)
    catalog = Catalog([source])
    assert catalog.box(deps="red").names == ["tool_1"]
    clock.advance(59)
    assert catalog.box(deps="red").names == ["tool_1"]
    assert catalog.box(deps="blue").names == ["tool_2"]
    clock.advance(1)
    assert catalog.box(deps="red").names == ["tool_3"]
    assert calls == ["red", "blue", "red"]


def test_a_source_without_a_key_is_kept_within_one_run():
    calls = []
    catalog = Catalog([Source(lambda run: calls.append(run.run_id) or [make("same")], 3600)])
    run_turns(catalog, [ToolCall("same")], run_id="r1")
    run_turns(catalog, [], run_id="r2")
    assert calls == ["r1", "r2"]


def test_a_source_without_a_key_is_not_kept_in_ones_own_loop():
    calls = []
    catalog = Catalog([Source(lambda run: calls.append(run.deps) or [make("same")], 3600)])
    catalog.box(deps="red")
    catalog.box(deps="blue")
    assert calls == ["red", "blue"]


def test_each_source_has_its_own_age(clock):
    slow, quick = [], []
    catalog = Catalog(
        [
            Source(lambda run: slow.append(1) or [make("slow")], 100, by=lambda run: None),
            Source(lambda run: quick.append(1) or [make("quick")], 10, by=lambda run: None),
        ]
    )
    for _ in range(5):
        catalog.box()
        clock.advance(10)
    assert (len(slow), len(quick)) == (1, 5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_age": -1}, "Source max_age"),
        ({"max_age": "1h"}, "Source max_age"),
        ({"by": "tenant"}, "Source by must be a function of the run, not 'tenant'"),
        ({"group": 5}, "Source group must be a str, not 5"),
        ({"find": 5}, "A Source takes a function of the run that returns tools, not 5"),
        ({"find": SchemaTool}, "A Source takes a function of the run"),
        ({"find": lambda: ()}, "takes a RunView and returns tools"),
    ],
)
def test_a_wrong_source_is_refused(settings, message):
    with pytest.raises(ToolDefinitionError, match=message):
        Source(**{"find": lambda run: [], **settings})


def test_a_plain_function_that_was_meant_as_a_tool_is_refused():
    def add(a, b):
        return a + b

    with pytest.raises(ToolDefinitionError, match="decorate it with @tool"):
        Catalog([add])


def test_a_callable_without_a_signature_is_taken():
    assert Source(iter).find is iter


@pytest.mark.parametrize("returned", [None, 5, "tools"])
def test_a_function_that_returns_no_list_is_refused(returned):
    with pytest.raises(
        ToolDefinitionError,
        match=rf"The source '<lambda> in line \d+' .* must return a list of tools, not {returned!r}",
    ):
        Catalog(lambda run: returned).box()


def test_a_key_that_is_not_hashable_is_refused():
    with pytest.raises(
        ToolDefinitionError, match=r"The source 'crm' of a Catalog: its by must return a hashable key, not"
    ):
        Catalog(Source(lambda run: [], max_age=1, by=lambda run: [], group="crm")).box()


def test_what_is_not_a_tool_is_refused_with_the_name_of_its_source():
    def of_tenant(run):
        return [3]

    with pytest.raises(ToolDefinitionError, match=r"The source 'of_tenant' of a Catalog: Tool at index 0 \(int\)"):
        Catalog(of_tenant).box()


FAILED = r"The source 'crm' of a Catalog failed: OSError: the server is down. To go on without its tools, catch this"


def test_the_error_of_a_function_ends_the_run_and_names_the_source():
    def find(run):
        raise OSError("the server is down")

    async def find_later(run):
        raise OSError("the server is down")

    for source in (Source(find, group="crm"), Source(find_later, group="crm")):
        with pytest.raises(AgentExecutionError, match=FAILED) as ended:
            run_turns(Catalog(source), [])
        assert isinstance(ended.value.__cause__.__cause__, OSError)
        with pytest.raises(ToolsembleError, match=FAILED):
            Catalog(source).box()


def test_an_error_of_the_configuration_reaches_the_caller_as_it_is():
    def find(run):
        raise ToolConfigurationError("set CRM_URL")

    with pytest.raises(ToolConfigurationError, match=r"^set CRM_URL$"):
        run_turns(Catalog(find), [])


def test_two_sources_with_a_tool_of_one_name_are_refused():
    with pytest.raises(ToolDefinitionError, match="Duplicate tool name: 'same'"):
        Catalog([make("same"), lambda run: [make("same")]]).box()


def test_patterns_also_choose_from_functions():
    catalog = Catalog(lambda run: [make("crm_a"), make("crm_b"), make("log")], include=["crm_*"], exclude=["*_b"])
    assert catalog.box().names == ["crm_a"]


def test_a_name_in_always_may_be_missing_for_some_runs():
    catalog = Catalog(lambda run: [make("a")] if run.deps else [make("b")], always=["a"], budget=1_000)
    assert catalog.box().names == ["b"]


def test_the_group_of_a_source_is_its_own():
    catalog = Catalog([Source(lambda run: [make("find"), make("close")], group="crm"), make("now")])
    assert catalog.groups == {"crm": ["find", "close"], "other": ["now"]}


def test_objects_with_tool_methods_are_tools():
    class Shop:
        @tool
        def price(self) -> str:
            """The price of tea."""
            return "3"

        def __call__(self, run):
            return []

    assert Catalog([Shop()]).box().execute(ToolCall("price")).text == "3"


def test_nested_lists_are_flattened():
    assert Catalog([[make("a"), (make("b"),)]]).box().names == ["a", "b"]


def test_a_foreign_object_that_raises_is_explained():
    class Broken:
        name = "broken"
        description = "Broken"

        @property
        def execute(self):
            raise OSError("no attribute")

        def __call__(self, run):
            return []

    with pytest.raises(ToolDefinitionError, match="Broken"):
        Catalog([Broken()])


def test_the_tools_of_an_mcp_client_are_looked_up_and_grouped_by_its_name():
    client = MCPClient.stdio(sys.executable, "-u", str(PLAIN), name="plain", prefix="p_")
    catalog = Catalog([make("now"), client])
    assert catalog.box().names == ["now"]
    with client:
        assert "p_echo" in catalog.box().names
        assert "p_echo" in catalog.groups["plain"]
        assert catalog.box().execute(ToolCall("p_echo", {"text": "hello"})).text == "hello"
        assert "p_echo" in Catalog(client).box().names
        listed = Catalog([*client])
    assert "p_echo" in listed.groups["plain"]


def test_a_client_with_a_strange_name_has_no_group():
    client = SimpleNamespace(name=5, current=lambda run: [make("crm_a"), make("crm_b")])
    assert list(Catalog(client).groups) == ["crm"]


def test_the_title_of_a_remote_tool_is_searched():
    titled = SchemaTool("x1", "", lambda given: "", metadata={"mcp": {"server": "s", "title": "Close a ticket"}})
    plain = SchemaTool("x2", "", lambda given: "", metadata={"title": "Open the window"})
    strange = SchemaTool("x3", "", lambda given: "", metadata={"mcp": {"server": 5, "title": 5}})
    catalog = Catalog([titled, plain, strange])
    assert [each.name for each in catalog.search("close ticket")] == ["x1"]
    assert [each.name for each in catalog.search("open window")] == ["x2"]
    assert catalog.groups == {"s": ["x1"], "other": ["x2", "x3"]}


def test_tools_that_appear_during_a_run_come_last():
    current = [make("b_tool"), make("c_tool")]

    def appear(messages):
        current.insert(0, make("a_tool"))
        return ToolCall("b_tool")

    assert run_turns(Catalog(lambda run: list(current)), [appear]) == [
        ["b_tool", "c_tool"],
        ["b_tool", "c_tool", "a_tool"],
    ]


def test_tools_that_were_shown_stay_when_new_ones_exceed_the_budget():
    current = [make(f"old_{number}") for number in range(3)]

    def appear(messages):
        current.extend(make(f"new_{number}") for number in range(30))
        return ToolCall("old_0")

    names = run_turns(Catalog(lambda run: list(current), budget=200), [appear, ToolCall("old_1")])
    assert names[0] == ["old_0", "old_1", "old_2"]
    assert names[1] == names[2] == ["old_0", "old_1", "old_2", "find_tools"]


def test_the_list_of_a_turn_is_a_prefix_of_the_next_while_sources_grow():
    dice = random.Random(3)  # noqa: S311 - the same runs each time
    for number in range(100):
        current = [make(f"crm_{each}", f"Close a ticket {each}") for each in range(dice.randint(1, 6))]

        def grow(messages, current=current):
            new = make(f"{dice.choice(['crm', 'log', 'mail'])}_{len(current)}", "Close a ticket of somebody")
            current.insert(dice.randrange(len(current)), new)
            return ToolCall("find_tools", {"query": "close a ticket", "limit": dice.randint(1, 3)})

        model = Offers([grow] * dice.randint(1, 5) + ["Done."])
        catalog = Catalog(lambda run, current=current: list(current), budget=dice.choice([None, 180, 250]))
        Agent(model, catalog, loop_guard=None).run_sync("Go", run_id=f"r{number}")
        for before, after in zip(model.offers, model.offers[1:], strict=False):
            assert after[: len(before)] == before
