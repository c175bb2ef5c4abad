import pickle

import pytest

from helpers.sample_tools import Echo, Plain
from toolsemble import (
    Agent,
    EffectLedger,
    FunctionTool,
    Idempotency,
    InvocationParameters,
    ReturnBehavior,
    SchemaTool,
    Tool,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolDefinitionError,
    ToolPipeline,
    ToolResult,
    TypedTool,
    fan_out,
    tool,
)
from toolsemble.builtin import (
    CalculatorTool,
    DateTimeTool,
    FileReadTool,
    FileWriteTool,
    HumanInputTool,
    JsonParserTool,
    WebScraperTool,
    WebSearchTool,
)
from toolsemble.review import AutoApprove, AutoReject, Continue
from toolsemble.testing import FakeReviewer, ScriptedModel


@tool
def search(query: str, limit: int = 3) -> str:
    """Search the archive."""
    return f"{limit} hits for {query}"


@tool
def count(text: str) -> int:
    """Count characters."""
    return len(text)


class Shop:
    def __init__(self, name):
        self.name = name
        self.sold = []

    @tool
    def stock(self, item: str) -> str:
        """Say how many are left."""
        return f"{item} at {self.name}"

    @tool(effects="irreversible", idempotency=True)
    def buy(self, item: str) -> str:
        """Buy an item."""
        self.sold.append(item)
        return f"bought {item} at {self.name}"


class Spec:
    name = "spec"
    description = "Says it louder"
    parameters_schema = '{"properties": {"text": {"type": "string"}}, "required": ["text"]}'

    def execute(self, arguments):
        return arguments["text"].upper()


def run(box, name, /, **arguments):
    return box.execute(ToolCall(name, arguments)).text


