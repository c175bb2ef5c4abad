"""Calls that change something, made once: reserved in a ledger before the body runs, and answered from it again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from toolsemble.call import new_id
from toolsemble.context import ToolContext
from toolsemble.definition.definition import ToolDefinition
from toolsemble.definition.policy import Inner, Layer
from toolsemble.errors import LostError, ToolArgumentsError, ToolDefinitionError, ToolExecutionError
from toolsemble.limits.call_key import Keying
from toolsemble.limits.single_flight import CANNOT_WAIT, Flight
from toolsemble.record import count_and_log
from toolsemble.result import NO_ATTRIBUTES, ToolResult
from toolsemble.runtime.concurrency import THREADS
from toolsemble.runtime.fork_locks import fork_safe_lock
from toolsemble.runtime.signing import canonical_json
from toolsemble.runtime.text import preview
from toolsemble.schema.display import presented
from toolsemble.serialization import without_retries, write_result
from toolsemble.shape import describe_error, to_result
from toolsemble.work.body import Work
from toolsemble.work.deadline import check_time_left, is_past, remaining
from toolsemble.work.thread import RunInThread
from toolsemble.work.wait import Acquire, Sleep

if TYPE_CHECKING:
    from toolsemble.limits.ledger import Effect, EffectLedger

_LONGEST_ARGUMENTS = 2000
_LOOK = 0.05
_PATIENCE = 300.0
_WAITS = (Sleep, Acquire, RunInThread)


@dataclass(frozen=True, slots=True)
class Idempotency:
    """Which calls are the same, and where it is taken down that they were made.

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
    """A function of the arguments, or of the arguments and the context, that gives JSON values; None for the arguments
    themselves."""
    ledger: EffectLedger | None = None
    """The ledger; None for that of the toolbox, or else one in memory."""
    scope: Literal["run", "ledger"] = "run"
    """Whether the same call in another run is another call, ``"run"``, or is not made again either, ``"ledger"``."""


