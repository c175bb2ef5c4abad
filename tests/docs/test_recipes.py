"""The recipes of CONTRIBUTING.md, carried out in a copy of the library: a toy part of every kind.

First without the steps for the pages, with the checks that must fail then; after that, complete.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from toolsemble._runtime.storage.sqlite import Kind

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WAIT = 300
RECIPES = {
    "a built-in tool": "builtin/_shout.py",
    "a command": "_cli/greet_command.py",
    "a page of the web interface": "_ui/static/pages/notes.mjs",
    "an event": "events.py",
    "a store": "agent/_notes.py",
    "a sink": "telemetry/_tally.py",
    "a reviewer": "review/_small.py",
    "an engine": "engines/toy.py",
}

FILES = {
    "builtin/_shout.py": '''
        """``shout``: a toy."""

        from toolsemble._tools.base import Tool


        class ShoutTool(Tool):
            """A tool that writes in capitals."""

            name = "shout"
            description = "Writes a text in capitals."

            def run(self, input: str) -> str:
                """Return the text in capitals."""
                return input.upper()
        ''',
    "_cli/greet_command.py": '''
        """The command ``greet``: a toy."""

        from toolsemble._cli.options import Exit
        from toolsemble._cli.screen import Screen


        def greet(name: str, screen: Screen) -> Exit:
            """Print a greeting."""
            screen.answer(f"Hello {name}")
            return Exit.DONE
        ''',
    "_ui/routes/notes.py": '''
        """Endpoints of notes: a toy."""

        from typing import Any

        from toolsemble._ui.endpoint import Asked, changes, reads
        from toolsemble._ui.interface import Interface


        def list_notes(interface: Interface, asked: Asked) -> dict[str, Any]:
            """Return the notes."""
            return {"notes": [asked.text("first")], "exists": interface.folder.path.exists()}


        def add_note(interface: Interface, asked: Asked) -> dict[str, Any]:
            """Return the text of a new note."""
            return {"added": asked.take("text", str, "")}


        ROUTES = [reads("/api/notes", list_notes), changes("/api/note", add_note)]
        ''',
    "_ui/static/pages/notes.mjs": """
        // A toy.
        import { html } from "../html.mjs";
        import { useGet } from "../api.mjs";
        import { Page, Problem } from "../parts.mjs";

        export const Notes = () => {
          const { data, error } = useGet("/api/notes");
          return html`<${Page} title="Notes"><${Problem} error=${error} />${data?.notes ?? ""}<//>`;
        };
        """,
    "agent/_notes.py": '''
        """Storage of notes: a toy."""

        from toolsemble._runtime.storage.opening import open_database, read_location
        from toolsemble._runtime.storage.sqlite import Kind

        _TABLES = "CREATE TABLE notes (number INTEGER PRIMARY KEY AUTOINCREMENT, note TEXT NOT NULL);"
        _KIND = Kind("note store", 0x746F6F7F, 1, _TABLES)


        class NoteStore:
            """Notes in a database."""

            def __init__(self, url: str) -> None:
                self._database = open_database(read_location(url, "NoteStore"), _KIND)

            def add(self, note: str) -> None:
                """Store a note."""
                with self._database.naming_errors(), self._database.writing(key="notes") as rows:
                    rows.execute("INSERT INTO notes (note) VALUES (?)", (note,))

            def notes(self) -> list[str]:
                """Return all notes."""
                with self._database.naming_errors(), self._database.reading() as rows:
                    return [note for (note,) in rows.execute("SELECT note FROM notes ORDER BY number")]

            def close(self) -> None:
                """Close the database."""
                self._database.close()
        ''',
    "telemetry/_tally.py": '''
        """A sink that counts: a toy."""

        from collections import Counter
        from typing import Any

        from toolsemble._runtime.sinks import Sink


        class TallySink(Sink):
            """A sink that counts events by kind."""

            inline = True

            def __init__(self) -> None:
                self.counts: Counter[str] = Counter()

            def emit(self, event: Any) -> None:
                """Count an event."""
                self.counts[event.kind] += 1
        ''',
    "review/_small.py": '''
        """A reviewer of amounts: a toy."""

        from toolsemble.review._request import Continue, ExitEarly, ReviewDecision, Reviewer, ReviewRequest


        class SmallReview(Reviewer):
            """A reviewer that approves small amounts."""

            def review(self, request: ReviewRequest) -> ReviewDecision:
                """Approve up to ten."""
                return Continue() if request.arguments["amount"] <= 10 else ExitEarly("too much")
        ''',
    "engines/toy.py": '''
        """Threads run the bodies of tools: a toy executor for ``Toolbox(executor=...)``."""

        from concurrent.futures import Future, ThreadPoolExecutor

        from toolsemble._engine.definition import Policy
        from toolsemble._engine.work.remote import ClusterExecutor
        from toolsemble._runtime.extras import import_extra
        from toolsemble._runtime.processes.worker import run_payload


        def executor() -> ClusterExecutor:
            """Return an executor that runs blocking bodies in threads."""
            return ToyExecutor()


        class ToyExecutor(ClusterExecutor):
            """The executor of threads; use :func:`executor` to create it."""

            cluster = "Toy"
            stops_bodies = False

            def __init__(self) -> None:
                self._pickler = import_extra("cloudpickle", extra="dask", user="toolsemble.engines.toy")
                self.pickler = self._pickler.Pickler
                self._pool = ThreadPoolExecutor()

            def send(self, payload: bytes, name: str, policy: Policy) -> Future[bytes]:
                """Run a body."""
                return self._pool.submit(run_payload, payload, self._pickler.dumps)
        ''',
}

NOTED = '''@dataclass(frozen=True)
class CallNoted(CallEvent):
    """A tool has made a note.

    >>> CallNoted("weather", "call_1", "sunny").note
    'sunny'
    """

    note: str = ""
    """The note."""
    kind: ClassVar[Literal["call_noted"]] = "call_noted"


'''
GREET = '''@app.command()
@click.argument("name")
@common_options
@click.pass_obj
def greet(options: GlobalOptions, name: str) -> int:
    """Greet NAME."""
    from toolsemble._cli.greet_command import greet as do

    return do(name, options.make_screen())


'''


def import_line(module, name):
    """Return the line for type checkers in a package that loads lazily."""
    return f"    from toolsemble.{module} import {name} as {name}\n"


# In each file, the text before which a line goes, and the line.
CODE = [
    ("builtin/__init__.py", "    from toolsemble.builtin._web_scraper", import_line("builtin._shout", "ShoutTool")),
    ("builtin/__init__.py", '        "_web_scraper":', '        "_shout": ("ShoutTool",),\n'),
    ("_cli/targets.py", '    BuiltIn("human_input"', '    BuiltIn("shout", lambda _: builtin.ShoutTool()),\n'),
    ("_cli/app.py", "@app.command()\n@common_options\ndef version", GREET),
    ("_ui/server.py", "            *chat.ROUTES", "            *notes.ROUTES,\n"),
    ("_ui/server.py", "from toolsemble._ui.routes import", "from toolsemble._ui.routes import notes\n"),
    ("_ui/static/main.mjs", "import { Durable }", 'import { Notes } from "./pages/notes.mjs";\n'),
    ("_ui/static/main.mjs", '  "/playground": Playground', '  "/notes": Notes,\n'),
    ("_ui/static/main.mjs", '  ["Try", [', '  ["Note", [["/notes", "Notes", "0"]]],\n'),
    ("events.py", "@dataclass(frozen=True)\nclass CallTimedOut", NOTED),
    ("events.py", '    "CallProgress",', '    "CallNoted",\n'),
    ("events.py", "    | CallProgress\n", "    | CallNoted\n"),
    ("telemetry/_console.py", '    "call_progress": _', '    "call_noted": lambda event: f"noted: {event.note}",\n'),
    ("telemetry/__init__.py", "    from toolsemble.telemetry._otel", import_line("telemetry._tally", "TallySink")),
    ("telemetry/__init__.py", '        "_console":', '        "_tally": ("TallySink",),\n'),
    ("review/__init__.py", "    from toolsemble.review._store.queue", import_line("review._small", "SmallReview")),
    ("review/__init__.py", '        "_pause":', '        "_small": ("SmallReview",),\n'),
]  # fmt: skip
BUILTIN_PAGE = """# shout

