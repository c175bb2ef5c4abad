"""A program that runs elsewhere: an agent with a history, a review store and a journal in the data folder."""

import sys

from helpers.ui_shop import clerk, find_order, refund, reply
from toolsemble import Agent, RunJournal
from toolsemble.models import FunctionModel, TokenUsage
from toolsemble.review import QueueReview, ReviewStore
from toolsemble.telemetry import RunHistory

folder, run_id, prompt = sys.argv[1:]
agent = Agent(
    FunctionModel(reply, usage=TokenUsage(900, 40)),
    [find_order, refund],
    role="a clerk",
    name=clerk.name,
    sinks=[RunHistory(f"{folder}/history.db")],
    review=QueueReview(ReviewStore(f"{folder}/reviews.db")),
    journal=RunJournal(f"{folder}/runs.db"),
)
print(agent.run_sync(prompt, run_id=run_id).tool_calls[-1].reply.result.output)
