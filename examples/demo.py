"""Execute the calls of a JSON file with a toolbox of two tools, and print the replies.

Some of the calls are invalid on purpose: the model gets an error that it can act on, and the program continues.
``python examples/demo.py`` reads calls.json next to it, ``python examples/demo.py FILE`` another file.
"""

import asyncio
import json
import sys
from pathlib import Path

from toolsemble import Tool, Toolbox, ToolCall, ToolExecutionError


class WordCount(Tool):
    """Count words."""

    name = "word_count"
    description = "Counts the words of a text. Input: the text."

    def run(self, input: str) -> dict[str, int]:
        """Return the number of words and characters."""
        return {"words": len(input.split()), "characters": len(input)}


class Initials(Tool):
    """Return initials; async, like a tool that calls a service."""

    name = "initials"
    description = "Returns the initials of a person. Input: the full name."

    async def run(self, input: str) -> str:
        """Return the first letter of each part of the name."""
        await asyncio.sleep(0)
        letters = [part[0].upper() for part in input.split() if part[0].isalpha()]
        if not letters:
            raise ToolExecutionError(f"{input!r} is not a name; pass one such as 'Ada Lovelace'")
        return "".join(letters)


def main() -> None:
    """Read the calls, execute them in parallel, and print the replies."""
    path = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).with_name("calls.json")
    calls = [ToolCall(**fields) for fields in json.loads(path.read_text(encoding="utf-8"))]
    replies = Toolbox([WordCount(), Initials()]).execute_all(calls)
    for reply in replies:
        print(f"{reply.call.id}  {reply.call.name}({reply.call.json})\n        -> {reply.text}")


if __name__ == "__main__":
    main()
