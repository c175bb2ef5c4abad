"""The Agent Framework with a small fake of its classes; `make interop` runs the cases with the real ones."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from toolsemble import (
    AudioContent,
    FileContent,
    ImageContent,
    SchemaTool,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolDefinitionError,
    ToolResult,
    tool,
)
from toolsemble.interop import agent_framework


class FakeContent(SimpleNamespace):
    def __init__(self, type, **fields):
        super().__init__(type=type, **fields)

    @classmethod
    def from_data(cls, data, media_type, name):
        return cls(type="data", uri=data, media_type=media_type, name=name)

    @classmethod
    def from_uri(cls, uri, media_type, name):
        return cls(type="uri", uri=uri, media_type=media_type, name=name)

    def to_dict(self):
        return {"type": self.type}


class FakeContext:
    def __init__(self, function=None, arguments=None, session=None, **kwargs):
        self.session, self.kwargs, self.metadata = session, kwargs, {}


class FakeTool:
    DEFAULT_EXCLUDE = frozenset({"input_model"})
    approval_mode = "never_require"
    declaration_only = False
    max_invocations = max_invocation_exceptions = None
    invocation_count = 0
    _context_parameter_name = None

    def __init__(self, *, name, description, func=None, input_model=None, result_parser=lambda returned: returned):
        self.parse = result_parser
        self.name, self.description, self.func, self.input_model = name, description, func, input_model
        self._context_parameter_name = next(
            (key for key, kind in func.__annotations__.items() if kind is FakeContext), None
        )

    def parameters(self):
        return self.input_model

    @staticmethod
    def _arguments_as_mapping(arguments):
        return arguments if isinstance(arguments, dict) else None

    async def invoke(self, *, arguments=None, context=None, tool_call_id=None):
        if context is None:
            values = self._prepare_arguments(arguments)
        else:
            values = self._prepare_context_arguments(context, arguments)
        if self._context_parameter_name is not None:
            values = {**values, self._context_parameter_name: context}
        return self.parse(await self._invoke_function(values))

    async def _invoke_function(self, call_kwargs):
        return await self(**call_kwargs)

    def _prepare_arguments(self, arguments):
        return arguments

    def __call__(self, *args, **kwargs):
        if self.max_invocations == self.invocation_count:
            raise RuntimeError("maximum invocation limit")
        self.invocation_count += 1
        return self.func(*args, **kwargs)


LIBRARY = ModuleType("agent_framework")
LIBRARY.Content, LIBRARY.FunctionTool, LIBRARY.FunctionInvocationContext = FakeContent, FakeTool, FakeContext


@pytest.fixture(autouse=True)
def _library(monkeypatch):
    monkeypatch.setitem(sys.modules, "agent_framework", LIBRARY)


@tool
def order(item: str, context: ToolContext, count: int = 1) -> str:
    """Order something."""
    if item == "rum":
        raise ValueError("not for sale")
    return f"{count} {item} for {context.memory_id}, {context.call_id}"


def export_one(*tools, **settings):
    [exported] = agent_framework.export(Toolbox(tools), **settings)
    return exported


def foreign(returned, **attributes):
    async def double(number):
        return returned

    schema = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
    made = FakeTool(name="double", description="Double a number.", func=double, input_model=schema)
    vars(made).update(attributes)
    return made


def adopt_and_call(returned, **attributes):
    box = Toolbox(agent_framework.adopt(foreign(returned, **attributes)))
    return box.execute(ToolCall("double", {"number": "1"})).result


def media(uri, media_type, name=None):
    return FakeContent(type="uri", uri=uri, media_type=media_type, name=name)


async def test_the_result_is_a_text():
    exported = export_one(order)
    assert exported.input_model["required"] == ["item"]
    [text] = await exported.invoke(arguments={"item": "tea", "count": "3"}, tool_call_id="call_1")
    assert (text.text, text.additional_properties) == ("3 tea for default, call_1", None)
    [failed] = await exported.invoke(arguments={"item": "rum"})
    assert failed.text == "Error: not for sale"
    [failed] = await exported.invoke()
    assert failed.text == "Error: Missing required parameter(s) for 'order': item"


async def test_media_are_items_and_the_structured_output_is_beside_the_text():
    @tool
    def draw() -> ToolResult:
        """Draw."""
        contents = [ImageContent(b"png", "image/png"), FileContent.from_url("https://example.com/plan.pdf")]
        return ToolResult.success("a map", {"size": (1, 2)}, contents=contents)

    [text, image, plan] = await export_one(draw).invoke(arguments={})
    assert text.additional_properties == {"structured_output": {"size": [1, 2]}}
    assert (image.type, image.uri, image.media_type, image.name) == ("data", b"png", "image/png", None)
    assert (plan.type, plan.uri, plan.name) == ("uri", "https://example.com/plan.pdf", "plan.pdf")


async def test_the_context_chooses_and_its_session_is_the_run():
    @tool
    def who(context: ToolContext) -> str:
        """Return the user."""
        return f"{context.memory_id} {context.run_id} {context.deps}"

    exported = export_one(who, memory_id=lambda context: context.kwargs["user"])
    context = FakeContext(session=SimpleNamespace(session_id="talk_1"), user="ada")
    [text] = await exported.invoke(arguments={}, context=context)
    assert text.text == "ada talk_1 {'user': 'ada'}"


async def test_parameters_have_any_name():
    names = ("self", "ctx", "arguments", "context")
    schema = {"type": "object", "properties": {name: {"type": "integer"} for name in names}}
    exported = export_one(SchemaTool("echo", "Return the arguments.", lambda arguments: arguments, schema))
    [text] = await exported.invoke(arguments=dict.fromkeys(names, 1))
    assert text.text == '{"self":1,"ctx":1,"arguments":1,"context":1}'


async def test_an_exported_tool_can_be_called_directly_and_is_not_saved():
    exported = export_one(order)
    [text] = await exported(item="tea")
    assert text.text.startswith("1 tea")
    assert {"exported", "input_model"} == exported.DEFAULT_EXCLUDE


async def test_calls_are_counted_and_the_limits_of_the_framework_hold():
    exported = export_one(order)
    await exported.invoke(arguments={"item": "tea"})
    assert exported.invocation_count == 1
    exported.max_invocations = 2
    await exported.invoke(arguments={"item": "tea"})
    assert exported.invocation_count == 2
    with pytest.raises(RuntimeError, match="maximum invocation limit"):
        await exported.invoke(arguments={"item": "tea"})


def test_exported_and_adopted_again_a_tool_answers_the_same():
    @tool
    def draw() -> ToolResult:
        """Draw."""
        return ToolResult.success("a map", {"size": 1}, contents=[ImageContent(b"png", "image/png")])

    box = Toolbox([order, draw])
    back = Toolbox(agent_framework.adopt(agent_framework.export(box)))
    for name, arguments in (("order", {"item": "rum"}), ("order", {"count": "many"}), ("draw", {})):
        call = ToolCall(name, arguments, id="call_1")
        one, other = box.execute(call), back.execute(call)
        assert (one.text, one.is_error, one.contents) == (other.text, other.is_error, other.contents)
        assert one.result.structured_output == other.result.structured_output


def test_items_of_adopted_tools_are_read():
    text = FakeContent("text", text="two", additional_properties={})
    assert adopt_and_call([text, FakeContent(type="text", text=None)]).output == "two\n"
    assert adopt_and_call([media("data:image/png;base64,Li4u", "image/png")]).contents == (
        ImageContent(b"...", "image/png"),
    )
    sound = AudioContent.from_url("https://example.com/a.wav", "audio/wav")
    assert adopt_and_call([media("https://example.com/a.wav", "audio/wav")]).contents == (sound,)
    plan = FileContent.from_url("https://example.com/x", "application/pdf", "plan.pdf")
    assert adopt_and_call([media("https://example.com/x", "application/pdf", "plan.pdf")]).contents == (plan,)
    assert "cannot be read" in adopt_and_call([media("file:///etc/passwd", "text/plain")]).output
    assert "cannot be read" in adopt_and_call([media("ftp://example.com", None)]).output
    assert adopt_and_call([FakeContent(type="error")]).output == '{"type":"error"}'
    assert adopt_and_call({"sum": 2}).output == '{"sum":2}'
    assert adopt_and_call([1, 2]).output == "[1,2]"


def test_a_tool_that_requires_approval_there_requires_it_here():
    [adopted] = agent_framework.adopt(foreign("2", approval_mode="always_require"))
    with pytest.raises(ToolConfigurationError, match="'double' requires approval but no ReviewHandler"):
        Toolbox([adopted]).execute(ToolCall("double", {"number": 1}))
    [chosen] = agent_framework.adopt(foreign("2", approval_mode="always_require"), requires_approval=False)
    assert Toolbox([chosen]).execute(ToolCall("double", {"number": 1})).text == "2"


@pytest.mark.parametrize(
    ("attributes", "needs"),
    [
        ({"declaration_only": True}, "a client that runs it"),
        ({"_context_parameter_name": "context"}, "a FunctionInvocationContext"),
    ],
)
def test_refuses_tools_that_need_the_framework(attributes, needs):
    with pytest.raises(ToolDefinitionError, match=f"'double' cannot be adopted: it needs {needs}"):
        agent_framework.adopt([foreign("2", **attributes)])


def test_rejects_what_the_framework_cannot_do():
    with pytest.raises(ToolConfigurationError, match="asks for approval before arguments are validated"):
        export_one(order, approval="theirs")
    with pytest.raises(ToolDefinitionError, match="adopt takes a FunctionTool of the Agent Framework, or a list"):
        agent_framework.adopt({"name": "hosted"})


def test_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "agent_framework", None)
    with pytest.raises(ToolDefinitionError, match="pip install agent-framework-core"):
        agent_framework.adopt([])
