"""The language of the code: docstrings begin with verbs, functions are verbs, classes are nouns, no metaphors."""

import ast
import re
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


@cache
def parse(path):
    """Return every function and class of a module."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, kinds)]


def definitions(paths=MODULES):
    """Yield every function and class, with its module."""
    for path in paths:
        for node in parse(path):
            yield path.relative_to(ROOT), node


def first_word(node):
    return re.split(r"\W", ast.get_docstring(node) or "", maxsplit=1)[0]


def words_of(name):
    """Return the words of a name, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}


def is_property(node):
    return any(isinstance(each, ast.Name) and "property" in each.id for each in node.decorator_list)


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef), NO_FIRST_WORD),
        ((ast.ClassDef,), NO_FIRST_WORD_OF_A_CLASS),
    ],
    ids=["any", "class"],
)
def test_docstrings_begin_with_a_verb_or_a_noun(kinds, words):
    wrong = [
        f"{path}:{node.lineno} {node.name}: {first_word(node)} ..."
        for path, node in definitions()
        if isinstance(node, kinds) and first_word(node) in words
    ]
    assert wrong == []


def test_docstrings_outside_of_the_package_do_not_begin_with_give():
    assert [f"{path}:{node.lineno}" for path, node in definitions(OTHERS) if first_word(node) == "Give"] == []


def test_functions_are_named_by_verbs():
    wrong = [
        f"{path}:{node.lineno} {node.name}"
        for path, node in definitions()
        if not isinstance(node, ast.ClassDef)
        and not is_property(node)
        and node.name.lstrip("_") in NO_FUNCTION
        and node.name not in PUBLIC
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("paths", "words"),
    [(MODULES, NO_WORD), (OTHERS, NO_WORD - {"apart"}), (TESTS, NO_WORD_OF_A_TEST)],
    ids=["package", "others", "tests"],
)
def test_names_have_no_metaphors(paths, words):
    wrong = [
        f"{path}:{node.lineno} {node.name}" for path, node in definitions(paths) if words_of(node.name) & words
    ] + [str(path.relative_to(ROOT)) for path in paths if words_of(path.stem) & words]
    assert wrong == []


def test_tests_of_a_module_have_different_names():
    names = [(path, node.name) for path, node in definitions(TESTS) if node.name.startswith("test_")]
    assert [f"{path} {name}" for path, name in names if names.count((path, name)) > 1] == []


def test_functions_are_shorter_than_60_lines():
    wrong = [
        f"{path}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1} lines"
        for path, node in definitions()
        if not isinstance(node, ast.ClassDef) and node.end_lineno - node.lineno >= 60
    ]
    assert wrong == []
