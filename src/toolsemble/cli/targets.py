"""Which tools are meant by what a person writes: ``calculator``, ``file_read:./docs``, ``my_module:my_tools``, a file.

Naming a module or a file runs its code, with everything that this process may do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import reduce
from types import ModuleType

from toolsemble.cli.builtins import BUILT_INS, built_in
from toolsemble.cli.modules import module_at, module_named, tools_in
from toolsemble.errors import ToolDefinitionError
from toolsemble.toolbox.toolbox import Toolbox

_FILE = re.compile(r"(?P<path>.+\.py)(?::(?P<attribute>[^:/\\]+))?")
_SHOWN = 20


def split_targets(texts: Iterable[str]) -> list[str]:
    """Give the targets of several texts, each of which may have several, with commas between them.

    >>> split_targets(["calculator, datetime", "my_module:my_tools"])
    ['calculator', 'datetime', 'my_module:my_tools']
    """
    return [target for text in texts for part in text.split(",") if (target := part.strip())]


def toolbox_of(targets: Sequence[str]) -> Toolbox:
    """Give one toolbox with the tools of all targets.

    A toolbox that somebody has set up stays as it is, with its own gates and reviewer; so it has to stand alone.

    >>> toolbox_of(["calculator", "human_input"]).names
    ['calculator', 'human_input']
    """
    found = [each for target in targets for each in tools_of(target)]
    boxes = [each for each in found if isinstance(each, Toolbox)]
    if not boxes:
        return Toolbox(found)
    box = boxes[0]
    inside = {id(each) for each in box}
    if any(each is not box and id(each) not in inside for each in found):
        raise ToolDefinitionError(
            f"{', '.join(targets)}: a toolbox has rules of its own and cannot be joined with other tools; "
            "name it alone, such as my_module:my_box"
        )
    return box


def tools_of(target: str, *, shown: bool = False) -> list[object]:
    """Give the tools and toolboxes that a target means, or refuse it with the nearest names.

    :param shown: whether they are only looked at, so that a tool need not be told what it works on

    >>> tools_of("calclator")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: There is no tool or module 'calclator'. Did you mean 'calculator'?
    """
    name, _, setting = target.partition(":")
    if name in BUILT_INS:
        return [built_in(name, setting, shown=shown)]
    thing = thing_at(target)
    if thing is None:
        raise ToolDefinitionError(f"There is no tool or module {target!r:.80}{_nearest(name, BUILT_INS)}")
    return _listed(target, thing, shown=shown)


def thing_at(target: str) -> object:
    """Give the module or the attribute that ``module``, ``module:attribute`` or ``path/to/file.py:attribute`` means.

    None is given when there is no such module.

    >>> thing_at("math:pi")
    3.141592653589793
    """
    if target.endswith(":") and target.strip(":"):
        raise ToolDefinitionError(
            f"{target!r:.80} names nothing after the colon: write {target[:-1]:.80} for all of it, or {target:.80}NAME"
        )
    file = _FILE.fullmatch(target)
    if file:
        module: ModuleType | None = module_at(file["path"])
        attribute = file["attribute"] or ""
    else:
        name, _, attribute = target.partition(":")
        module = module_named(name) if all(part.isidentifier() for part in name.split(".")) else None
    return _attribute(target, module, attribute) if module is not None and attribute else module


def _attribute(target: str, module: ModuleType, attribute: str) -> object:
    try:
        value = reduce(getattr, attribute.split("."), module)
    except AttributeError:
        offered = tools_in(module)
        named = {tool.name: tool for each in offered.values() for tool in _flat(each) if hasattr(tool, "name")}
        if attribute in named:
            return named[attribute]
        hint = _nearest(attribute, {**named, **offered})
        raise ToolDefinitionError(f"{target!r:.80}: there is no {attribute!r:.80} in it{hint}") from None
    if value is None:
        raise ToolDefinitionError(f"{target!r:.80}: {attribute!r:.80} is None in it")
    return value


def _listed(target: str, thing: object, *, shown: bool) -> list[object]:
    """Give the tools of a module, of a list, or the one thing itself."""
    if isinstance(thing, ModuleType):
        found = list(tools_in(thing).values())
        if not found:
            raise ToolDefinitionError(f"{target!r:.80} defines no tools: put @tool on a function, or name an attribute")
    else:
        found = list(thing) if isinstance(thing, (list, tuple, set, frozenset)) else [thing]
    for each in found:
        if callable(each) and hasattr(each, "__code__"):
            raise ToolDefinitionError(f"{target!r:.80} is a plain function: put @tool on it")
    # Each on its own: what is no tool is refused in words that name it, and not the others.
    for each in found:
        if not isinstance(each, Toolbox):
            _checked(target, each)
    return _flattened(found) if shown else found


def _checked(target: str, thing: object) -> None:
    try:
        Toolbox([thing])
    except ToolDefinitionError as problem:
        raise ToolDefinitionError(f"{target!r:.80}: {str(problem).removeprefix('Tool at index 0 ')}") from problem


def _flattened(found: list[object]) -> list[object]:
    """Give the tools themselves, each once, also out of toolboxes."""
    tools = {id(tool): tool for each in found for tool in _flat(each)}
    return list(tools.values())


def _flat(thing: object) -> list[object]:
    return list(thing) if isinstance(thing, Toolbox) else [thing]


def _nearest(name: str, known: Mapping[str, object]) -> str:
    near = get_close_matches(name[:64], known, n=1)
    if near:
        return f". Did you mean {near[0]!r}?"
    shown = ", ".join(sorted(known)[:_SHOWN])
    return f". There are: {shown}" if shown else ""
