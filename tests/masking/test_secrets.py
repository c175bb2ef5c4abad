"""One secret, sent through every channel; nothing that came out has it."""

import asyncio
import base64
import contextvars
import io
import json
import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import attrs
import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SecretBytes

import toolsemble
from helpers.columns import column
from helpers.sample_tools import Echo, Function, Reviewer
from toolsemble import (
    Agent,
    Cache,
    FileContent,
    ImageContent,
    Param,
    Retries,
    SchemaTool,
    Secret,
    SecretStr,
    Step,
    TextContent,
    Tool,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolDefinitionError,
    ToolExecutionError,
    ToolPipeline,
    ToolResult,
    TypedTool,
    choose,
    fan_out,
    map_over,
    tool,
)
from toolsemble._runtime.trace_level import TRACE
from toolsemble._schema.masking import (
    add_secrets,
    add_sent_secrets,
    mask_error,
    mask_result,
    mask_text,
    mask_value,
    start_masking,
    stop_masking,
)
from toolsemble._vocabulary.provider_list import PROVIDERS
from toolsemble.review import AutoApprove, AutoReject, Continue, Edit, ExitEarly, RememberReview, ReviewStore
from toolsemble.telemetry import ConsoleSink, OpenTelemetry, TraceFile
from toolsemble.testing import CallbackReview, ScriptedModel

pytestmark = pytest.mark.slow

SECRET = "hunter2 'quoted\" ünder"  # noqa: S105 - the secret of this file
PLAIN = "hunter2"
HIDDEN = "**********"


class CapturedOutput:
    """Whatever comes out of calls: logs at every level with tracebacks, events, trace file, console, reviews."""

    def __init__(self, folder):
        self.seen = []
        self.console = io.StringIO()
        self.file = folder / "trace.jsonl"
        self.requests = []
        self.sinks = [self.seen.append, TraceFile(self.file), ConsoleSink(self.console, limit=10_000)]

    def review(self, decide=lambda _: Continue()):
        def review(request):
            self.requests.append(request)
            return decide(request)

        return CallbackReview(review)

    def text(self, caplog, *more):
        logged = logging.Formatter("%(message)s %(exc_text)s")
        records = [logged.format(record) + str(vars(record)) for record in caplog.records]
        kept = self.file.read_text() if self.file.exists() else ""
        asked = [(request, request.to_json(), request.arguments_text) for request in self.requests]
        return "\n".join(map(str, (records, self.seen, kept, self.console.getvalue(), asked, *more)))


@pytest.fixture
def output(tmp_path, caplog):
    caplog.set_level(TRACE, "toolsemble")
    return CapturedOutput(tmp_path)


def forms(secret):
    return {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}


def assert_masked(text, *secrets):
    for secret in secrets or (SECRET,):
        for form in forms(secret):
            assert form not in text


@dataclass
class Login:
    user: str
    password: Secret[str]


class Model(BaseModel):
    user: str = "ada"
    password: SecretStr = SecretStr(PLAIN)
    raw: Secret[str] | None = PLAIN  # a default that pydantic does not read


@attrs.define
class Attrs:
    password: Secret[str]


class Struct(msgspec.Struct):
    password: Secret[str]


def use(value, mode):
    """Do with a secret what bodies do."""
    if mode == "raise":
        raise ValueError(f"no user has the password {value.get_secret_value()!r}")
    if mode == "chain":
        try:
            use(value, "raise")
        except ValueError as error:
            raise RuntimeError("wrapped") from error
    if mode == "declared":
        raise ToolExecutionError(f"wrong: {value.get_secret_value()}")
    if mode == "failure":
        return ToolResult.failure(f"wrong: {value.get_secret_value()}")
    if mode == "object":
        return {"key": value, "list": [value]}
    if mode == "reveal":
        return ToolResult.success(value.get_secret_value(), {"key": value.get_secret_value()}, attributes={"a": value})
    if mode == "progress":
        context = (
            ToolContext()
            if toolsemble._engine.context.current_context() is None
            else toolsemble._engine.context.current_context()
        )
        context.progress(0.5, f"with {value.get_secret_value()}")
    if mode == "nested":
        return Echo().execute(value.get_secret_value())
    return f"used {value}"


@tool
def use_function(password: Secret[str], mode: str = "") -> object:
    """Take a secret."""
    return use(password, mode)


@tool
def use_secret_str(password: SecretStr, mode: str = "") -> object:
    """Take a secret."""
    return use(password, mode)


@tool
def use_dataclass(login: Login, mode: str = "") -> object:
    """Take a secret inside a dataclass."""
    return use(login.password, mode)


@tool
def use_model(login: Model, mode: str = "") -> object:
    """Take a secret inside a model."""
    return use(login.password, mode)


@tool
def use_attrs(login: Attrs, mode: str = "") -> object:
    """Take a secret inside an attrs class."""
    return use(login.password, mode)


@tool
def use_struct(login: Struct, mode: str = "") -> object:
    """Take a secret inside a struct."""
    return use(login.password, mode)


@tool
def use_list(passwords: list[Secret[str]], mode: str = "") -> object:
    """Take a list of secrets."""
    return use(passwords[0], mode)


@dataclass
class Input:
    password: Secret[str]
    mode: str = ""


class UseTyped(TypedTool[Input]):
    name = "use_type"
    description = "Takes a secret"

    def run(self, input):
        return use(input.password, input.mode)


