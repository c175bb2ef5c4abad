"""Serve an agent with FastAPI: streaming, a memory for each user, typed answers, approval from another process.

Run ``python examples/web_service.py --model scripted``, ask
``curl -N -H "X-User: ada" -X POST "127.0.0.1:8000/chat?text=Refund+order+7"``, and approve the refund with
``python examples/human_elsewhere.py answer``.
"""

import argparse
from dataclasses import dataclass
from itertools import cycle
from typing import Annotated

import uvicorn
from fastapi import FastAPI, Header
from fastapi.responses import StreamingResponse

from toolsemble import Agent, ChatModel, ConversationMemory, MemoryId, ToolCall, tool
from toolsemble.agent.streams import SSE_HEADERS, sse
from toolsemble.review import QueueReview, ReviewStore
from toolsemble.testing import ScriptedModel

ANSWER = {"text": "Order 7 is refunded.", "refunded": [7]}
SCRIPTED = ScriptedModel(cycle([ToolCall("refund", {"order": 7}), ToolCall("final_answer", ANSWER)]))


@dataclass
class Answer:
    """The answer to the user, and what was done."""

    text: str
    refunded: list[int]


@tool(requires_approval=True, approval_timeout=24 * 3600, effects="irreversible")
def refund(order: int, user: Annotated[str, MemoryId]) -> str:
    """Refund an order of the user."""
    return f"Order {order} of {user} is refunded"


def create_app(model: ChatModel | str | None, store: ReviewStore, memory: ConversationMemory) -> FastAPI:
    """Return the service; any number of processes can serve the same files."""
    app, agent = FastAPI(), Agent(model, [refund], output_type=Answer, memory=memory, review=QueueReview(store))

    @app.post("/chat")
    async def chat(text: str, x_user: Annotated[str, Header()]) -> StreamingResponse:  # in your service: the login
        return StreamingResponse(sse(agent.stream(text, memory_id=x_user)), headers=dict(SSE_HEADERS))

    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="openai:gpt-5-mini, local, scripted, ...; default: the first one available")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    chosen = SCRIPTED if given.model == "scripted" else given.model
    with ReviewStore("reviews.db") as reviews:
        uvicorn.run(create_app(chosen, reviews, ConversationMemory("talks.db")), port=given.port)
