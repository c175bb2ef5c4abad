"""What goes along with a call that is watched, takes secrets, or belongs to a toolbox with hooks."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from toolsemble.call import ToolCall
from toolsemble.context import ToolContext
from toolsemble.definition.definition import ToolDefinition
from toolsemble.execution.call_events import Story
from toolsemble.execution.hooks import AnsweredError, Around, Read
from toolsemble.execution.outcome import Ending
from toolsemble.masking.secrets import add_sent_secrets, read_with_secrets, restore_secrets, secrets
from toolsemble.metrics import ToolMetrics, with_metrics
from toolsemble.observers.watchers import ScopedWatcher, Watcher
from toolsemble.result import ToolResult
from toolsemble.schema.decode import Decoded
from toolsemble.schema.display import HIDDEN
from toolsemble.work.body import Work


class Escort:
    """The company of one call, from before it is read until it has its result; most calls have none."""

    __slots__ = (
        "_before",
        "_call",
        "_companions",
        "_definition",
        "_ends",
        "_hooks",
        "_read",
        "_story",
        "_veil",
        "context",
        "refusal",
        "unread",
    )

    def __init__(
        self,
        definition: ToolDefinition,
        context: ToolContext,
        given: Any,
        hooks: Around | None,
        watched: tuple[Watcher, ...],
    ) -> None:
        self.refusal: BaseException | None = None
        """Why the body was not run; None when it was."""
        self._definition = definition
        self._hooks = hooks
        self._call: ToolCall | None = None
        self._read = False
        companions = [each for each in watched if isinstance(each, ScopedWatcher)]
        for each in companions:
            if each.metrics is not None:
                context = _counted(context, each.metrics)
        self.context = context
        """The context of the call, in which those who go along count it."""
        self._story = Story(definition, context) if len(companions) < len(watched) else None
        self._veil: list[str] | None = [] if definition.secret else None
        self._before = secrets()
        self.unread = HIDDEN if definition.secret else given
        """What is shown of the input before it is read: nothing, where it may hold secrets."""
        self._companions = companions
        self._ends: list[Callable[..., object]] = []

    def enter(self) -> None:
        """Begin to keep secrets, and let those go along who do; whatever is raised, :meth:`leave` ends it."""
        if self._veil is not None:
            self._veil += self._before or ()
            restore_secrets(self._veil)
        for each in self._companions:
            if (end := each.begin(self.context)) is not None:
                self._ends.append(end)

    @property
    def only_reads(self) -> bool:
        """Whether the input is read, and nobody is asked anything before the work."""
        return self._hooks is None and self._definition.gate is None

    def asked(self, read: Read, sent: Any, steps: frozenset[str]) -> Generator[Work, Any, tuple[Read, Any]]:
        """Give how the input is read and from what, as the hooks say.

        Raise :class:`AnsweredError` when one of them has the answer.
        """
        assert self._hooks is not None  # noqa: S101 - only calls with hooks ask them
        if self._veil is not None:
            add_sent_secrets(self._definition, sent)  # a hook that fails may quote it
        try:
            self._call, read, sent = yield from self._hooks.ask(self._definition, read, sent, steps, self.context)
        except AnsweredError as answer:
            self._call = answer.call
            raise
        return read, sent

    def read(self, read: Read, sent: Any, steps: frozenset[str]) -> Decoded:
        """Give the input and its repairs, and tell that the call has begun."""
        if self._veil is None:
            value, repairs = read(sent, steps)
        else:
            value, repairs = read_with_secrets(self._definition, read, sent, steps)
        self._read = True
        if self._story is not None:
            self._story.begin(value, repairs)
        return value, repairs

    def answer(self, result: ToolResult) -> Generator[Work, Any, ToolResult]:
        """Give the result that counts: a hook may put another one in its place."""
        if self._hooks is None or self._call is None:
            return result
        return (yield from self._hooks.answer(self._call, result, self.context))

    def leave(self, given: Any, result: ToolResult | None, raised: BaseException | None, duration: float) -> None:
        """Tell the end of the call, and forget its secrets."""
        try:
            if self._story is not None:
                self._story.end(given, result, raised, duration)
            if self._ends:
                ending = Ending(self._definition, given, result, raised, self.refusal, duration, read=self._read)
                while self._ends:
                    self._ends.pop()(ending)
        finally:
            self.forget()

    def forget(self) -> None:
        """Forget the secrets of the call."""
        # Looked at, and not remembered: an interrupt may come before anything is taken down. Closed by the collector,
        # it may stand in another context, where there is nothing to undo.
        if self._veil is not None and secrets() is self._veil:
            restore_secrets(self._before)


def _counted(context: ToolContext, added: ToolMetrics) -> ToolContext:
    """Give the context in which a call is counted by one who goes along with it, too."""
    metrics = with_metrics(context.metrics, added)
    return context if metrics is context.metrics else context.derive({"metrics": metrics})
