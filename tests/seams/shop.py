"""The agent of all cases: it looks up an order, has a refund made, and answers with what came of it.

Its model decides by the conversation, so any process can continue a run. The effect is a line in a log outside the
process. No annotations are strings here: the tools' annotations name local types.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from seams.case import Case
from seams.world import World
from toolsemble import (
    Agent,
    Catalog,
    ConversationMemory,
    EffectLedger,
    Retries,
    RunJournal,
    ToolCall,
    ToolContext,
    ToolPipeline,
    tool,
)
from toolsemble._tools.pipeline.step import Step
from toolsemble._vocabulary.errors import ModelError
from toolsemble.agent import Retry
from toolsemble.models import AssistantMessage, FunctionModel, TokenUsage, ToolMessage, UserMessage
from toolsemble.review import CallbackReview, Continue, Edit, PauseReview, QueueReview, Reject, ReviewStore
from toolsemble.telemetry import RunHistory

RUN_ID, AGENT, PROMPT, USER = "order-7", "support", "Refund order 7", "ada"
SECRET = "hunter2-of-the-deps"  # noqa: S105 - it must not be found in any file
STORE_SECRET = "a secret of the tests, which is long enough"  # noqa: S105 - as its name says
APPROVAL_TIMEOUT = 3600.0
DECISIONS = {
    "approve": Continue(),
    "reject": Reject("too much"),
    "edit": Edit('{"order": 7, "amount": 30}'),
}
RESULTS = {
    "approve": "refunded 40 EUR for order 7",
    "reject": "Error: Rejected by reviewer: too much",
    "edit": "refunded 30 EUR for order 7",
}
UNKNOWN = "Error: Unknown outcome"
CATALOG_TOOLS = 30


@dataclass(frozen=True, slots=True)
class Desk:
    """The deps of a run."""

    currency: str = "EUR"
    password: str = field(default=SECRET, repr=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The typed answer."""

    status: Literal["refunded", "refused", "unknown"]
    detail: str


def make_outcome(text: str) -> dict[str, str]:
    """Return the typed answer for what the refund came to."""
    status = "unknown" if text.startswith(UNKNOWN) else "refused" if text.startswith("Error") else "refunded"
    return {"status": status, "detail": text}


@dataclass(frozen=True, slots=True)
class Opened:
    """What a program of a case uses."""

    agent: Agent
    journal: RunJournal | None
    run_settings: dict[str, Any]
    """The keywords of a run."""
    deps: Desk | None
    """The deps that a run or a worker is given."""


@contextmanager
def open_shop(world: World) -> Iterator[Opened]:
    """Open everything that a case uses, and close it at the end."""
    case = world.case
    with ExitStack() as stack:
        journal = stack.enter_context(open_journal(world)) if case.is_durable else None
        settings = make_settings(world, stack)
        agent = Agent(make_model(world), make_tools(world, stack), journal=journal, name=AGENT, **settings)
        given: dict[str, Any] = {"run_id": RUN_ID}
        if case.memory != "none":
            given["memory_id"] = USER
        deps = Desk() if case.deps == "run" else None
        if deps is not None:
            given["deps"] = deps
        yield Opened(agent, journal, given, deps)
        agent.flush(30)


def open_journal(world: World) -> RunJournal:
    park_after = 0 if world.case.review == "parked" else None
    return RunJournal(world.journal_url, park_after=park_after)


def open_store(world: World) -> ReviewStore:
    # A file has its secret beside it, where the web interface finds it.
    return ReviewStore(world.store_url, STORE_SECRET if world.case.journal == "postgres" else None)


def open_memory(world: World) -> ConversationMemory:
    return ConversationMemory(world.folder / "talks.db")


def open_ledger(world: World) -> EffectLedger:
    return EffectLedger(world.data / "effects.db")


def make_settings(world: World, stack: ExitStack) -> dict[str, Any]:
    """Return the keywords of the agent."""
    case = world.case
    settings: dict[str, Any] = {"retry": Retry(wait=0), **BUDGETS[case.budget](case)}
    if case.output == "typed":
        settings["output_type"] = Outcome
    if case.review != "none":
        settings["review"] = make_reviewer(world, stack)
    if case.memory != "none":
        settings["memory"] = open_memory(world)
        stack.callback(settings["memory"].close)
    if case.has_history:
        settings["sinks"] = make_sinks(world, stack)
    return {**settings, **make_deps(world)}