class TestARenamedTool:
    def test_has_the_new_name_everywhere(self):
        renamed = search.renamed("search_docs")
        box = Toolbox([renamed])
        assert box.names == ["search_docs"]
        assert box.specifications[0].name == "search_docs"
        assert box.to_openai()[0]["function"]["name"] == "search_docs"
        assert run(box, "search_docs", query="rome") == "3 hits for rome"
        assert run(box, "search_docs") == "Error: Missing required parameter(s) for 'search_docs': query"
        assert run(box, "search").startswith("Error: Unknown tool 'search'. Available tools: search_docs")

    def test_leaves_the_original_as_it_is(self):
        search.renamed("search_docs", "Searches documents")
        assert (search.name, search.description) == ("search", "Search the archive.")

    def test_can_have_another_description(self):
        (specification,) = Toolbox([search.renamed("other", "Searches letters")]).specifications
        assert (specification.name, specification.description) == ("other", "Searches letters")
        assert CalculatorTool().renamed("sum", "Adds").description == "Adds"
        assert CalculatorTool().renamed("sum").description == CalculatorTool.description

    def test_of_a_function_is_still_the_function(self):
        renamed = search.renamed("other")
        assert isinstance(renamed, FunctionTool)
        assert renamed("rome", limit=1) == "1 hits for rome"

    def test_of_a_method_stays_bound(self):
        shop = Shop("Rome")
        renamed = shop.stock.renamed("rome_stock")
        assert renamed("figs") == "figs at Rome"
        assert run(Toolbox([renamed]), "rome_stock", item="figs") == "figs at Rome"

    @pytest.mark.parametrize(
        ("source", "missing"),
        [
            (Echo(), "input"),
            (Spec(), "text"),
            (SchemaTool("plain", "It", str, {"properties": {"a": {}}, "required": ["a"]}), "a"),
            (fan_out(search, count), "query, text"),
            (search, "query"),
        ],
    )
    def test_is_named_in_the_errors_of_every_kind_of_tool(self, source, missing):
        (name,) = Toolbox([source]).names
        renamed = [Toolbox([source]).renamed({name: "other"})["other"]]
        if isinstance(source, Tool):
            renamed.append(source.renamed("other"))
        for each in renamed:
            text = run(Toolbox([each]), "other")
            assert text == f"Error: Missing required parameter(s) for 'other': {missing}"

    def test_is_named_after_its_input_type_in_errors_as_the_original_is(self, tmp_path):
        read = FileReadTool(tmp_path)
        assert isinstance(read, TypedTool)
        assert run(Toolbox([read.renamed("docs")]), "docs") == run(Toolbox([read]), "file_read")

    def test_keeps_its_settings(self):
        @tool(
            timeout=5,
            max_output=90,
            requires_approval=True,
            effects="irreversible",
            metadata={"a": 1},
            return_behavior=ReturnBehavior.IMMEDIATE,
        )
        def pay(order: int) -> str:
            """Pay an order."""
            return f"paid order {order}"

        for renamed in (pay.renamed("shop_pay"), Toolbox([pay]).prefixed("shop_")["shop_pay"]):
            assert (renamed.timeout, renamed.max_output, renamed.requires_approval) == (5, 90, True)
            box = Toolbox([renamed], review=AutoApprove())
            assert box.specifications[0].metadata == {"readOnlyHint": False, "destructiveHint": True, "a": 1}
            assert box.return_behavior("shop_pay") is ReturnBehavior.IMMEDIATE
            assert run(box, "shop_pay", order=17).startswith("paid orde")
            assert run(Toolbox([renamed], review=AutoReject()), "shop_pay", order=17).startswith("Error: Rejected")
            text = run(box, "shop_pay", order=17, note="x")
            assert text == "Error: Invalid arguments for 'shop_pay': note: not a parameter of this tool"

    def test_is_what_the_reviewer_sees(self):
        reviewer = FakeReviewer(Continue())
        box = Toolbox([search.renamed("search_docs")], review=reviewer, approve=["search_docs"])
        run(box, "search_docs", query="rome")
        assert reviewer.requests[0].tool_name == "search_docs"

    def test_is_in_the_context_and_the_events_of_its_calls(self):
        @tool
        def who(context: ToolContext) -> str:
            """Say the name."""
            return f"{context.tool_name} {context.logger.name}"

        events = []
        box = Toolbox([who.renamed("me")], sinks=[events.append])
        assert run(box, "me") == "me toolsemble.tool.me"
        box.flush(5)
        assert {event.tool_name for event in events} == {"me"}

    def test_gets_what_is_injected(self):
        @tool
        def greet(shared: InvocationParameters) -> str:
            """Greet the user."""
            return f"Hello {shared['user']}"

        box = Toolbox([greet]).prefixed("a_")
        assert box.execute(ToolCall("a_greet"), parameters={"user": "Ada"}).text == "Hello Ada"

    def test_refuses_settings_of_its_own(self):
        renamed = CalculatorTool().renamed("compute")
        with pytest.raises(AttributeError, match="set 'timeout' there"):
            renamed.timeout = 5

    def test_shows_the_other_attributes_of_its_original(self):
        renamed = (search | count).renamed("hits")
        assert [step.tool.name for step in renamed.steps] == ["search", "count"]
        with pytest.raises(AttributeError):
            _ = renamed.nothing
        with pytest.raises(AttributeError):
            _ = renamed._nothing

    def test_runs_the_body_of_its_original(self):
        assert Echo().renamed("other").run("hi") == Echo().run("hi")

    def test_can_be_renamed_again(self):
        assert run(Toolbox([Echo().renamed("a").renamed("b")]), "b", input="hi") == "hi"
        assert run(Toolbox([search.renamed("a").renamed("b")]), "b") == (
            "Error: Missing required parameter(s) for 'b': query"
        )

    def test_is_a_step_of_a_pipeline_by_its_new_name(self):
        pipeline = search.renamed("find") | count.renamed("measure")
        assert pipeline.name == "find_then_measure"
        assert pipeline.execute('{"query": "rome"}').output == "15"

    def test_can_be_pickled(self):
        for renamed in (search.renamed("other"), Echo().renamed("other")):
            again = pickle.loads(pickle.dumps(renamed))
            assert again.name == "other"
        assert pickle.loads(pickle.dumps(search.renamed("other", "It"))).description == "It"

    def test_of_a_method_can_be_pickled(self):
        renamed = pickle.loads(pickle.dumps(Shop("Rome").stock.renamed("rome_stock")))
        assert (renamed.name, renamed("figs")) == ("rome_stock", "figs at Rome")

    def test_of_a_class_can_be_pickled_once_it_is_bound(self):
        bound = Shop.stock.renamed("rome_stock").bound_to(Shop("Rome"))
        assert pickle.loads(pickle.dumps(bound))("figs") == "figs at Rome"

    @pytest.mark.parametrize("name", ["", "a b", "x" * 65, None])
    def test_needs_a_valid_name(self, name):
        for each in (search, Echo()):
            with pytest.raises(ToolDefinitionError, match="name"):
                each.renamed(name)

    def test_needs_a_description_that_is_a_text(self):
        for each in (search, Echo()):
            with pytest.raises(ToolDefinitionError, match="Tool 'other': description must be a str, not int"):
                each.renamed("other", 5)