Writes in capitals.

## What the model sees

```text
Writes a text in capitals.
```

| parameter | type | |
| --- | --- | --- |
| `input` | str, required | The input to pass to the tool |

## Examples

`Toolbox([ShoutTool()])` offers it.

## Limits

## Security

## Settings
"""
PAGES = [
    ("docs/reference/builtin.md", ".. autoclass:: HumanInputTool", ".. autoclass:: ShoutTool\n\n"),
    ("docs/builtin/index.md", "| [`human_input`]", "| [`shout`](shout.md) | write in capitals | | string |\n"),
    ("docs/cli.md", "| `version` |", "| `greet NAME` | print a greeting |\n"),
    ("docs/reference/events.md", ".. autoclass:: CallProgress", ".. autoclass:: CallNoted\n"),
    ("docs/reference/events.md", ".. autoclass:: TraceFile", ".. autoclass:: TallySink\n"),
    ("docs/reference/review.md", ".. autoclass:: Reviewer\n", ".. autoclass:: SmallReview\n"),
    ("tests/docs/test_pages.py", "    JsonParserTool,\n    WebScraper", "    ShoutTool,\n"),
    ("tests/docs/test_pages.py", "    HumanInputTool(),\n", "    ShoutTool(),\n"),
]  # fmt: skip
CONTRACTS = [
    ("pyproject.toml", '  "toolsemble.builtin._web_scraper",\n', '  "toolsemble.builtin._shout",\n'),
    ("pyproject.toml", 'layers = ["dask | dbos', 'layers = ["toy | dask | dbos | ray | temporal"]\n# '),
]
CHECKS = [
    "tests/cli/test_cli_terminal.py::test_cli_page_lists_every_command_and_exit_code",
    "tests/docs/test_pages.py::test_built_in_tool_index_links_every_page",
    "tests/docs/test_pages.py::test_built_in_tool_page_shows_schema",
    "tests/docs/test_pages.py::test_built_in_tool_pages_have_same_sections",
    "tests/docs/test_pages.py::test_every_built_in_tool_has_a_page",
    "tests/docs/test_reference.py",
    "tests/test_package.py::test_type_checkers_see_exported_names",
    "tests/ui/test_static_pages.py",
    "tests/test_events.py::test_every_event_is_in_the_union_and_described_on_the_console",
]

USE = """
import sys
import cloudpickle
import my_tools
cloudpickle.register_pickle_by_value(my_tools)
from toolsemble import Toolbox, ToolCall
from toolsemble.engines.toy import executor
from toolsemble.review import SmallReview
from toolsemble.telemetry import ConsoleSink, TallySink