SHAPES = {
    "use_function": (use_function, {"password": SECRET}),
    "use_secret_str": (use_secret_str, {"password": SECRET}),
    "use_dataclass": (use_dataclass, {"login": {"user": "ada", "password": SECRET}}),
    "use_model": (use_model, {"login": {"user": "ada", "password": SECRET}}),
    "use_attrs": (use_attrs, {"login": {"password": SECRET}}),
    "use_struct": (use_struct, {"login": {"password": SECRET}}),
    "use_list": (use_list, {"passwords": [SECRET]}),
    "use_type": (UseTyped(), {"password": SECRET}),
    "pipeline": (ToolPipeline("line", "Takes a secret", [use_function, Echo()]), {"password": SECRET}),
    "inside": (ToolPipeline("line", "Takes a secret", [Step(use_function)]), {"password": SECRET}),
    "fan": (fan_out(use_function, use_secret_str, name="fan"), {"password": SECRET}),
    "choice": (choose(lambda _: True, use_function, use_secret_str, name="choice"), {"password": SECRET}),
    "each": (map_over(use_function, name="each"), {"items": [{"password": SECRET}]}),
}
MODES = ["", "raise", "chain", "declared", "object", "progress", "nested"]


def make_call(name, mode):
    source, arguments = SHAPES[name]
    if name == "each":
        return source, ToolCall("each", {"items": [{**item, "mode": mode} for item in arguments["items"]]}, "c1")
    return source, ToolCall(source.name, {**arguments, "mode": mode}, "c1")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SHAPES)
async def test_secret_is_masked_everywhere(name, mode, output, caplog):
    source, call = make_call(name, mode)
    box = Toolbox([source], sinks=output.sinks, review=output.review(), approve=["*"], log_limit=10_000)
    replies = [box.execute(call), await box.aexecute(call)]
    assert box.flush(60)
    reply_texts = [reply.text for reply in replies] if mode != "nested" else []
    assert_masked(output.text(caplog, reply_texts))
    assert output.requests
    assert len(output.seen) > 4


@pytest.mark.parametrize("mode", ["failure", "reveal"])
@pytest.mark.parametrize("name", ["use_function", "use_model", "pipeline"])
def test_secret_returned_to_the_model_is_masked_elsewhere(name, mode, output, caplog):
    source, call = make_call(name, mode)
    reply = Toolbox([source], sinks=output.sinks, log_limit=10_000).execute(call)
    assert SECRET in reply.text
    assert_masked(output.text(caplog))
    assert output.seen[-1].result.structured_output in (None, {"key": HIDDEN})


MISFITS = [
    {"password": [SECRET]},
    {"password": {"inner": SECRET}},
    {"password": SECRET, "mode": 5, "other": SECRET},
    {"pass_word": SECRET},
    {"Password": SECRET},
    {"password": SECRET, "mode": ["x"]},
    f'{{"password": "{PLAIN}", ',
    f'{{"password": "{PLAIN}" "mode": 3}}',
    f"{{'password': '{PLAIN}', 'mode': 3,}}",
    f'"{PLAIN}"',
    f'["{PLAIN}"]',
    PLAIN,
]


@pytest.mark.parametrize("arguments", MISFITS)
@pytest.mark.parametrize("source", [use_function, use_dataclass, UseTyped(), SHAPES["pipeline"][0], SHAPES["fan"][0]])
def test_invalid_arguments_are_not_shown(source, arguments, output, caplog):
    if source is use_dataclass and isinstance(arguments, dict):
        arguments = {"login": arguments}
    settings = {"sinks": output.sinks, "review": output.review(), "approve": ["*"], "log_limit": 10_000}
    for repair in (True, False):
        reply = Toolbox([source], repair=repair, **settings).execute(ToolCall(source.name, arguments, "c1"))
        with column(f"repair={repair}"):
            assert_masked(output.text(caplog, reply.text, reply.result.attributes), SECRET, PLAIN)


def test_secret_numbers_are_masked_as_whole_words(output, caplog):
    @tool
    def pay(pin: Secret[int], amount: int) -> str:
        """Pay."""
        raise ValueError(f"pin {pin.get_secret_value()} does not fit, 1234 of 91234 tried")

    reply = Toolbox([pay], sinks=output.sinks).execute(ToolCall("pay", {"pin": "123", "amount": 7}))
    assert reply.text == f"Error: pin {HIDDEN} does not fit, 1234 of 91234 tried"
    assert reply.result.attributes["repairs"] == ({"step": "coerce", "path": "pin", "from": HIDDEN, "to": HIDDEN},)
    assert "pin 123" not in output.text(caplog)
    assert "'123'" not in output.text(caplog)


def test_secret_bytes_are_masked(output, caplog):
    @tool
    def use_key(key: SecretBytes) -> str:
        """Use a key."""
        raise ValueError(f"bad key {key.get_secret_value()}")

    reply = Toolbox([use_key], sinks=output.sinks).execute(ToolCall("use_key", {"key": "aHVudGVyMg=="}))
    assert reply.text == f"Error: bad key b'{HIDDEN}'"
    assert_masked(output.text(caplog), "aHVudGVyMg==", PLAIN)


def quote(value):
    text = value if isinstance(value, str) else value.get_secret_value()
    raise ValueError(f"{text} is too weak")


def crash(value):
    raise KeyError(value if isinstance(value, str) else value.get_secret_value())


@pytest.mark.parametrize("check", [BeforeValidator, AfterValidator])
@pytest.mark.parametrize("function", [quote, crash])
def test_secret_quoted_by_a_validator_is_masked(check, function, output, caplog):
    @tool
    def login(password: Annotated[Secret[str], check(function)]) -> str:
        """Log in."""
        return "in"

    reply = Toolbox([login], sinks=output.sinks).execute(ToolCall("login", {"password": SECRET}))
    assert not reply.result.is_success
    assert_masked(output.text(caplog, reply.text))