class TestLimitsUnderAnotherName:
    def test_a_cache_is_shared_by_name_only(self):
        calls = []

        @tool(effects="read", cache=True)
        def look(city: str) -> str:
            """Look."""
            calls.append(city)
            return "sunny"

        box = Toolbox([look, look.renamed("other")])
        for name in ("look", "look", "other", "other"):
            assert run(box, name, city="rome") == "sunny"
        assert calls == ["rome", "rome"]

    def test_an_effect_is_not_repeated_under_another_name_of_the_same_tool(self):
        shop = Shop("Rome")
        box = Toolbox([shop.buy, shop.buy.renamed("purchase")])
        first, second = (
            box.execute(ToolCall(name, {"item": "figs"}), run_id="r1").result for name in ("buy", "purchase")
        )
        assert (first.output, second.output) == ("bought figs at Rome", "bought figs at Rome")
        assert second.attributes["repeated"] is True
        assert shop.sold == ["figs"]

    @pytest.mark.parametrize("path", [None, "effects.db"])
    def test_the_effects_of_two_objects_are_never_taken_for_each_other(self, path, tmp_path):
        ledger = EffectLedger() if path is None else EffectLedger(tmp_path / path)
        rome, bonn = Shop("Rome"), Shop("Bonn")
        box = Toolbox([*Toolbox([rome]).prefixed("rome_"), *Toolbox([bonn]).prefixed("bonn_")], ledger=ledger)
        for name in ("rome_buy", "bonn_buy", "rome_buy"):
            place = name.partition("_")[0].title()
            assert box.execute(ToolCall(name, {"item": "figs"}), run_id="r1").text == f"bought figs at {place}"
        assert (rome.sold, bonn.sold) == (["figs"], ["figs"])

    def test_the_effects_of_two_functions_of_one_name_are_never_taken_for_each_other(self, tmp_path):
        done = []

        def make(place):
            @tool(idempotency=Idempotency(scope="ledger"))
            def buy(item: str) -> str:
                """Buy."""
                done.append((place, item))
                return place

            return buy

        box = Toolbox([make("a").renamed("a_buy"), make("b").renamed("b_buy")], ledger=EffectLedger(tmp_path / "e.db"))
        assert [run(box, name, item="figs") for name in ("a_buy", "b_buy", "a_buy")] == ["a", "b", "a"]
        assert done == [("a", "figs"), ("b", "figs")]