tally = TallySink()
sinks = [tally, ConsoleSink(sys.stdout, times=False)]
box = Toolbox([my_tools.pay], review=SmallReview(), sinks=sinks, executor=executor())
for amount in (5, 50):
    print(box.execute(ToolCall("pay", {"amount": amount}, f"call_{amount}")).text)
print(tally.counts["call_noted"], tally.counts["review_decided"])
"""
STORE = """
import sys
from toolsemble.agent._notes import NoteStore
store = NoteStore(sys.argv[1])
store.add("sunny")
print(store.notes())
store.close()
"""
MY_TOOLS = '''
from toolsemble import ToolContext, tool
from toolsemble._runtime.watchers import tell
from toolsemble.events import CallNoted


def note(arguments, context):
    tell(CallNoted.of(context, note=str(arguments)))
    return True


@tool(requires_approval=note)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"
'''
ASK_PAGE = """
import sys
from helpers.ui_client import Desk
with Desk(sys.argv[1]) as desk:
    print(desk.get("/api/notes", first="a"), desk.post("/api/note", text="b"))
    print(desk.client.get("/notes").status_code, desk.client.get("/static/pages/notes.mjs").status_code)
"""


def insert(root, changes):
    """Insert lines into files; each place must be in its file once."""
    for file, place, line in changes:
        text = (root / file).read_text(encoding="utf-8")
        assert text.count(place) == 1, f"{file} has {place!r} {text.count(place)} times"
        (root / file).write_text(text.replace(place, line + place), encoding="utf-8")


def dedent(text):
    lines = text.strip("\n").splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "".join(f"{line[indent:]}\n" for line in lines).rstrip(" ")


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Return a copy of the checkout to which the parts were added, without their pages."""
    root = tmp_path_factory.mktemp("recipes")
    ignored = shutil.ignore_patterns("__pycache__", "node_modules", ".*", "vendor")
    for folder in ("src", "tests", "docs"):
        shutil.copytree(ROOT / folder, root / folder, ignore=ignored)
    for file in ("pyproject.toml", "conftest.py", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / file, root / file)
    package = root / "src" / "toolsemble"
    for file, text in FILES.items():
        (package / file).write_text(dedent(text), encoding="utf-8")
    insert(package, CODE)
    (root / "my_tools.py").write_text(MY_TOOLS, encoding="utf-8")
    return SimpleNamespace(root=root, run=lambda *command: run_in(root, *command))