class TestSchemas:
    def shown(self, source):
        box = Toolbox([source])
        written = [box.to_provider(provider) for provider in PROVIDERS]
        return f"{box.specifications} {written} {json.dumps(source.explain('openai'), default=str)}"

    @pytest.mark.parametrize(
        "kind",
        [
            Annotated[Secret[str], Param("A key", examples=[PLAIN])],
            Annotated[SecretStr, Field(description="A key", examples=[PLAIN])],
            Annotated[list[Secret[str]], Param("Keys", examples=[[PLAIN]])],
            Model,
            Model | None,
            list[Model],
            dict[str, Model],
        ],
    )
    def test_schema_has_no_secret_defaults_and_examples(self, kind):
        @tool
        def login(password: kind) -> str:
            """Log in."""
            return "in"

        shown = self.shown(login)
        assert PLAIN not in shown
        assert HIDDEN not in shown

    @pytest.mark.parametrize("default", [Secret(PLAIN), None])
    def test_schema_has_no_secret_parameter_default(self, default):
        @tool
        def login(password: Secret[str] | None = default) -> str:
            """Log in."""
            return "in"

        assert PLAIN not in self.shown(login)
        assert HIDDEN not in self.shown(login)
        assert Toolbox([login]).execute(ToolCall("login")).text == "in"

    @pytest.mark.parametrize("kind", [Secret[str], Secret[int], SecretStr, SecretBytes])
    def test_description_names_the_secret(self, kind):
        @tool
        def login(password: kind) -> str:
            """Log in."""
            return "in"

        assert "a secret" in Toolbox([login]).specifications[0].parameters["properties"]["password"]["description"]

    @pytest.mark.parametrize(
        ("kind", "problem"),
        [
            (Secret[str], "the default of a secret must be a Secret; write Secret"),
            (Secret[str] | int, "the default of a secret must be a Secret; write Secret"),
            (Secret[int], "the default is not of the declared type"),
            (list[Secret[str]], "the default is not of the declared type"),
        ],
    )
    def test_rejects_invalid_default_without_quoting_it(self, kind, problem):
        @tool
        def login(password: kind = PLAIN) -> str:
            """Log in."""
            return "in"

        with pytest.raises(ToolDefinitionError, match=problem) as error:
            Toolbox([login])
        assert PLAIN not in str(error.value)

    def test_other_defaults_are_shown(self, output):
        class Place(BaseModel):
            city: str = "Rome"

        @tool
        def login(password: Secret[str], here: Place, there: Place = Place()) -> str:  # noqa: B008 - the default is the test
            """Log in."""
            return "in"

        Toolbox([login], sinks=output.sinks).execute(ToolCall("login", {"password": SECRET, "here": {}}))
        assert "Rome" in self.shown(login)
        assert output.seen[0].arguments == {"password": HIDDEN, "here": {"city": "Rome"}, "there": {"city": "Rome"}}

    def test_recursive_types_are_supported(self):
        class Tree(BaseModel):
            password: Secret[str]
            below: list["Tree"] = []

        @tool
        def grow(tree: Tree) -> str:
            """Grow."""
            return str(tree)

        assert Toolbox([grow]).execute(ToolCall("grow", {"tree": {"password": PLAIN}})).text == (
            f"password=Secret('{HIDDEN}') below=[]"
        )


SCHEMA = {
    "type": "object",
    "properties": {
        "user": {"type": "string"},
        "password": {"type": "string", "format": "password"},
        "more": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "string", "format": "password"}}]},
    },
}


@pytest.mark.parametrize("arguments", [{"password": SECRET}, {"more": [SECRET], "user": 3}, {"password": [SECRET]}])
def test_json_schema_can_mark_secrets(arguments, output, caplog):
    def login(arguments):
        raise ValueError(f"wrong: {arguments.get('password') or arguments.get('more')}")

    source = SchemaTool("login", "Logs in", login, SCHEMA)
    box = Toolbox([source], sinks=output.sinks, review=output.review(), approve=["*"])
    reply = box.execute(ToolCall("login", arguments))
    assert_masked(output.text(caplog, reply.text))


class TestReviews:
    @pytest.mark.parametrize("decision", [Continue(), ExitEarly("no"), ExitEarly()])
    def test_reviewer_does_not_see_secrets(self, decision, output, caplog):
        box = Toolbox([use_function], sinks=output.sinks, review=output.review(lambda _: decision), approve=["*"])
        reply = box.execute(ToolCall("use_function", {"password": SECRET}))
        assert_masked(output.text(caplog, reply.text))
        assert output.requests[0].arguments == {"password": HIDDEN, "mode": ""}

    @pytest.mark.parametrize(
        "edit",
        [
            {"password": SECRET, "mode": ""},
            {"password": SECRET, "mode": 3},
            {"password": [SECRET]},
            {"password": SECRET, "mode": "raise"},
        ],
    )
    def test_secret_edited_by_a_reviewer_is_masked(self, edit, output, caplog):
        asked = []

        def decide(request):
            asked.append(request)
            return Edit(json.dumps(edit)) if len(asked) < 4 else Continue()

        box = Toolbox([use_function], sinks=output.sinks, review=output.review(decide), approve=["*"])
        reply = box.execute(ToolCall("use_function", {"password": PLAIN}))
        assert_masked(output.text(caplog, reply.text), SECRET, PLAIN)

    def test_edit_without_secrets_is_shown(self, output):
        @tool
        def greet(name: str) -> str:
            """Greet."""
            return name

        edits = iter([Edit('{"name": "bob"}'), Continue()])
        box = Toolbox([greet], sinks=output.sinks, review=output.review(lambda _: next(edits)), approve=["*"])
        box.execute(ToolCall("greet", {"name": "ada"}))
        assert Edit('{"name": "bob"}') in [getattr(event, "decision", None) for event in output.seen]

    def test_reviewer_of_a_later_step_does_not_see_secrets(self, output):
        asked = iter([Continue(), Edit(HIDDEN), Continue()])
        line = ToolPipeline("line", "Reveals a secret", [use_function, Echo()])
        box = Toolbox([line], review=output.review(lambda _: next(asked)), approve=["use_function", "echo"])
        reply = box.execute(ToolCall("line", {"password": SECRET, "mode": "reveal"}))
        assert output.requests[1].arguments == HIDDEN
        assert reply.text == SECRET

    def test_predicates_do_not_see_secrets(self, output, caplog):
        def predicate(arguments, context):
            raise ValueError(f"what is {arguments}?")

        box = Toolbox([use_function], sinks=output.sinks, review=AutoReject(), approve=predicate)
        reply = box.execute(ToolCall("use_function", {"password": SECRET}))
        assert_masked(output.text(caplog, reply.text))


