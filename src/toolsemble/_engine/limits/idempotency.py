"""Idempotency: calls with effects run once; a ledger reserves them and answers duplicates."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import Inner, Layer, ToolDefinition
from toolsemble._engine.limits.single_flight import CANNOT_WAIT, CallKey, SharedCall
from toolsemble._engine.record import count_and_log
from toolsemble._engine.work.body import Work, check_time_left, is_past, remaining
from toolsemble._engine.work.snapshot import copy_input
from toolsemble._engine.work.wait import Acquire, RunInThread, Sleep
from toolsemble._runtime.signing import canonical_json
from toolsemble._runtime.text import describe_error, preview
from toolsemble._runtime.threads import THREADS, fork_safe_lock
from toolsemble._schema.display import to_display
from toolsemble._schema.result_shape import to_result
from toolsemble._vocabulary import errors
from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.result import NO_ATTRIBUTES, ToolResult
from toolsemble._vocabulary.serialization import without_retries, write_result

if TYPE_CHECKING:
    from toolsemble._engine.limits.effect_ledger import Effect, EffectLedger

_MAX_ARGUMENTS = 2000
_LOOK = 0.05
_PATIENCE = 300.0
_WAITS = (Sleep, Acquire, RunInThread)


@dataclass(frozen=True, slots=True)
class Idempotency:
    """The key that identifies duplicate calls, and the ledger that records them.

    >>> from toolsemble import tool
    >>> @tool(effects="irreversible", idempotency=Idempotency(key=lambda arguments: arguments.order, scope="ledger"))
    ... def pay(order: int, count_and_log: str = "") -> str:
    ...     return f"paid {order}"
    >>> pay.execute('{"order": 17}').output
    'paid 17'
    >>> pay.execute('{"order": 17, "count_and_log": "again"}').attributes["repeated"]
    True
    """

    key: Callable[..., Any] | None = None
    """A function of the arguments, or of the arguments and the context, that returns JSON values; None: the arguments
    themselves."""
    ledger: EffectLedger | None = None
    """The ledger; None: the toolbox's, or else one in memory."""
    scope: Literal["run", "ledger"] = "run"
    """``"run"``: the same call in another run is another call; ``"ledger"``: it is not repeated in any run."""


