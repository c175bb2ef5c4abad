"""Hooks: functions of the program that run before and after each call of a toolbox."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import ToolDefinition
from toolsemble._engine.execution.failure import find_fatal_error, to_hook_failure
from toolsemble._engine.work.body import Apply, Work
from toolsemble._engine.work.snapshot import UncopyableError, copy_input
from toolsemble._runtime.event_loops import unwrap_stop_iteration
from toolsemble._schema.decode import Decoded, Read
from toolsemble._schema.masking import read_with_secrets
from toolsemble._schema.result_shape import to_result
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.result import ToolResult

BeforeCall: TypeAlias = Callable[[ToolCall, ToolContext], Any]
"""Returns None, a :class:`ToolCall` with other arguments, or a :class:`ToolResult` as the answer; may be async."""
AfterCall: TypeAlias = Callable[[ToolCall, ToolResult, ToolContext], Any]
"""Returns None, or another :class:`ToolResult`; may be async."""


class AnsweredError(Exception):
    """A hook answered instead of the tool."""

    def __init__(self, call: ToolCall, result: ToolResult) -> None:
        super().__init__("answered by a hook")
        self.call = call
        self.result = result


class CallReader:
    """An arguments reader that keeps the model's call for the hooks."""

    __slots__ = ("_decode", "call")

    def __init__(self, call: ToolCall, decode: Callable[[str, frozenset[str]], Decoded]) -> None:
        self.call = call
        self._decode = decode

    def __call__(self, text: str, steps: frozenset[str]) -> Decoded:
        """Read the arguments."""
        return self._decode(text, steps)


class HookedCall(NamedTuple):
    """A call after its ``before_call`` hook."""

    call: ToolCall
    """The call, for the ``after_call`` hook."""
    read: Read
    """The function that decodes its input."""
    given: Any
    """The input as sent."""


class Hooks(NamedTuple):
    """The hooks of one toolbox."""

    before: BeforeCall | None
    """Runs before the arguments are decoded."""
    after: AfterCall | None
    """Runs after the call."""

    def ask(
        self, definition: ToolDefinition, read: Read, given: Any, steps: frozenset[str], context: ToolContext
    ) -> Generator[Work, Any, HookedCall]:
        """Return the call to make; raise :class:`AnsweredError` if the hook answers it."""
        asked = _find_call(definition, read, given, steps, context)
        if self.before is None:
            return asked
        made = yield from _apply_hook(self.before, "before_call", asked.call, context)
        if made is None:
            return asked
        if isinstance(made, ToolCall):
            if made.name == asked.call.name:
                return HookedCall(made, CallReader(made, definition.decode), made.json)
            # The offer, counters and review are this tool's; another tool is another call.
            made = ToolResult.failure(
                f"The before_call hook returned a call of '{made.name:.64}' in place of '{asked.call.name:.64}'; "
                "it can change the arguments only"
            )
        raise AnsweredError(asked.call, _check_result("before_call", "None, a ToolCall or a ToolResult", made))

    def answer(self, call: ToolCall, result: ToolResult, context: ToolContext) -> Generator[Work, Any, ToolResult]:
        """Return the result, or the one that the hook replaced it with."""
        if self.after is None:
            return result
        try:
            made = yield from _apply_hook(self.after, "after_call", call, result, context)
        except AnsweredError as failure:
            return failure.result
        return result if made is None else _check_result("after_call", "None or a ToolResult", made)


class NestedHooks(NamedTuple):
    """Nested hooks: the outer hooks see the call first and the result last."""

    outer: CallHooks
    """The hooks that run first."""
    inner: CallHooks
    """The hooks that run unless the outer ones answer."""

    def ask(
        self, definition: ToolDefinition, read: Read, given: Any, steps: frozenset[str], context: ToolContext
    ) -> Generator[Work, Any, HookedCall]:
        """Return the call to make; raise :class:`AnsweredError` if a hook answers it."""
        asked = yield from self.outer.ask(definition, read, given, steps, context)
        return (yield from self.inner.ask(definition, asked.read, asked.given, steps, context))

    def answer(self, call: ToolCall, result: ToolResult, context: ToolContext) -> Generator[Work, Any, ToolResult]:
        """Return the result after both hooks."""
        made = yield from self.inner.answer(call, result, context)
        return (yield from self.outer.answer(call, made, context))


CallHooks: TypeAlias = Hooks | NestedHooks
"""The hooks around the calls of a toolbox."""


def nest_hooks(outer: Hooks | None, inner: CallHooks | None) -> CallHooks | None:
    """Return nested hooks, or the only ones there are.

    >>> nest_hooks(None, None) is None
    True
    """
    return NestedHooks(outer, inner) if outer is not None and inner is not None else outer or inner


def make_hooks(before: object, after: object) -> Hooks:
    """Return the hooks of a toolbox; raise ToolDefinitionError if one is not callable.

    >>> make_hooks("log", None)
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Toolbox before_call must be a function (call, context), not 'log'
    """
    for name, takes, hook in (("before_call", "call", before), ("after_call", "call, result", after)):
        if hook is not None and not callable(hook):
            raise ToolDefinitionError(f"Toolbox {name} must be a function ({takes}, context), not {hook!r:.80}")
    return Hooks(before, after)  # type: ignore[arg-type]  # checked above


def _find_call(
    definition: ToolDefinition, read: Read, given: Any, steps: frozenset[str], context: ToolContext
) -> HookedCall:
    """Return the call that the model sent; for a pipeline step, the equivalent call."""
    if isinstance(read, CallReader):
        return HookedCall(read.call, read, given)
    value, repairs = read_with_secrets(definition, read, given, steps) if definition.secret else read(given, steps)
    with suppress(UncopyableError):  # passed on unchanged, as without hooks
        value = copy_input(definition, value)  # exactly what the hook sees runs
    shown = definition.present(value, reveal=True)
    arguments = shown if isinstance(shown, dict) else {"input": shown}
    return HookedCall(ToolCall(definition.name, arguments, context.call_id), lambda *_: (value, repairs), given)


def _apply_hook(hook: Callable[..., Any], name: str, call: ToolCall, *given: Any) -> Generator[Work, Any, Any]:
    """Return what a hook returns; an exception in it fails this call only."""
    context = given[-1]
    try:
        return (yield Apply(hook, context, call, *given))
    except Exception as error:
        if (through := find_fatal_error(error)) is not None:
            raise through from (None if through is error else error)
        raise AnsweredError(call, to_hook_failure(unwrap_stop_iteration(error), context, name)) from error


def _check_result(hook: str, expected: str, made: object) -> ToolResult:
    """Return the result of a hook; a failed result if it is of another type."""
    if isinstance(made, ToolResult):
        return to_result(made)
    return ToolResult.failure(f"The {hook} hook must return {expected}, not {type(made).__name__}")
