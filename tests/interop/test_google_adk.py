"""Google ADK with a small fake of its classes; `make interop` runs the cases with the real ones."""

import asyncio
import inspect
import sys
from types import ModuleType, SimpleNamespace

import pytest

from toolsemble import (
    FileContent,
    ImageContent,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolDefinitionError,
    ToolResult,
    tool,
)
from toolsemble.interop import google_adk


class FakeTool:
    is_long_running = False

    def __init__(self, *, name, description):
        self.name, self.description = name, description


class FakeToolset:
    pass


class FakeDeclaration(SimpleNamespace):
    parameters_json_schema = parameters = None


class FakeConfirmation(SimpleNamespace):
    confirmed = False
    payload = None


class FakeFunctionTool(FakeTool):
    schema = FakeDeclaration(
        parameters_json_schema={
            "title": "doubleParams",
            "type": "object",
            "properties": {"number": {"type": "integer"}},
        }
    )

    def __init__(self, func, *, require_confirmation=False):
        super().__init__(name=func.__name__, description=func.__doc__)
        self.func, self._require_confirmation, self._context_param_name = func, require_confirmation, "tool_context"

    def _get_declaration(self):
        return self.schema

    async def run_async(self, *, args, tool_context):
        if self._require_confirmation and not tool_context.tool_confirmation.confirmed:
            return {"error": "This tool call is rejected."}
        found = self.func(**args)
        return await found if inspect.isawaitable(found) else found


class FakePart(SimpleNamespace):
    def __init__(self, inline_data):
        super().__init__(inline_data=SimpleNamespace(**inline_data))


def module(name, **classes):
    made = ModuleType(name)
    vars(made).update(classes)
    return made


LIBRARY = [
    module("google.adk"),
    module("google.adk.tools"),
    module("google.adk.tools.base_tool", BaseTool=FakeTool),
    module("google.adk.tools.base_toolset", BaseToolset=FakeToolset),
    module("google.adk.tools.function_tool", FunctionTool=FakeFunctionTool),
    module("google.adk.tools.tool_confirmation", ToolConfirmation=FakeConfirmation),
    module("google.genai.types", FunctionDeclaration=FakeDeclaration, Part=FakePart),
]


@pytest.fixture(autouse=True)
def _library(monkeypatch):
    for each in LIBRARY:
        monkeypatch.setitem(sys.modules, each.__name__, each)


class Session:
    """A session, and the contexts of one call in it."""

    def __init__(self):
        self.id, self.events = "talk_1", []

    def context(self, call_id="call_1", answer=None):
        asked = {}

        def request_confirmation(*, hint, payload):
            asked[call_id] = FakeConfirmation(hint=hint, payload=payload)

        actions = SimpleNamespace(requested_tool_confirmations=asked, skip_summarization=None)
        self.events.append(SimpleNamespace(actions=actions))
        return SimpleNamespace(
            function_call_id=call_id, tool_confirmation=answer and FakeConfirmation(**answer), session=self, state={},
            invocation_id="run_1", user_id="ada", actions=actions, request_confirmation=request_confirmation,
        )  # fmt: skip

    @property
    def asked(self):
        return [each for event in self.events for each in event.actions.requested_tool_confirmations.values()]


RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@tool
def order(item: str, count: int = 1) -> str:
    """Order something."""
    RAN.append((item, count))
    if item == "rum":
        raise ValueError("not for sale")
    return f"{count} {item}"


def export_one(*tools, approve=None, **settings):
    [exported] = google_adk.export(Toolbox(tools, approve=approve), **settings)
    return exported


def export_gated(*tools):
    return export_one(*(tools or [order]), approve=[each.name for each in tools or [order]], approval="theirs")


async def ask(exported, session, **arguments):
    """Make a call that needs approval, and return the payload of the request."""
    context = session.context()
    response = await exported.run_async(args=arguments or {"item": "tea", "count": "3"}, tool_context=context)
    assert response == {"error": "This call needs approval; it has not run"}
    assert context.actions.skip_summarization
    return session.asked[-1].payload


