"""Combine three tools into a pipeline: find texts, read them, and number them for citations.

The model makes one call; the steps need no model turn. ``python examples/research_assistant.py --model scripted``
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

from toolsemble import Agent, ChatModel, ToolCall, ToolExecutionError, ToolPipeline, map_over, tool
from toolsemble.testing import ScriptedModel

LIBRARY = Path(__file__).parent / "library"
SCRIPTED = ScriptedModel([ToolCall("research", {"words": "312 BC"}), "The Aqua Appia [1] and the Via Appia [2]."])


@dataclass
class Source:
    """A text in the library."""

    title: str
    text: str


@tool
def find(words: str) -> list[str]:
    """Find the texts that contain at least one of the words."""
    texts = {path.name: path.read_text(encoding="utf-8").lower() for path in sorted(LIBRARY.glob("*.txt"))}
    if found := [name for name, text in texts.items() if any(word in text for word in words.lower().split())]:
        return found
    raise ToolExecutionError(f"No text has any word of {words!r}; there are {', '.join(texts)}")


@tool
def read(name: str) -> Source:
    """Read a text."""
    return Source(*(LIBRARY / name).read_text(encoding="utf-8").split("\n", 1))


@tool
def cite(sources: list[Source]) -> str:
    """List texts with numbers for citations."""
    return "\n".join(f"[{number}] {source.title}: {source.text}" for number, source in enumerate(sources, 1))


def main(model: ChatModel | str | None = None) -> None:
    """Answer a question from the library, and print the steps of each call."""
    research = ToolPipeline.of(find, map_over(read), cite, name="research", description="Reads all texts on some words")
    result = Agent(model, [research], role="a historian").run_sync("What did the Romans begin to build in 312 BC?")
    for record in result.tool_calls:
        print(record.call.json, *(step.name for step in record.reply.result.attributes.get("steps", ())), sep=" -> ")
    print(result.text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="openai:gpt-5-mini, local, scripted, ...; default: the first one available")
    name = parser.parse_args().model
    main(SCRIPTED if name == "scripted" else name)
