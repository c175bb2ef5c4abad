"""The keyword settings of agents and runs, and the run view that user functions get.

Not a generic retry library: the provider's details of each error decide, and the delay is an event of the run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypedDict, TypeVar

from toolsemble._engine.context import DepsT_co, InvocationParameters
from toolsemble._runtime.checks import check_count, check_seconds
from toolsemble._runtime.sinks import SinkLike
from toolsemble._vocabulary.errors import ModelError
from toolsemble.agent._budget import Prices, Usage
from toolsemble.agent._memory import ConversationMemory
from toolsemble.agent._result import PausedRun
from toolsemble.models._chat import ChatModel, Reasoning
from toolsemble.models._message import Message, Prompt, UserMessage
from toolsemble.review import ReviewDecision, ReviewHandler

if TYPE_CHECKING:
    from toolsemble.agent._journal.journal import RunJournal


@dataclass(frozen=True, slots=True)
class Retry:
    """The retry policy of failed model requests: how many attempts, and how long apart.

    For failed tool calls, see :class:`~toolsemble.Retries`.

    >>> Retry(attempts=2, wait=0).pause(ModelError("Too many requests", retryable=True), 0)
    0.0
    >>> Retry(attempts=2).pause(ModelError("No such model"), 0) is None
    True
    """

    attempts: int = 4
    """Maximum requests, including the first: ``Retry(attempts=3)`` sends up to 3; 1, or 0, sends one."""
    wait: float = 0.5
    """Approximate seconds before the first retry; doubled before each further one."""
    longest: float = 60.0
    """The longest delay in seconds; if a provider asks for a longer one, there is no retry."""

    def __post_init__(self) -> None:
        check_count("Retry attempts (including the first)", self.attempts, least=0)
        check_seconds("Retry wait", self.wait, zero=True)
        check_seconds("Retry longest", self.longest, zero=True)

    def pause(self, error: Exception, tried: int) -> float | None:
        """Return the seconds to wait before the next retry; None if there is none."""
        if tried + 1 >= self.attempts or not _is_retryable(error):
            return None
        requested = error.retry_after if isinstance(error, ModelError) else None
        if requested is not None:
            return requested if requested <= self.longest else None
        import random

        # With jitter: requests that failed together would fail together again.
        spread = random.uniform(0.5, 1)  # noqa: S311 - not used for security
        return min(self.wait * 2.0**tried * spread, self.longest)


def _is_retryable(error: Exception) -> bool:
    """Return whether the same request may succeed next time."""
    return error.retryable if isinstance(error, ModelError) else isinstance(error, (ConnectionError, TimeoutError))


@dataclass(frozen=True, slots=True)
class LoopGuard:
    """The limits on repetition in a run; the model is warned first, and the run ends if it continues.

    Calls are compared with their results, only across turns: the calls of one reply are made independently.
    Tools with ``polling=True`` are exempt.

    >>> LoopGuard(repeats=1)
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: LoopGuard repeats must be an int >= 2, not 1
    """

    repeats: int = 3
    """The number of consecutive turns with the same call and result, or with the same error of one tool."""
    longest: int = 4
    """The longest pattern to detect, in turns, such as 2 for A-B-A-B; 1: no patterns."""
    patience: int = 2
    """The number of further turns without progress before the run ends."""

    def __post_init__(self) -> None:
        for name, least in (("repeats", 2), ("longest", 1), ("patience", 0)):
            check_count(f"LoopGuard {name}", getattr(self, name), least=least)


@dataclass(frozen=True, slots=True)
class RunView(Generic[DepsT_co]):
    """The state of a run, as passed to functions that return an agent's tools, instructions or messages.

    ``RunView[Shop]`` tells type checkers that ``deps`` is a ``Shop``.

    >>> RunView("r1", "ada", InvocationParameters(), [], Usage(), 0).memory_id
    'ada'
    """

    run_id: str
    """The id that the run's calls share."""
    memory_id: str
    """The conversation or user id."""
    parameters: InvocationParameters
    """The parameters that the tools of the run share."""
    messages: Sequence[Message]
    """The conversation so far; for ``make_deps`` the history and the prompt, without stored messages."""
    usage: Usage
    """The usage so far; nothing for ``make_deps``, which is called before the first turn."""
    turn: int
    """The number of model replies so far; 0 for ``make_deps``."""
    deps: DepsT_co = None  # type: ignore[assignment]  # as in ToolContext
    """The run's dependencies; in ``make_deps``, the enclosing run's, or None."""
    question: UserMessage | None = None
    """The last user message of the prompt, or of the history if the prompt has none; None if there is none."""
    role: str = ""
    """The role of the agent; "" if it has none."""


RunInput: TypeAlias = Prompt | PausedRun
"""The input of a run: a prompt, or a paused run to resume."""