async def resume(exported, session, answer, **arguments):
    context = session.context(answer=answer)
    return await exported.run_async(args=arguments or {"item": "tea", "count": "3"}, tool_context=context)


async def test_an_agent_is_answered_with_a_response():
    exported = export_one(order)
    declared = exported._get_declaration()
    assert (declared.name, declared.description) == ("order", "Order something.")
    assert declared.parameters_json_schema["required"] == ["item"]
    response = await exported.run_async(args={"item": "tea", "count": "3"}, tool_context=Session().context())
    assert response == {"result": "3 tea"}
    assert exported._detect_error_in_response(response) is None
    failed = await exported.run_async(args={"item": "rum"}, tool_context=None)
    assert failed == {"error": "Error: not for sale"}
    assert exported._detect_error_in_response(failed) == "TOOL_ERROR"


async def test_media_that_gemini_takes_are_parts_and_callbacks_get_the_structured_output():
    @tool
    def draw() -> ToolResult:
        """Draw."""
        media = [ImageContent(b"png", "image/png"), FileContent(b"pdf", "application/pdf", "plan.pdf"),
                 FileContent(b"zip", "application/zip", "all.zip")]  # fmt: skip
        return ToolResult.success("a map", {"size": (1, 2)}, contents=media)

    exported = export_one(draw)
    response = await exported.run_async(args={}, tool_context=Session().context())
    assert response["result"] == "a map\n[all.zip, application/zip, 3 bytes, not shown]"
    assert [each.inline_data.mime_type for each in response["media"]] == ["image/png", "application/pdf"]
    assert response.structured_output == {"size": [1, 2]}
    reply = await Toolbox(google_adk.adopt(exported)).aexecute(ToolCall("draw"))
    assert (len(reply.contents), reply.result.structured_output) == (3, {"size": [1, 2]})


async def test_the_user_the_run_and_the_state_of_the_session_reach_the_tool():
    seen = []

    @tool
    def look(context: ToolContext) -> str:
        """Look."""
        seen.append((context.memory_id, context.run_id, context.call_id, context.deps))
        return ""

    context = Session().context()
    await export_one(look).run_async(args={}, tool_context=context)
    chosen = export_one(look, memory_id=lambda found: found.user_id.upper(), run_id="mine")
    await chosen.run_async(args={}, tool_context=context)
    assert seen == [("ada", "run_1", "call_1", {}), ("ADA", "mine", "call_1", {})]


def test_names_begin_with_a_letter_and_come_back():
    box = Toolbox([order.renamed("2tea"), order.renamed("-tea"), order.renamed("_2tea")])
    exported = google_adk.export(box)
    assert [each.name for each in exported] == ["_2tea_2", "_-tea", "_2tea"]
    assert Toolbox(google_adk.adopt(exported)).names == ["2tea", "-tea", "_2tea"]


async def test_a_confirmed_call_runs_once_however_often_the_answer_is_sent():
    exported, session = export_gated(), Session()
    payload = await ask(exported, session)
    assert (payload["tool_name"], payload["arguments"]) == ("order", {"item": "tea", "count": 3})
    assert session.asked[0].hint == "Approve order: Order something."
    answers = await asyncio.gather(*(resume(exported, session, {"confirmed": True}) for _ in range(3)))
    assert answers == [{"result": "3 tea"}] * 3
    assert RAN == [("tea", 3)]
    await ask(exported, session)
    await resume(exported, session, {"confirmed": True})
    assert RAN == [("tea", 3)] * 2


