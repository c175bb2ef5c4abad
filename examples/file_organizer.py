"""Let a model sort the files of a folder, with your approval at the terminal before each move.

``python examples/file_organizer.py ~/Downloads``; without a folder, it uses a temporary one with three empty files.
"""

import argparse
import tempfile
from pathlib import Path

from toolsemble import Agent, ChatModel, ToolCall, ToolExecutionError, tool
from toolsemble.review import ConsoleReview, RememberReview
from toolsemble.testing import ScriptedModel

TOYS = {"bill.pdf": "papers", "cat.jpg": "pictures", "notes.txt": "papers"}
MOVES = [ToolCall("move_file", {"name": name, "folder": folder}) for name, folder in TOYS.items()]
SCRIPTED = ScriptedModel([ToolCall("list_files"), MOVES, "That is all."])


class Folder:
    """The tools of one folder. They cannot reach anything outside it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @tool(effects="read")
    def list_files(self) -> list[str]:
        """List the files that are not in a subfolder yet."""
        return sorted(path.name for path in self.path.iterdir() if path.is_file())

    @tool(requires_approval=True, resources=lambda arguments: f"file:{arguments.name}")
    def move_file(self, name: str, folder: str) -> str:
        """Move a file into a subfolder, which is created if it does not exist."""
        if name not in self.list_files() or folder.startswith(".") or folder != Path(folder).name:
            raise ToolExecutionError(f"{name!r} cannot go into {folder!r}; name a listed file, and one folder")
        (self.path / folder).mkdir(exist_ok=True)
        if (self.path / folder / name).exists():
            raise ToolExecutionError(f"There is a {name!r} in {folder!r} already; leave this one where it is")
        (self.path / name).rename(self.path / folder / name)
        return f"Moved {name} to {folder}"


def main(model: ChatModel | str | None = None, folder: Path | None = None) -> None:
    """Let the model sort the files, and print the reply to each call."""
    with tempfile.TemporaryDirectory() as made:
        for name in () if folder else TOYS:
            (Path(made) / name).touch()
        agent = Agent(model, [Folder(folder or Path(made))], review=RememberReview(ConsoleReview()))
        result = agent.run_sync("Sort the files into the folders papers and pictures.")
    print(*(record.reply.text for record in result.tool_calls), result.text, sep="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--model", help="openai:gpt-5-mini, local, scripted, ...; default: the first one available")
    given = parser.parse_args()
    main(SCRIPTED if given.model == "scripted" else given.model, given.folder)
