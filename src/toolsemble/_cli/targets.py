"""Load the tools of targets such as ``calculator``, ``file_read:./docs``, ``my_module:my_tools`` or ``tools.py``.

A target ``mcp:...`` is an MCP server.

Loading a module or a file runs its code, with all permissions of this process.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial, reduce
from types import ModuleType
from typing import Any

from toolsemble._cli.builtins import BUILT_INS, make_built_in
from toolsemble._cli.mcp_servers import PREFIX, load_servers
from toolsemble._cli.modules import find_tools, load_file, load_module
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.agent._deps import DepsMaker

_FILE = re.compile(r"(?P<path>.+\.py)(?::(?P<attribute>[^:/\\]+))?")
_MAX_SHOWN = 20


def split_targets(texts: Iterable[str]) -> list[str]:
    """Return the targets in texts, each of which may contain several, separated by commas.

    >>> split_targets(["calculator, datetime", "my_module:my_tools"])
    ['calculator', 'datetime', 'my_module:my_tools']
    """
    return [target for text in texts for part in _split(text) if (target := part.strip())]


def _split(text: str) -> list[str]:
    # A command line may contain commas.
    return [text] if text.strip().startswith(PREFIX) else text.split(",")


def load_toolbox(targets: Sequence[str]) -> Toolbox:
    """Return one toolbox with the tools of all targets.

    A target that is a toolbox is returned unchanged, with its own gates and reviewer; it must be the only target.

    >>> load_toolbox(["calculator", "human_input"]).names
    ['calculator', 'human_input']
    """
    found = [each for target in targets for each in load_tools(target)]
    boxes = [each for each in found if isinstance(each, Toolbox)]
    if not boxes:
        return Toolbox(found)
    box = boxes[0]
    inside = {id(each) for each in box}
    if any(each is not box and id(each) not in inside for each in found):
        raise ToolDefinitionError(
            f"{', '.join(targets)}: a toolbox has its own rules and cannot be combined with other tools; "
            "name it alone, such as my_module:my_box, or name single tools, such as my_module:my_tool"
        )
    return box


def load_tools(target: str, *, shown: bool = False) -> list[object]:
    """Return the tools and toolboxes of a target; raise with the nearest names if it does not exist.

    :param shown: whether tools are only shown, so that required settings may be missing

    >>> load_tools("calclator")
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: There is no tool or module 'calclator'. Did you mean 'calculator'?
    """
    name, _, setting = target.partition(":")
    if target.startswith(PREFIX):
        return load_servers(target)
    if name in BUILT_INS:
        return [make_built_in(name, setting, shown=shown)]
    thing = load_object(target)
    if thing is None:
        raise ToolDefinitionError(f"There is no tool or module {target!r:.80}{_suggest(name, BUILT_INS)}")
    return _list_tools(target, thing, shown=shown)


def load_object(target: str, is_wanted: Callable[[object], bool] | None = None) -> object:
    """Return the object at ``module``, ``module:attribute`` or ``path/to/file.py:attribute``.

    Return None if there is no such module.

    :param is_wanted: which objects are proposed in place of an attribute that does not exist; None: tools

    >>> load_object("math:pi")
    3.141592653589793
    """
    if target.endswith(":") and target.strip(":"):
        raise ToolDefinitionError(
            f"{target!r:.80} names nothing after the colon: write {target[:-1]:.80} for all of it, or {target:.80}NAME"
        )
    file = _FILE.fullmatch(target)
    if file:
        module: ModuleType | None = load_file(file["path"])
        attribute = file["attribute"] or ""
    else:
        name, _, attribute = target.partition(":")
        module = load_module(name) if all(part.isidentifier() for part in name.split(".")) else None
    return _get_attribute(target, module, attribute, is_wanted) if module is not None and attribute else module


def load_deps(target: str | None) -> Any:
    """Return the deps at a target: an object as it is, a function or a class as what makes them for each run or call.

    >>> load_deps("math:pi")
    3.141592653589793
    """
    if target is None:
        return None
    found = load_object(target, lambda thing: not isinstance(thing, ModuleType))
    if found is None or isinstance(found, ModuleType):
        problem = "there is no such module" if found is None else "it is a module"
        raise ToolDefinitionError(f"--deps {target!r:.80}: {problem}; name an object in one, such as shop.py:shop")
    makes = inspect.isroutine(found) or isinstance(found, (type, partial))
    return DepsMaker(found) if makes else found  # type: ignore[arg-type]  # what is called


def _get_attribute(
    target: str, module: ModuleType, attribute: str, is_wanted: Callable[[object], bool] | None
) -> object:
    try:
        value = reduce(getattr, attribute.split("."), module)
    except AttributeError:
        if is_wanted is not None:
            hint = _suggest(attribute, {name: each for name, each in vars(module).items() if is_wanted(each)})
            raise ToolDefinitionError(f"{target!r:.80}: there is no {attribute!r:.80} in it{hint}") from None
        offered = find_tools(module)
        named = {tool.name: tool for each in offered.values() for tool in _expand(each) if hasattr(tool, "name")}
        if attribute in named:
            return named[attribute]
        hint = _suggest(attribute, {**named, **offered})
        raise ToolDefinitionError(f"{target!r:.80}: there is no {attribute!r:.80} in it{hint}") from None
    if value is None:
        raise ToolDefinitionError(f"{target!r:.80}: {attribute!r:.80} is None in it")
    return value


def _list_tools(target: str, thing: object, *, shown: bool) -> list[object]:
    """Return the tools of a module or a list, or the object itself in a list."""
    if isinstance(thing, ModuleType):
        found = list(find_tools(thing).values())
        if not found:
            raise ToolDefinitionError(f"{target!r:.80} defines no tools: put @tool on a function, or name an attribute")
    else:
        found = list(thing) if isinstance(thing, (list, tuple, set, frozenset)) else [thing]
    for each in found:
        if callable(each) and hasattr(each, "__code__"):
            raise ToolDefinitionError(f"{target!r:.80} is a plain function: put @tool on it")
    # Each is checked separately, so that the error names only the object that is not a tool.
    for each in found:
        if not isinstance(each, Toolbox):
            _check_tool(target, each)
    return _flatten(found) if shown else found


def _check_tool(target: str, thing: object) -> None:
    try:
        Toolbox([thing])
    except ToolDefinitionError as problem:
        raise ToolDefinitionError(f"{target!r:.80}: {str(problem).removeprefix('Tool at index 0 ')}") from problem


def _flatten(found: list[object]) -> list[object]:
    """Return the tools without duplicates, with toolboxes expanded."""
    tools = {id(tool): tool for each in found for tool in _expand(each)}
    return list(tools.values())


def _expand(thing: object) -> list[object]:
    return list(thing) if isinstance(thing, Toolbox) else [thing]


def _suggest(name: str, known: Mapping[str, object]) -> str:
    near = get_close_matches(name[:64], known, n=1)
    if near:
        return f". Did you mean {near[0]!r}?"
    shown = ", ".join(sorted(known)[:_MAX_SHOWN])
    return f". There are: {shown}" if shown else ""
