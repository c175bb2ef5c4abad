"""References to names: each public one has one entry, wherever the code that mentions it has it from."""

import ast
import builtins
import importlib
import inspect
import re
import sys
from functools import cache
from pkgutil import resolve_name
from types import ModuleType
from typing import get_args

from docutils.nodes import Element, TextElement
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer

# In this order: a name that several of them offer has its entry in the first one.
PUBLIC = (
    "toolsemble",
    "toolsemble.events",
    "toolsemble.review",
    "toolsemble.models",
    "toolsemble.agent",
    "toolsemble.builtin",
    "toolsemble.telemetry",
    "toolsemble.weights",
    "toolsemble.testing",
    "toolsemble.mcp",
    "toolsemble.agent.streams",
)
# Names of these that have no entry are shown as they are, if they exist.
KNOWN = {
    *sys.stdlib_module_names,
    "mcp",
    "mcp_types",
    "openai",
    "opentelemetry",
    "prometheus_client",
    "pydantic",
    "toolsemble",
}
_NAMED = re.compile(r"<(?:class '|(?:built-in )?function )(?:\w+\.)*(\w+)[^<>]*>")
_MADE = re.compile(r"<[^<>]+>")


def setup(app: Sphinx) -> dict[str, bool]:
    """Have annotations read, and references resolved that name the module in which something is defined."""
    app.connect("builder-inited", _complete)
    app.connect("autodoc-process-docstring", _described)
    app.connect("autodoc-process-signature", _written)
    app.connect("missing-reference", _resolved)
    return {"parallel_read_safe": True}


def _complete(_app: Sphinx) -> None:
    """Return the modules of public names what they import for type checkers alone: annotations mention it."""
    _entries()  # loads them
    for name in [each for each in sys.modules if each.partition(".")[0] == "toolsemble"]:
        _import_for_types(sys.modules[name])


def _import_for_types(module: ModuleType) -> None:
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            imports = compile(ast.Module(node.body, []), str(module.__file__), "exec")
            exec(imports, vars(module))  # noqa: S102 - imports of our own


def _described(_app: Sphinx, what: str, path: str, value: object, _options: object, lines: list[str]) -> None:
    """Return a constant what stands below its definition, wherever that is, and a union its links."""
    if what != "data":
        return
    package, _, name = path.rpartition(".")
    kinds = [f":class:`~{each.__module__}.{each.__qualname__}`" for each in get_args(value) if inspect.isclass(each)]
    lines[:] = [*_below(package, name, value), "", f"One of {', '.join(kinds)}." if kinds else "", ""]


def _below(package: str, name: str, value: object) -> list[str]:
    for module in sorted(each for each in sys.modules if f"{each}.".startswith(f"{package}.")):
        if vars(sys.modules[module]).get(name) is value:
            found = ModuleAnalyzer.for_module(module).find_attr_docs().get(("", name))
            if found:
                return found
    return []


def _written(
    _app: Sphinx, _what: str, _name: str, value: object, _options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Return a signature that is Python: functions and classes by their names, three dots for what has no literal."""
    if getattr(value, "_is_protocol", False):
        return None, None  # protocols are not instantiated
    return signature and _MADE.sub("...", _NAMED.sub(r"\1", signature)), returned


def _resolved(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: TextElement) -> Element | None:
    """Return the link to the entry of a name, or its plain text when it has none; None for names that are not there."""
    if node.get("refdomain") != "py":
        return None
    target, entries = node["reftarget"], _entries()
    inside = f"{node.get('py:module') or 'toolsemble'}.{target}"
    entry = entries.get(target) or entries.get(inside)
    if entry:
        domain = env.domains.python_domain
        return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", entry, node, content)
    return content if _is_known(target) or _is_known(inside) else None


@cache
def _entries() -> dict[str, str]:
    """Return the entry of each public name: by the module that defines it, by those that offer it, and by itself."""
    entries: dict[str, str] = {}
    for package in PUBLIC:
        module = importlib.import_module(package)
        # The package itself shows the everyday names only.
        for name in module.__getattr__.names if hasattr(module, "__getattr__") else module.__all__:
            value = getattr(module, name)
            named = inspect.isclass(value) or inspect.isfunction(value)
            home = f"{value.__module__}.{value.__qualname__}" if named else f"{package}.{name}"
            entry = entries.setdefault(home, f"{package}.{name}")
            for other in (f"{package}.{name}", name):
                entries.setdefault(other, entry)
    return entries


def _is_known(path: str) -> bool:
    """Whether there is such a name, though it has no entry: another library's, or one inside this."""
    first, _, _ = path.partition(".")
    if first not in KNOWN:
        return hasattr(builtins, path)
    try:
        resolve_name(path)
    except (AttributeError, ImportError, ValueError):
        return False
    return True