class IdempotencyLayer(Layer):
    """The layer that reserves calls before they run, so that none runs twice."""

    binds = True
    keeps_outcomes = True

    def __init__(self, owner: str, settings: Idempotency, *, idempotent: bool, call_key: CallKey | None = None) -> None:
        self._owner = owner
        self._settings = settings
        self._idempotent = idempotent
        self._call_key = CallKey(owner, settings.key) if call_key is None else call_key
        self._own = settings.ledger
        self.survives = settings.ledger is not None and not settings.ledger.in_memory
        self._lock = fork_safe_lock(self)

    def with_ledger(self, ledger: EffectLedger) -> IdempotencyLayer:
        """Return the same layer with the ledger of a toolbox, unless the tool has its own."""
        if self._settings.ledger is not None:
            return self
        settings = replace(self._settings, ledger=ledger)
        return IdempotencyLayer(self._owner, settings, idempotent=self._idempotent, call_key=self._call_key)

    def check(self, definition: ToolDefinition) -> None:
        """Raise ToolDefinitionError for a flow, and for a method of objects that cannot be identified."""
        owner = f"Tool '{definition.name}'"
        if definition.flow is not None:
            raise errors.ToolDefinitionError(
                f"{owner}: idempotency is for a tool with a body; declare it on the tools inside"
            )
        if self._settings.key is None:
            definition.check_no_init_vars("a ledger could not distinguish calls by it")
        if self._settings.ledger is None or self._settings.ledger.in_memory:
            self._call_key.check(f"{owner} with idempotency", definition)

    def around(
        self, definition: ToolDefinition, value: Any, context: ToolContext, inner: Inner
    ) -> Generator[Work, Any, Any]:
        """Run the inner path once; answer duplicate calls with its outcome."""
        ledger = self._ledger()
        effect = self._effect(definition, value, context, ledger)
        while True:
            own = SharedCall()
            try:
                flight = ledger.flights.join(effect.key, own)
                if flight is own:
                    own.hold.enter()  # nested calls then know that it is in flight
                    return (yield from self._lead(own, ledger, effect, context, inner))
            finally:
                try:
                    ledger.flights.finish(effect.key, own)
                except BaseException:
                    ledger.flights.finish(effect.key, own)  # an interrupt cut it off
                    raise
            try:
                yield from flight.wait(context)
            except CANNOT_WAIT:
                raise errors.LimitReachedError(
                    "The same call is running, and waiting for it here would never end"
                ) from None
            if flight.is_open:
                raise errors.LimitReachedError("The call is nested in the same call, which has not ended")

    def find_answer(
        self, definition: ToolDefinition, value: Any, context: ToolContext
    ) -> Generator[Work, Any, ToolResult | None]:
        """Return the answer to a call whose effect the ledger knows; None for a call that has to run.

        Nothing is reserved: the call may still be refused. What prevents an answer here, such as a key that cannot be
        computed or a ledger that cannot be read, is reported when the call runs.
        """
        ledger = self._ledger()
        try:
            key = self._effect(definition, copy_input(definition, value), context, ledger).key
            known: Effect | None = yield RunInThread(partial(ledger.find, key), in_place=ledger.in_memory)
        except Exception:
            return None
        if known is None or known.state == "running" or (self._idempotent and known.state == "unknown"):
            return None
        return _answer(known, context)

    def _lead(
        self, own: SharedCall, ledger: EffectLedger, effect: Effect, context: ToolContext, inner: Inner
    ) -> Generator[Work, Any, Any]:
        """Reserve the call, run the inner path, and record the outcome, even after an exception."""
        if own.settle is not None:  # the previous call was cut off with its event loop
            yield from _record(ledger, own.settle, context)
        token, started = new_id(), [False]
        settle: Callable[[], None] | None = None

        def make_settle(*, definite: bool) -> Callable[[], None]:
            """Return a function that records a failed call: as unknown, or as repeatable."""
            # A failure past the deadline is never definite: it may come from a nested call that timed out, and whose
            # effect is unknown.
            known = self._idempotent or (definite and not is_past(context.deadline))
            return lambda: (ledger.lose if started[0] and not known else ledger.release)(effect.key, token)

        own.settle = make_settle(definite=False)
        try:
            known = yield from self._reserve(ledger, effect, token, context)
            if known is not None:
                return _answer(known, context)
            returned = yield from _track_start(inner(context), started)
            result, stored = _outcome(returned)
            settle = make_settle(definite=True) if stored is None else partial(ledger.finish, effect.key, token, stored)
            yield from _record(ledger, settle, context)
        except BaseException as error:
            settle = settle or make_settle(definite=_is_definite(error))
            if isinstance(error, GeneratorExit):
                _settle_in_thread(settle)
            elif ledger.holds(token) or not isinstance(error, Exception):
                # An interrupt may come after the reservation was written, but before this call has stored it.
                yield from _record(ledger, settle, context)
            raise
        if isinstance(result, errors.ToolExecutionError):
            raise result
        return result

    def _reserve(
        self, ledger: EffectLedger, effect: Effect, token: str, context: ToolContext
    ) -> Generator[Work, Any, Effect | None]:
        """Reserve the call, or return the entry that prevents it; wait for the same call in another process."""
        ends = time.monotonic() + _PATIENCE
        while True:
            reserve = partial(ledger.reserve, effect, token, again=self._idempotent, patience=remaining(context))
            try:
                known: Effect | None = yield RunInThread(reserve, in_place=ledger.in_memory)
            except Exception as error:
                line = f"{context.tool_name} was not called; its effect ledger cannot be used: {describe_error(error)}"
                count_and_log(context, "ledger_errors", line, level=logging.ERROR)
                raise errors.ToolExecutionError(
                    "The call was not made: it must be recorded first, and its effect ledger cannot be written. "
                    "Nothing was done; tell the operator"
                ) from error
            if known is None or known.state != "running" or time.monotonic() >= ends:
                return known
            check_time_left(context)
            yield Sleep(min(_LOOK, remaining(context) or _LOOK))

    def _effect(self, definition: ToolDefinition, value: Any, context: ToolContext, ledger: EffectLedger) -> Effect:
        from toolsemble._engine.limits.effect_ledger import Effect

        name, *parts = self._call_key.parts(definition, value, context, shared=not ledger.in_memory)
        # In memory, the object identifies the tool: under another name it has the same effects. In a file, only the
        # name does, and the names of different tools may differ only by a prefix.
        if not ledger.in_memory:
            parts = [name, *parts]
        run = context.run_id if self._settings.scope == "run" else None
        shown = preview(canonical_json(definition.present(value)), _MAX_ARGUMENTS)
        details = definition.name, context.run_id, context.call_id, shown
        return Effect(ledger.digest([run, *parts]), *details, "running", ledger.now())

    def _ledger(self) -> EffectLedger:
        with self._lock:
            if self._own is None:
                from toolsemble._engine.limits.effect_ledger import EffectLedger

                self._own = EffectLedger()
            return self._own


def idempotency_layer(owner: str, setting: object, *, reads: bool, idempotent: bool) -> IdempotencyLayer | None:
    """Return the layer for a setting, None for no idempotency; raise ToolDefinitionError if it is not valid.

    >>> idempotency_layer("Tool 'search'", True, reads=True, idempotent=False)
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Tool 'search': idempotency needs a tool that changes something; for \
one that only reads, use cache=
    """
    if setting is None or setting is False:
        return None
    if reads:
        raise errors.ToolDefinitionError(
            f"{owner}: idempotency needs a tool that changes something; for one that only reads, use cache="
        )
    settings = _read_setting(owner, setting)
    return IdempotencyLayer(owner, settings, idempotent=idempotent)


