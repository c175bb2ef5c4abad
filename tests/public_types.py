"""What type checkers see: checked by mypy as part of the lint, never run."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, assert_type

from toolsemble import (
    Agent,
    AgentResult,
    AgentTool,
    ChatModel,
    Content,
    InMemoryMetrics,
    Note,
    Prices,
    ReviewRequest,
    Step,
    Tool,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolMetrics,
    ToolPipeline,
    ToolReply,
    ToolResult,
    ToolSpecification,
    TypedTool,
    choose,
    fan_out,
    map_over,
    tool,
    tool_specifications_from,
)
from toolsemble.agent import (
    Event,
    Final,
    RunSettings,
    RunStop,
    RunView,
    StopReason,
    TextDelta,
    ToolCallRecord,
    TurnEnded,
    Usage,
    keep_last_turns,
    summarize_earlier,
    trim_to_tokens,
)
from toolsemble.models import FunctionModel, Message, ScriptedModel, Transcript
from toolsemble.models._adapter.wire import Offer
from toolsemble.models.openai import _wire as openai
from toolsemble.review import AutoApprove


class Shout(Tool):
    name = "shout"
    description = "Says it louder"

    def run(self, input: str) -> str:
        assert_type(self.context, ToolContext)
        assert_type(self.metrics, ToolMetrics)
        return input.upper()


class Whisper(Tool):
    name = "whisper"

    @property
    def description(self) -> str:  # type: ignore[override]  # a property in place of a class attribute works at run time
        return "Says it softly"

    async def run(self, input: str) -> ToolResult:
        return ToolResult.success(input.lower())


@dataclass
class Route:
    start: str
    end: str


class Plan(TypedTool[Route]):
    name = "plan"
    description = "Plans a route"

    def run(self, input: Route) -> str:
        return f"{input.start} to {input.end}"


@tool
def add(a: int, b: int = 1) -> int:
    return a + b


@tool("later", strict=True)
async def later(text: str) -> str:
    return text


class Calculator:
    @tool
    def plus(self, number: int) -> int:
        return number


class Plain:
    name = "plain"
    description = "Repeats its input"

    def execute(self, input: str) -> ToolResult:
        return ToolResult.success(input)


async def check() -> None:
    assert_type(add(1, b=2), int)
    assert_type(await later("x"), str)
    assert_type(add.execute("{}"), ToolResult)
    assert_type(add.execute({"a": 1}), ToolResult)
    assert_type(Shout().execute({"input": "hello"}), ToolResult)
    assert_type(Calculator().plus(3), int)
    assert_type(Plan().input_type, type[Route])
    assert_type(tool_specifications_from(Calculator), list[ToolSpecification])
    assert_type(add.explain("google"), list[Note])
    assert_type(ToolCall.from_openai({}), ToolCall)
    assert_type(add | Shout(), ToolPipeline)
    assert_type(Plain() | Shout() | Plain(), ToolPipeline)
    assert_type(Step(add, lambda result: result.output) | Shout(), ToolPipeline)
    assert_type(ToolPipeline.of(add, Plain()).describe().mermaid, str)
    assert_type(fan_out(add, Shout(), merge=lambda results: results["add"].output) | map_over(add, 5), ToolPipeline)
    assert_type(choose(lambda given: given == "x", Shout(), Plain()), Tool)
    tools: list[AgentTool] = [Shout(), Plain()]
    box = Toolbox([*tools, Whisper()], metrics=InMemoryMetrics(), max_concurrency=4)
    call = ToolCall("shout", {"input": "hello"})
    assert_type(Shout().execute("hello"), ToolResult)
    assert_type(await Shout().aexecute("hello"), ToolResult)
    assert_type(box.execute(call), ToolReply)
    assert_type(await box.aexecute(call), ToolReply)
    assert_type(box.execute_all([call]), list[ToolReply])
    assert_type(await box.aexecute_all([call]), list[ToolReply])
    assert_type(add.renamed("sum")(1, 2), int)
    assert_type(Shout().renamed("loud", "Says it loudly"), Tool)
    assert_type(box.prefixed("crm_"), Toolbox)
    assert_type(box.filtered(lambda each: "x" in each.description).renamed({"shout": "loud"}), Toolbox)
    assert_type(box.filtered(["sh*"]), Toolbox)
    assert_type(box.specifications, list[ToolSpecification])
    assert_type(box.specifications[0].parameters, dict[str, Any] | None)
    offers: list[Offer] = [*box.specifications]
    assert_type(openai.write_tools(offers, api="responses", strict=True), list[dict[str, Any]])
    assert_type(openai.read_call({}), tuple[str, str | dict[str, Any] | None, str | None])
    assert_type(box.execute(call).result.contents, tuple[Content, ...])
    assert_type(box.execute(call).result.attributes, Mapping[str, Any])
    assert_type(call.arguments, dict[str, Any])


async def check_agents() -> None:
    models: list[ChatModel] = [
        ScriptedModel(["hi", call_of("add"), [call_of("add")], ValueError()]),
        FunctionModel(str),
    ]
    agent = Agent(models[0], [Shout(), Plain()], role="a clerk", max_seconds=10)
    assert_type(agent, Agent[str])
    assert_type(agent.run_sync("hello"), AgentResult[str])
    result = await agent.run(["hello"], parameters={"user": "ada"})
    assert_type(result.text, str)
    assert_type(result.tool_calls, list[ToolCallRecord])
    assert_type(result.tool_calls[0].reply, ToolReply)
    assert_type(result.messages, Transcript)
    assert_type(result.messages[0], Message)
    assert_type(result.usage, Usage)
    await agent.run("more", history=result.messages)
    async for event in agent.stream("hello"):
        assert_type(event, Event[str])
    async for turn in agent.iterate("hello"):
        assert_type(turn, TurnEnded | Final[str] | RunStop)
    assert_type(agent.as_tool("clerk", "Helps", requires_approval=True), Tool)
    Agent(models[1], lambda run: [Shout()] if run.turn else [])


async def check_outputs(model: ChatModel) -> None:
    planner = Agent(model, output_type=Route)
    assert_type(planner, Agent[Route])
    assert_type((await planner.run("plan")).output, Route)
    assert_type(planner.run_sync("plan").output.start, str)
    assert_type(Agent(model, output_type=list[int]).run_sync("count").output, list[int])
    assert_type(Agent(model, output_type=int | None).run_sync("count"), AgentResult[Any])
    annotated: Agent[int | None] = Agent(model, output_type=int | None)
    assert_type(annotated.run_sync("count").output, int | None)
    assert_type((await Agent(model).run("hello")).output, str)
    assert_type((await Agent(model).run("plan", output_type=Route)).output, Route)
    assert_type(planner.run_sync("hello", output_type=str, max_turns=3), AgentResult[str])
    assert_type(planner.run_sync("hello", output_type=None), AgentResult[Route])
    async for event in planner.stream("plan", output_type=list[str]):
        if event.kind == "final":
            assert_type(event.result.output, list[str])
    async for turn in planner.iterate("plan"):
        if turn.kind == "final":
            assert_type(turn.result.output.end, str)
    anything: list[Agent] = [Agent(model), planner]
    assert_type(anything[0].run_sync("hello").output, Any)
    assert_type(planner.run_sync("plan").stop_reason, StopReason)
    match planner.run_sync("plan").stop_reason:
        case "max_turns" | "max_tokens":
            pass


async def check_events(agent: Agent[str]) -> None:
    async for event in agent.stream("hello"):
        match event.kind:
            case "text_delta":
                assert_type(event, TextDelta)
            case "call_requested":
                assert_type(event.call, ToolCall)
            case "call_replied":
                assert_type(event.record, ToolCallRecord)
            case "review_requested":
                assert_type(event.request, ReviewRequest)
            case "call_progress":
                assert_type(event.fraction, float | None)
            case "final":
                assert_type(event.result, AgentResult[str])
            case _:
                pass
        if event.kind == "turn_ended":
            assert_type(event.message.text, str)
    for message in agent.run_sync("hello").messages:
        if message.role == "tool":
            assert_type(message.call, ToolCall)


class Shop:
    stock: int = 3


@tool
def stock(item: str, context: ToolContext[Shop]) -> int:
    assert_type(context.deps, Shop)
    return context.deps.stock


def greet(run: RunView[Shop]) -> str:
    return f"There are {run.deps.stock}."


def forget(messages: Sequence[Message]) -> Sequence[Message]:
    return messages[-1:]


async def check_settings(model: ChatModel) -> None:
    assert_type(ToolContext(deps=Shop()).deps, Shop)
    assert_type(ToolContext(deps=Shop()), ToolContext[Shop])
    stock("x", ToolContext(deps=Shop()))
    stock.execute({"item": "x"}, ToolContext(deps=Shop()))
    await stock.aexecute({"item": "x"}, ToolContext(deps=Shop()))
    agent = Agent(
        model,
        [stock],
        instructions=["Be brief.", greet, lambda: "x", lambda run: run.memory_id],
        history_processors=[forget, keep_last_turns(3), trim_to_tokens(100), summarize_earlier(model)],
    )
    result = await agent.run(
        "hello",
        model=model,
        deps=Shop(),
        instructions=greet,
        settings={"temperature": 0},
        max_cost=1,
        prices=Prices(1, 2),
        review=AutoApprove(),
    )
    assert_type(result.output, str)


def make_shop(run: RunView) -> Shop:
    return Shop()


async def make_shop_async(run: RunView) -> Shop:
    return Shop()


@contextmanager
def open_shop(run: RunView) -> Iterator[Shop]:
    yield Shop()


@asynccontextmanager
async def open_shop_async(run: RunView) -> AsyncIterator[Shop]:
    yield Shop()


class BigShop(Shop):
    pass


def takes_shop(agent: Agent[Any, Shop]) -> None: ...


async def check_deps(model: ChatModel) -> None:
    assert_type(Agent(model), Agent[str, Any])
    assert_type(Agent(model, deps=Shop()), Agent[str, Shop])
    assert_type(Agent(model, deps_type=Shop), Agent[str, Shop])
    assert_type(Agent(model, make_deps=make_shop), Agent[str, Shop])
    assert_type(Agent(model, make_deps=make_shop_async, deps_type=Shop), Agent[str, Shop])
    assert_type(Agent(model, make_deps=open_shop_async, deps_type=Shop), Agent[str, Shop])
    annotated_deps: Agent[str, Shop] = Agent(model, make_deps=open_shop_async)
    takes_shop(annotated_deps)
    takes_shop(Agent(model, make_deps=make_shop_async))
    takes_shop(Agent(model, make_deps=open_shop))
    assert_type(Agent(model, make_deps=lambda run: Shop()), Agent[str, Shop])
    assert_type(Agent(model, make_deps=open_shop, deps_type=Shop), Agent[str, Shop])
    typed = Agent(model, [stock], output_type=Route, make_deps=open_shop_async, deps_type=Shop)
    assert_type(typed, Agent[Route, Shop])
    assert_type((await typed.run("plan", deps=BigShop())).output, Route)
    assert_type(typed.run_sync("plan", output_type=str, deps=Shop()), AgentResult[str])
    without_deps: Agent[Route] = typed
    with_deps: Agent[Route, Shop] = typed
    annotated: Agent[int | None, Shop] = Agent(model, output_type=int | None, deps=Shop())
    takes_shop(typed)
    takes_shop(Agent(model))
    takes_shop(Agent(model, deps=BigShop()))
    given: RunSettings = {"deps": Shop(), "max_turns": 3}
    with_deps.run_sync("plan", **given)
    Agent(model).run_sync("plan", deps=3)
    assert_type((without_deps, annotated), tuple[Agent[Route, Any], Agent[int | None, Shop]])


def call_of(name: str) -> ToolCall:
    return ToolCall(name)
