"""The agent: a model, its tools and its settings."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, Unpack, overload

from toolsemble._runtime.event_loops import finish
from toolsemble._vocabulary.errors import ToolConfigurationError

# Loaded when an agent is created or runs: many programs import the class for a type, or for one of their commands.
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultedTypeVar

    from toolsemble._tools.base import Tool
    from toolsemble._tools.settings import ToolSettings
    from toolsemble._tools.toolbox.toolbox import Toolbox
    from toolsemble.agent._event import Event, Final, RunStop, TurnEnded
    from toolsemble.agent._journal.journal import RunJournal
    from toolsemble.agent._options import AgentSettings, DynamicTools, MakeDeps, RunInput, RunKeywords
    from toolsemble.agent._result import AgentResult
    from toolsemble.models._chat import ChatModel
    from toolsemble.review import Reviewer, ReviewHandler

    # A plain ``Agent`` in an annotation is ``Agent[Any, Any]``; Python has such defaults since 3.13 only.
    OutputT_co = DefaultedTypeVar("OutputT_co", covariant=True, default=Any)
    DepsT = DefaultedTypeVar("DepsT", default=Any)
else:
    OutputT_co = TypeVar("OutputT_co", covariant=True)
    DepsT = TypeVar("DepsT")
T = TypeVar("T")


class Agent(Generic[OutputT_co, DepsT]):
    """A model that calls tools until it can answer; an agent is immutable and can do any number of runs at once.

    For type checkers, an agent with ``output_type=Invoice`` is an ``Agent[Invoice]``, and one without an output type an
    ``Agent[str]``; with ``deps_type=Shop`` it is an ``Agent[str, Shop]``. Where they cannot infer the type, as for
    ``int | None``, annotate the variable.

    :param model: a model, or its name
    :param tools: tools, a toolbox, or a function, sync or async, that takes a :class:`RunView` or nothing, returns the
        tools, and is called before each request to the model
    :param output_type: the type of the answer, any type that a tool's parameter may have; None for text
    :param deps: an object that tools get as ``ToolContext.deps``, in every run that is given no other; the model never
        sees it
    :param make_deps: makes the deps of each run that is given none: a function of a :class:`RunView`, sync or async, or
        one with ``contextlib``'s decorator ``contextmanager`` or ``asynccontextmanager``, which is entered when a run
        starts or continues and left when it ends, pauses, parks or is interrupted. Sync ones run in worker threads
    :param deps_type: the type of the deps; by default that of ``make_deps``. Others raise
        :class:`~toolsemble.ToolConfigurationError`
    :param instructions: the system prompt, verbatim: a text; a function, sync or async, that takes a :class:`RunView`
        or nothing, returns a text or None, and is called before each request to the model; or a list of them
    :param role: the model's role, such as "a librarian"; role, goal and background come before the instructions
    :param goal: what the model has to achieve
    :param background: further information for the model
    :param max_tool_calls: the most tool calls of a run, also of those in one reply; then the model must answer
        without tools
    :param max_turns: the most replies of models in a run, including those of nested agents
    :param max_tokens: the most tokens of a run
    :param max_seconds: the most seconds that a run works; waiting for a person does not count. A stream starts when its
        first event is requested, and the time that its consumer takes counts. At the limit, calls and the model are
        cancelled, and the model is asked for a final answer, for which it has the same time again, at least 5 seconds
    :param max_cost: the most that the tokens of a run may cost, by ``prices``
    :param max_depth: how deep agents may be nested as tools
    :param prices: the prices of tokens, such as ``Prices(2, 8)`` or ``Prices.for_model("openai:gpt-4o")``
    :param review: the reviewer of calls that require approval
    :param memory: stores conversations; None: they are not stored
    :param memory_id: the default id of the conversation or user of a run. With a memory, or a tool that takes a
        :class:`~toolsemble.MemoryId`, a run without an id raises :class:`~toolsemble.ToolConfigurationError`
    :param output_retries: how many times the model may correct an invalid answer
    :param retry: how often a failed model request is retried after the first attempt, and when
    :param settings: further settings of each model request, such as a temperature
    :param history_processors: functions, sync or async, from messages to messages: what they return is sent to the
        model in place of the conversation. They may take a :class:`RunView` as a second parameter
    :param reasoning: how much the model reasons: "low", "medium", "high", or a number of tokens; None: the provider's
        default
    :param sinks: receive the events of the agent's calls, in addition to the sinks of its toolbox
    :param loop_guard: detects a run that repeats itself, warns the model, and ends the run; None: no detection
    :param journal: records runs, so that one that was killed continues when it is run again with its ``run_id``
    :param name: the name of the agent in the journal; its role by default

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

    @overload
    def __init__(
        self: Agent[str, Any],
        model: ChatModel | str | None = None,
        tools: Iterable[object] | DynamicTools = (),
        *,
        output_type: None = None,
        **settings: Unpack[AgentSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[str, DepsT],
        model: ChatModel | str | None = None,
        tools: Iterable[object] | DynamicTools = (),
        *,
        output_type: None = None,
        deps: DepsT | None = None,
        make_deps: MakeDeps[DepsT] | None = None,
        deps_type: type[DepsT] | None = None,
        **settings: Unpack[AgentSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[T, Any],
        model: ChatModel | str | None = None,
        tools: Iterable[object] | DynamicTools = (),
        *,
        output_type: type[T],
        **settings: Unpack[AgentSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[T, DepsT],
        model: ChatModel | str | None = None,
        tools: Iterable[object] | DynamicTools = (),
        *,
        output_type: type[T],
        deps: DepsT | None = None,
        make_deps: MakeDeps[DepsT] | None = None,
        deps_type: type[DepsT] | None = None,
        **settings: Unpack[AgentSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[Any, Any],
        model: ChatModel | str | None = None,
        tools: Iterable[object] | DynamicTools = (),
        *,
        output_type: Any,
        **settings: Unpack[AgentSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[Any, DepsT],
        model: ChatModel | str | None = None,
        tools: Iterable[object] | DynamicTools = (),
        *,
        output_type: Any,
        deps: DepsT | None = None,
        make_deps: MakeDeps[DepsT] | None = None,
        deps_type: type[DepsT] | None = None,
        **settings: Unpack[AgentSettings],
    ) -> None: ...
    def __init__(
        self,
        model: ChatModel | str | None = None,
        tools: Iterable[object] | DynamicTools = (),
        *,
        output_type: Any = None,
        deps: Any = None,
        make_deps: Any = None,
        deps_type: Any = None,
        **settings: Unpack[AgentSettings],
    ) -> None:
        """Check the settings; raise :class:`~toolsemble.ToolDefinitionError` if one is wrong."""
        from toolsemble.agent._deps import read_deps
        from toolsemble.agent._settings import build_config

        source = read_deps(deps, make_deps, deps_type)
        self._config = build_config(model, tools, output_type, source, settings)

    @overload
    async def run(
        self, prompt: RunInput, *, output_type: None = None, deps: DepsT | None = None, **settings: Unpack[RunKeywords]
    ) -> AgentResult[OutputT_co]: ...
    @overload
    async def run(
        self, prompt: RunInput, *, output_type: type[T], deps: DepsT | None = None, **settings: Unpack[RunKeywords]
    ) -> AgentResult[T]: ...
    @overload
    async def run(
        self, prompt: RunInput, *, output_type: Any, deps: DepsT | None = None, **settings: Unpack[RunKeywords]
    ) -> AgentResult[Any]: ...
    async def run(self, prompt: RunInput, **settings: Any) -> AgentResult[Any]:
        """Run until there is an answer.

        Failures of tools are reported to the model. A failed run raises :class:`~toolsemble.AgentExecutionError`; one
        whose budget is used up without a final answer, :class:`~toolsemble.BudgetExceededError`. It can also
        raise :class:`~toolsemble.ToolConfigurationError` and :class:`~toolsemble.ExitEarlyError`. Each has the work so
        far in ``partial``; another run can continue with ``history=error.partial.messages``.

        :param prompt: a text, a list of texts, images, audio and files, or messages; or a :class:`PausedRun`
        :param settings: ``history``: earlier messages, instead of the stored conversation; ``memory_id``: the id of the
            conversation or user (the agent's by default); ``deps``: an object that tools get as ``ToolContext.deps``
            (the agent's by default);
            ``parameters``: a mapping that the tools of the run share (the model sees neither); ``run_id``: the id of
            the run, to be reused after a crash; ``decisions``: the decisions about the calls of a paused run, by the
            ids of their requests. ``model``, ``tools``, ``output_type``, ``review``, ``prices``,
            ``retry``, ``loop_guard``, ``history_processors`` and the budgets replace the agent's for this run, unless
            they are None; ``settings`` and ``instructions`` are added to the agent's

        >>> from toolsemble.testing import ScriptedModel
        >>> agent = Agent(ScriptedModel(["Rome"]), instructions="Be brief.")
        >>> agent.run_sync("Where do all roads lead?", max_tokens=1000, settings={"temperature": 0}).text
        'Rome'
        """
        from toolsemble.agent._run.start import start_run

        return await start_run(self._config, prompt, settings).run()

    @overload
    def run_sync(
        self, prompt: RunInput, *, output_type: None = None, deps: DepsT | None = None, **settings: Unpack[RunKeywords]
    ) -> AgentResult[OutputT_co]: ...
    @overload
    def run_sync(
        self, prompt: RunInput, *, output_type: type[T], deps: DepsT | None = None, **settings: Unpack[RunKeywords]
    ) -> AgentResult[T]: ...
    @overload
    def run_sync(
        self, prompt: RunInput, *, output_type: Any, deps: DepsT | None = None, **settings: Unpack[RunKeywords]
    ) -> AgentResult[Any]: ...
    def run_sync(self, prompt: RunInput, **settings: Any) -> AgentResult[Any]:
        """Run until there is an answer, as :meth:`run` does, for code that cannot await."""
        from toolsemble.agent._run.start import start_run

        run = start_run(self._config, prompt, settings)
        try:
            return finish(run.run())
        except KeyboardInterrupt as error:
            # The event loop replaces the cancellation by a new exception, which would lose its attributes.
            error.partial = run.partial()  # type: ignore[attr-defined]  # set on every error of a run
            raise

    @overload
    def stream(
        self, prompt: RunInput, *, output_type: None = None, deps: DepsT | None = None, **settings: Unpack[RunKeywords]
    ) -> AsyncGenerator[Event[OutputT_co], None]: ...
    @overload
    def stream(
        self, prompt: RunInput, *, output_type: type[T], deps: DepsT | None = None, **settings: Unpack[RunKeywords]
    ) -> AsyncGenerator[Event[T], None]: ...
    @overload
    def stream(
        self, prompt: RunInput, *, output_type: Any, deps: DepsT | None = None, **settings: Unpack[RunKeywords]
    ) -> AsyncGenerator[Event[Any], None]: ...
    def stream(self, prompt: RunInput, **settings: Any) -> AsyncGenerator[Event[Any], None]:
        """Run as :meth:`run` does, and yield events as they happen; the last one has the result.

        A run with a journal that waits for a person, is cancelled, or has to continue in another process ends with
        :class:`~toolsemble.agent.RunParked`, :class:`~toolsemble.agent.RunCancelled` or
        :class:`~toolsemble.agent.RunInterrupted`; none of them is an exception here. The run ends when the consumer
        stops: leave the loop through ``contextlib.aclosing`` to end it at once.

        >>> from toolsemble.testing import ScriptedModel
        >>> async def kinds():
        ...     agent = Agent(ScriptedModel(["Hello, Ada"]))
        ...     return [event.kind async for event in agent.stream("I am Ada.")]
        >>> finish(kinds())
        ['text_delta', 'text_delta', 'turn_ended', 'final']
        """
        from toolsemble.agent._run.start import follow_run

        return follow_run(self._config, prompt, settings, shows_pieces=True)

    @overload
    def iterate(
        self, prompt: RunInput, *, output_type: None = None, deps: DepsT | None = None, **settings: Unpack[RunKeywords]
    ) -> AsyncGenerator[TurnEnded | Final[OutputT_co] | RunStop, None]: ...
    @overload
    def iterate(
        self, prompt: RunInput, *, output_type: type[T], deps: DepsT | None = None, **settings: Unpack[RunKeywords]
    ) -> AsyncGenerator[TurnEnded | Final[T] | RunStop, None]: ...
    @overload
    def iterate(
        self, prompt: RunInput, *, output_type: Any, deps: DepsT | None = None, **settings: Unpack[RunKeywords]
    ) -> AsyncGenerator[TurnEnded | Final[Any] | RunStop, None]: ...
    def iterate(self, prompt: RunInput, **settings: Any) -> AsyncGenerator[TurnEnded | Final[Any] | RunStop, None]:
        """Run as :meth:`run` does, one turn at a time: the run pauses until the next turn is requested.

        >>> from toolsemble import ToolCall
        >>> from toolsemble.testing import ScriptedModel
        >>> async def turns():
        ...     agent = Agent(ScriptedModel([ToolCall("nothing"), "Rome"]))
        ...     return [event.kind async for event in agent.iterate("Where do all roads lead?")]
        >>> finish(turns())
        ['turn_ended', 'turn_ended', 'final']
        """
        from toolsemble.agent._event import Final, RunCancelled, RunInterrupted, RunParked, TurnEnded
        from toolsemble.agent._run.start import follow_run

        kinds = (TurnEnded, Final, RunParked, RunInterrupted, RunCancelled)
        return follow_run(self._config, prompt, settings, *kinds)

    def run_journaled(
        self, journal: RunJournal, name: str, prompt: RunInput, settings: Mapping[str, Any]
    ) -> Awaitable[AgentResult[OutputT_co]]:
        """Do or continue a run of a journal, as a worker does, whatever journal and name the agent has.

        :param settings: the settings of the run
        """
        from dataclasses import replace

        from toolsemble.agent._run.start import start_run

        return start_run(replace(self._config, journal=journal, name=name), prompt, settings).run()

    def check_deps(self, deps: Any = None) -> None:
        """Raise :class:`~toolsemble.ToolConfigurationError` if runs could not have deps: as a worker does first.

        :param deps: the deps that runs are given; None: the agent's own
        """
        from toolsemble.agent._deps import DepsMaker

        config = self._config
        need = config.needs.get("deps")
        if deps is None and config.deps.is_empty and need is not None:
            user = f"Tool '{need.tool}'" if need.tool else "The agent"
            raise ToolConfigurationError(f"Agent '{self.name}': {user} needs deps ({need.declared}); pass deps=…")
        if deps is not None and not isinstance(deps, DepsMaker):
            config.deps.check(deps)

    def find_open_requests(self, ids: Iterable[str]) -> set[str]:
        """Return which of these requests still wait for one of the agent's reviewers."""
        wanted = set(ids)
        return {id_ for each in self._list_reviewers() for id_ in each.find_open(wanted)}

    def watch_requests(self, changed: Callable[[], object]) -> list[Callable[[], None]]:
        """Call a function, in another thread, when a request may be answered; return functions that end this.

        The list is empty if the stores of the agent's reviewers do not tell.
        """
        ends = [each.watch(changed) for each in self._list_reviewers()]
        return [end for end in ends if end is not None]

    def _list_reviewers(self) -> list[Reviewer]:
        from toolsemble.review._request import to_reviewer  # most agents have no reviewer

        return [to_reviewer(each) for each in self._config.list_reviewers()]

    @property
    def name(self) -> str:
        """The name of the agent in a journal: the given one, or its role.

        >>> from toolsemble.testing import ScriptedModel
        >>> Agent(ScriptedModel([]), role="a poet").name
        'a poet'
        """
        return self._config.name

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until the agent's sinks have processed all events; return False after ``timeout`` seconds.

        >>> from toolsemble.testing import ScriptedModel
        >>> Agent(ScriptedModel([]), sinks=[print]).flush(5)
        True
        """
        return self._config.sinks is None or self._config.sinks.flush(timeout)

    def list_reviewers(self) -> list[ReviewHandler]:
        """Return the reviewers of the agent and of its tools, other than the one of a run.

        >>> from toolsemble.testing import ScriptedModel
        >>> Agent(ScriptedModel([])).list_reviewers()
        []
        """
        return self._config.list_reviewers()

    @property
    def toolbox(self) -> Toolbox | None:
        """The tools of the agent; None if a function chooses them.

        >>> from toolsemble.testing import ScriptedModel
        >>> Agent(ScriptedModel([])).toolbox.names
        []
        """
        from toolsemble._tools.toolbox.toolbox import Toolbox

        return self._config.tools if isinstance(self._config.tools, Toolbox) else None

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
        from toolsemble.agent._run.start import AgentAsTool

        config = self._config
        return AgentAsTool(self.run, name, description, settings, config.names_inside, config.needs_outside())

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "An Agent cannot be pickled or deep-copied: its toolbox has locks and threads, and its model connections; "
            "make the agent where it is used"
        )

    def __repr__(self) -> str:
        return f"Agent({self._config})"

    if not TYPE_CHECKING:  # type checkers know the default of the second parameter

        def __class_getitem__(cls, types: Any) -> Any:
            given = types if isinstance(types, tuple) else (types,)
            missing = len(cls.__parameters__) - len(given) if cls is Agent else 0
            return super().__class_getitem__((*given, *[Any] * missing))