class TestHooks:
    def test_hook_error_with_secrets_is_masked(self, output, caplog):
        def quote_it(call, *_):
            raise ValueError(f"refused: {call.arguments}")

        for hook in ("before_call", "after_call"):
            for arguments in ({"password": SECRET}, f'{{"password": "{PLAIN}", '):
                box = Toolbox([use_function], sinks=output.sinks, **{hook: quote_it})
                reply = box.execute(ToolCall("use_function", arguments))
                assert not reply.result.is_success
                assert_masked(output.text(caplog, reply.text), SECRET, PLAIN)

    def test_hooks_run_for_steps_with_secrets(self, output, caplog):
        seen = []
        line = ToolPipeline("line", "Takes a secret", [use_function, Echo()])
        box = Toolbox([line], sinks=output.sinks, before_call=lambda call, _: seen.append(call.arguments))
        box.execute(ToolCall("line", {"password": SECRET}))
        assert seen[1] == {"password": SECRET, "mode": ""}
        assert_masked(output.text(caplog))


def test_compensation_does_not_log_secrets(output, caplog):
    @tool
    def forget(input: dict, result: str) -> str:
        """Undo it."""
        raise ValueError(f"cannot forget {input}")

    line = ToolPipeline("line", "Fails", [Step(use_function, compensate=forget), Function(lambda _: 1 / 0)])
    reply = Toolbox([line], sinks=output.sinks, log_limit=10_000).execute(ToolCall("line", {"password": SECRET}))
    assert "undone" in reply.result.attributes
    assert_masked(output.text(caplog, reply.text))


def test_secrets_are_forgotten_after_the_call(output):
    box = Toolbox([use_function, Echo()], sinks=output.sinks)
    box.execute(ToolCall("use_function", {"password": SECRET}))
    box.execute(ToolCall("echo", {"input": SECRET}))
    assert output.seen[-1].result.output == SECRET


async def test_secrets_of_one_call_are_not_masked_in_another(output):
    inside, go = asyncio.Event(), asyncio.Event()

    @tool
    async def login(password: Secret[str]) -> str:
        """Log in."""
        inside.set()
        await asyncio.wait_for(go.wait(), 30)
        return "in"

    box = Toolbox([login, Echo()], sinks=output.sinks)
    running = asyncio.create_task(box.aexecute(ToolCall("login", {"password": SECRET})))
    await asyncio.wait_for(inside.wait(), 30)
    await box.aexecute(ToolCall("echo", {"input": SECRET}, "c2"))
    go.set()
    await running
    assert [event.result.output for event in output.seen if event.kind == "call_finished"] == [SECRET, "in"]


def test_opaque_object_is_masked_beside_a_secret(output):
    class Odd:
        def __str__(self):
            raise ValueError("no")

    @tool
    def login(password: Secret[str]) -> ToolResult:
        """Log in."""
        return ToolResult.success("in", attributes={"odd": Odd(), "plain": 3})

    Toolbox([login], sinks=output.sinks[:1]).execute(ToolCall("login", {"password": SECRET}))
    assert dict(output.seen[-1].result.attributes) == {"odd": HIDDEN, "plain": 3}


@contextmanager
def mask_secrets(*texts):
    token = start_masking()
    add_secrets(texts)
    try:
        yield
    finally:
        stop_masking(token)


@pytest.mark.parametrize(
    ("secret", "text", "shown"),
    [
        ("hunter2", "a hunter2b", "a **********b"),
        ("", "empty", "empty"),
        ("a", "a banana", "********** banana"),
        ("a b/c", "q=a%20b%2Fc&r=a+b%2Fc&s=a%20b/c", "q=**********&r=**********&s=**********"),
        ("x\ny", r"'x\ny' and x" + "\ny", "'**********' and **********"),
        ("ü1234", r"\u00fc1234", "**********"),
        ("(.*)", "match (.*)", "match **********"),
    ],
)
def test_every_quoted_form_of_a_secret_is_masked(secret, text, shown):
    with mask_secrets(secret):
        assert mask_text(text) == shown
    assert mask_text(text) == text


def test_values_are_masked_at_every_depth():
    with mask_secrets("1234", "key"):
        assert mask_value({"a": [1234, 12345, ("key",)], "b": True, "c": None, "d": 1.5}) == {
            "a": [HIDDEN, 12345, [HIDDEN]],
            "b": True,
            "c": None,
            "d": 1.5,
        }


def test_longest_secret_is_masked_first():
    with mask_secrets("key", "key-of-ada"):
        assert mask_text("key-of-ada and key") == f"{HIDDEN} and {HIDDEN}"


def test_inner_calls_know_outer_secrets_but_not_the_reverse():
    with mask_secrets("outer"):
        with mask_secrets("inner"):
            assert mask_text("outer inner") == f"{HIDDEN} {HIDDEN}"
        assert mask_text("outer inner") == f"{HIDDEN} inner"


def test_add_secrets_without_masking_does_nothing():
    add_secrets(["key"])
    assert mask_text("key") == "key"
    result = ToolResult.success("key")
    assert mask_result(result) is result


def test_stop_masking_in_another_context_changes_nothing():
    stop_masking(contextvars.copy_context().run(start_masking))
    assert mask_text("key") == "key"


def test_exception_without_secrets_is_logged_unchanged():
    error = ValueError("harmless")
    with mask_secrets("key"):
        assert mask_error(error) is error