def count_turns(case: Case) -> int:
    """Return how often models reply in a run that is not interrupted."""
    return 3 + (case.tool == "catalog") + 2 * (case.tool == "agent")


def count_calls(case: Case) -> int:
    """Return how many calls models ask for, without the answer's."""
    return 2 + (case.tool in ("catalog", "agent")) + (case.model == "parallel")


USAGE = TokenUsage(10, 5)
BUDGETS = {
    "none": lambda _: {},
    "seconds": lambda _: {"max_seconds": 600.0},
    "tight": lambda case: {
        "max_turns": count_turns(case) + 1,
        "max_tool_calls": count_calls(case) + 2,  # one is the answer
        "max_tokens": (count_turns(case) + 1) * USAGE.total,
    },
}


def make_deps(world: World) -> dict[str, Any]:
    """Return the keywords of the agent for its deps."""

    @contextmanager
    def open_desk(run: Any) -> Iterator[Desk]:
        world.log("deps", did="enter", run_id=run.run_id)
        try:
            yield Desk()
        finally:
            world.log("deps", did="leave", run_id=run.run_id)

    return {"none": {}, "run": {}, "agent": {"deps": Desk()}, "make": {"make_deps": open_desk}}[world.case.deps]


def make_sinks(world: World, stack: ExitStack) -> list[Any]:
    history = stack.enter_context(RunHistory(world.data / "history.db"))
    if world.case.sinks == "history":
        return [history]
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

    from toolsemble.telemetry import OpenTelemetry

    class LogExporter(SpanExporter):
        def export(self, spans):
            for span in spans:
                attributes = {key: str(value) for key, value in (span.attributes or {}).items()}
                world.log("spans", name=span.name, status=span.status.status_code.name, attributes=attributes)
            return SpanExportResult.SUCCESS

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(LogExporter()))
    return [history, OpenTelemetry(provider)]


def make_reviewer(world: World, stack: ExitStack) -> Any:
    """Return the reviewer of the agent."""
    case = world.case
    if case.review == "pause":
        return PauseReview()
    if case.review == "callback":

        async def decide(request):
            world.log("asked", id=request.id, timeout=request.timeout)
            world.mark("asked")
            if case.moment == "question":
                await world.await_("go")
            world.log("answered", id=request.id)
            return DECISIONS[case.decision]

        return CallbackReview(decide)
    return QueueReview(stack.enter_context(open_store(world)), poll=0.01)


def make_model(world: World, agent: str = AGENT) -> FunctionModel:
    """Return a model that gives the n-th reply to the n-th request after the question."""
    case, failed = world.case, []

    def reply(request):
        since = max(index for index, message in enumerate(request.messages) if isinstance(message, UserMessage))
        said = request.messages[since + 1 :]
        turn = sum(isinstance(message, AssistantMessage) for message in said)
        if case.model == "flaky" and turn == 1 and agent == AGENT and not failed:
            failed.append(turn)
            return ModelError("Too many requests", retryable=True, retry_after=0)
        world.log("model", agent=agent, turn=turn)
        script = inner_script(case) if agent != AGENT else outer_script(case)
        if turn < len(script):
            return script[turn]
        results = [each.reply for each in said if isinstance(each, ToolMessage)]
        text = next(each.result.text for each in results if each.call.name == refund_name(case, agent))
        text = text.splitlines()[0]
        is_typed = case.output == "typed" and agent == AGENT
        return ToolCall("final_answer", make_outcome(text), id="c_answer") if is_typed else text

    return FunctionModel(reply, usage=USAGE)


def refund_name(case: Case, agent: str = AGENT) -> str:
    """Return the name of the tool that the model calls for a refund."""
    return {"pipeline": "settle", "agent": "clerk"}.get(case.tool, "refund") if agent == AGENT else "refund"


def outer_script(case: Case) -> list[Any]:
    """Return the replies of the agent's model before its answer."""
    name = refund_name(case)
    arguments = {"input": "Refund order 7"} if case.tool == "agent" else {"order": 7, "amount": 40}
    refund = [ToolCall(name, arguments, id="c_refund")]
    if case.model == "parallel":
        refund.append(ToolCall("find_order", {"order": 8}, id="c_other"))
    find = [ToolCall("find_tools", {"query": "refund an order", "limit": 1}, id="c_find")]
    return [ToolCall("find_order", {"order": 7}, id="c_order"), *(find if case.tool == "catalog" else ()), refund]