def check_ledger(what: str, ledger: object) -> None:
    """Raise ToolDefinitionError for anything but an EffectLedger or None."""
    if ledger is None:
        return
    from toolsemble._engine.limits.effect_ledger import EffectLedger

    if not isinstance(ledger, EffectLedger):
        raise errors.ToolDefinitionError(f"{what} must be an EffectLedger, not {ledger!r:.80}")


def _read_setting(owner: str, setting: Any) -> Idempotency:
    if setting is True:
        return Idempotency()
    if not isinstance(setting, Idempotency):
        if not callable(setting):
            raise errors.ToolDefinitionError(
                f"{owner}: idempotency must be True, a function of the arguments, or an Idempotency, "
                f"not {setting!r:.80}"
            )
        return Idempotency(setting)
    if setting.scope not in ("run", "ledger"):
        raise errors.ToolDefinitionError(
            f"{owner}: scope of idempotency must be 'run' or 'ledger', not {setting.scope!r:.80}"
        )
    check_ledger(f"{owner}: ledger of idempotency", setting.ledger)
    return setting


def _outcome(returned: Any) -> tuple[ToolResult | errors.ToolExecutionError, str | None]:
    """Return the result of a call or the error to raise, and the text to store; None for a failure."""
    try:
        result = to_result(returned)
    except errors.ToolExecutionError as error:
        # Its effect has happened, although its result cannot be shown.
        return error, write_result(ToolResult.failure(describe_error(error)))
    return result, _storable(result) if result.is_success else None


def _is_definite(error: BaseException | None) -> bool:
    """Return whether an error means that nothing was done; only the tool itself knows, and raises such errors."""
    return isinstance(error, (errors.ToolArgumentsError, errors.ToolExecutionError)) and not isinstance(
        error, errors.LostError
    )


def _answer(known: Effect, context: ToolContext) -> ToolResult:
    """Return the result of a repeated call."""
    if known.result is not None:
        count_and_log(
            context, "repeats", f"{context.tool_name} was called before and is not repeated", level=logging.INFO
        )
        return replace(known.result, attributes=MappingProxyType({**known.result.attributes, "repeated": True}))
    running = known.state == "running"
    how = "is still being made by another process" if running else "ended without a record of its outcome"
    message = (
        f"Unknown outcome: an earlier call of '{known.tool_name}' with the same key {how}, so it may or may not have "
        "taken effect. It is not made again. Find out whether the effect is there before anything else is done; "
        f"an operator settles it with EffectLedger.resolve('{known.key}', happened=...)"
    )
    count_and_log(context, "unknown_outcomes", message)
    facts = {"outcome": "unknown", "effect": known.key}
    return ToolResult.failure(message, attributes=facts, error_kind="unknown_outcome")


def _track_start(path: Generator[Work, Any, Any], started: list[bool]) -> Generator[Work, Any, Any]:
    """Run a path, and record when it starts anything but a wait."""
    sent: Any = None
    error: BaseException | None = None
    while True:
        try:
            work = path.send(sent) if error is None else path.throw(error)
            started[0] = started[0] or not isinstance(work, _WAITS)
            error = None
            sent = yield work
        except BaseException as raised:
            if path.gi_frame is None:  # type: ignore[attr-defined]  # a generator that has ended
                if isinstance(raised, StopIteration):
                    return raised.value
                raise
            error = raised  # thrown into the path, also an interrupt that was raised here


def _record(ledger: EffectLedger, work: Callable[[], None], context: ToolContext) -> Generator[Work, Any, None]:
    """Write an outcome; if that fails, the outcome stays unknown."""
    try:
        yield RunInThread(work, in_place=ledger.in_memory)
    except Exception as error:  # the call has its outcome even if that cannot be written
        line = f"An outcome of '{context.tool_name}' could not be written to its effect ledger: {describe_error(error)}"
        count_and_log(context, "ledger_errors", line, level=logging.ERROR)


def _settle_in_thread(settle: Callable[[], None]) -> None:
    """Write the outcome of a call whose path was dropped."""
    # The garbage collector may close the path anywhere, even during another transaction of this thread.
    with suppress(RuntimeError):  # the interpreter is shutting down; the outcome stays unknown
        THREADS.submit(settle)


def _storable(result: ToolResult) -> str:
    """Return a result as text; a payload that is not JSON in its display form, or omitted."""
    plain = without_retries(result)
    with suppress(Exception):  # a payload can raise anything
        return write_result(plain)
    with suppress(Exception):
        shown = to_display(result.structured_output)
        return write_result(replace(plain, structured_output=shown, attributes=NO_ATTRIBUTES))
    return write_result(replace(plain, structured_output=None, attributes=NO_ATTRIBUTES))
