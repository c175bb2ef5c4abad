"""agno: functions in a `Toolkit`, executed as a function call."""

from agno.tools import Function, Toolkit
from agno.utils.functions import get_function_call

from peers.task import ARGUMENTS, Call, new_search

NAME = "agno"
DISTRIBUTION = "agno"
IMPORT = "from agno.tools import Toolkit, tool"
VALIDATES = True


def _functions(names: list[str]) -> dict[str, Function]:
    kit = Toolkit("bench", tools=[new_search(name) for name in names])
    for function in kit.functions.values():
        function.process_entrypoint()
    return kit.functions


def define() -> object:
    """Define the tool, and give it in OpenAI's form."""
    return {"type": "function", "function": Function.from_callable(new_search()).to_dict()}


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Execute a function call, as an agent's model does it."""
    functions = _functions(["search"])

    def call() -> str:
        result = get_function_call("search", arguments, "call_1", functions).execute()
        return str(result.result or result.error)

    return call


def many(count: int) -> tuple[object, list[object]]:
    """Put the tools into a toolkit."""
    functions = _functions([f"search_{number}" for number in range(count)])
    return functions, [{"type": "function", "function": each.to_dict()} for each in functions.values()]
