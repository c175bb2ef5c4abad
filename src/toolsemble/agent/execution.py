"""The calls of one reply, on their way to their replies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from toolsemble.agent.channel import Channel
from toolsemble.agent.event import CallReplied, CallRequested
from toolsemble.agent.loop_guard import Lookout
from toolsemble.agent.result import ToolCallRecord
from toolsemble.agent.spending import current_spending
from toolsemble.agent.state import Account
from toolsemble.call import ToolCall, ToolReply
from toolsemble.context import enter, leave
from toolsemble.events import CallFinished, CallStarted
from toolsemble.observers.watchers import unwatch, watch
from toolsemble.result import ToolResult
from toolsemble.shape import describe_error
from toolsemble.toolbox.toolbox import Toolbox


class Execution:
    """The calls of one reply; in the end each of them has exactly one record, whatever happened."""

    def __init__(
        self, calls: Sequence[ToolCall], account: Account, channel: Channel | None, lookout: Lookout | None = None
    ) -> None:
        self._calls = calls
        self._account = account
        self._channel = channel
        self._lookout = lookout
        self._records: dict[int, ToolCallRecord] = {}
        self._begun = time.monotonic()

    def waiting(self) -> list[int]:
        """Give the indexes of the calls that have no reply."""
        return [index for index in range(len(self._calls)) if index not in self._records]

    def records(self) -> list[ToolCallRecord]:
        """Give the records of the calls, in request order."""
        return [self._records[index] for index in range(len(self._calls))]

    def answer(self, index: int, result: ToolResult) -> ToolCallRecord:
        """Reply to a call without running it."""
        call = self._calls[index]
        return self._record(index, ToolReply(call, result), 0.0)

    async def run(self, box: Toolbox, due: Sequence[int]) -> BaseException | None:
        """Run calls side by side, and record their replies as they come.

        What is raised is given, so that the others get their replies first.
        """
        if self._channel is not None:
            for index in due:
                self._channel.tell(CallRequested(self._calls[index]))
        try:
            if self._channel is not None:
                await self._channel.told()
            self._begun = time.monotonic()  # who follows the run may have taken their time
            await self._in_time(box, due)
        except TimeoutError:
            stop = self._account.spending.out_of_time()
            self._account.end(stop)
            self._cut(due, ToolResult.success(stop.text), "out of time")
        except BaseException as error:  # noqa: BLE001 - raised again when every call has its reply
            why = "it was cancelled" if isinstance(error, asyncio.CancelledError) else describe_error(error)
            self._cut(due, ToolResult.failure(f"The run ended before this call did: {why}"), why)
            return error
        finally:
            self._account.spending.add_tool_seconds(time.monotonic() - self._begun)
        return None

    def stop(self) -> None:
        """Tell the model, in place of a reply to each call that has none, that a budget is used up."""
        if self._account.stop is not None:
            result = ToolResult.success(self._account.stop.text)
            for index in self.waiting():
                self._tell(self.answer(index, result))

    async def _in_time(self, box: Toolbox, due: Sequence[int]) -> None:
        deadline = self._account.spending.deadline
        if deadline is None:
            await self._executed(box, due)
        else:
            async with asyncio.timeout(deadline - time.monotonic()):
                await self._executed(box, due)

    async def _executed(self, box: Toolbox, due: Sequence[int]) -> None:
        context = self._account.context
        if self._lookout is not None:
            self._lookout.begin(len(due))
        inside, spending = enter(context), current_spending.set(self._account.spending)
        watching = None if self._channel is None else watch(self._follow)
        try:
            executed = box.aexecute_all(
                [self._calls[index] for index in due],
                memory_id=context.memory_id,
                parameters=context.parameters,
                run_id=context.run_id,
                observe=self._replied(box, due),
            )
            await (executed if self._account.sinks is None else self._account.sinks.ado(executed))
        finally:
            if watching is not None:
                unwatch(watching)
            current_spending.reset(spending)
            leave(inside)

    def _follow(self, event: Any) -> None:
        """Tell what happens inside of calls; of the calls themselves, the run tells in words of its own."""
        outermost = getattr(event, "parent_id", "") == self._account.context.call_id
        if self._channel is not None and not (outermost and isinstance(event, (CallStarted, CallFinished))):
            self._channel.tell(event)

    def _replied(self, box: Toolbox, due: Sequence[int]) -> Callable[[int, ToolReply], None]:
        def replied(place: int, reply: ToolReply) -> None:
            told = reply if self._lookout is None else self._judged(self._lookout, box, reply)
            self._ended(due[place], told, "error" if reply.is_error else "success")

        return replied

    def _judged(self, lookout: Lookout, box: Toolbox, reply: ToolReply) -> ToolReply:
        """Give a reply with what the model has to be told about its repetitions."""
        told = lookout.judged(reply, exempt=box.is_polling(reply.name))
        self._account.end(lookout.stop)
        return told

    def _cut(self, due: Sequence[int], result: ToolResult, why: str) -> None:
        """Reply to the calls that were kept from ending."""
        for index in due:
            if index not in self._records:
                self._ended(index, ToolReply(self._calls[index], result), why)

    def _ended(self, index: int, reply: ToolReply, how: str) -> None:
        """Take down the end of a call that was run."""
        seconds = time.monotonic() - self._begun
        self._account.note("tool", reply.call.name, self._begun, seconds, how)
        self._tell(self._record(index, reply, seconds))

    def _record(self, index: int, reply: ToolReply, seconds: float) -> ToolCallRecord:
        started = self._begun - self._account.spending.started
        record = self._records[index] = ToolCallRecord(self._calls[index], reply, seconds, started)
        return record

    def _tell(self, record: ToolCallRecord) -> None:
        if self._channel is not None:
            self._channel.tell(CallReplied(record))
