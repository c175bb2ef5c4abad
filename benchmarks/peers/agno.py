"""agno: functions in a `Toolkit`, executed as a function call."""

from collections.abc import AsyncIterator, Iterator, Sequence

from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.tools import Function, Toolkit
from agno.utils.functions import get_function_call

from peers.task import (
    ANSWER,
    ARGUMENTS,
    PROMPT,
    AsyncSearch,
    Call,
    Search,
    Turn,
    by_agent,
    new_search,
    numbered,
    script,
)

NAME = "agno"
DISTRIBUTION = "agno"
IMPORT = "from agno.agent import Agent; from agno.tools import Toolkit, tool"
VALIDATES = True


def _functions(names: Sequence[str]) -> dict[str, Function]:
    kit = Toolkit("bench", tools=[new_search(name) for name in names])
    for function in kit.functions.values():
        function.process_entrypoint()
    return kit.functions


def define() -> object:
    """Define the tool, and give it in OpenAI's form."""
    return {"type": "function", "function": Function.from_callable(new_search()).to_dict()}


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Execute a function call, as an agent's model does it."""
    return _executed(_functions(["search"]), "search", arguments)


def many(count: int) -> tuple[object, list[object]]:
    """Put the tools into a toolkit."""
    functions = _functions(numbered(count))
    return functions, [{"type": "function", "function": each.to_dict()} for each in functions.values()]


def make_look_up(count: int) -> Call:
    """Execute a call of one of many functions."""
    names = numbered(count)
    return _executed(_functions(names), names[-1], ARGUMENTS)


def _executed(functions: dict[str, Function], name: str, arguments: str) -> Call:
    def call() -> str:
        result = get_function_call(name, arguments, "call_1", functions).execute()
        return str(result.result or result.error)

    return call


class Scripted(Model):
    """A model with scripted replies."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        super().__init__(id="scripted")
        self.lines = script(turns)

    def invoke(self, *_: object, **__: object) -> ModelResponse:
        """Return the next reply."""
        turn = next(self.lines)
        calls = [asked.to_openai() for asked in turn]
        return ModelResponse(role="assistant", content=None if turn else ANSWER, tool_calls=calls)

    async def ainvoke(self, *_: object, **__: object) -> ModelResponse:
        """Return the next reply."""
        return self.invoke()

    def invoke_stream(self, *_: object, **__: object) -> Iterator[ModelResponse]:
        """Refuse, as no benchmark streams here."""
        raise NotImplementedError

    def ainvoke_stream(self, *_: object, **__: object) -> AsyncIterator[ModelResponse]:
        """Refuse, as no benchmark streams here."""
        raise NotImplementedError

    def _parse_provider_response(self, response: ModelResponse, **_: object) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: ModelResponse) -> ModelResponse:
        return response


def _run(search: Search | AsyncSearch, turns: Sequence[Turn]) -> Call:
    agent = Agent(model=Scripted(turns), tools=[search], telemetry=False)

    async def run() -> str:
        return (await agent.arun(PROMPT)).content

    return run


make_agent, make_parallel, make_blocking = by_agent(_run)
