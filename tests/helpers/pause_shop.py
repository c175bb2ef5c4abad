"""A shop with a gated tool, for runs that pause."""

from toolsemble import ToolCall, tool


class Shop:
    """Tools that record what they do."""

    def __init__(self):
        self.done = []

    @tool(requires_approval=True)
    def pay(self, amount: int) -> str:
        """Pay an amount."""
        self.done.append(("pay", amount))
        return f"paid {amount}"

    @tool
    def note(self, text: str) -> str:
        """Write a note."""
        self.done.append(("note", text))
        return f"noted {text}"


def pay(amount, id="p1"):
    """Return a call of the gated tool."""
    return ToolCall("pay", {"amount": amount}, id=id)


def note(text, id="n1"):
    """Return a call of the other tool."""
    return ToolCall("note", {"text": text}, id=id)
