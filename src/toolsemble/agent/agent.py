"""The agent: a model, its tools and its settings."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from toolsemble.agent.loop_guard import LoopGuard
from toolsemble.agent.retry import Retry
from toolsemble.runtime.concurrency import finish

# Loaded when an agent is created or runs: many programs import the class for a type, or for one of their commands.
if TYPE_CHECKING:
    from toolsemble.agent.budget import Prices
    from toolsemble.agent.event import Event, Final, TurnEnded
    from toolsemble.agent.memory import ConversationMemory
    from toolsemble.agent.prompt import Prompt
    from toolsemble.agent.result import AgentResult
    from toolsemble.agent.settings import DynamicTools, RunSettings
    from toolsemble.models.chat import ChatModel, Reasoning
    from toolsemble.observers.sinks import Sink
    from toolsemble.review import ReviewHandler
    from toolsemble.tools.base import Tool
    from toolsemble.tools.settings import ToolSettings


class Agent:
    """A model that calls tools until it can answer; an agent is immutable and can do any number of runs at once.

    :param model: a model, or its name
    :param tools: tools, a toolbox, or a function from a :class:`RunView` to the tools, called before each request to
        the model
    :param role: the model's role, such as "a librarian"
    :param goal: what the model has to achieve
    :param background: further information for the model
    :param max_iterations: the most tool calls of a run; then the model must answer without tools
    :param max_turns: the most replies of models in a run, including those of nested agents
    :param max_tokens: the most tokens of a run
    :param max_seconds: the most seconds of a run. A stream starts when its first event is requested, and the time that
        its consumer takes counts. At the limit, calls and the model are cancelled, and the model is asked for a final
        answer, for which it has the same time again, at least 5 seconds
    :param max_cost: the most that the tokens of a run may cost, by ``prices``
    :param max_depth: how deep agents may be nested as tools
    :param prices: the prices of tokens, such as ``Prices(2, 8)`` or ``Prices.for_model("openai:gpt-4o")``
    :param review: the reviewer of calls that require approval
    :param memory: stores conversations; None: they are not stored
    :param memory_id: the default id of the conversation or user of a run
    :param output_type: the type of the answer, any type that a tool's parameter may have; None for text
    :param output_retries: how many times the model may correct an invalid answer
    :param retry: how often a failed model request is retried after the first attempt, and when
    :param settings: further settings of each model request, such as a temperature
    :param reasoning: how much the model reasons: "low", "medium", "high", or a number of tokens; None: the provider's
        default
    :param sinks: receive the events of the agent's calls, in addition to the sinks of its toolbox
    :param loop_guard: detects a run that repeats itself, warns the model, and ends the run; None: no detection

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
        retry: Retry = Retry(),  # noqa: B008 - immutable
        settings: Mapping[str, Any] | None = None,
        reasoning: Reasoning | None = None,
        sinks: Iterable[Sink] = (),
        loop_guard: LoopGuard | None = LoopGuard(),  # noqa: B008 - immutable
    ) -> None:
        """Check the settings; raise :class:`~toolsemble.ToolDefinitionError` if one is wrong."""
        from toolsemble.agent.settings import build_config  # noqa: PLC0415 - see above

        self._config = build_config(
            model,
            tools,
            limits=(max_iterations, max_turns, max_tokens, max_seconds, max_cost, max_depth, output_retries),
            role=role,
            goal=goal,
            background=background,
            prices=prices,
            review=review,
            memory=memory,
            memory_id=memory_id,
            output_type=output_type,
            retry=retry,
            settings=settings,
            reasoning=reasoning,
            sinks=sinks,
            loop_guard=loop_guard,
        )

    async def run(self, prompt: Prompt, **settings: Unpack[RunSettings]) -> AgentResult:
        """Run until there is an answer.

        Failures of tools are reported to the model. A failed run raises :class:`~toolsemble.AgentExecutionError`; one
        whose budget is used up without a final answer, :class:`~toolsemble.MaxIterationsExceededError`. It can also
        raise :class:`~toolsemble.ToolConfigurationError` and :class:`~toolsemble.ExitEarlyError`. Each has the work so
        far in ``partial``; another run can continue with ``history=error.partial.messages``.

        :param prompt: a text, a list of texts, images, audio and files, or messages
        :param settings: ``history``: earlier messages, instead of the stored conversation; ``memory_id``: the id of the
            conversation or user (the agent's by default); ``parameters``: a mapping that the tools of the run share and
            the model never sees; ``run_id``: the id of the run, to be reused after a crash
        """
        from toolsemble.agent.loop import start_run  # noqa: PLC0415 - see above

        return await start_run(self._config, prompt, settings).run()

    def run_sync(self, prompt: Prompt, **settings: Unpack[RunSettings]) -> AgentResult:
        """Run until there is an answer, as :meth:`run` does, for code that cannot await."""
        from toolsemble.agent.loop import start_run  # noqa: PLC0415 - see above

        loop = start_run(self._config, prompt, settings)
        try:
            return finish(loop.run())
        except KeyboardInterrupt as error:
            # The event loop replaces the cancellation by a new exception, which would lose its attributes.
            error.partial = loop.partial()  # type: ignore[attr-defined]  # set on every error of a run
            raise

    def stream(self, prompt: Prompt, **settings: Unpack[RunSettings]) -> AsyncGenerator[Event, None]:
        """Run as :meth:`run` does, and yield events as they happen; the last one has the result.

        The run ends when the consumer stops: leave the loop through ``contextlib.aclosing`` to end it at once.

        >>> from toolsemble.testing import ScriptedModel
        >>> async def kinds():
        ...     agent = Agent(ScriptedModel(["Hello, Ada"]))
        ...     return [event.kind async for event in agent.stream("I am Ada.")]
        >>> finish(kinds())
        ['text_delta', 'text_delta', 'turn_ended', 'final']
        """
        from toolsemble.agent.loop import follow_run  # noqa: PLC0415 - see above

        return follow_run(self._config, prompt, settings, streaming=True)

    def iterate(self, prompt: Prompt, **settings: Unpack[RunSettings]) -> AsyncGenerator[TurnEnded | Final, None]:
        """Run as :meth:`run` does, one turn at a time: the run pauses until the next turn is requested.

        >>> from toolsemble import ToolCall
        >>> from toolsemble.testing import ScriptedModel
        >>> async def turns():
        ...     agent = Agent(ScriptedModel([ToolCall("nothing"), "Rome"]))
        ...     return [event.kind async for event in agent.iterate("Where do all roads lead?")]
        >>> finish(turns())
        ['turn_ended', 'turn_ended', 'final']
        """
        from toolsemble.agent.event import Final, TurnEnded  # noqa: PLC0415 - see above
        from toolsemble.agent.loop import follow_run  # noqa: PLC0415 - see above

        return follow_run(self._config, prompt, settings, TurnEnded, Final)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until the agent's sinks have processed all events; return False after ``timeout`` seconds.

        >>> from toolsemble.testing import ScriptedModel
        >>> Agent(ScriptedModel([]), sinks=[print]).flush(5)
        True
        """
        return self._config.sinks is None or self._config.sinks.flush(timeout)

    def as_tool(self, name: str, description: str, **settings: Unpack[ToolSettings]) -> Tool:
        """Return the agent as a tool for another agent; it takes one text, ``input``, and returns the answer.

        Its spending counts against the budgets of the enclosing run. It inherits the reviewer, the shared parameters
        and the ``memory_id`` of that run, unless it has its own. If it has a memory, its conversation is stored under
        that id and the tool's name: ``ada/poet``.

        :param settings: the settings of any tool, such as ``requires_approval``

        >>> from toolsemble import ToolCall
        >>> from toolsemble.testing import ScriptedModel
        >>> poet = Agent(ScriptedModel(["Roses are red"])).as_tool("poet", "Writes a poem")
        >>> Agent(ScriptedModel([ToolCall("poet", {"input": "roses"}), "Done"]), [poet]).run_sync("A poem!").text
        'Done'
        """
        from toolsemble.agent.agent_tool import AgentAsTool  # noqa: PLC0415 - see above

        return AgentAsTool(self.run, name, description, settings, self._config.names_inside)

    def __repr__(self) -> str:
        return f"Agent({self._config})"
