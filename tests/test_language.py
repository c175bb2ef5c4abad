"""The language of the code: docstrings begin with verbs, functions are verbs, classes are nouns, no metaphors."""

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "toolsemble"
MODULES = sorted(SOURCE.rglob("*.py"))
OTHERS = [
    path
    for part in ("benchmarks", "docs", "evals", "examples", "tests")
    for path in (ROOT / part).rglob("*.py")
    if ".envs" not in path.parts
]
FOLDERS = {
    "execution", "guard", "limits", "locks", "masking", "observers", "processes", "review", "runtime", "telemetry",
    "testing", "toolbox", "tools", "work",
}  # fmt: skip
TESTS = [path for path in (ROOT / "tests").rglob("*.py") if path.parent.name in FOLDERS | {"tests"}]

NO_FIRST_WORD = {"Give", "Gives", "Giving"}
NO_FIRST_WORD_OF_A_CLASS = {"What", "Who", "Whoever", "Where", "Those", "How"}
NO_FUNCTION = {
    "told", "said", "asked", "made", "given", "shown", "named", "written", "taken", "sent", "kept",
    "found", "masked", "wrapped", "entered", "approved", "shaped",
    "put", "nested", "failed", "passing", "refused", "begun", "read_out",
}  # fmt: skip
NO_WORD = {
    "veil", "unveil", "escort", "luggage", "servant", "outfit", "roster", "keying", "storing", "apart", "mailbox",
    "seat", "narrator", "shelf", "sheet",
}  # fmt: skip
NO_WORD_OF_A_TEST = NO_WORD | {
    "told", "tell", "tells", "given", "gives", "said", "says", "whoever", "somebody", "nobody", "hears", "disturb",
    "disturbs", "begun", "anew", "stands", "nought", "spared", "handed",
}  # fmt: skip
PUBLIC = {"found", "kept"}  # fixed by the contract

# A program is not a person: name the process, thread, caller or reader. Compound nouns, not chains of genitives.
HABITS = ["nobody", "whoever", "those of", "that of", "inside of"]
BETWEEN = r"""(?:_|[\s#*/>"']+)"""  # the words may be in two lines of a comment or a message
HABIT = re.compile(rf"(?<![a-z])(?:{'|'.join(HABITS).replace(' ', BETWEEN)})(?![a-z])", re.IGNORECASE)
UNIX_ACCOUNT = r"""`nobody`|\buser nobody\b|"nobody"(?=  # the Unix account$)"""
JARGON = re.compile(rf"\bthat of course\b|{UNIX_ACCOUNT}", re.IGNORECASE | re.MULTILINE)
TEXTS = {
    "src": ("*.py", "*.mjs", "*.css", "*.html"),
    "docs": ("*.md", "*.py"),
    "tests": ("*.py",),
    ".": ("CONTRIBUTING.md", "ARCHITECTURE.md", "README.md", "CHANGELOG.md"),
}


@dataclass(frozen=True, slots=True)
class Definition:
    """A function or class of a module."""

    path: Path
    line: int
    name: str
    length: int
    first_word: str
    is_class: bool
    is_property: bool

    @property
    def place(self):
        return f"{self.path}:{self.line}"


@cache
def parse(path):
    """Return every function and class of a module; only they are kept, for the trees of all modules are large."""
    nodes = find_definitions(ast.parse(path.read_text(encoding="utf-8")))
    return [describe(path.relative_to(ROOT), node) for node in nodes]


def find_definitions(node):
    """Yield the functions and classes in a node; expressions have none, and are most of a tree."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from find_definitions(child)


def describe(path, node):
    words = re.split(r"\W", ast.get_docstring(node) or "", maxsplit=1)
    length = node.end_lineno - node.lineno + 1
    return Definition(path, node.lineno, node.name, length, words[0], isinstance(node, ast.ClassDef), is_property(node))


def definitions(paths=MODULES):
    """Yield every function and class of some modules."""
    return (each for path in paths for each in parse(path))


def words_of(name):
    """Return the words of a name, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}


