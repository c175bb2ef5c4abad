"""Load the modules and files named on the command line, and find the tools defined in them."""

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

from toolsemble._cli.exit_codes import format_error
from toolsemble._cli.redirect import redirect_prints
from toolsemble._tools.base import Tool
from toolsemble._tools.function import method_tools
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import ToolDefinitionError

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def load_file(path: str) -> ModuleType:
    """Run a file and return its module; raise if it cannot be loaded. A loaded file is not run again.

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
    """Return the tools, toolboxes, pipelines and objects with tools that a module defines, by name.

    Imported objects are included only if ``__all__`` names them.
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
    """Return the names that a module imports and does not assign again afterwards."""
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
    """Yield the statements of a module in order, including nested ones, but not those in functions and classes."""
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
