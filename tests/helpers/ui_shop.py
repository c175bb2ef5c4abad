"""A shop with tools of many kinds, for the web interface; a target of ``toolsemble ui``."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from toolsemble import Agent, ToolCall, tool
from toolsemble.models import AssistantMessage, FunctionModel, TokenUsage, UserMessage


class Card(BaseModel):
    kind: Literal["card"]
    last4: Annotated[str, Field(min_length=4, max_length=4)]


class Bank(BaseModel):
    kind: Literal["bank"]
    iban: str


class Folder(BaseModel):
    name: str
    inside: list["Folder"] = []


@tool
def find_order(order: int) -> str:
    """Find an order by its number."""
    return f"Order {order}: 3 boxes of green tea, 14.40 euros"


@tool(requires_approval=True, effects="write")
def refund(order: int, amount: Annotated[float, Field(gt=0, le=500)], to: Card | Bank, reason: str = "") -> str:
    """Refund an order to a card or a bank account."""
    return f"Refunded {amount:.2f} euros of order {order} to a {to.kind}"


@tool
def count_folders(folder: Folder) -> int:
    """Count folders, with those inside."""
    return 1 + sum(count_folders(each) for each in folder.inside)


@tool
def echo(text: str) -> str:
    """Return a text."""
    return text


order_report = find_order | echo

REFUND = {"order": 7, "amount": 14.4, "to": {"kind": "card", "last4": "4242"}}
SCRIPT = (ToolCall("find_order", {"order": 7}), ToolCall("refund", REFUND), "I have **refunded** 14.40 euros.")


def reply(request):
    """Return the next reply to the last message of the user, in any process."""
    turn = 0
    for message in request.messages:
        turn = 0 if isinstance(message, UserMessage) else turn + isinstance(message, AssistantMessage)
    return SCRIPT[turn]


clerk = Agent(FunctionModel(reply, usage=TokenUsage(900, 40)), [find_order, refund], role="a clerk", name="clerk")