async def test_another_export_with_the_session_resumes_the_run():
    session = Session()
    await ask(export_gated(), session)
    assert await resume(export_gated(), session, {"confirmed": True}) == {"result": "3 tea"}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"confirmed": False}, 'Error: Rejected by reviewer: order({"item": "tea", "count": 3})'),
        ({"confirmed": False, "payload": "no"}, 'Error: Rejected by reviewer: order({"item": "tea", "count": 3})'),
        ({"confirmed": False, "payload": {"reason": "too much"}}, "Error: Rejected by reviewer: too much"),
        ({"confirmed": True, "payload": {"decision": "reject", "reason": "no"}}, "Error: Rejected by reviewer: no"),
        ({"confirmed": True, "payload": "maybe"}, "Error: Rejected by reviewer: the answer 'maybe' is not a decision"),
    ],
)
async def test_a_call_that_is_not_approved_fails(answer, text):
    exported, session = export_gated(), Session()
    await ask(exported, session)
    assert await resume(exported, session, answer) == {"error": text}
    assert RAN == []


async def test_a_person_may_send_the_payload_back_with_other_arguments():
    exported, session = export_gated(), Session()
    payload = await ask(exported, session)
    assert await resume(exported, session, {"confirmed": True, "payload": payload}) == {"result": "3 tea"}
    payload = await ask(exported, session)
    edited = {**payload, "arguments": {"item": "tea", "count": 2}}
    response = await resume(exported, session, {"confirmed": True, "payload": edited})
    assert response["result"].startswith("2 tea")
    assert RAN == [("tea", 3), ("tea", 2)]


async def test_an_edit_that_does_not_fit_is_told_to_the_model():
    exported, session = export_gated(), Session()
    await ask(exported, session)
    edit = {"decision": "edit", "revised": {"item": "tea", "count": "many"}}
    response = await resume(exported, session, {"confirmed": True, "payload": edit})
    assert response["error"].startswith("Error: The edit does not fit")
    assert response["error"].endswith("the call has not run, call the tool again")
    assert RAN == []


async def test_an_approval_is_valid_for_what_was_shown_only():
    exported, session = export_gated(), Session()
    changed = "Error: The arguments or the tool changed after the approval, which was not used; call the tool again"
    assert await resume(exported, session, {"confirmed": True}) == {"error": changed}
    await ask(exported, session)
    assert await resume(exported, session, {"confirmed": True}, item="wine") == {"error": changed}
    assert await resume(exported, session, {"confirmed": True}, count=3) == {"error": changed}
    session.asked[0].payload = "lost"
    assert await resume(exported, session, {"confirmed": True}) == {"error": changed}
    assert RAN == []


async def test_the_outcome_of_a_cancelled_call_is_unknown():
    started = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await asyncio.Event().wait()
        return ""

    exported, session = export_gated(wait), Session()
    context = session.context()
    await exported.run_async(args={}, tool_context=context)
    again = session.context(answer={"confirmed": True})
    running = asyncio.ensure_future(exported.run_async(args={}, tool_context=again))
    await asyncio.wait_for(started.wait(), 30)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    repeated = await exported.run_async(args={}, tool_context=session.context(answer={"confirmed": True}))
    assert repeated["error"].startswith("Error: Unknown outcome")


async def test_the_oldest_replies_are_forgotten(monkeypatch):
    monkeypatch.setattr("toolsemble.interop.google_adk._MOST_REPLIES", 1)
    exported, session = export_gated(), Session()
    for _ in range(3):
        await ask(exported, session)
        await resume(exported, session, {"confirmed": True})
    assert len(RAN) == 3
    assert len(exported._confirmations._replies) == 1


async def test_a_call_that_does_not_fit_or_is_outside_of_a_run_is_not_put_to_a_person():
    exported, session = export_gated(), Session()
    failed = await exported.run_async(args={"count": 1}, tool_context=session.context())
    assert failed["error"].startswith("Error: Missing required parameter")
    outside = await exported.run_async(args={"item": "tea"}, tool_context=None)
    assert "error" in outside
    assert session.asked == []


