"""Functions of the program's own before and after each call of a toolbox."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from toolsemble.call import ToolCall
from toolsemble.context import ToolContext
from toolsemble.definition.definition import ToolDefinition
from toolsemble.errors import ToolDefinitionError
from toolsemble.execution.failure import failed_hook, passing
from toolsemble.masking.secrets import read_secretly
from toolsemble.result import ToolResult
from toolsemble.runtime.concurrency import unwrap_stop_iteration
from toolsemble.schema.decode import Decoded
from toolsemble.shape import to_result
from toolsemble.work.body import Apply, Work
from toolsemble.work.snapshot import UncopyableError, copy_input

Read: TypeAlias = Callable[[Any, frozenset[str]], Decoded]

BeforeCall: TypeAlias = Callable[[ToolCall, ToolContext], Any]
"""Gives None, a :class:`ToolCall` with other arguments, or a :class:`ToolResult` as the answer; or awaits one."""
AfterCall: TypeAlias = Callable[[ToolCall, ToolResult, ToolContext], Any]
"""Gives None, or another :class:`ToolResult`; or awaits one."""


class AnsweredError(Exception):
    """A hook has answered in place of the tool."""

    def __init__(self, call: ToolCall, result: ToolResult) -> None:
        super().__init__("answered by a hook")
        self.call = call
        self.result = result


class Sent:
    """Reads the arguments of a call that a model sent, and remembers the call itself."""

    __slots__ = ("_decode", "call")

    def __init__(self, call: ToolCall, decode: Callable[[str, frozenset[str]], Decoded]) -> None:
        self.call = call
        self._decode = decode

    def __call__(self, text: str, steps: frozenset[str]) -> Decoded:
        """Read the arguments."""
        return self._decode(text, steps)


class Asked(NamedTuple):
    """A call after its first hook."""

    call: ToolCall
    """What is called, for the second hook."""
    read: Read
    """How its input is read."""
    given: Any
    """What it is read from."""


class Hooks(NamedTuple):
    """What a program does before and after calls."""

    before: BeforeCall | None
    """Is asked before a call is read."""
    after: AfterCall | None
    """Is asked when there is a result."""

    def ask(
        self, definition: ToolDefinition, read: Read, given: Any, steps: frozenset[str], context: ToolContext
    ) -> Generator[Work, Any, Asked]:
        """Give what is to be called; raise :class:`AnsweredError` when the hook has the answer."""
        asked = _asked(definition, read, given, steps, context)
        if self.before is None:
            return asked
        made = yield from _applied(self.before, "before_call", asked.call, context)
        if made is None:
            return asked
        if isinstance(made, ToolCall):
            if made.name == asked.call.name:
                return Asked(made, Sent(made, definition.decode), made.json)
            # What was offered, counted and is reviewed is this tool; another one is another call.
            made = ToolResult.failure(
                f"The before_call hook gave a call of '{made.name:.64}' in place of '{asked.call.name:.64}'; "
                "it can change the arguments only"
            )
        raise AnsweredError(asked.call, _result("before_call", "None, a ToolCall or a ToolResult", made))

    def answer(self, call: ToolCall, result: ToolResult, context: ToolContext) -> Generator[Work, Any, ToolResult]:
        """Give the result that counts: the one there is, or the one that the hook puts in its place."""
        if self.after is None:
            return result
        try:
            made = yield from _applied(self.after, "after_call", call, result, context)
        except AnsweredError as failure:
            return failure.result
        return result if made is None else _result("after_call", "None or a ToolResult", made)


class Nested(NamedTuple):
    """Hooks around hooks: the outer ones see the call first and the result last."""

    outer: Around
    """What is asked first."""
    inner: Around
    """What is asked unless the outer hooks have the answer."""

    def ask(
        self, definition: ToolDefinition, read: Read, given: Any, steps: frozenset[str], context: ToolContext
    ) -> Generator[Work, Any, Asked]:
        """Give what is to be called; raise :class:`AnsweredError` when a hook has the answer."""
        asked = yield from self.outer.ask(definition, read, given, steps, context)
        return (yield from self.inner.ask(definition, asked.read, asked.given, steps, context))

    def answer(self, call: ToolCall, result: ToolResult, context: ToolContext) -> Generator[Work, Any, ToolResult]:
        """Give the result that counts, when both have seen it."""
        made = yield from self.inner.answer(call, result, context)
        return (yield from self.outer.answer(call, made, context))


Around: TypeAlias = Hooks | Nested
"""What stands around the calls of a toolbox."""


def nested(outer: Hooks | None, inner: Around | None) -> Around | None:
    """Give hooks around hooks, where there are both.

    >>> nested(None, None) is None
    True
    """
    return Nested(outer, inner) if outer is not None and inner is not None else outer or inner


def hooks_of(before: object, after: object) -> Hooks | None:
    """Give the hooks of a toolbox, None when there are none; refuse what cannot be called.

    >>> hooks_of("log", None)
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Toolbox before_call must be a function (call, context), not 'log'
    """
    for name, takes, hook in (("before_call", "call", before), ("after_call", "call, result", after)):
        if hook is not None and not callable(hook):
            raise ToolDefinitionError(f"Toolbox {name} must be a function ({takes}, context), not {hook!r:.80}")
    return None if before is None and after is None else Hooks(before, after)  # type: ignore[arg-type]  # asked above


def _asked(definition: ToolDefinition, read: Read, given: Any, steps: frozenset[str], context: ToolContext) -> Asked:
    """Give the call that a model sent; of a step, the call that a model would have sent for it."""
    if isinstance(read, Sent):
        return Asked(read.call, read, given)
    value, repairs = read_secretly(definition, read, given, steps) if definition.secret else read(given, steps)
    with suppress(UncopyableError):  # what cannot be copied is handed on as it is, as for calls without hooks
        value = copy_input(
            definition, value
        )  # what the hook sees is what runs, whoever else holds what was handed over
    shown = definition.present(value, reveal=True)
    arguments = shown if isinstance(shown, dict) else {"input": shown}
    return Asked(ToolCall(definition.name, arguments, context.call_id), lambda *_: (value, repairs), given)


def _applied(hook: Callable[..., Any], name: str, call: ToolCall, *given: Any) -> Generator[Work, Any, Any]:
    """Give what a hook gives; one that raises fails the call, and only that."""
    context = given[-1]
    try:
        return (yield Apply(hook, context, call, *given))
    except Exception as error:
        if (through := passing(error)) is not None:
            raise through from (None if through is error else error)
        raise AnsweredError(call, failed_hook(unwrap_stop_iteration(error), context, name)) from error


def _result(hook: str, expected: str, made: object) -> ToolResult:
    """Give the result that a hook gave; a failure when it gave something else."""
    if isinstance(made, ToolResult):
        return to_result(made)
    return ToolResult.failure(f"The {hook} hook must give {expected}, not {type(made).__name__}")
