from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import pickle
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier
from typing import Annotated, Any, TypedDict, Unpack

import pytest

from toolsemble import (
    FunctionTool,
    InvocationParameters,
    MemoryId,
    Param,
    ReturnBehavior,
    Tool,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolDefinitionError,
    tool,
    tool_specifications_from,
)
from toolsemble.review import AutoApprove


@tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers.

    Args:
        a: The first one.
    """
    return a + b


@tool
async def slow(a: int) -> int:
    await asyncio.sleep(0)
    return a


class Options(TypedDict, total=False):
    verbose: bool


class Calculator:
    """Methods of every kind."""

    def __init__(self, base=10):
        self.base = base

    @tool
    def plus(self, number: int) -> int:
        """Add to the base."""
        return self.base + number

    @tool
    async def later(self, number: int) -> int:
        return self.base + number

    @tool
    @staticmethod
    def double(number: int) -> int:
        return 2 * number

    @staticmethod
    @tool
    def triple(number: int) -> int:
        return 3 * number

    @tool
    @classmethod
    def name_of(cls, text: str) -> str:
        return f"{cls.__name__} {text}"

    @classmethod
    @tool
    def named(cls, text: str) -> str:
        return f"{cls.__name__} {text}"

    @tool
    def _hidden(self) -> str:
        return "found"

    def plain(self) -> str:
        return "no tool"


class Scientific(Calculator):
    @tool
    def minus(self, number: int) -> int:
        return self.base - number

    def plus(self, number: int) -> int:
        return number

    @tool
    def later(self, number: int) -> str:
        return f"overridden {number}"


NAMES = ["plus", "later", "double", "triple", "name_of", "named", "_hidden"]


def test_decorated_function_can_still_be_called():
    assert add(1) == 3
    assert add(1, b=5) == 6
    assert (add.__name__, add.__doc__.splitlines()[0], add.__module__) == ("add", "Add two numbers.", __name__)
    assert list(inspect.signature(add).parameters) == ["a", "b"]
    assert asyncio.run(slow(3)) == 3


def test_tool_has_the_functions_name_and_docstring():
    assert isinstance(add, Tool)
    assert isinstance(add, FunctionTool)
    (specification,) = Toolbox([add]).specifications
    assert (specification.name, specification.description) == ("add", "Add two numbers.")
    assert add.execute('{"a": 1}').output == "3"
    assert add.execute({"a": 1, "b": 1}).output == "2"
    assert add.execute(None).error_message == "Missing required parameter(s) for 'add': a"


@pytest.mark.parametrize("each", [add, slow])
async def test_sync_and_async_functions_run_in_sync_and_async_code(each):
    box = Toolbox([each])
    call = ToolCall(each.name, '{"a": 5}')
    expected = "7" if each is add else "5"
    assert box.execute(call).text == (await box.aexecute(call)).text == expected
    assert [reply.text for reply in await box.aexecute_all([call, call])] == [expected] * 2


def test_decorator_takes_settings():
    @tool("sum", "Adds.", metadata={"cache": True}, strict=True, return_behavior=ReturnBehavior.IMMEDIATE)
    def function(a: int) -> int:
        return a

    (specification,) = Toolbox([function]).specifications
    assert (specification.name, specification.description) == ("sum", "Adds.")
    assert (specification.metadata, specification.strict) == ({"cache": True}, True)


@pytest.mark.parametrize("name", ["two words", " ", "x" * 65])
def test_rejects_invalid_name(name):
    with pytest.raises(ToolDefinitionError, match="Invalid tool name"):
        Toolbox([tool(name)(lambda: None)])


def test_object_with_tool_methods_is_a_set_of_tools():
    box = Toolbox([Calculator(100)])
    assert box.names == NAMES
    assert len(list(box)) == 7
    sent = {"plus": "1", "later": "1", "double": "2", "triple": "2", "name_of": '"x"', "named": '"x"'}
    calls = [ToolCall(name, f'{{"{"text" if "name" in name else "number"}": {value}}}') for name, value in sent.items()]
    texts = [reply.text for reply in box.execute_all([*calls, ToolCall("_hidden")])]
    assert texts == ["101", "101", "4", "6", "Calculator x", "Calculator x", "found"]


def test_decorated_methods_can_still_be_called():
    calculator = Calculator(1)
    assert (calculator.plus(1), calculator.double(2), Calculator.triple(2)) == (2, 4, 6)
    assert (Calculator.name_of("x"), calculator.named("y")) == ("Calculator x", "Calculator y")
    assert asyncio.run(calculator.later(1)) == 2
    assert Calculator.plus(calculator, 4) == 5


def test_bound_method_is_a_tool():
    box = Toolbox([Calculator(5).plus, Calculator.double, Calculator.named])
    assert box.names == ["plus", "double", "named"]
    assert box.execute(ToolCall("plus", {"number": 1})).text == "6"
    assert box.execute(ToolCall("named", {"text": "x"})).text == "Calculator x"


def test_inherits_tools_and_an_override_without_the_decorator_is_the_tool():
    box = Toolbox([Scientific(10)])
    assert box.names == ["plus", "later", "double", "triple", "name_of", "named", "_hidden", "minus"]
    assert box.execute(ToolCall("later", {"number": 1})).text == "overridden 1"
    assert box.execute(ToolCall("named", {"text": "x"})).text == "Scientific x"


def test_rejects_unbound_method():
    with pytest.raises(ToolDefinitionError, match="Tool 'plus' is a method; pass an object that has it"):
        Toolbox([Calculator.plus])


def test_rejects_methods_with_the_same_tool_name():
    class Twins:
        @tool("same")
        def one(self) -> str:
            return ""

        @tool("same")
        def two(self) -> str:
            return ""

    with pytest.raises(ToolDefinitionError, match="Duplicate tool name: 'same'"):
        Toolbox([Twins()])
    with pytest.raises(ToolDefinitionError, match="Duplicate tool name: 'same'"):
        tool_specifications_from(Twins)


def test_specifications_are_built_from_a_class():
    by_class = tool_specifications_from(Calculator)
    assert [each.name for each in by_class] == NAMES
    assert by_class == tool_specifications_from(Calculator())
    assert list(by_class[0].parameters["properties"]) == ["number"]
    assert [each.name for each in tool_specifications_from(add)] == ["add"]
    assert tool_specifications_from(object()) == tool_specifications_from(object) == []
    with pytest.raises(ToolDefinitionError, match="not None"):
        tool_specifications_from(None)


def test_injected_parameters_are_hidden_and_cannot_be_passed():
    @tool
    def function(
        number: int,
        who: Annotated[str, MemoryId],
        context: ToolContext,
        shared: InvocationParameters | None = None,
    ) -> str:
        shared["seen"] = number
        return f"{who} {context.tool_name} {number}"

    box = Toolbox([function])
    assert list(box.specifications[0].parameters["properties"]) == ["number"]
    mine = {}
    forged = {"number": 1, "who": "eve", "context": {}, "shared": {}}
    reply = box.execute(ToolCall("function", forged), memory_id="ada", parameters=mine)
    assert (reply.text, mine) == ("ada function 1", {"seen": 1})
    strictly = Toolbox([function], repair=False)
    assert strictly.execute(ToolCall("function", forged), memory_id="ada").text == "ada function 1"


def test_passes_every_kind_of_parameter():
    @tool
    def function(
        first: int, second: int = 2, /, third: int = 3, *, fourth: int, fifth: int = 5, **more: Unpack[Options]
    ):
        return f"{first} {second} {third} {fourth} {fifth} {more}"

    box = Toolbox([function])
    assert box.execute(ToolCall("function", {"first": 1, "fourth": 4})).text == "1 2 3 4 5 {}"
    arguments = {"first": 1, "second": 0, "fourth": 4, "verbose": True}
    assert box.execute(ToolCall("function", arguments)).text == "1 0 3 4 5 {'verbose': True}"


def test_parameter_without_annotation_accepts_anything():
    @tool
    def function(value):
        return [value]

    assert Toolbox([function]).specifications[0].parameters["properties"] == {"value": {}}
    assert function.execute('{"value": {"a": 1}}').output == '[{"a":1}]'


def test_function_without_parameters_has_no_schema():
    @tool
    def function() -> str:
        """Do it."""
        return "done"

    assert Toolbox([function]).specifications[0].parameters is None
    assert [function.execute(text).output for text in ("", "{}", "null")] == ["done", "done", ""]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: lambda *numbers: numbers, r"parameter '\*numbers': a model names its arguments"),
        (lambda: lambda **options: options, r"parameter '\*\*options': declare each parameter"),
    ],
)
def test_rejects_variadic_parameters(make, problem):
    with pytest.raises(ToolDefinitionError, match=problem):
        Toolbox([tool("open")(make())])


def test_typed_kwargs_become_additional_properties():
    @tool
    def function(query: str, who: Annotated[str, MemoryId], **weights: int) -> str:
        return f"{query} {who} {weights}"

    box = Toolbox([function])
    assert box.specifications[0].parameters["additionalProperties"] == {"type": "integer"}
    assert box.execute(ToolCall("function", {"query": "x", "a": 1, "b": "2"})).text == "x default {'a': 1, 'b': 2}"
    assert box.execute(ToolCall("function", {"query": "x", "who": 5})).text == "x default {}"
    assert box.execute(ToolCall("function", {"query": "x", "a": "y"})).text.endswith("a: expected an integer")


def test_rejects_renamed_parameter_with_kwargs():
    def function(query: Annotated[str, Param(name="q")], **weights: int) -> str:
        return query

    with pytest.raises(ToolDefinitionError, match="accepts any key, so 'query' cannot be renamed"):
        Toolbox([tool(function)])


def test_resolves_types_of_the_enclosing_function():
    @dataclass
    class Local:
        size: int
        inner: Local | None = None

    @tool
    def function(value: Local, others: list[Local]) -> int:
        return value.size + len(others)

    class Holder:
        @tool
        def method(self, value: Local) -> int:
            return value.size

    assert function.execute('{"value": {"size": 3, "inner": {"size": 1}}, "others": []}').output == "3"
    assert Toolbox([Holder()]).execute(ToolCall("method", {"value": {"size": 4}})).text == "4"


def test_resolves_types_in_the_closure():
    def make(kind):
        def function(value: kind) -> str:
            return str(type(value) is kind)

        return tool(function)

    assert make(float).execute('{"value": 1}').output == "True"


def test_tools_can_be_copied_and_pickled_by_name():
    assert pickle.loads(pickle.dumps(add)) is add
    assert copy.copy(add).execute({"a": 1}).output == "3"
    bound = pickle.loads(pickle.dumps(Calculator(7).plus))
    assert bound.execute({"number": 1}).output == "8"


def test_functions_run_in_worker_processes():
    with ProcessPoolExecutor(1) as executor:
        box = Toolbox([add, Calculator(20)], executor=executor)
        replies = box.execute_all([ToolCall("add", {"a": 1}), ToolCall("plus", {"number": 1})])
    assert [reply.text for reply in replies] == ["3", "21"]


def test_first_use_is_thread_safe():
    @tool
    def fresh(value: list[dict[str, int]]) -> int:
        return len(value)

    start = Barrier(20, timeout=30)

    def use(_):
        start.wait()
        return fresh.execute('{"value": [{"a": 1}]}').output

    with ThreadPoolExecutor(20) as threads:
        assert set(threads.map(use, range(20))) == {"1"}


class Account:
    @tool(requires_approval=True, effects="irreversible", idempotency=True)
    def pay(self, amount: int) -> str:
        """Pay an amount."""
        return f"paid {amount}"

    @tool("balance", "Says how much is left")
    def left(self) -> str:
        """Not for the model."""
        return "100"

    @tool
    @staticmethod
    def rate(currency: str) -> str:
        """Say the rate."""
        return f"1 {currency}"

    @classmethod
    @tool
    def kind(cls) -> str:
        """Say the kind."""
        return cls.__name__

    @tool
    def secret(self) -> str:
        """Is not for subclasses."""
        return "s"


class Savings(Account):
    secret = None

    def pay(self, amount: int, note: str = "") -> str:
        return f"{super().pay(amount)} from savings {note}".strip()

    def left(self) -> str:
        """Not for the model either."""
        return "200"

    @staticmethod
    def rate(currency: str) -> str:
        """Say the better rate."""
        return f"2 {currency}"

    @classmethod
    def kind(cls) -> str:
        return f"a {cls.__name__}"


class OldSavings(Savings):
    pass


@pytest.mark.parametrize("kind", [Savings, OldSavings])
class TestAnOverrideWithoutTheDecorator:
    def test_is_the_tool_with_its_own_body_and_parameters(self, kind):
        box = Toolbox([kind()], review=AutoApprove())
        assert box.names == ["pay", "balance", "rate", "kind"]
        calls = {"pay": {"amount": 5, "note": "x"}, "balance": {}, "rate": {"currency": "EUR"}, "kind": {}}
        texts = [box.execute(ToolCall(name, arguments)).text for name, arguments in calls.items()]
        assert texts == ["paid 5 from savings x", "200", "2 EUR", f"a {kind.__name__}"]

    def test_keeps_the_settings_of_the_tool(self, kind):
        with pytest.raises(ToolConfigurationError, match="Tool 'pay' requires approval"):
            Toolbox([kind()]).execute(ToolCall("pay", {"amount": 5}))
        assert Toolbox([kind()]).specifications[0].metadata["destructiveHint"] is True

    def test_has_its_own_docstring_unless_the_tool_has_a_description(self, kind):
        descriptions = [each.description for each in Toolbox([kind()]).specifications]
        assert descriptions == ["Pay an amount.", "Says how much is left", "Say the better rate.", "Say the kind."]
        assert [each.description for each in tool_specifications_from(kind)] == descriptions

    def test_shares_the_state_of_its_limits_between_toolboxes(self, kind):
        account = kind()
        boxes = [Toolbox([account], review=AutoApprove()) for _ in range(2)]
        replies = [box.execute(ToolCall("pay", {"amount": 5}), run_id="r1").result for box in boxes]
        assert [reply.attributes.get("repeated", False) for reply in replies] == [False, True]

    def test_can_be_pickled(self, kind):
        pay = Toolbox([kind()])["pay"]
        assert pickle.loads(pickle.dumps(pay))(5) == "paid 5 from savings"
        named = Toolbox([kind()])["kind"]
        assert pickle.loads(pickle.dumps(named))() == f"a {kind.__name__}"


@pytest.mark.parametrize("decorate", [tool, tool("other"), tool(timeout=5)])
def test_a_class_is_not_made_a_tool(decorate):
    with pytest.raises(ToolDefinitionError) as refused:

        @decorate
        class Search:
            pass

    assert str(refused.value) == (
        "@tool is for functions and methods, and Search is a class; put @tool above its methods and pass an object of "
        "it, or derive it from Tool"
    )


def test_a_repr_shows_the_name():
    class Nameless(Tool):
        description = "Has none"

        @property
        def name(self):
            raise RuntimeError("no name today")

        def run(self, input):
            return input

    assert repr(add) == "FunctionTool('add')"
    assert repr(Nameless()) == "Nameless(None)"
    assert repr(add.renamed("sum")) == "FunctionTool('sum')"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (5, "@tool takes a function, or the name of the tool as a str, not 5$"),
        (property(lambda self: 1), "; a property cannot be a tool: remove @property$"),
    ],
)
def test_rejects_what_is_neither_a_function_nor_a_name(given, problem):
    with pytest.raises(ToolDefinitionError, match=problem):
        tool(given)


class Typed:
    def search(self, city: str, days: Any) -> str:
        return city


def typed(city: str, days: Any = None) -> str:
    return city


def test_untyped_parameters_are_warned_of_once_with_their_names():
    @tool
    def search(query, limit=3, *, order: str = "asc", context: ToolContext = None):
        """Search."""
        return query

    with pytest.warns(UserWarning, match="^Tool 'search' takes 'query', 'limit' without a type, ") as warned:
        Toolbox([search]).execute(ToolCall("search", {"query": "rome"}))
    assert [each.filename for each in warned] == [__file__]
    assert str(warned[0].message).endswith(" so models may send anything; write query: str, or query: Any")


@pytest.mark.parametrize(
    "function",
    [
        lambda city, days: city,
        functools.partial(lambda city, days: city, days=3),
        str.upper,
        Typed().search,
        typed,
    ],
)
def test_lambdas_and_typed_functions_are_not_warned_of(function):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Toolbox([tool("search", "Search.")(function)])


def test_a_copy_of_a_toolbox_is_another_toolbox_with_the_same_tools():
    box = Toolbox([tool("add", "Add.")(typed)])
    made = copy.copy(box)
    assert (made is not box, made.names) == (True, ["add"])