def test_exception_with_secrets_is_logged_with_name_and_traceback():
    def fail(text):
        raise LookupError(text)

    with mask_secrets("the-key"):
        try:
            fail("no " + "the-" + "key")
        except LookupError as error:
            double = mask_error(error)
    assert (type(double).__name__, str(double)) == ("LookupError", f"no {HIDDEN}")
    assert double.__traceback__ is not None


def test_opaque_exception_is_logged_by_name():
    class OddError(Exception):
        def __repr__(self):
            raise ValueError("no")

    with mask_secrets("hunter2"):
        shown = mask_error(OddError("fine"))
    assert (type(shown).__name__, str(shown)) == ("OddError", "fine")


def test_traceback_with_the_secret_in_its_code_is_omitted():
    with mask_secrets("the-key"):
        try:
            raise LookupError("the-key")  # noqa: TRY301 - the line itself must spell it out
        except LookupError as error:
            double = mask_error(error)
    assert (str(double), double.__traceback__) == (HIDDEN, None)


def test_invalid_json_is_masked_completely():
    token = start_masking()
    definition = type("Definition", (), {"arguments": None})
    add_sent_secrets(definition, "{key: 1")
    add_sent_secrets(definition, ["the-key", None, True, "AAAA"])
    try:
        assert mask_text("{key: 1 the-key True AAAA") == f"{HIDDEN} {HIDDEN} True {HIDDEN}"
    finally:
        stop_masking(token)


def test_threads_of_a_body_mask_its_secrets(output, caplog):
    class Outer(Tool):
        name = "outer"
        description = "Works beside itself"

        def run(self, input):
            return self.executor.submit(Echo().execute, SECRET).result(30).output

    @tool
    def login(password: Secret[str]) -> str:
        """Log in."""
        Outer().execute("x")
        assert threading.current_thread()
        return "in"

    Toolbox([login], sinks=output.sinks, log_limit=10_000).execute(ToolCall("login", {"password": SECRET}))
    assert_masked(output.text(caplog))


def test_package_exports_the_secret_types():
    assert (toolsemble.Secret, toolsemble.SecretStr) == (Secret, SecretStr)
    assert str(Secret("x")) == HIDDEN


def test_approved_call_gets_the_secret():
    got = []

    @tool(requires_approval=True)
    def login(password: Secret[str]) -> str:
        """Log in."""
        got.append(password.get_secret_value())
        return "in"

    Toolbox([login], review=AutoApprove()).execute(ToolCall("login", {"password": SECRET}))
    assert got == [SECRET]


def _quote_secret(arguments):
    raise ValueError(f"{arguments.key.get_secret_value()} is no name")


def test_secrets_are_masked_in_logs_of_retries_keys_and_reviewers(caplog):
    failures = [ConnectionError("refused hunter2-hunter2")]

    @tool(
        effects="read", retries=Retries(2, wait=0.001, jitter=0), cache=Cache(key=_quote_secret), requires_approval=True
    )
    def fetch(key: Secret[str]) -> str:
        """Fetch it."""
        if failures:
            raise failures.pop()
        return "fetched"

    def answer(request):
        if not answers:
            raise ValueError("hunter2-hunter2 is suspicious")
        return answers.pop()

    answers = [ExitEarly("hunter2-hunter2 is too short"), Continue()]
    seen = []
    box = Toolbox([fetch], review=CallbackReview(answer), sinks=[seen.append])
    call = ToolCall("fetch", {"key": "hunter2-hunter2"})
    with caplog.at_level(logging.DEBUG):
        texts = [box.execute(call).text for _ in range(3)]
    assert texts[0] == "fetched"
    assert "retry 1 in " in caplog.text
    assert "Its key cannot be computed: ********** is no name" in caplog.text
    assert "********** is too short" in caplog.text
    assert "ValueError: ********** is suspicious" in caplog.text
    assert "hunter2" not in "".join(record.getMessage() for record in caplog.records)
    assert "hunter2" not in repr(seen)


@pytest.mark.parametrize("setting", ["resources", "idempotency"])
def test_errors_of_setting_functions_are_shown_only_if_declared(setting):
    def refuse(arguments):
        raise ToolExecutionError("no such file")

    def fail(arguments):
        raise ConnectionError("db-7.internal refused admin")

    for function, expected in (
        (refuse, "cannot be computed: no such file"),
        (fail, "Error: internal error (reference "),
    ):
        save = tool("save", "Save it.", **{setting: function})(lambda path: path)
        reply = Toolbox([save], expose_errors="declared").execute(ToolCall("save", {"path": "a"}))
        assert expected in reply.text


def test_misspelled_name_of_a_secret_is_not_masked():
    @tool
    def login(key: Secret[str]) -> str:
        """Log in."""
        raise PermissionError(f"the key {key.get_secret_value()} does not fit")

    reply = Toolbox([login]).execute(ToolCall("login", {"Key": "hunter2-hunter2"}))
    assert reply.text == "Error: the key ********** does not fit"
    assert reply.result.attributes["repairs"] == ({"step": "keys", "path": "key", "from": "Key", "to": "key"},)


def test_secrets_are_masked_in_the_context_logger(caplog):
    caplog.set_level(logging.DEBUG)

    @tool
    def login(password: Secret[str], context: ToolContext) -> str:
        """Log in."""
        word = password.get_secret_value()
        context.logger.info("with %s", word, stack_info=True)
        line, traceback = "once %s more", True
        context.logger.info(line, word, "too many")
        context.logger.warning("no exception here", exc_info=traceback)
        try:
            int(word)
        except ValueError:
            context.logger.exception("refused")
        return "done"

    assert Toolbox([login]).execute(ToolCall("login", {"password": PLAIN})).text == "done"
    assert PLAIN not in caplog.text
    lines = [record.getMessage() for record in caplog.records][:4]
    assert lines == [f"with {HIDDEN}", f"once %s more ('{HIDDEN}', 'too many')", "no exception here", "refused"]
    assert caplog.records[3].exc_info[0].__name__ == "ValueError"
    logging.getLogger("toolsemble.tool.login").info("of another call: %s", PLAIN)
    assert caplog.records[-1].getMessage() == f"of another call: {PLAIN}"


