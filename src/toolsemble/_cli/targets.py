"""Load the tools of targets such as ``calculator``, ``file_read:./docs``, ``my_module:my_tools`` or ``tools.py``.

A target ``mcp:...`` is an MCP server.

Loading a module or a file runs its code, with all permissions of this process.
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial, reduce
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec, resolve_name
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

from toolsemble import builtin
from toolsemble._cli.options import format_error
from toolsemble._cli.screen import redirect_prints
from toolsemble._tools.base import Tool
from toolsemble._tools.function import method_tools
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.agent._deps import DepsMaker

if TYPE_CHECKING:
    from toolsemble.mcp import MCPClient


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A built-in tool and its setting, written after a colon.

    >>> BUILT_INS["file_read"].form
    'file_read:DIR'
    """

    name: str
    make: Callable[[str], Any]
    """Creates the tool from a setting, which may be empty."""
    setting: str = ""
    """The setting's placeholder; empty: no setting."""
    needed: bool = False
    """Whether the setting is required."""
    example: str = "."
    """An example setting."""

    @property
    def form(self) -> str:
        """The syntax of its target."""
        if not self.setting:
            return self.name
        return f"{self.name}:{self.setting}" if self.needed else f"{self.name}[:{self.setting}]"


def make_built_in(name: str, setting: str, *, shown: bool = False) -> object:
    """Return a built-in tool; raise if the setting is missing or not allowed.

    :param shown: whether the tool is only shown, so that the setting may be missing

    >>> make_built_in("file_read", "")
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: file_read needs a setting: write file_read:DIR, such as file_read:.
    """
    entry = BUILT_INS[name]
    if setting and not entry.setting:
        raise ToolDefinitionError(f"{name} takes no setting, but was given {setting!r:.80}")
    if entry.needed and not setting:
        if not shown:
            raise ToolDefinitionError(f"{name} needs a setting: write {entry.form}, such as {name}:{entry.example}")
        setting = entry.example
    return entry.make(setting)


_ALL = (
    BuiltIn("calculator", lambda _: builtin.CalculatorTool()),
    BuiltIn("datetime", lambda _: builtin.DateTimeTool()),
    BuiltIn("json_parser", lambda _: builtin.JsonParserTool()),
    BuiltIn("file_read", lambda directory: builtin.FileReadTool(directory), "DIR", needed=True),  # noqa: PLW0108 - lazy
    # A write cannot be undone, so it needs approval.
    BuiltIn(
        "file_write",
        lambda directory: builtin.FileWriteTool(directory, requires_approval=True),
        "DIR",
        needed=True,
    ),
    BuiltIn("web_search", lambda provider: builtin.WebSearchTool(provider or None), "PROVIDER"),
    BuiltIn("web_scraper", lambda host: builtin.WebScraperTool(allow_hosts=[host] if host else ()), "HOST"),
    BuiltIn("human_input", lambda _: builtin.HumanInputTool()),
)
BUILT_INS: Mapping[str, BuiltIn] = MappingProxyType({each.name: each for each in _ALL})
"""The built-in tools by name, in display order."""


PREFIX = "mcp:"
"""The prefix of such a target."""
_LONGEST = 39


def load_servers(target: str) -> list[object]:
    """Start a target's servers, and return their tools; they stop with the program.

    >>> load_servers("mcp:")
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: 'mcp:' names no server: write mcp:URL, mcp:FILE.json or mcp:"command line"
    """
    return [tool for client in build_clients(target) for tool in client.start()]


def build_clients(target: str, **options: Any) -> list[MCPClient]:
    """Return a client for each server of a target, not started.

    :param options: options for all clients

    >>> build_clients("mcp:https://tools.example.com/mcp")
    [<MCPClient 'tools.example.com', not running>]
    """
    from toolsemble.mcp import MCPClient
    from toolsemble.mcp._client.config import read_config

    where = target.removeprefix(PREFIX).strip()
    if where.startswith(("http://", "https://")):
        return [MCPClient.http(where, **options)]
    if where.endswith(".json") and Path(where).is_file():
        servers = read_config(where)
        return [
            MCPClient.from_server(each, {"name": name, "prefix": _make_prefix(name), **options})
            for name, each in servers.items()
        ]
    try:
        line = shlex.split(where)
    except ValueError as problem:
        raise ToolDefinitionError(f"{target!r:.80} is not a command line: {problem}") from None
    if not line:
        raise ToolDefinitionError(f'{target!r:.80} names no server: write mcp:URL, mcp:FILE.json or mcp:"command line"')
    if len(line) == 1 and where.endswith(".json"):
        raise ToolDefinitionError(f"{target!r:.80}: there is no file {where!r:.80}")
    return [MCPClient.stdio(*line, **options)]