async def test_a_question_in_the_middle_of_a_body_fails():
    @tool
    async def pay(context: ToolContext) -> str:
        """Pay."""
        await context.arequest_approval("Really?")
        return "paid"

    for exported in [export_one(pay, approval="theirs"), export_gated(pay)]:
        session = Session()
        context = session.context()
        response = await exported.run_async(args={}, tool_context=context)
        if session.asked:
            response = await exported.run_async(args={}, tool_context=session.context(answer={"confirmed": True}))
        assert "asks for approval while it runs" in response["error"]


def double(number):
    """Double a number."""
    return {"error": "too big"} if number > 100 else {"double": 2 * number}


async def adouble(number):
    """Double a number."""
    return 2 * number


async def test_functions_are_adopted():
    box = Toolbox(google_adk.adopt([double, [FakeFunctionTool(adouble)]]))
    assert (await box.aexecute(ToolCall("double", {"number": "21"}))).text == '{"double":42}'
    assert (await box.aexecute(ToolCall("adouble", {"number": 21}))).text == "42"
    failed = box.execute(ToolCall("double", {"number": 101}))
    assert (failed.is_error, failed.text) == (True, "Error: too big")


def test_a_tool_that_requires_confirmation_requires_approval():
    [adopted] = google_adk.adopt(FakeFunctionTool(double, require_confirmation=True))
    assert adopted.requires_approval
    [free] = google_adk.adopt(FakeFunctionTool(double, require_confirmation=True), requires_approval=False)
    assert free.execute({"number": 1}).output == '{"double":2}'


def test_a_schema_in_the_form_of_google_is_read():
    known = FakeFunctionTool(double)
    schema = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
    dumped = SimpleNamespace(model_dump=lambda **_: schema)
    known.schema = FakeDeclaration(parameters=SimpleNamespace(json_schema=dumped))
    [adopted] = google_adk.adopt(known)
    assert adopted.execute({}).error_message == "Missing required parameter(s) for 'double': number"
    known.schema = FakeDeclaration()
    [bare] = google_adk.adopt(known)
    assert Toolbox([bare]).specifications[0].parameters["properties"] == {}


def test_a_function_that_waits_for_a_run_fails():
    class Pending:
        def __await__(self):
            yield

    def later():
        """Answer later."""
        return Pending()

    known = FakeFunctionTool(later)
    known.schema = FakeDeclaration()
    assert "only in a run of ADK" in google_adk.adopt(known)[0].execute({}).error_message


def use_context(tool_context, city):
    """Read the context."""


def stream(input_stream):
    """Read a stream."""


async def produce(city):
    """Yield results."""
    yield city


class Overridden(FakeFunctionTool):
    async def run_async(self, *, args, tool_context):
        return tool_context.state


def long_running():
    made = FakeFunctionTool(double)
    made.is_long_running = True
    return made


@pytest.mark.parametrize(
    ("refused", "needs"),
    [
        (use_context, "a ToolContext of a run (the parameter tool_context)"),
        (stream, "a ToolContext of a run (the parameter input_stream)"),
        (produce, "a live run (it yields its results)"),
        (long_running(), "a run that gets the answer later (is_long_running)"),
        (Overridden(double), "a run of an agent (Overridden)"),
        (FakeTool(name="google_search", description=""), "a run of an agent (FakeTool)"),
        (FakeToolset(), "a run of an agent (FakeToolset)"),
    ],
)
def test_tools_that_need_a_run_are_refused(refused, needs):
    with pytest.raises(ToolDefinitionError) as raised:
        google_adk.adopt([refused])
    assert f"cannot be adopted: it needs {needs}, which only its framework has" in str(raised.value)


def test_says_what_it_takes_and_what_to_install(monkeypatch):
    with pytest.raises(ToolDefinitionError, match="adopt takes a tool of ADK, or a list of them, not int: 7"):
        google_adk.adopt([7])
    monkeypatch.setitem(sys.modules, "google.adk.tools.base_tool", None)
    with pytest.raises(ToolDefinitionError, match="pip install google-adk"):
        google_adk.adopt([])
