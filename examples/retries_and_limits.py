"""Retry a tool whose service is unreliable, and limit how often it is called.

A failed call is retried. Calls have a timeout, a rate limit and a concurrency limit. A circuit breaker answers after
repeated failures, and the run has a budget. ``python examples/retries_and_limits.py --model scripted``
"""

import argparse

from toolsemble import Agent, ChatModel, RateLimit, Retries, Toolbox, ToolCall, ToolContext, ToolResult, tool
from toolsemble.testing import ScriptedModel

DOLLARS, POUNDS = ToolCall("exchange_rate", {"currency": "USD"}), ToolCall("exchange_rate", {"currency": "GBP"})
SCRIPTED = ScriptedModel([DOLLARS, POUNDS, POUNDS, DOLLARS, "A euro is 1.08 dollars. Pounds I could not find out."])
TROUBLE = [ConnectionError("connection reset")]


@tool(effects="read", retries=Retries(3, wait=0.01), timeout=5, rate_limit=RateLimit(20, per=1), max_concurrency=2)
def exchange_rate(currency: str) -> float:
    """Return the exchange rate of the euro in another currency."""
    print(f"  the bank is asked for {currency}")
    if currency != "USD":
        raise ConnectionError("no route to host")
    if TROUBLE:
        raise TROUBLE.pop()
    return 1.08


class Breaker:
    """A circuit breaker: refuse calls after several failures in a row. A real one would try again later."""

    def __init__(self, most: int) -> None:
        self.most, self.failures = most, 0

    def before_call(self, call: ToolCall, _: ToolContext) -> ToolResult | None:
        """Refuse a call while the breaker is open."""
        return ToolResult.failure(f"{call.name} is out of order; do without it") if self.failures >= self.most else None

    def after_call(self, _: ToolCall, result: ToolResult, __: ToolContext) -> None:
        """Count failures in a row."""
        self.failures = 0 if result.is_success else self.failures + 1


def main(model: ChatModel | str | None = None) -> None:
    """Ask for two rates, and print the reply to each call."""
    breaker = Breaker(2)
    box = Toolbox([exchange_rate], before_call=breaker.before_call, after_call=breaker.after_call)
    agent = Agent(model, box, max_tool_calls=6, max_seconds=60)
    result = agent.run_sync("What is a euro in dollars, and in pounds?")
    print(*(f"{record.call.json}: {record.reply.text}" for record in result.tool_calls), result.text, sep="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="openai:gpt-5-mini, local, scripted, ...; default: the first one available")
    name = parser.parse_args().model
    main(SCRIPTED if name == "scripted" else name)