def run_in(root, *command):
    """Run Python with the copy."""
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(str(root / part) for part in ("src", "tests", "."))}
    for name in [each for each in environ if each.startswith(("PYTEST", "COV_", "TOOLSEMBLE_"))]:
        del environ[name]
    return subprocess.run(
        [sys.executable, *command], cwd=root, env=environ, capture_output=True, text=True, timeout=WAIT, check=False
    )


def check(copy):
    """Return the names of the checks that fail."""
    done = copy.run("-m", "pytest", "-p", "no:cacheprovider", "-rf", "--tb=short", *CHECKS)
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    return sorted({re.split(r"\[| - ", line)[0].split("::")[-1] for line in failed})


def test_checks_name_what_a_part_still_lacks(copy):
    assert check(copy) == [
        "test_cli_page_lists_every_command_and_exit_code",
        "test_every_built_in_tool_has_a_page",
        "test_every_public_name_has_an_entry",
    ]
    (copy.root / "docs/builtin/shout.md").write_text(BUILTIN_PAGE, encoding="utf-8")
    insert(copy.root, PAGES)
    assert check(copy) == []


def test_engine_sink_event_and_reviewer_work(copy):
    used = copy.run("-c", USE)
    assert used.returncode == 0, used.stderr
    lines = used.stdout.splitlines()
    assert [line for line in lines if not line.startswith("pay ")] == [
        "paid 5",
        "Error: Rejected by reviewer: too much",
        "2 2",
    ]
    assert "pay call_5: noted: {'amount': 5}" in lines


def test_store_works_in_a_file(copy, tmp_path):
    used = copy.run("-c", STORE, str(tmp_path / "notes.db"))
    assert used.stdout == "['sunny']\n", used.stderr


def test_store_works_on_postgres(copy, postgres_url):
    used = copy.run("-c", STORE, postgres_url)
    assert used.stdout == "['sunny']\n", used.stderr


def test_command_and_built_in_tool_work(copy):
    assert copy.run("-m", "toolsemble", "greet", "Ada").stdout == "Hello Ada\n"
    assert copy.run("-m", "toolsemble", "call", "shout", "hello").stdout == "HELLO\n"


def test_endpoints_of_a_page_answer(copy, tmp_path):
    asked = copy.run("-c", ASK_PAGE, str(tmp_path))
    assert asked.stdout == "{'notes': ['a'], 'exists': True} {'added': 'b'}\n200 200\n", asked.stderr


def test_import_linter_takes_the_parts(copy):
    insert(copy.root, CONTRACTS)
    code = "import sys; from importlinter.cli import lint_imports_command as lint; sys.argv[1:] = ['--no-logo']; lint()"
    linted = copy.run("-c", code)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    assert " kept, 0 broken" in linted.stdout
    assert str(copy.root) in copy.run("-c", "import toolsemble; print(toolsemble.__file__)").stdout


def test_every_kind_of_part_has_a_recipe():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## Add (.+)$", text, re.MULTILINE)
    assert [part for part in RECIPES if part not in headings] == []
    for part, file in RECIPES.items():
        recipe = text.partition(f"\n## Add {part}\n")[2].partition("\n## ")[0]
        for folder in {str(Path(file).parent)} - {"."}:
            assert folder in recipe, f"the recipe for {part} does not say where {file} goes"


def test_files_named_in_recipes_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## Add a built-in tool\n")[2]
    named = set(re.findall(r"`((?:src|tests|docs)/[\w/.]+\.\w+)`", text))
    real = [name for name in sorted(named) if not re.search("NAME|/toy/", name)]
    assert real
    assert [name for name in real if not (ROOT / name).exists()] == []


def test_contracts_of_imports_list_every_built_in_tool_and_engine():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    listed = {
        name
        for contract in contracts
        if "know nothing of each other" in contract["name"]
        for line in [*contract.get("modules", ()), *contract.get("layers", ())]
        for name in re.findall(r"\w+", line)
    }
    source = ROOT / "src" / "toolsemble"
    tools = re.findall(r"from toolsemble\.builtin\.(\w+) import", (source / "builtin/__init__.py").read_text("utf-8"))
    engines = [path.stem for path in (source / "engines").glob("[a-z]*.py")]
    assert [name for name in (*tools, *engines) if name not in listed] == [], "add it to its contract in pyproject.toml"


def test_kinds_of_databases_have_different_numbers():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    numbers = [number for text in sources for number in re.findall(r"Kind\(\s*\"[\w ]+\",\s*(0x\w+)", text)]
    assert len(numbers) > 4
    assert len({*numbers}) == len(numbers), f"each {Kind.__name__} of databases has a number of its own"


def test_commands_of_the_recipes_are_targets_of_make():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    assert named <= targets
