"""An agent: a model, tools, and a task to do with them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Unpack

from toolsemble.agent.agent_tool import Delegate
from toolsemble.agent.budget import Limits, Prices
from toolsemble.agent.channel import Channel
from toolsemble.agent.checks import check_keywords, check_kinds, check_prices
from toolsemble.agent.event import Event, Final, TurnEnded
from toolsemble.agent.loop import Loop
from toolsemble.agent.loop_guard import LoopGuard
from toolsemble.agent.memory import ConversationMemory
from toolsemble.agent.output import Output
from toolsemble.agent.prompt import Prompt, messages_of, system_message
from toolsemble.agent.result import AgentResult
from toolsemble.agent.retry import Retry
from toolsemble.agent.settings import DynamicTools, Plan, RunSettings, offered
from toolsemble.agent.state import Account
from toolsemble.definition.definition import Names
from toolsemble.models.chat import ChatModel
from toolsemble.models.registry import model_of
from toolsemble.observers.sinks import Sink, build_sinks
from toolsemble.review import ReviewHandler
from toolsemble.runtime.concurrency import finish
from toolsemble.toolbox.toolbox import Toolbox, names_inside
from toolsemble.tools.base import Tool
from toolsemble.tools.settings import ToolSettings


class Agent:
    """A model that works with tools until it can answer; it never changes, and serves any number of runs at once.

    :param model: who is asked: a model, or its name
    :param tools: what it can use: tools, a toolbox, or a function that is given a :class:`RunView` and gives the
        tools before each time that the model is asked
    :param role: who the model is to be, such as "a librarian"
    :param goal: what it is to achieve
    :param background: what else it has to know
    :param max_iterations: how many calls of tools a run may make; at its end the model must answer without them
    :param max_turns: how many replies of models a run may take, those of agents inside among them
    :param max_tokens: how many tokens a run may take
    :param max_seconds: how long a run may take, from its beginning, which of a stream is when the first event is
        asked for; time that the reader of a stream takes counts, too; calls and the model are cut off then, and
        the model is asked once more, which may take as long again, at least 5 seconds
    :param max_cost: what the tokens of a run may cost, by the prices
    :param max_depth: how deep agents may use agents as tools
    :param prices: what tokens cost
    :param review: who approves calls that need it
    :param memory: where conversations are kept; None for nowhere
    :param memory_id: the conversation or user that a run belongs to, unless it says otherwise
    :param output_type: what the answer must be: any type that a tool's parameter may have; None for text
    :param output_retries: how many times an answer that does not fit is asked for again
    :param retry: when a model that failed is asked again
    :param settings: what else the model is told with each request, such as a temperature
    :param sinks: who is told of the events of its calls, beside the sinks of a toolbox that it is given
    :param loop_guard: when a run counts as going in circles, of which the model is told before the run ends; None
        for never

    >>> from toolsemble import ToolCall, tool
    >>> from toolsemble.testing import ScriptedModel
    >>> @tool
    ... def weather(city: str) -> str:
    ...     '''The weather in a city.'''
    ...     return f"sunny in {city}"
    >>> model = ScriptedModel([ToolCall("weather", {"city": "Rome"}), "Take your sunglasses."])
    >>> result = Agent(model, [weather], role="a travel guide").run_sync("What do I need in Rome?")
    >>> result.text, result.stop_reason, [record.reply.text for record in result.tool_calls]
    ('Take your sunglasses.', 'answer', ['sunny in Rome'])
    """

    def __init__(  # noqa: PLR0913 - settings by keyword, each with a default
        self,
        model: ChatModel | str | None = None,
        tools: Iterable[object] | DynamicTools = (),
        *,
        role: str = "",
        goal: str = "",
        background: str = "",
        max_iterations: int = 25,
        max_turns: int | None = None,
        max_tokens: int | None = None,
        max_seconds: float | None = None,
        max_cost: float | None = None,
        max_depth: int = 5,
        prices: Prices | None = None,
        review: ReviewHandler | None = None,
        memory: ConversationMemory | None = None,
        memory_id: str = "default",
        output_type: Any = None,
        output_retries: int = 2,
        retry: Retry = Retry(),  # noqa: B008 - it never changes
        settings: Mapping[str, Any] | None = None,
        sinks: Iterable[Sink] = (),
        loop_guard: LoopGuard | None = LoopGuard(),  # noqa: B008 - it never changes
    ) -> None:
        """Check the settings; refuse what cannot work."""
        limits = Limits(max_iterations, max_turns, max_tokens, max_seconds, max_cost, max_depth, output_retries)
        check_kinds(role=role, goal=goal, background=background, memory=memory, memory_id=memory_id, review=review)
        check_kinds(prices=prices, retry=retry, settings=settings, loop_guard=loop_guard)
        check_prices(max_cost, prices)
        output = None if output_type is None else Output(output_type)
        self._plan = Plan(
            tools=offered(tools, review, role, output),
            system=system_message(role, goal, background),
            role=role,
            limits=limits,
            prices=prices,
            review=review,
            memory=memory,
            memory_id=memory_id,
            output=output,
            retry=retry,
            settings=MappingProxyType(dict(settings or {})),
            sinks=build_sinks("Agent", sinks),
            loop_guard=loop_guard,
            model=model_of(model),  # last: it may take long
        )

    async def run(self, prompt: Prompt, **settings: Unpack[RunSettings]) -> AgentResult:
        """Work until there is an answer.

        Failures of tools are told to the model. What is raised is :class:`~toolsemble.AgentExecutionError` when the
        run failed, :class:`~toolsemble.MaxIterationsExceededError` when a budget is used up and the model gives no
        answer even then, :class:`~toolsemble.ToolConfigurationError` and :class:`~toolsemble.ExitEarlyError`; each has
        what was done in ``partial``, from which another run can go on with ``history=error.partial.messages``.

        :param prompt: text, a list of texts and images, or messages
        :param settings: ``history``: what was said before, in place of what is remembered; ``memory_id``: the
            conversation or user that the run belongs to (the agent's own); ``parameters``: what the tools of the run
            share, and the model never sees; ``run_id``: the name of the run, the same again after a crash
        """
        return await Loop(self._plan, self._account(prompt, settings)).run()

    def run_sync(self, prompt: Prompt, **settings: Unpack[RunSettings]) -> AgentResult:
        """Work until there is an answer, as :meth:`run` does, for code that cannot await."""
        account = self._account(prompt, settings)
        try:
            return finish(Loop(self._plan, account).run())
        except KeyboardInterrupt as error:
            # The event loop makes a new one of the cancellation, and would lose what that carries.
            error.partial = account.result("cancelled")  # type: ignore[attr-defined]  # as other errors
            raise

    def stream(self, prompt: Prompt, **settings: Unpack[RunSettings]) -> AsyncGenerator[Event, None]:
        """Work as :meth:`run` does, and give what happens as it happens; the last event has the result.

        Who stops listening stops the run: leave the loop by way of ``contextlib.aclosing``, so that it stops at once.

        >>> from toolsemble.testing import ScriptedModel
        >>> async def told():
        ...     agent = Agent(ScriptedModel(["Hello, Ada"]))
        ...     return [event.kind async for event in agent.stream("I am Ada.")]
        >>> finish(told())
        ['text_delta', 'text_delta', 'turn_ended', 'final']
        """
        return self._followed(prompt, settings, Channel(), streaming=True)

    def iterate(self, prompt: Prompt, **settings: Unpack[RunSettings]) -> AsyncGenerator[TurnEnded | Final, None]:
        """Work as :meth:`run` does, turn by turn: the run waits until the next turn is asked for.

        >>> from toolsemble import ToolCall
        >>> from toolsemble.testing import ScriptedModel
        >>> async def turns():
        ...     agent = Agent(ScriptedModel([ToolCall("nothing"), "Rome"]))
        ...     return [event.kind async for event in agent.iterate("Where do all roads lead?")]
        >>> finish(turns())
        ['turn_ended', 'turn_ended', 'final']
        """
        return self._followed(prompt, settings, Channel(TurnEnded, Final), streaming=False)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until the agent's sinks have seen all events, for some seconds or any number; whether they have.

        >>> from toolsemble.testing import ScriptedModel
        >>> Agent(ScriptedModel([]), sinks=[print]).flush(5)
        True
        """
        return self._plan.sinks is None or self._plan.sinks.flush(timeout)

    def as_tool(self, name: str, description: str, **settings: Unpack[ToolSettings]) -> Tool:
        """Give the agent as a tool of another: it takes one text, ``input``, and gives the answer.

        What it spends counts for the budgets of the run around it; the reviewer, the shared parameters and the
        ``memory_id`` of that run are its own, too, unless it has others. If it has a memory, it remembers its
        conversation under that id and the tool's name: ``ada/poet``.

        :param settings: what can be said of a tool, such as ``requires_approval``

        >>> from toolsemble import ToolCall
        >>> from toolsemble.testing import ScriptedModel
        >>> poet = Agent(ScriptedModel(["Roses are red"])).as_tool("poet", "Writes a poem")
        >>> Agent(ScriptedModel([ToolCall("poet", {"input": "roses"}), "Done"]), [poet]).run_sync("A poem!").text
        'Done'
        """
        return Delegate(self, name, description, settings, self._names_inside)

    def _names_inside(self) -> Names:
        """Return the names of the tools that a run can call; those that a function gives are not known beforehand."""
        tools = self._plan.tools
        return names_inside(tools) if isinstance(tools, Toolbox) else Names((), all_known=False)

    def __repr__(self) -> str:
        plan = self._plan
        tools = ", ".join(plan.tools.names) if isinstance(plan.tools, Toolbox) else "a function of the run"
        return f"Agent({type(plan.model).__name__}, tools: {tools or 'none'})"

    def _account(self, prompt: Prompt, settings: RunSettings) -> Account:
        check_keywords(settings, RunSettings.__annotations__)
        return Account(self._plan, messages_of(prompt), **settings)

    def _followed(
        self, prompt: Prompt, settings: RunSettings, channel: Channel, *, streaming: bool
    ) -> AsyncGenerator[Any, None]:
        account = self._account(prompt, settings)
        loop = Loop(self._plan, account, channel, streaming=streaming)
        return channel.follow(loop.final, lambda: account.result("cancelled"))