class TestAToolboxWithOtherNames:
    def test_has_a_prefix(self):
        box = Toolbox([search, Shop("Rome")]).prefixed("crm_")
        assert box.names == ["crm_search", "crm_stock", "crm_buy"]
        assert [each.name for each in box] == box.names
        assert run(box, "crm_stock", item="figs") == "figs at Rome"

    def test_has_new_names_for_some(self):
        box = Toolbox([search, count])
        assert box.renamed({"search": "find"}).names == ["find", "count"]
        assert box.names == ["search", "count"]

    def test_can_swap_names(self):
        box = Toolbox([search, count]).renamed({"search": "count", "count": "search"})
        assert box.names == ["count", "search"]
        assert run(box, "search", text="rome") == "4"

    def test_has_some_of_the_tools(self):
        box = Toolbox([search, count, Echo()])
        assert box.filtered(["count", "e*"]).names == ["count", "echo"]
        assert box.filtered("search").names == ["search"]
        assert box.filtered(lambda each: "Count" in each.description).names == ["count"]
        assert box.filtered([]).names == []
        assert run(box.filtered(["count"]), "search").startswith("Error: Unknown tool 'search'. Available tools: count")
        assert [each.name for each in box.filtered(["count"]).specifications] == ["count"]

    def test_keeps_the_settings_of_the_toolbox(self):
        box = Toolbox([search, count], max_output=6, before_call=lambda call, _: None, memory_id="ada")
        for other in (box.prefixed("a_"), box.filtered(["search"]).renamed({"search": "a_search"})):
            assert run(other, "a_search", query="rome").startswith("3 hits")
            assert "rome" not in run(other, "a_search", query="rome")

    def test_keeps_the_approval_that_the_toolbox_adds(self):
        box = Toolbox([search, count], approve=["search"]).prefixed("a_")
        for other in (box, Toolbox([*box]), Toolbox([box]), Toolbox([[box]])):
            with pytest.raises(ToolConfigurationError, match="Tool 'a_search' requires approval"):
                run(other, "a_search", query="rome")
            assert run(other, "a_count", text="rome") == "4"

    def test_keeps_its_reviewer_in_a_toolbox_that_has_none(self):
        inner, outer = FakeReviewer(Continue()), FakeReviewer(Continue())
        pipeline = search | count
        box = Toolbox([search, pipeline], approve=["search"], review=inner).prefixed("a_")
        assert run(Toolbox([box]), "a_search", query="rome") == "3 hits for rome"
        assert run(Toolbox([box]), "a_search_then_count", query="rome") == "15"
        assert run(Toolbox([Toolbox([box])]), "a_search", query="rome") == "3 hits for rome"
        assert (len(inner.requests), len(outer.requests)) == (3, 0)
        assert run(Toolbox([box], review=outer), "a_search", query="rome") == "3 hits for rome"
        assert (len(inner.requests), len(outer.requests)) == (3, 1)

    def test_asks_its_reviewer_in_the_list_of_an_agent(self):
        reviewer = FakeReviewer(Continue())
        model = ScriptedModel([ToolCall("search", {"query": "rome"}), "Done"])
        box = Toolbox([search], approve=["search"], review=reviewer)
        result = Agent(model, [box, count]).run_sync("go")
        assert (result.tool_calls[0].reply.text, len(reviewer.requests)) == ("3 hits for rome", 1)

    def test_keeps_the_limits_that_the_toolbox_adds(self):
        box = Toolbox([search], max_output=6)
        for other in (Toolbox([box]), Toolbox([*box.prefixed("a_")]), Toolbox([box], max_output=1000)):
            (name,) = other.names
            assert "rome" not in run(other, name, query="rome")

    def test_keeps_the_tool_for_pages(self):
        box = Toolbox([search, count], max_output=5, pages=True).prefixed("a_").filtered(["a_search"])
        assert box.names == ["a_search", "read_more"]
        assert "read_more" in run(box, "a_search", query="rome")
        assert Toolbox([box]).names == ["a_search"]
        with pytest.raises(ToolDefinitionError, match="there is no tool 'read_more'; the tools are a_search"):
            box.renamed({"read_more": "more"})

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            (lambda box: box.prefixed(5), "prefixed takes a str, such as 'crm_', not 5"),
            (lambda box: box.prefixed("a "), "Invalid tool name 'a search'"),
            (lambda box: box.prefixed("x" * 60), "use 1 to 64 letters"),
            (lambda box: box.renamed({"serch": "find"}), "renamed: there is no tool 'serch'; the tools are search"),
            (lambda box: box.renamed("find"), "renamed takes a dict from names to new names, not 'find'"),
            (lambda box: box.renamed({"search": "count"}), "Duplicate tool name: 'count'; choose another one"),
            (lambda box: box.renamed({"search": None}), "The tool has no name"),
            (lambda box: box.filtered(["serch"]), "filtered: no tool is 'serch'; the tools are search, count"),
            (lambda box: box.filtered([5]), r"filtered takes names or a function of a ToolSpecification, not \[5\]"),
            (lambda box: box.filtered(5), "filtered takes names or a function of a ToolSpecification, not 5"),
        ],
    )
    def test_refuses_what_it_cannot_do(self, change, problem):
        with pytest.raises(ToolDefinitionError, match=problem):
            change(Toolbox([search, count]))

    def test_addition_is_rejected_with_advice(self):
        with pytest.raises(TypeError, match=r"write Toolbox\(\[first, second\]\)"):
            Toolbox([search]) + Toolbox([count])

    def test_works_in_an_agent(self):
        model = ScriptedModel([ToolCall("crm_search", {"query": "rome"}), "Done"])
        result = Agent(model, Toolbox([search]).prefixed("crm_")).run_sync("go")
        assert result.tool_calls[0].reply.text == "3 hits for rome"