@dataclass
class Transfer:
    account: str
    token: str


ASKED = [
    ("use {}?", lambda word: {"p": word, "n": 1}, f"use {HIDDEN}?", {"p": HIDDEN, "n": 1}),
    ("go on?", lambda word: f"with {word}", "go on?", f"with {HIDDEN}"),
    ("use {}?", lambda word: {}, f"use {HIDDEN}?", {}),
    ("go on?", lambda word: {"by": Transfer("a", word)}, "go on?", {"by": {"account": "a", "token": HIDDEN}}),
]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(("words", "arguments", "description", "shown"), ASKED)
def test_secrets_are_masked_in_request_approval(words, arguments, description, shown, waits, output, caplog):
    if waits:

        @tool
        async def pay(password: Secret[str], context: ToolContext) -> str:
            """Pay."""
            word = password.get_secret_value()
            return str(await context.arequest_approval(words.format(word), arguments=arguments(word)))
    else:

        @tool
        def pay(password: Secret[str], context: ToolContext) -> str:
            """Pay."""
            word = password.get_secret_value()
            return str(context.request_approval(words.format(word), arguments=arguments(word)))

    box = Toolbox([pay], sinks=output.sinks, review=output.review(lambda _: Edit("another-secret")), log_limit=10_000)
    reply = box.execute(ToolCall("pay", {"password": SECRET}))
    assert box.flush(60)
    assert reply.text == "Edit(revised='another-secret')"
    assert [(request.description, request.arguments) for request in output.requests] == [(description, shown)]
    text = output.text(caplog)
    assert_masked(text)
    # What the reviewer wrote in the place of a secret is the tool's, too, and comes out with its result alone.
    decided = [event.decision for event in output.seen if event.kind == "review_decided"]
    assert decided == [Edit(HIDDEN)]


def test_approval_for_one_secret_does_not_apply_to_another():
    asked = []

    @tool(requires_approval=True)
    def pay(password: Secret[str]) -> str:
        """Pay."""
        return "paid"

    def review(request):
        asked.append((request.arguments, bool(request.hidden_digest)))
        return Continue(always="arguments")

    box = Toolbox([pay], review=RememberReview(CallbackReview(review)))
    for word in (PLAIN, "swordfish", PLAIN):
        box.execute(ToolCall("pay", {"password": word}), run_id="r1")
    assert asked == [({"password": HIDDEN}, True)] * 2


@tool
def sign(text: str, context: ToolContext) -> str:
    """Sign a text."""
    context.logger.info("signs with %s", text)
    return "signed"


@tool
def enter(password: Secret[str]) -> str:
    """Log in."""
    return sign.execute(json.dumps({"text": password.get_secret_value()})).output


@tool
def reveal(password: Secret[str]) -> dict[str, str]:
    """Log in."""
    return {"text": password.get_secret_value()}


@pytest.mark.parametrize("source", [enter, ToolPipeline("line", "Signs", [reveal, sign])])
def test_nested_tools_mask_the_secrets_of_the_call(source, caplog):
    caplog.set_level(logging.DEBUG, "toolsemble")
    reply = Toolbox([source]).execute(ToolCall(source.name, {"password": PLAIN}))
    assert reply.text == "signed"
    assert f"signs with {HIDDEN}" in caplog.messages
    assert PLAIN not in caplog.text


def test_standalone_tool_logs_unmasked_text(caplog):
    caplog.set_level(logging.INFO, "toolsemble")
    sign.execute('{"text": "hunter2"}')
    assert caplog.messages[0] == "signs with hunter2"


@tool
def login(user: str, password: Secret[str]) -> str:
    """Log in."""
    return f"{user} is in"


UNKNOWN = {
    "a misspelled tool": ToolCall("logn", {"user": "ada", "password": PLAIN}),
    "a misspelled argument": ToolCall("logn", {"user": "ada", "pasword": PLAIN}),
    "inside an object": ToolCall("logn", {"password": {"value": PLAIN}}),
    "inside a list": ToolCall("logn", {"password": [[PLAIN]]}),
    "as a name": ToolCall("logn", {PLAIN: 1}),
    "as a name inside": ToolCall("logn", {"password": {PLAIN: {PLAIN: 1}}}),
    "broken JSON": ToolCall("logn", f'{{"password": "{PLAIN}'),
    "no JSON": ToolCall("logn", PLAIN),
    "a JSON text": ToolCall("logn", f'"{PLAIN}"'),
    "a JSON list": ToolCall("logn", f'["{PLAIN}"]'),
    "the same name twice": ToolCall("logn", f'{{"password": "{PLAIN}", "password": "x"}}'),
    "a name with arguments in it": ToolCall(f"login(password={PLAIN})", {}),
    "a long name with arguments in it": ToolCall(f"login(password={PLAIN}, {'x' * 80})", {}),
    "a name with line breaks in it": ToolCall(f"login\npassword={PLAIN}", "{}"),
    "deep JSON": ToolCall("logn", "[" * 20_000 + f'"{PLAIN}"' + "]" * 20_000),
    "deep objects": ToolCall("logn", '{"password":' * 900 + f'"{PLAIN}"' + "}" * 900),
}