class Reserving(Layer):
    """The layer that reserves calls before they are made, and makes none of them twice."""

    binds = True

    def __init__(self, owner: str, said: Idempotency, *, idempotent: bool, keying: Keying | None = None) -> None:
        self._owner = owner
        self._said = said
        self._idempotent = idempotent
        self._keying = Keying(owner, said.key) if keying is None else keying
        self._own = said.ledger
        self._lock = fork_safe_lock(self)

    def into(self, ledger: EffectLedger) -> Reserving:
        """Give the same layer with the ledger of a toolbox, unless the tool has named its own."""
        if self._said.ledger is not None:
            return self
        said = replace(self._said, ledger=ledger)
        return Reserving(self._owner, said, idempotent=self._idempotent, keying=self._keying)

    def check(self, definition: ToolDefinition) -> None:
        """Refuse tools made of tools, and methods of objects that cannot be told from each other."""
        owner = f"Tool '{definition.name}'"
        if definition.flow is not None:
            raise ToolDefinitionError(
                f"{owner}: idempotency is for a body; it is made of tools, so declare it on those"
            )
        if self._said.key is None:
            definition.check_no_init_vars("a ledger could not tell calls by it")
        if self._said.ledger is None or self._said.ledger.in_memory:
            self._keying.check(f"{owner} with idempotency", definition)

    def around(
        self, definition: ToolDefinition, value: Any, context: ToolContext, inner: Inner
    ) -> Generator[Work, Any, Any]:
        """Walk what is inside once; answer repeated calls with what came of it."""
        ledger = self._ledger()
        effect = self._effect(definition, value, context, ledger)
        while True:
            own = Flight()
            try:
                flight = ledger.flights.board(effect.key, own)
                if flight is own:
                    own.enter()
                    return (yield from self._lead(own, ledger, effect, context, inner))
            finally:
                try:
                    ledger.flights.land(effect.key, own)
                except BaseException:
                    ledger.flights.land(effect.key, own)  # an interrupt came before it was done
                    raise
            try:
                yield from flight.wait(context)
            except CANNOT_WAIT:
                raise ToolExecutionError("The same call is being made, and it cannot be waited for here") from None
            if flight.is_open:
                raise ToolExecutionError("The call is made inside the same call, which has not ended")

    def _lead(
        self, own: Flight, ledger: EffectLedger, effect: Effect, context: ToolContext, inner: Inner
    ) -> Generator[Work, Any, Any]:
        """Reserve the call, walk what is inside, and take down what came of it, whatever is raised."""
        if own.settle is not None:  # the call before it was cut off with its event loop
            yield from _done(ledger, own.settle, context)
        token, begun = new_id(), [False]
        settle: Callable[[], None] | None = None

        def unsettled(*, definite: bool) -> Callable[[], None]:
            """Return how to take down a call that has failed: as unknown, or as one that may be made again."""
            # A failure that came too late is never definite: it may be that of a call inside, which had no time left,
            # and whose effect nobody knows.
            known = self._idempotent or (definite and not is_past(context.deadline))
            return lambda: (ledger.lose if begun[0] and not known else ledger.release)(effect.key, token)

        own.settle = unsettled(definite=False)
        try:
            known = yield from self._reserved(ledger, effect, token, context)
            if known is not None:
                return _answer(known, context)
            returned = yield from _watched(inner(context), begun)
            result, stored = _outcome(returned)
            settle = unsettled(definite=True) if stored is None else partial(ledger.finish, effect.key, token, stored)
            yield from _done(ledger, settle, context)
        except BaseException as error:
            settle = settle or unsettled(definite=_definite(error))
            if isinstance(error, GeneratorExit):
                _dropped(settle)
            elif ledger.holds(token) or not isinstance(error, Exception):
                # An interrupt may come after it was written, and before that is known here.
                yield from _done(ledger, settle, context)
            raise
        if isinstance(result, ToolExecutionError):
            raise result
        return result

    def _reserved(
        self, ledger: EffectLedger, effect: Effect, token: str, context: ToolContext
    ) -> Generator[Work, Any, Effect | None]:
        """Reserve the call, or give the entry that stands in its way; one of another process is waited for."""
        ends = time.monotonic() + _PATIENCE
        while True:
            reserve = partial(ledger.reserve, effect, token, again=self._idempotent, patience=remaining(context))
            try:
                known: Effect | None = yield RunInThread(reserve, in_place=ledger.in_memory)
            except Exception as error:
                line = f"{context.tool_name} was not called: its effect ledger cannot be used: {describe_error(error)}"
                count_and_log(context, "ledger_errors", line, level=logging.ERROR)
                raise ToolExecutionError(
                    "The call was not made: it must be taken down first, and its effect ledger cannot be written. "
                    "Nothing was done; tell the operator"
                ) from error
            if known is None or known.state != "running" or time.monotonic() >= ends:
                return known
            check_time_left(context)
            yield Sleep(min(_LOOK, remaining(context) or _LOOK))

    def _effect(self, definition: ToolDefinition, value: Any, context: ToolContext, ledger: EffectLedger) -> Effect:
        from toolsemble.limits.ledger import Effect  # noqa: PLC0415 - only tools with a ledger pay for it

        parts = self._keying.parts(definition, value, context, shared=not ledger.in_memory)
        run = context.run_id if self._said.scope == "run" else None
        shown = preview(canonical_json(definition.present(value)), _LONGEST_ARGUMENTS)
        facts = definition.name, context.run_id, context.call_id, shown
        return Effect(ledger.digest([run, *parts]), *facts, "running", ledger.now())

    def _ledger(self) -> EffectLedger:
        with self._lock:
            if self._own is None:
                from toolsemble.limits.ledger import EffectLedger  # noqa: PLC0415 - as above

                self._own = EffectLedger()
            return self._own


def reserving_layer(owner: str, said: object, *, reads: bool, idempotent: bool) -> Reserving | None:
    """Give the layer for what a tool says; refuse what is unclear, and tools that change nothing.

    >>> reserving_layer("Tool 'search'", True, reads=True, idempotent=False)
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Tool 'search': idempotency is for tools that change something; for one \
that only reads there is cache=
    """
    if said is None or said is False:
        return None
    if reads:
        raise ToolDefinitionError(
            f"{owner}: idempotency is for tools that change something; for one that only reads there is cache="
        )
    settings = said if isinstance(said, Idempotency) else Idempotency(None if said is True else _function(owner, said))
    _check(owner, settings)
    return Reserving(owner, settings, idempotent=idempotent)


