"""List the public names of the package and how each is called: ``python tests/release/public_api.py``.

``public_api_of`` has the list of every version, with which the next one is compared. With ``--keep`` the list of the
present version is written there; a list that exists is never replaced.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_overloads, is_typeddict

MODULES = [
    "", ".agent", ".agent.streams", ".builtin", ".catalog", ".events", ".mcp", ".models", ".providers", ".review",
    ".telemetry", ".testing", ".weights",
]  # fmt: skip

FRAMEWORKS = [
    "agent_framework", "autogen", "crewai", "dspy", "google_adk", "haystack", "langchain", "llama_index",
    "openai_agents", "pydantic_ai", "smolagents", "strands",
]  # fmt: skip
# Modules that have names for other modules of the package, too.
NAMES = {
    ".engines.dask": ["executor"],
    ".engines.dbos": ["DBOSEngine"],
    ".engines.ray": ["executor"],
    ".engines.temporal": ["TemporalEngine"],
    **{f".interop.{name}": ["adopt", "export"] for name in FRAMEWORKS},
}


RELEASED = Path(__file__).parent / "public_api_of"
"""The folder of the lists."""

# The modules of typed dicts of settings that other modules import for type checkers only.
for name in ("agent._options", "_tools.settings"):
    import_module(f"toolsemble.{name}")


def find_modules() -> Iterator[ModuleType]:
    """Yield the public modules that this version has."""
    for name in [*MODULES, *NAMES]:
        try:
            yield import_module(f"toolsemble{name}")
        except ModuleNotFoundError:
            continue


def find_names(module: ModuleType) -> list[str]:
    """Return the names that a module exports."""
    if (known := NAMES.get(module.__name__.removeprefix("toolsemble"))) is not None:
        return known
    names: list[str] = getattr(getattr(module, "__getattr__", None), "names", None) or getattr(module, "__all__", None)
    if names is None:
        names = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return sorted(name for name in names if not name.startswith("_"))


def describe_default(value: Any) -> str:
    """Return a default as code, or ``…`` where that differs from run to run."""
    plain = isinstance(value, (str, int, float, bool, type(None))) or value == ()
    return repr(value) if plain and not isinstance(value, Enum) else "…"


def find_typed_dict(name: str) -> Any:
    """Return a typed dict of settings by its name."""
    modules = [module for path, module in [*sys.modules.items()] if path.startswith("toolsemble")]
    return next(found for each in modules if is_typeddict(found := vars(each).get(name)))


def find_keywords(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the keywords that only type checkers see: of ``**settings: Unpack[ToolSettings]`` and of overloads."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    names: set[str] = set()
    for parameter in [
        each for form in [function, *get_overloads(function)] for each in inspect.signature(form).parameters.values()
    ]:
        if parameter.kind is parameter.KEYWORD_ONLY:
            names.add(parameter.name)
        elif hint := re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation)):
            names |= find_typed_dict(hint[1]).__annotations__.keys()
    return [inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, default=...) for each in sorted(names)]


def find_parameters(value: Any) -> list[inspect.Parameter]:
    """Return the parameters of something that can be called, with the keywords of a typed dict, without types."""
    parameters = [
        each.replace(annotation=each.empty)
        for each in inspect.signature(value).parameters.values()
        if each.name not in {"self", "cls"}
    ]
    if not parameters or parameters[-1].kind is not inspect.Parameter.VAR_KEYWORD:
        return parameters
    function = value.__init__ if isinstance(value, type) else value
    known = {each.name for each in parameters[:-1]}
    keywords = [each for each in find_keywords(function) if each.name not in known]
    return [*parameters[:-1], *keywords] if keywords else parameters


def describe_parameters(value: Any) -> str:
    """Return the parameters of something that can be called, as code."""
    try:
        parameters = find_parameters(value)
    except (TypeError, ValueError):
        return "(…)"
    shown = str(inspect.Signature(parameters))
    for each in parameters:
        if each.default is not each.empty:
            shown = shown.replace(f"{each.name}={each.default!r}", f"{each.name}={describe_default(each.default)}")
    return shown


def find_members(owner: type) -> Iterator[tuple[str, Any]]:
    """Yield the public attributes that classes of this package define, also inherited ones."""
    kept = {each.name for each in fields(owner)} if is_dataclass(owner) else set()
    for name in sorted({*dir(owner), *kept} - {"mro"}):
        home = next((base for base in owner.__mro__ if name in vars(base)), None)
        if name.startswith("_"):
            continue
        if name in kept:  # whether it is a slot or in a dict makes no difference to users
            yield name, None
        elif home is not None and home.__module__.startswith("toolsemble"):
            yield name, inspect.getattr_static(owner, name)


def describe_member(name: str, value: Any) -> str:
    """Return a method with its parameters, and anything else by its name alone."""
    function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
    return f"{name}{describe_parameters(function)}" if inspect.isfunction(function) else name


def describe(path: str, value: Any) -> Iterator[str]:
    """Yield a line for a public name, and one for each attribute of a class."""
    if isinstance(value, type):
        called = "" if issubclass(value, (BaseException, Enum)) else describe_parameters(value)
        yield f"{path}{called}"
        yield from (f"{path}.{describe_member(name, member)}" for name, member in find_members(value))
    else:
        yield f"{path}{describe_parameters(value) if inspect.isroutine(value) else ''}"


def list_public_api() -> Iterator[str]:
    """Yield all lines, in the order of the modules; an object with two names is described by the first."""
    described: set[int] = set()
    for module in find_modules():
        for name in find_names(module):
            value, path = getattr(module, name), f"{module.__name__}.{name}"
            if id(value) in described:
                yield path
                continue
            described.add(id(value))
            yield from describe(path, value)


def keep_list(folder: Path, version: str) -> Path:
    """Write the list of a version; raise SystemExit if the folder has one."""
    file = folder / f"{version}.txt"
    text = "".join(f"{line}\n" for line in list_public_api())
    try:
        with file.open("x", encoding="utf-8", newline="\n") as opened:
            opened.write(text)
    except FileExistsError:
        raise SystemExit(
            f"{file} exists, and the list of a published version never changes: describe later changes in the section "
            f"[Unreleased] of CHANGELOG.md. If {version} is not published yet, delete the file and run this again."
        ) from None
    return file


if __name__ == "__main__":
    if sys.argv[1:] == ["--keep"]:
        import toolsemble

        keep_list(RELEASED, toolsemble.__version__)
    else:
        sys.stdout.writelines(f"{line}\n" for line in list_public_api())