class TestUnknownTools:
    @pytest.mark.parametrize("source", [login, ToolPipeline("line", "Takes a secret", [Echo(), Step(login)])])
    @pytest.mark.parametrize("way", UNKNOWN)
    async def test_only_argument_names_of_an_unknown_tool_are_shown(self, way, source, output, caplog):
        box = Toolbox([source], sinks=output.sinks, log_limit=100_000)
        call = UNKNOWN[way]
        replies = [box.execute(call), await box.aexecute(call), *box.execute_all([call, call])]
        assert box.flush(60)
        assert all(reply.text.startswith("Error: Unknown tool '") for reply in replies)
        assert_masked(output.text(caplog, [reply.text for reply in replies]), PLAIN)
        assert len(output.seen) == 8

    @pytest.mark.parametrize(
        ("arguments", "shown"),
        [
            ({"user": "ada", "password": PLAIN}, f'{{"user": "{HIDDEN}", "password": "{HIDDEN}"}}'),
            ({"password": PLAIN, "pin": 5}, f'{{"password": "{HIDDEN}"}} and 1 more'),
            ({}, "{}"),
            ("{", HIDDEN),
        ],
    )
    @pytest.mark.parametrize("hooks", [{}, {"before_call": lambda call, context: None}])
    def test_parameter_names_are_shown(self, arguments, shown, hooks, output):
        Toolbox([login, Echo()], sinks=output.sinks, **hooks).execute(ToolCall("logn", arguments))
        assert [event.arguments for event in output.seen] == [shown, shown]

    def test_tool_names_sent_as_values_are_shown(self):
        hook = {"before_call": lambda call, context: None}
        for settings in ({}, hook):
            reply = Toolbox([login, Echo()], **settings).execute(ToolCall("logn", {"tool": "login", "echo": "logn"}))
            assert reply.text == "Error: Unknown tool 'logn'. Available tools: login, echo. Did you mean 'login'?"

    def test_everything_is_shown_without_secret_tools(self, output):
        Toolbox([Echo()], sinks=output.sinks).execute(ToolCall("eco", {"input": "hi"}))
        assert [event.arguments for event in output.seen] == ['{"input":"hi"}'] * 2

    @pytest.mark.parametrize("way", UNKNOWN)
    @pytest.mark.parametrize("answers", [False, True])
    def test_hook_result_for_an_unknown_tool_is_masked(self, way, answers, output, caplog):
        def quote_it(call, *_):
            if answers:
                return ToolResult.failure(f"refused: {call.name} {call.arguments}")
            raise ValueError(f"refused: {call.name} {call.arguments}")

        call = UNKNOWN[way]
        for hook in ("before_call", "after_call"):
            reply = Toolbox([login], sinks=output.sinks, log_limit=100_000, **{hook: quote_it}).execute(call)
            with column(hook):
                assert reply.is_error
                assert_masked(output.text(caplog, "" if answers else reply.text), PLAIN)

    def test_arguments_replaced_by_a_hook_are_not_shown(self, output, caplog):
        def other(call, context):
            return ToolCall(call.name, {"password": "swordfish"})

        def quote_it(call, result, context):
            raise ValueError(f"refused: {call.arguments}")

        box = Toolbox([login], sinks=output.sinks, before_call=other, after_call=quote_it)
        reply = box.execute(ToolCall("logn", {"password": PLAIN}))
        assert_masked(output.text(caplog, reply.text), "swordfish", PLAIN)

    def test_secrets_of_an_unknown_tool_are_forgotten(self, output):
        box = Toolbox([login, Echo()], sinks=output.sinks, before_call=lambda call, context: None)
        box.execute(ToolCall("logn", {"password": PLAIN}))
        box.execute(ToolCall("echo", {"input": PLAIN}))
        assert output.seen[-1].result.output == PLAIN


def test_keys_are_masked_and_no_entry_is_lost():
    with mask_secrets("hunter2", "s3cret", "1234"):
        given = {
            "hunter2": 1,
            "s3cret": 2,
            "my hunter2": [{"hunter2": 3}],
            "user": 4,
            1234: 5,
            91234: 6,
            ("hunter2",): 7,
        }
        assert mask_value(given) == {
            HIDDEN: 1,
            f"{HIDDEN} (2)": 2,
            f"my {HIDDEN}": [{HIDDEN: 3}],
            "user": 4,
            f"{HIDDEN} (3)": 5,
            91234: 6,
            f"('{HIDDEN}',)": 7,
        }
        assert mask_value({HIDDEN: 1, "hunter2": 2}) == {HIDDEN: 1, f"{HIDDEN} (2)": 2}


@dataclass
class Held:
    inner: object
    clean: str = "clean"


class Quiet:
    """Says nothing of what it holds in its text, and all of it in its repr."""

    def __init__(self, inner):
        self.inner = inner

    def __repr__(self):
        return f"Quiet({self.inner})"

    def __str__(self):
        return "quiet"


WAYS = {
    "a value": lambda secret: {"key": secret},
    "a key": lambda secret: {secret: 1},
    "keys inside": lambda secret: {"a": [{secret: {secret: 1}}]},
    "a key that is longer": lambda secret: {f"user:{secret}": 1, f"user {secret}": 2},
    "a tuple": lambda secret: ("a", (secret, {secret: 1})),
    "a set": lambda secret: {secret, "a"},
    "a key that is a tuple": lambda secret: {(secret, 1): 1},
    "a dataclass": lambda secret: Held(Held({secret: secret})),
    "a model": lambda secret: Model(user=secret),
    "a struct": lambda secret: Struct(Secret(secret)),
    "an exception": lambda secret: ValueError(f"wrong: {secret}"),
    "an exception of a key": lambda secret: [KeyError(secret), OSError(2, secret)],
    "a group of exceptions": lambda secret: ExceptionGroup("several", [ValueError(secret)]),
    "only its repr": Quiet,
    "bytes": lambda secret: secret.encode(),
    "bytes as keys": lambda secret: {secret.encode(): 1},
}