def inner_script(case: Case) -> list[Any]:
    """Return the replies of the model of the agent inside before its answer."""
    return [ToolCall("refund", {"order": 7, "amount": 40}, id="c_inner")]


def make_tools(world: World, stack: ExitStack) -> Any:
    """Return the tools of the agent."""
    case = world.case
    Context = ToolContext if case.deps == "none" else ToolContext[Desk]  # noqa: N806 - a type

    @tool(effects="read")
    def find_order(order: int, context: Context) -> str:
        """Look up an order."""
        return f"order {order} cost 40 {currency(context)}"

    refund = make_refund(world, stack, Context)
    if case.tool == "pipeline":
        check = Step(check_order, lambda _: {"order": 7, "amount": 40})
        return [find_order, ToolPipeline("settle", "Settle an order.", [check, refund])]
    if case.tool == "agent":
        clerk = Agent(make_model(world, "clerk"), [refund], retry=Retry(wait=0), name="clerk")
        return [find_order, clerk.as_tool("clerk", "Refunds orders.")]
    if case.tool == "catalog":
        return Catalog([find_order, refund, *fillers()], always=["find_order"], budget=200)
    return [find_order, refund]


@tool(effects="read")
def check_order(order: int, amount: int) -> str:
    """Check an order before it is settled."""
    return f"order {order} is paid"


def fillers() -> list[Any]:
    """Return tools that a catalog hides."""

    def add(number):
        @tool(name=f"archive_{number}", effects="read")
        def archive(text: str) -> str:
            """Search an archive of letters."""
            return text

        return archive

    return [add(number) for number in range(CATALOG_TOOLS)]


def currency(context: Any) -> str:
    """Return the currency, from the deps if there are any."""
    return "EUR" if context.deps is None else context.deps.currency


def make_refund(world: World, stack: ExitStack, Context: Any) -> Any:  # noqa: N803 - a type
    """Return the tool whose effect must happen once."""
    case, tried = world.case, set()
    gate = {"requires_approval": True, "approval_timeout": APPROVAL_TIMEOUT} if case.review != "none" else {}
    safety = {"effects": "irreversible"} if case.effects == "once" else {"effects": "write", "idempotent": True}
    if case.tool == "mcp":
        return start_mcp(world, stack, gate)
    if case.tool == "retries":
        safety["retries"] = Retries(2, on=(ConnectionError,), wait=0.001)
    if case.tool == "ledger":
        safety["idempotency"] = make_idempotency(world, stack)

    def take_effect(order, amount, context):
        if case.tool == "retries" and context.idempotency_key not in tried:
            tried.add(context.idempotency_key)
            raise ConnectionError("the line was busy")
        world.log("effects", key=context.idempotency_key, order=order, amount=amount)
        world.mark("in_body")
        return f"refunded {amount} {currency(context)} for order {order}"

    async def refund_async(order: int, amount: int, context: Context) -> str:
        """Refund an order."""
        text = take_effect(order, amount, context)
        if case.moment == "body":
            await world.await_("go")
        return text

    def refund_sync(order: int, amount: int, context: Context) -> str:
        """Refund an order."""
        text = take_effect(order, amount, context)
        if case.moment == "body":
            world.wait("go")
        return text

    return tool(name="refund", **gate, **safety)(refund_async if case.tool == "async" else refund_sync)


def make_idempotency(world: World, stack: ExitStack) -> Any:
    from toolsemble import Idempotency

    return Idempotency(key=lambda arguments: arguments.order, ledger=stack.enter_context(open_ledger(world)))


def start_mcp(world: World, stack: ExitStack, gate: dict[str, Any]) -> Any:
    """Return the tool of a real MCP server, which is a separate process."""
    from toolsemble.mcp import MCPClient

    program = ["-m", "seams.mcp_desk", str(world.folder)]
    path = str(Path(__file__).parent.parent)
    client = MCPClient.stdio(
        sys.executable, *program, env={"PYTHONPATH": path}, name="desk", effects="irreversible", **gate
    )
    (refund,) = stack.enter_context(client)
    return refund