_Tools: TypeAlias = Iterable[object]
ToolFunction: TypeAlias = Callable[[RunView], _Tools | Awaitable[_Tools]]
"""Returns the tools of a run from a view of it."""
DynamicTools: TypeAlias = ToolFunction | Callable[[], _Tools | Awaitable[_Tools]]
"""Returns the tools of a run; called before each model request."""

_DepsT = TypeVar("_DepsT")
if TYPE_CHECKING:
    from contextlib import _AsyncGeneratorContextManager, _GeneratorContextManager

    MakeDeps: TypeAlias = Callable[
        [RunView],
        _GeneratorContextManager[_DepsT] | _AsyncGeneratorContextManager[_DepsT] | Awaitable[_DepsT] | _DepsT,
    ]
else:  # the names of the context managers are private
    MakeDeps = Callable[[RunView], Awaitable[_DepsT] | _DepsT]
"""Makes the deps of a run: a function, sync or async, or a context manager by a decorator of ``contextlib``."""

_Text: TypeAlias = str | None
InstructionFunction: TypeAlias = Callable[[RunView], _Text | Awaitable[_Text]] | Callable[[], _Text | Awaitable[_Text]]
"""Returns a part of the instructions; called before each model request, with the run or with nothing."""

Instructions: TypeAlias = str | InstructionFunction | Sequence[str | InstructionFunction]
"""The instructions of a model: a str, a function, or several of them, which are joined in order."""

_Messages: TypeAlias = Sequence[Message]
HistoryProcessor: TypeAlias = (
    Callable[[_Messages], _Messages | Awaitable[_Messages]]
    | Callable[[_Messages, RunView], _Messages | Awaitable[_Messages]]
)
"""Returns the messages to send to a model; called before each model request, with the conversation so far, without
its system message, and with the run if it takes two parameters."""


class SharedSettings(TypedDict, total=False):
    """The settings that both agents and runs take; None in a run means the agent's setting."""

    instructions: Instructions | None
    """The instructions for the model, verbatim; a run's instructions come after the agent's."""
    max_tool_calls: int
    """Maximum tool calls per run, including parallel calls; then the model must answer without tools."""
    max_iterations: int
    """Deprecated: the old name of ``max_tool_calls``."""
    max_turns: int | None
    """Maximum model replies per run, including replies to nested agents."""
    max_tokens: int | None
    """Maximum tokens per run."""
    max_seconds: float | None
    """Maximum seconds per run."""
    max_cost: float | None
    """Maximum token cost per run, by ``prices``."""
    max_depth: int
    """Maximum nesting depth of agents as tools."""
    prices: Prices | None
    """Token prices."""
    review: ReviewHandler | None
    """The reviewer of calls that require approval."""
    memory_id: str | None
    """The conversation or user id."""
    output_retries: int
    """How many times the model may correct an invalid answer."""
    retry: Retry
    """When a failed model request is retried."""
    settings: Mapping[str, Any] | None
    """Further settings of each model request, such as a temperature; a run's settings extend the agent's."""
    reasoning: Reasoning | None
    """How much the model reasons: a level or a number of tokens; None: the provider's default."""
    history_processors: Sequence[HistoryProcessor]
    """Functions that change the messages sent to the model, not the stored messages."""
    loop_guard: LoopGuard | None
    """Detects a run that repeats itself; None for an agent: no detection."""


class AgentSettings(SharedSettings, total=False):
    """The keyword arguments of an agent, other than its deps."""

    role: str
    """The model's role, such as "a librarian"."""
    goal: str
    """What the model has to achieve."""
    background: str
    """Further information for the model."""
    memory: ConversationMemory | None
    """Stores conversations; None: conversations are not stored."""
    sinks: Iterable[SinkLike]
    """Receive the events of the agent's calls, in addition to the sinks of its toolbox."""
    journal: RunJournal | None
    """Records runs, so that they resume after a crash; None: they are not recorded."""
    name: str
    """The agent's name in a journal; by default its role."""


class RunKeywords(SharedSettings, total=False):
    """The keyword arguments of one run, other than its deps, whose type is the agent's."""

    model: ChatModel | str | None
    """The model of this run."""
    tools: Iterable[object] | DynamicTools | None
    """The tools of this run, instead of the agent's."""
    history: Sequence[Message] | None
    """Earlier messages, instead of the stored conversation."""
    parameters: MutableMapping[str, Any] | None
    """A mapping that the run's tools share; the model never sees it."""
    run_id: str | None
    """The run id; reuse it after a crash to find earlier effects and approvals. By default a new one."""
    decisions: Mapping[str, ReviewDecision] | None
    """The decisions on a paused run's calls, by request id; calls without one stay pending."""


class RunSettings(RunKeywords, total=False):
    """The keyword arguments of one run."""

    deps: Any
    """The dependencies of the run: an object that tools get as ``ToolContext.deps``; the model never sees it."""
