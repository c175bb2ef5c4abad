"""The changelog has every public name that a version removed or changed."""

import inspect
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

import toolsemble
from release.public_api import RELEASED, keep_list, list_public_api

CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"
KEEP = ".venv/bin/python tests/release/public_api.py --keep"
NAME = re.compile(r"[\w.]+")
TOP = re.compile(r"toolsemble(\.[a-z]\w*)+(?=\.[A-Z]\w*\.)")


def read_names(lines):
    """Return what is written behind each name: its parameters, or nothing."""
    names = {}
    for line in lines:
        name = NAME.match(line)[0]
        names[name] = line[len(name) :].strip()
    return names


def read_signature(parameters):
    scope = {}
    exec(f"def called{parameters.replace('…', '...')}: ...", scope)  # noqa: S102 - lines of a file of this folder
    return list(inspect.signature(scope["called"]).parameters.values())


def accepts(new, old):
    """Return whether every call of the old signature is one of the new one, with the same meaning."""
    names = [each.name for each in new]
    fitting = [
        each.name in names
        and new[names.index(each.name)].kind in {each.kind, each.POSITIONAL_OR_KEYWORD, each.VAR_KEYWORD}
        and new[names.index(each.name)].default == each.default
        for each in old
    ]
    positional = [each.name for each in old if each.kind is each.POSITIONAL_OR_KEYWORD]
    added = [each for each in new if each.name not in {known.name for known in old}]
    needed = [
        each
        for each in added
        if each.default is each.empty and each.kind not in {each.VAR_POSITIONAL, each.VAR_KEYWORD}
    ]
    return all(fitting) and names[: len(positional)] == positional and not needed


def find_breaks(old, new):
    """Yield the removed names, and the names that some calls no longer fit."""
    for place, parameters in old.items():
        # An object that the package exports by now is described there.
        name = next((each for each in (place, TOP.sub("toolsemble", place)) if each in new), place)
        if name not in new:
            owner = name.rpartition(".")[0]
            if owner not in old or owner in new:  # of a class that is gone, its own name says enough
                yield name
        elif parameters != new[name] and (
            not (parameters and new[name]) or "(…)" in {parameters, new[name]}
            or not accepts(read_signature(new[name]), read_signature(parameters))
        ):  # fmt: skip
            yield name


def read_section(text, version):
    """Return what a changelog says of a version."""
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    found = next((each for each in sections if each.startswith(f"[{version}]")), None)
    assert found is not None, f"CHANGELOG.md has no section [{version}]: add the line `## [{version}]`"
    return found


def list_versions():
    """Return the versions that were released, the oldest first."""
    return sorted((path.stem for path in RELEASED.glob("*.txt")), key=lambda text: [*map(int, text.split("."))])


def read_released(version):
    return read_names((RELEASED / f"{version}.txt").read_text(encoding="utf-8").splitlines())


@cache
def read_present():
    """Return the public names of this checkout."""
    return read_names(list_public_api())


def is_listed(name, section):
    last = name.rpartition(".")[2]
    return re.search(rf"`[^`]*\b{last}\b[^`]*`", section) is not None


def find_unlisted(old, new, version):
    section = read_section(CHANGELOG.read_text(encoding="utf-8"), version)
    return [name for name in find_breaks(old, new) if not is_listed(name, section)]


def test_changelog_has_a_line_for_every_public_name_that_was_removed_or_changed():
    last = list_versions()[-1]
    missing = find_unlisted(read_released(last), read_present(), "Unreleased")
    assert missing == [], (
        f"These public names of {last} were removed, or some calls of them fail now. If that is intended, add a line "
        "to the section [Unreleased] of CHANGELOG.md with each name `in backticks`, and nothing else: the list of "
        f"{last} stays as it is. If not, restore them; warn_deprecated in _runtime/checks.py keeps an old name working."
    )


@pytest.mark.parametrize(("old", "new"), [*pairwise(list_versions())])
def test_section_of_a_version_has_a_line_for_every_public_name_that_it_removed_or_changed(old, new):
    assert find_unlisted(read_released(old), read_released(new), new) == [], (
        f"These public names of {old} are missing in {new} or changed there: name each `in backticks` in the section "
        f"[{new}] of CHANGELOG.md. If `git diff` shows a change of {RELEASED.name}, undo it: a published list is final."
    )


def test_public_names_of_this_version_are_kept_for_the_comparison_with_the_next():
    assert list_versions()[-1] == toolsemble.__version__, (
        f"The version is {toolsemble.__version__}, and the last list of public names is {list_versions()[-1]}.txt; "
        f"when the code of the version is complete, run: {KEEP}"
    )


def test_list_of_this_version_is_complete_as_long_as_the_changelog_has_nothing_newer():
    if read_section(CHANGELOG.read_text(encoding="utf-8"), "Unreleased").strip() == "[Unreleased]":
        missing = [*find_breaks(read_present(), read_released(toolsemble.__version__))]
        version = toolsemble.__version__
        assert missing == [], (
            f"These public names are not in the list of {version}, or changed since. If {version} is published, add a "
            "line to the section [Unreleased] of CHANGELOG.md that names them; the list stays as it is. If it is not, "
            f"delete tests/release/{RELEASED.name}/{version}.txt and run: {KEEP}"
        )


@pytest.mark.slow
def test_list_of_a_version_is_written_once(tmp_path):
    file = keep_list(tmp_path, "9.0.0")
    assert file == tmp_path / "9.0.0.txt"
    assert read_names(file.read_text(encoding="utf-8").splitlines()) == read_present()
    file.write_text("as published\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"9\.0\.0\.txt exists, and the list of a published version never changes"):
        keep_list(tmp_path, "9.0.0")
    assert file.read_text(encoding="utf-8") == "as published\n"


@pytest.mark.parametrize(
    ("name", "keyword"),
    [("tool", "timeout"), ("Agent", "role"), ("Agent.run", "output_type"), ("interop.langchain.adopt", "retries")],
)
def test_settings_that_are_declared_in_typed_dicts_and_overloads_count_as_parameters(name, keyword):
    parameters = read_signature(read_present()[f"toolsemble.{name}"])
    assert keyword in [each.name for each in parameters]


@pytest.mark.parametrize(
    ("old", "new", "broken"),
    [
        ("(a, b=1)", "(a, b=1, *, c=None)", False),
        ("(a)", "(a, **settings)", False),
        ("(a, *, b=1)", "(a, b=1)", False),
        ("(a, b=1)", "(a, c=1)", True),
        ("(a, b=1)", "(b=1, a=2)", True),
        ("(a, b=1)", "(a, b=2)", True),
        ("(a)", "(a, b)", True),
        ("(a, b=1)", "(a, *, b=1)", True),
        ("(a)", "", True),
    ],
)
def test_change_counts_if_some_call_no_longer_fits(old, new, broken):
    assert list(find_breaks({"x.f": old}, {"x.f": new})) == (["x.f"] if broken else [])


def test_removed_name_is_reported_once_with_its_class():
    old = {"x.A": "()", "x.A.run": "()", "x.B": "", "x.B.text": ""}
    assert list(find_breaks(old, {"x.B": ""})) == ["x.A", "x.B.text"]


def test_name_counts_as_listed_only_in_code_of_the_section_of_a_version():
    text = "# Changelog\n\n## [Unreleased]\n\n- `Toolbox.around(layer=)` is gone\n\n## [0.1.0]\n- `Agent`\n"
    section = read_section(text, "Unreleased")
    assert is_listed("toolsemble.Toolbox.around", section)
    assert not is_listed("toolsemble.Agent", section)
    assert not is_listed("toolsemble.gone", section)