def check_ledger(what: str, ledger: object) -> None:
    """Refuse what is no ledger."""
    if ledger is None:
        return
    from toolsemble.limits.ledger import EffectLedger  # noqa: PLC0415 - as above

    if not isinstance(ledger, EffectLedger):
        raise ToolDefinitionError(f"{what} must be an EffectLedger, not {ledger!r:.80}")


def _function(owner: str, said: Any) -> Callable[..., Any]:
    if not callable(said):
        raise ToolDefinitionError(
            f"{owner}: idempotency must be True, a function of the arguments, or an Idempotency, not {said!r:.80}"
        )
    return said  # type: ignore[no-any-return]  # just looked at


def _check(owner: str, said: Idempotency) -> None:
    if said.scope not in ("run", "ledger"):
        raise ToolDefinitionError(f"{owner}: scope of idempotency must be 'run' or 'ledger', not {said.scope!r:.80}")
    check_ledger(f"{owner}: ledger of idempotency", said.ledger)


def _outcome(returned: Any) -> tuple[ToolResult | ToolExecutionError, str | None]:
    """Return the result of a call, or what is to be raised for it, and what is stored of it; None for a failure."""
    try:
        result = to_result(returned)
    except ToolExecutionError as error:
        # What it did is done, although nobody can be shown what came of it.
        return error, write_result(ToolResult.failure(describe_error(error)))
    return result, _storable(result) if result.is_success else None


def _definite(error: BaseException | None) -> bool:
    """Whether an error says that nothing was done: only the tool itself can know, and say it."""
    return isinstance(error, (ToolArgumentsError, ToolExecutionError)) and not isinstance(error, LostError)


def _answer(known: Effect, context: ToolContext) -> ToolResult:
    """Give what a repeated call is told."""
    if known.result is not None:
        count_and_log(
            context, "repeats", f"{context.tool_name} was made before and is not made again", level=logging.INFO
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
    return ToolResult.failure(message, attributes={"outcome": "unknown", "effect": known.key})


def _watched(path: Generator[Work, Any, Any], begun: list[bool]) -> Generator[Work, Any, Any]:
    """Walk a path, and take down when it has begun to do more than wait."""
    sent: Any = None
    error: BaseException | None = None
    while True:
        try:
            work = path.send(sent) if error is None else path.throw(error)
            begun[0] = begun[0] or not isinstance(work, _WAITS)
            error = None
            sent = yield work
        except BaseException as raised:
            if path.gi_frame is None:  # type: ignore[attr-defined]  # a generator; it has come to its end
                if isinstance(raised, StopIteration):
                    return raised.value
                raise
            error = raised  # the path decides what becomes of it, also of an interrupt that came out here


def _done(ledger: EffectLedger, work: Callable[[], None], context: ToolContext) -> Generator[Work, Any, None]:
    """Write an outcome; where that cannot be done, the entry stands as one of unknown outcome."""
    try:
        yield RunInThread(work, in_place=ledger.in_memory)
    except Exception as error:  # noqa: BLE001 - the call has its outcome, whether or not it can be written
        line = f"The outcome of a call of '{context.tool_name}' is lost to its effect ledger: {describe_error(error)}"
        count_and_log(context, "ledger_errors", line, level=logging.ERROR)


def _dropped(settle: Callable[[], None]) -> None:
    """Write an outcome for a call whose path nobody walks any more."""
    # The collector may close the path anywhere, also in the middle of another transaction of this thread.
    with suppress(RuntimeError):  # where the interpreter is about to end, the entry tells as much without it
        THREADS.submit(settle)


def _storable(result: ToolResult) -> str:
    """Give a result as text; payloads that are no JSON as what people are shown of them, or not at all."""
    plain = without_retries(result)
    with suppress(Exception):  # somebody's payload can raise anything
        return write_result(plain)
    with suppress(Exception):
        shown = presented(result.structured_output)
        return write_result(replace(plain, structured_output=shown, attributes=NO_ATTRIBUTES))
    return write_result(replace(plain, structured_output=None, attributes=NO_ATTRIBUTES))
