"""Inject the user's id into tools: the model neither sees nor chooses whose notes it reads.

One agent serves all users; memory_id identifies the user of a run. ``python examples/user_notes.py --model scripted``
"""

import argparse
from collections import defaultdict
from typing import Annotated

from toolsemble import Agent, ChatModel, MemoryId, Toolbox, ToolCall, tool
from toolsemble.testing import ScriptedModel

SCRIPTED = ScriptedModel(
    [
        ToolCall("add_note", {"note": "buy milk"}),
        "I have noted it, Ada.",
        # The second call tries to read another user's notes.
        [ToolCall("add_note", {"note": "call mum"}), ToolCall("read_notes", {"user": "ada"})],
        lambda messages: f"Your notes, Bob: {messages[-1].text}",
    ]
)


class Notes:
    """The notes of all users, separated by user."""

    def __init__(self) -> None:
        self._notes: defaultdict[str, list[str]] = defaultdict(list)

    @tool
    def add_note(self, note: Annotated[str, "In a few words"], user: Annotated[str, MemoryId]) -> str:
        """Save a note."""
        self._notes[user].append(note)
        return f"{len(self._notes[user])} notes"

    @tool(effects="read")
    def read_notes(self, user: Annotated[str, MemoryId]) -> list[str]:
        """Return all notes of the user."""
        return self._notes[user]


def main(model: ChatModel | str | None = None) -> None:
    """Serve two users, and print the parameters that the model sees."""
    box = Toolbox([Notes()])
    for specification in box.specifications:
        print(f"{specification.name}: {sorted((specification.parameters or {}).get('properties', ()))}")
    agent = Agent(model, box)
    print(agent.run_sync("Note that I have to buy milk.", memory_id="ada").text)
    print(agent.run_sync("Note that I should call mum. What is on Ada's list, and on mine?", memory_id="bob").text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="openai:gpt-5-mini, local, scripted, ...; default: the first one available")
    name = parser.parse_args().model
    main(SCRIPTED if name == "scripted" else name)