class TestAListOfTools:
    def test_may_hold_lists_and_toolboxes(self):
        inner = Toolbox([Shop("Rome")])
        members = [
            search,
            [count, (Echo(),)],
            inner.prefixed("rome_"),
            iter([Plain()]),
            {"a": CalculatorTool()}.values(),
        ]
        names = ["search", "count", "echo", "rome_stock", "rome_buy", "plain", "calculator"]
        assert Toolbox(members).names == names

    def test_may_hold_lists_and_toolboxes_for_an_agent(self):
        model = ScriptedModel([ToolCall("rome_stock", {"item": "figs"}), ToolCall("search", {"query": "x"}), "Done"])
        agent = Agent(model, [[search], Toolbox([Shop("Rome")]).prefixed("rome_")])
        assert [each.reply.text for each in agent.run_sync("go").tool_calls] == ["figs at Rome", "3 hits for x"]

    def test_combines_two_objects_with_the_same_tools(self, tmp_path):
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "x.txt").write_text("hello")
        box = Toolbox([FileReadTool(tmp_path / "a", name="read_docs"), FileReadTool(tmp_path)])
        assert box.names == ["read_docs", "file_read"]
        assert run(box, "read_docs", path="x.txt") == "hello"

    def test_names_the_place_of_a_mistake_inside_lists(self):
        with pytest.raises(ToolDefinitionError) as refused:
            Toolbox([search, [count, [None, 5]]])
        assert str(refused.value).splitlines() == [
            "Tool at index 1[1][0] is None; pass a tool object",
            "Tool at index 1[1][1] (int) is neither an AgentTool nor has @tool methods",
        ]

    def test_that_contains_itself_is_refused(self):
        tools = [search]
        tools.append(tools)
        with pytest.raises(ToolDefinitionError, match="Tool at index 1: lists are nested too deeply"):
            Toolbox(tools)

    def test_duplicate_names_are_rejected_with_advice(self):
        with pytest.raises(ToolDefinitionError) as refused:
            Toolbox([Toolbox([search]), search])
        assert str(refused.value) == (
            "Duplicate tool name: 'search'; rename one of them: tool.renamed('other_name'), or box.prefixed('other_') "
            "for all tools of a toolbox"
        )

    def test_refuses_a_toolbox_whose_hooks_would_be_lost(self):
        box = Toolbox([search], before_call=lambda call, context: ToolResult.failure("no"))
        with pytest.raises(ToolDefinitionError, match="Tool at index 0 is a Toolbox with before_call or after_call"):
            Toolbox([box])
        assert Toolbox([*box]).names == ["search"]


class TestBuiltInTools:
    @pytest.mark.parametrize(
        "make",
        [
            CalculatorTool,
            DateTimeTool,
            JsonParserTool,
            WebScraperTool,
            HumanInputTool,
            lambda **names: FileReadTool(".", **names),
            lambda **names: FileWriteTool(".", **names),
            lambda **names: WebSearchTool("duckduckgo", **names),
        ],
    )
    def test_take_a_name_and_a_description(self, make):
        made = make(name="other", description="Does it")
        (specification,) = Toolbox([made]).specifications
        assert (specification.name, specification.description) == ("other", "Does it")
        assert make().name == type(made).name
        assert make().description == type(made).description
        with pytest.raises(ToolDefinitionError, match="Invalid tool name 'a b'"):
            make(name="a b")


class TestNamesOfPipelines:
    def make(self, name):
        @tool(name)
        def step(text: str) -> str:
            """Repeat."""
            return text

        return step

    def test_are_shortened_when_they_are_too_long(self):
        steps = [self.make(name) for name in ("fetch_customer_orders", "filter_open_orders", "summarize_orders")]
        pipeline = steps[0] | steps[1] | steps[2]
        assert pipeline.name == "fetch_customer_orders_then_filter_open_orders_then_summ_010b04cb"
        assert pipeline.description == "Pipeline: fetch_customer_orders -> filter_open_orders -> summarize_orders"
        assert pipeline.name == ToolPipeline.of(*steps).name
        assert len(pipeline.steps) == 3
        assert Toolbox([pipeline]).names == [pipeline.name]

    def test_differ_for_different_steps(self):
        first, *others = (self.make(f"{'x' * 60}_{end}") for end in "abc")
        assert len({(first | each).name for each in others}) == 2
        assert all(len((first | each).name) <= 64 for each in others)

    def test_are_shortened_for_branches_too(self):
        long = [self.make(f"{letter * 40}") for letter in "ab"]
        assert len(fan_out(*long).name) <= 64
