"""Modules that are named on the command line: how they are loaded, and the tools that are defined in them."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec, resolve_name
from pathlib import Path
from types import ModuleType

from toolsemble.cli.exit_codes import line_of
from toolsemble.cli.redirect import aside
from toolsemble.errors import ToolDefinitionError
from toolsemble.toolbox.toolbox import Toolbox
from toolsemble.tools.base import Tool
from toolsemble.tools.function import method_tools

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def module_at(path: str) -> ModuleType:
    """Run a file and give its module, or refuse; a second time it is not run again.

    >>> module_at("nothing.py")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: There is no file 'nothing.py'
    """
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise ToolDefinitionError(f"There is no file {path!r}")
    # The whole path is its name: a file 'json.py' must not stand in for the module of that name.
    name = str(file)
    if name in sys.modules:
        return sys.modules[name]
    loader = SourceFileLoader(name, name)
    spec = ModuleSpec(name, loader, origin=name)
    spec.has_location = True
    module = sys.modules[name] = module_from_spec(spec)
    _see(file.parent)
    try:
        with aside():
            loader.exec_module(module)
    except KeyboardInterrupt:
        del sys.modules[name]
        raise
    except BaseException as problem:
        del sys.modules[name]
        raise _unloadable(path, problem) from problem
    return module


def module_named(name: str) -> ModuleType | None:
    """Import a module and give it, or None when there is none of that name; refuse one that cannot be loaded.

    >>> module_named("no_such_module") is None
    True
    """
    _see(Path.cwd())
    try:
        with aside():
            return import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name is not None and (name == problem.name or name.startswith(f"{problem.name}.")):
            return None
        raise _unloadable(name, problem) from problem
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        raise _unloadable(name, problem) from problem


def tools_in(module: ModuleType) -> dict[str, object]:
    """Give what a module defines that is or has tools, by name: tools, toolboxes, pipelines, objects with tools.

    What it imports from elsewhere does not count, unless its ``__all__`` names it.
    """
    found = {name: getattr(module, name, None) for name in _offered(module)}
    return {name: value for name, value in found.items() if _offers(value)}


def _offered(module: ModuleType) -> list[str]:
    """Give the names in ``__all__``, or else the public ones that the module does not import."""
    listed = getattr(module, "__all__", None)
    if listed is None:
        imported = _imported(module)
        return [name for name in vars(module) if not name.startswith("_") and name not in imported]
    if not (isinstance(listed, (list, tuple)) and all(isinstance(name, str) for name in listed)):
        raise ToolDefinitionError(f"{module.__name__!r}: __all__ must be a list of names, not {listed!r:.80}")
    return list(listed)


def _offers(value: object) -> bool:
    if isinstance(value, type):
        return False
    return isinstance(value, (Tool, Toolbox)) or bool(method_tools(value))


def _see(directory: Path) -> None:
    # At the end: nothing that lies about in a directory takes the place of an installed package.
    if str(directory) not in sys.path:
        sys.path.append(str(directory))


def _unloadable(name: str, problem: BaseException) -> ToolDefinitionError:
    ended = isinstance(problem, SystemExit)
    why = "it ended the program while it was loaded" if ended else line_of(problem)
    return ToolDefinitionError(f"{name!r} cannot be loaded: {why}")


def _imported(module: ModuleType) -> set[str]:
    """Give the names that a module has by import statements; what it binds again afterwards is its own."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, SyntaxError, TypeError):  # there is no source to look at
        return set()
    names: set[str] = set()
    for statement in _statements(tree.body):
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            names.update(_brought(module, statement))
        else:
            names.difference_update(_bound(statement))
    return names


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Give the statements of a module in their order, also those inside of others, but none of a scope of its own."""
    for statement in body:
        yield statement
        if not isinstance(statement, _SCOPES):
            yield from _statements(ast.iter_child_nodes(statement))


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name


def _brought(module: ModuleType, statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    for alias in statement.names:
        if alias.name == "*" and isinstance(statement, ast.ImportFrom):
            source = "." * statement.level + (statement.module or "")
            other = vars(sys.modules[resolve_name(source, module.__package__ or "")])
            yield from (name for name, value in vars(module).items() if other.get(name) is value)
        else:
            yield alias.asname or alias.name.partition(".")[0]