@tool
def reveal(password: Secret[str], way: str, place: str) -> object:
    """Return a secret away, in some way and place."""
    leaked = WAYS[way](password.get_secret_value())
    context = toolsemble._engine.context.current_context()
    if place == "structured":
        return ToolResult.success("done", leaked)
    if place == "attributes":
        return ToolResult.success("done", attributes={"text": leaked})
    if place == "names of attributes":
        return ToolResult.success("done", attributes={password.get_secret_value(): leaked, "a": 1})
    if place == "contents":
        text = str(leaked)
        files = [FileContent(text.encode(), "text/plain", f"{text}.txt"), ImageContent(text.encode(), "image/png")]
        return ToolResult.success("done", contents=[TextContent(text), *files])
    if place == "question":
        context.request_approval("Is this right?", arguments=leaked)
    if place == "progress":
        context.progress(0.5, f"{leaked!r}")
    if place == "exception":
        raise ValueError(leaked)
    if place == "note":
        error = ValueError("wrong")
        error.add_note(f"{leaked!r}")
        raise error
    if place == "log":
        context.logger.warning("got %s", leaked)
    return "done"


PLACES = [
    "structured",
    "attributes",
    "names of attributes",
    "contents",
    "question",
    "progress",
    "exception",
    "note",
    "log",
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", WAYS)
def test_every_channel_masks_every_form_of_a_secret(way, place, output, caplog, tmp_path, traces):
    with ReviewStore(tmp_path / "reviews.db") as store:
        seen = output.review()

        async def decide(request):
            stored = store.ask([request])
            await seen.review(request)
            store.answer(store.pending()[0], Continue(), person="ada")
            return store.take(dict.fromkeys(stored, request))[stored[0]]

        box = Toolbox([reveal], sinks=[*output.sinks, traces.sink], review=CallbackReview(decide), log_limit=100_000)
        reply = box.execute(ToolCall("reveal", {"password": PLAIN, "way": way, "place": place}, "c1"))
        assert box.flush(60)
        reply_text = reply.text if place in ("exception", "note", "log", "progress", "question") else ""
        assert_masked(output.text(caplog, reply_text, store.audit(), traces.text()), PLAIN)
        assert base64.b64encode(PLAIN.encode()).decode() not in output.text(
            caplog, reply_text, store.audit(), traces.text()
        )
    assert len(output.seen) > 1


class Traces:
    """Spans with the arguments and results of calls."""

    def __init__(self):
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.sink = OpenTelemetry(arguments=True, results=True, limit=100_000, tracer_provider=provider)

    def text(self):
        return "\n".join(span.to_json() for span in self._exporter.get_finished_spans())


@pytest.fixture
def traces():
    return Traces()


def test_span_of_an_unknown_tool_has_its_argument_names(traces):
    Toolbox([login], sinks=[traces.sink]).execute(ToolCall("logn", {"password": PLAIN}))
    assert PLAIN not in traces.text()
    assert "password" in traces.text()


def test_secret_added_by_an_edit_is_masked(output, caplog, tmp_path):
    @tool
    def connect(host: str, password: Secret[str] | None = None) -> str:
        """Connect."""
        return f"connected with {password}"

    with ReviewStore(tmp_path / "reviews.db") as store:

        async def decide(request):
            output.requests.append(request)
            (stored,) = store.ask([request])
            store.answer(store.pending()[0], Edit(json.dumps({"host": "a", "password": PLAIN})), person="ada")
            return store.take({stored: request})[stored]

        box = Toolbox([connect], sinks=output.sinks, review=CallbackReview(decide), approve=["*"])
        reply = box.execute(ToolCall("connect", {"host": "a"}))
        assert reply.text == f"connected with {HIDDEN}"
        assert_masked(output.text(caplog, reply.text, store.audit()), PLAIN)


async def test_agent_run_does_not_show_arguments_of_an_unknown_tool(output, caplog):
    calls = [ToolCall("logn", {"password": PLAIN}, "c1"), ToolCall("logn", f'{{"password": "{PLAIN}', "c2")]
    model = ScriptedModel([calls, calls[0], "done"])
    result = await Agent(model, [login], sinks=output.sinks).run("go")
    assert result.text == "done"
    assert len([event for event in output.seen if event.tool_name]) == 6
    assert_masked(output.text(caplog), PLAIN)


PASSWORD = {"type": "string", "format": "password"}
WITH_PASSWORD = {"type": "object", "properties": {"pw": PASSWORD}}


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": WITH_PASSWORD}},
        {"anyOf": [WITH_PASSWORD]},
        {"if": {}, "then": WITH_PASSWORD},
        {"dependentSchemas": {"user": WITH_PASSWORD}},
        {"properties": {"pw": {}}, "allOf": [WITH_PASSWORD]},
        {"properties": {"pw": {"type": "object", "dependentSchemas": {"a": WITH_PASSWORD}}}},
    ],
)
def test_secret_is_masked_anywhere_in_a_json_schema(schema):
    reviewer = Reviewer(Continue())
    made = SchemaTool("login", "", lambda _: "in", {"type": "object", **schema})
    made.requires_approval = True
    sent = {"a": "hunter2", "pw": "hunter2"} if "pw" in str(schema.get("properties", {}).get("pw", {})) else "hunter2"
    Toolbox([made], review=reviewer).execute(ToolCall("login", {"user": "ada", "pw": sent}))
    assert (reviewer.requests[0].arguments["user"], "hunter2" in str(reviewer.requests)) == ("ada", False)


@pytest.mark.parametrize("keyword", ["additionalProperties", "unevaluatedProperties", "patternProperties"])
def test_rejects_secret_without_a_name(keyword):
    inner = {"^p": PASSWORD} if keyword == "patternProperties" else PASSWORD
    with pytest.raises(ToolDefinitionError, match=f"{keyword} allows secrets .* list them under properties"):
        Toolbox([SchemaTool("login", "", lambda _: "in", {"type": "object", keyword: inner})])


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_both_alphabets_of_base64_are_masked(encode, caplog):
    @tool
    def login(password: Secret[str]) -> str:
        """Log in."""
        raise ValueError(encode(password.get_secret_value().encode()).decode())

    reply = Toolbox([login]).execute(ToolCall("login", {"password": "~~~>>>???"}))
    assert reply.text == "Error: **********"
    assert "fn5" not in caplog.text
