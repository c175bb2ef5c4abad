"""The settings of tools and toolboxes: each place that lists them has all of them."""

import inspect
import re
from pathlib import Path

import pytest

from toolsemble import SchemaTool, Tool, Toolbox, ToolDefinitionError, TypedTool, tool
from toolsemble._engine.limits.settings import Limits, LimitSettings
from toolsemble._tools.pipeline.combinators import EachSettings
from toolsemble._tools.settings import ReviewSettings, ToolSettings, definition_fields
from toolsemble.agent import Agent
from toolsemble.builtin._http_tool import HttpSettings

DOCS = Path(__file__).parents[2] / "docs"


def types_in(source):
    """Return the annotations of a class or a typed dict as they are written."""
    return {name: getattr(kind, "__forward_arg__", kind) for name, kind in source.__annotations__.items()}


PLACES = {
    "an attribute of Tool in _tools/base.py, with its type, default and docstring": {
        name: value for name, value in types_in(Tool).items() if name not in {"name", "description"}
    },
    "a field of a TypedDict in _tools/settings.py or _engine/limits/settings.py": types_in(ToolSettings),
}
SETTINGS = sorted(set().union(*PLACES.values()))


def settings_table(page):
    """Return the names in code in the first column of the table below the heading Settings of a page."""
    section = (DOCS / page).read_text(encoding="utf-8").partition("\n## Settings\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)[`=]", row)}


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_setting_is_declared_with_the_same_type(setting):
    for place, named in PLACES.items():
        assert setting in named, f"add {setting} as {place}"
    first, second = (named[setting] for named in PLACES.values())
    assert first == second, f"the types of {setting} differ: {' and '.join(PLACES)}"


@pytest.mark.parametrize(("chosen", "own"), [(HttpSettings, {"retries"}), (EachSettings, set())])
def test_subsets_of_settings_have_the_same_types(chosen, own):
    types = types_in(ToolSettings)
    shared = {name: kind for name, kind in types_in(chosen).items() if name in types.keys() - own}
    assert shared == {name: types[name] for name in shared}


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_setting_is_read(setting):
    kinds = {
        "Limits in _engine/limits/settings.py, and use it in build_policy": set(Limits._fields),
        "ReviewSettings in _tools/settings.py, and use it in review_settings": ReviewSettings.__annotations__.keys(),
        "definition_fields in _tools/settings.py": definition_fields("Tool", Tool),
    }
    reading = [kind for kind, names in kinds.items() if setting in names]
    assert len(reading) == 1, f"add {setting} to one of: {'; '.join(kinds)}"


@pytest.mark.parametrize("setting", Limits._fields)
def test_limits_have_the_defaults_of_a_tool(setting):
    assert Limits._field_defaults[setting] == getattr(Tool, setting), f"{setting} differs in Tool and Limits"
    assert LimitSettings.__annotations__.keys() <= set(Limits._fields)


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_setting_is_documented(setting):
    assert setting in settings_table("tools.md"), f"add {setting} to the table of settings in docs/tools.md"


def test_docs_list_only_settings():
    assert settings_table("tools.md") <= set(SETTINGS)


@pytest.mark.parametrize("take", [tool, SchemaTool.__init__, Agent.as_tool])
def test_keywords_match_the_typed_dict(take):
    assert inspect.signature(take).parameters["settings"].annotation == "Unpack[ToolSettings]"


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_setting_is_a_keyword_and_an_attribute(setting):
    default = getattr(Tool, setting)
    by_keyword = tool(**{setting: default})(len)
    assert getattr(by_keyword, setting) == getattr(SchemaTool("now", "", print, **{setting: default}), setting)
    assert getattr(TypedTool, setting) == default


@pytest.mark.parametrize("setting", SETTINGS)
def test_invalid_value_error_names_the_setting(setting):
    def function(text: str) -> str:
        return text

    with pytest.raises(ToolDefinitionError, match=rf"Tool 'function': {setting}\b"):
        Toolbox([tool(**{"requires_approval": True, setting: object()})(function)])


def test_every_toolbox_setting_is_documented():
    taken = inspect.signature(Toolbox).parameters.keys() - {"tools"}
    assert settings_table("toolbox.md") == taken, "compare the table of settings in docs/toolbox.md"