def _make_prefix(name: str) -> str:
    return f"{re.sub('[^a-zA-Z0-9_-]', '_', name)[:_LONGEST]}_"


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def load_file(path: str) -> ModuleType:
    """Run a file and return its module; raise if it cannot be loaded. A loaded file is not rerun.

    >>> load_file("nothing.py")
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: There is no file 'nothing.py'
    """
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise ToolDefinitionError(f"There is no file {path!r}")
    # The module's name is the path: a file 'json.py' must not replace the module json.
    name = str(file)
    if name in sys.modules:
        return sys.modules[name]
    loader = SourceFileLoader(name, name)
    spec = ModuleSpec(name, loader, origin=name)
    spec.has_location = True
    module = sys.modules[name] = module_from_spec(spec)
    _add_to_path(file.parent)
    try:
        with redirect_prints():
            loader.exec_module(module)
    except KeyboardInterrupt:
        del sys.modules[name]
        raise
    except BaseException as problem:
        del sys.modules[name]
        raise _load_error(path, problem) from problem
    return module


def load_module(name: str) -> ModuleType | None:
    """Import and return a module; return None if it does not exist; raise if it cannot be loaded.

    >>> load_module("no_such_module") is None
    True
    """
    _add_to_path(Path.cwd())
    try:
        with redirect_prints():
            return import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name is not None and (name == problem.name or name.startswith(f"{problem.name}.")):
            return None
        raise _load_error(name, problem) from problem
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        raise _load_error(name, problem) from problem


def find_tools(module: ModuleType) -> dict[str, object]:
    """Return a module's tools, toolboxes, pipelines and objects with tools, by name.

    Imported objects are included only if ``__all__`` lists them.
    """
    found = {name: getattr(module, name, None) for name in _public_names(module)}
    return {name: value for name, value in found.items() if _has_tools(value)}


def _public_names(module: ModuleType) -> list[str]:
    """Return the names in ``__all__``, or else the public names that the module does not import."""
    listed = getattr(module, "__all__", None)
    if listed is None:
        imported = _imported_names(module)
        return [name for name in vars(module) if not name.startswith("_") and name not in imported]
    if not (isinstance(listed, (list, tuple)) and all(isinstance(name, str) for name in listed)):
        raise ToolDefinitionError(f"{module.__name__!r}: __all__ must be a list of names, not {listed!r:.80}")
    return list(listed)


def _has_tools(value: object) -> bool:
    if isinstance(value, type):
        return False
    return isinstance(value, (Tool, Toolbox)) or bool(method_tools(value))


def _add_to_path(directory: Path) -> None:
    # At the end, so that a file in the directory cannot replace an installed package.
    if str(directory) not in sys.path:
        sys.path.append(str(directory))


def _load_error(name: str, problem: BaseException) -> ToolDefinitionError:
    exited = isinstance(problem, SystemExit)
    why = "it raised SystemExit while it was loaded" if exited else format_error(problem)
    return ToolDefinitionError(f"{name!r} cannot be loaded: {why}")


def _imported_names(module: ModuleType) -> set[str]:
    """Return the names that a module imports and does not reassign."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, SyntaxError, TypeError):  # the source is not available
        return set()
    names: set[str] = set()
    for statement in _walk_statements(tree.body):
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            names.update(_names_of_import(module, statement))
        else:
            names.difference_update(_assigned_names(statement))
    return names


def _walk_statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield a module's statements in order, including nested ones, except in functions and classes."""
    for statement in body:
        yield statement
        if not isinstance(statement, _SCOPES):
            yield from _walk_statements(ast.iter_child_nodes(statement))


def _assigned_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name


def _names_of_import(module: ModuleType, statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    for alias in statement.names:
        if alias.name == "*" and isinstance(statement, ast.ImportFrom):
            source = "." * statement.level + (statement.module or "")
            other = vars(sys.modules[resolve_name(source, module.__package__ or "")])
            yield from (name for name, value in vars(module).items() if other.get(name) is value)
        else:
            yield alias.asname or alias.name.partition(".")[0]


_FILE = re.compile(r"(?P<path>.+\.py)(?::(?P<attribute>[^:/\\]+))?")
_MAX_SHOWN = 20


def split_targets(texts: Iterable[str]) -> list[str]:
    """Return the targets in texts that may each contain several, separated by commas.

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
    """Return a target's tools and toolboxes; raise with the nearest names if it does not exist.

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

    :param is_wanted: which objects to suggest for a missing attribute; None: tools

    >>> load_object("math:pi")
    3.141592653589793
    """
    if target.endswith(":") and target.strip(":"):
        raise ToolDefinitionError(
            f"{target!r:.80} has nothing after the colon: write {target[:-1]:.80} for all of it, or {target:.80}NAME"
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
    """Return the deps at a target: an object unchanged; a function or class is called for each run or call.

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
            raise ToolDefinitionError(f"{target!r:.80}: it has no {attribute!r:.80}{hint}") from None
        offered = find_tools(module)
        named = {tool.name: tool for each in offered.values() for tool in _expand(each) if hasattr(tool, "name")}
        if attribute in named:
            return named[attribute]
        hint = _suggest(attribute, {**named, **offered})
        raise ToolDefinitionError(f"{target!r:.80}: it has no {attribute!r:.80}{hint}") from None
    if value is None:
        raise ToolDefinitionError(f"{target!r:.80}: its {attribute!r:.80} is None")
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