def is_property(node):
    return any(isinstance(each, ast.Name) and "property" in each.id for each in node.decorator_list)


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "of_classes_only"),
    [(NO_FIRST_WORD, False), (NO_FIRST_WORD_OF_A_CLASS, True)],
    ids=["any", "class"],
)
def test_docstrings_begin_with_a_verb_or_a_noun(words, of_classes_only):
    wrong = [
        f"{each.place} {each.name}: {each.first_word} ..."
        for each in definitions()
        if each.first_word in words and (each.is_class or not of_classes_only)
    ]
    assert wrong == []


@pytest.mark.slow
def test_docstrings_outside_of_the_package_do_not_begin_with_give():
    assert [each.place for each in definitions(OTHERS) if each.first_word == "Give"] == []


@pytest.mark.slow
def test_functions_are_named_by_verbs():
    wrong = [
        f"{each.place} {each.name}"
        for each in definitions()
        if not each.is_class
        and not each.is_property
        and each.name.lstrip("_") in NO_FUNCTION
        and each.name not in PUBLIC
    ]
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("paths", "words"),
    [(MODULES, NO_WORD), (OTHERS, NO_WORD - {"apart"}), (TESTS, NO_WORD_OF_A_TEST)],
    ids=["package", "others", "tests"],
)
def test_names_have_no_metaphors(paths, words):
    wrong = [f"{each.place} {each.name}" for each in definitions(paths) if words_of(each.name) & words]
    wrong += [str(path.relative_to(ROOT)) for path in paths if words_of(path.stem) & words]
    assert wrong == []


@pytest.mark.slow
def test_tests_of_a_module_have_different_names():
    names = Counter((each.path, each.name) for each in definitions(TESTS) if each.name.startswith("test_"))
    assert [f"{path} {name}" for (path, name), count in names.items() if count > 1] == []


@pytest.mark.slow
def test_functions_are_shorter_than_60_lines():
    wrong = [
        f"{each.place} {each.name}: {each.length} lines"
        for each in definitions()
        if not each.is_class and each.length > 60
    ]
    assert wrong == []


def find_texts(folder):
    """Yield the files of a folder that people write, and their texts; of the changelog, what is not released."""
    for pattern in TEXTS[folder]:
        for path in sorted((ROOT / folder).glob(pattern if folder == "." else f"**/{pattern}")):
            if "vendor" in path.parts or path == Path(__file__):
                continue
            text = path.read_text(encoding="utf-8")
            if path.name == "CHANGELOG.md":
                text = text[: text.index("\n## [", text.index("\n## [Unreleased]") + 1)]
            yield path.relative_to(ROOT), text


def find_habits(text):
    """Yield the line and the words of each habit in a text; it may begin at the end of a line."""
    text = JARGON.sub(lambda found: " " * len(found[0]), text)
    for found in HABIT.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, " ".join(re.findall("[A-Za-z]+", found[0]))


@pytest.mark.parametrize("folder", TEXTS)
def test_texts_speak_of_programs_in_the_words_of_the_field(folder):
    found = [f"{path}:{line}: {words}" for path, text in find_texts(folder) for line, words in find_habits(text)]
    advice = "name the process, thread, caller or reader; use compound nouns, and `inside` alone"
    assert not found, "\n".join([f"{len(found)} in {folder}; {advice}:", *found])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Nobody waits", [(1, "Nobody")]),
        ("a\n# the error is that\n# of the call", [(2, "that of")]),
        ("def test_what_nobody_closed_and_those_of_others(): ...", [(1, "nobody"), (1, "those of")]),
        ("inside of it; Whoever asks", [(1, "inside of"), (1, "Whoever")]),
        ("What `nobody` may read, and that of course; that often, inside offers", []),
    ],
)
def test_habits_are_found_with_their_line(text, found):
    assert list(find_habits(text)) == found
