"""A call of a tool as text to copy: as Python, as a command, and as a request with curl."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from pprint import pformat
from shlex import quote
from typing import Any, NamedTuple

from toolsemble._vocabulary.serialization import compact_json

_WIDTH = 88
_MCP = "mcp:"


class Surroundings(NamedTuple):
    """The parts of a call that a model does not write."""

    memory_id: str = ""
    """The memory id, if the tool takes it; empty if it does not."""
    takes_deps: bool = False
    """Whether the call has deps."""
    deps: str = ""
    """The target of the deps, as ``--deps`` takes it; empty if there is none."""
    is_made: bool = False
    """Whether the target is a function that makes them."""


_NONE = Surroundings()


def as_python(tool_name: str, arguments: Any, tool: object | None = None, surroundings: Surroundings = _NONE) -> str:
    """Return a program that makes a call and prints the reply.

    :param tool: the tool, which is imported if a module has it under a name; None, and otherwise: the program has a
        toolbox already
    :param surroundings: the memory id and the deps of the call

    >>> print(as_python("pay", {"order": 7}), end="")
    from toolsemble import ToolCall
    <BLANKLINE>
    reply = box.execute(ToolCall("pay", {'order': 7}))
    print(reply.text)
    """
    values = pformat(arguments, width=_WIDTH, sort_dicts=False)
    call = f"ToolCall({_quote_name(tool_name)}, {values})"
    found = None if tool is None else find_import(tool)
    imported, deps = _write_deps(surroundings)
    memory = f", memory_id={_quote_name(surroundings.memory_id)}" if surroundings.memory_id else ""
    given = f"{call}{memory}{deps}"
    if found is None:
        return f"from toolsemble import ToolCall\n{imported}\nreply = box.execute({given})\nprint(reply.text)\n"
    module, name = found
    imports = f"from toolsemble import Toolbox, ToolCall\nfrom {module} import {name}\n{imported}"
    return f"{imports}\nreply = Toolbox([{name}]).execute({given})\nprint(reply.text)\n"


def _write_deps(surroundings: Surroundings) -> tuple[str, str]:
    """Return the import of the deps, and the argument; ``...`` where a program cannot name them."""
    if not surroundings.takes_deps:
        return "", ""
    module, _, name = surroundings.deps.rpartition(":")
    stem = Path(module).stem if module.endswith(".py") else module
    is_named = name.isidentifier() and all(part.isidentifier() for part in stem.split("."))
    if surroundings.is_made or not is_named:
        return "", ", deps=..."
    return f"from {stem} import {name}\n", f", deps={name}"


def as_command(target: str, tool_name: str, arguments: Any, surroundings: Surroundings = _NONE) -> str:
    r"""Return the command that makes a call; all characters are printable ASCII.

    :param target: the target that the tool was loaded from, as ``toolsemble call`` takes it

    >>> as_command("shop.py", "pay", {"order": 7})
    'toolsemble call shop.py:pay \'{"order":7}\''
    >>> as_command("mcp:http://localhost:8000/mcp", "pay", {"order": 7})
    'toolsemble call mcp:http://localhost:8000/mcp pay \'{"order":7}\''
    """
    words = [target, tool_name] if target.startswith(_MCP) else [_name_tool(target, tool_name)]
    options = ["--memory-id", surroundings.memory_id] if surroundings.memory_id else []
    options += ["--deps", surroundings.deps or "MODULE:NAME"] if surroundings.takes_deps else []
    return " ".join(["toolsemble", "call", *map(quote, [*options, *words]), quote(_to_ascii(arguments))])


def as_curl(url: str, body: Mapping[str, Any], *, token: str = "$TOOLSEMBLE_TOKEN") -> str:  # noqa: S107 - the name of a variable
    r"""Return the request that makes a call by HTTP; all characters of the body are printable ASCII.

    :param token: the token, or the variable of the shell that has it

    >>> print(as_curl("http://127.0.0.1:7771/api/call", {"tool": "pay", "arguments": {"order": 7}}))
    curl http://127.0.0.1:7771/api/call \
      -H "Authorization: Bearer $TOOLSEMBLE_TOKEN" \
      -H 'Content-Type: application/json' \
      -d '{"tool":"pay","arguments":{"order":7}}'
    """
    bearer = f'"Authorization: Bearer {token}"' if token.startswith("$") else quote(f"Authorization: Bearer {token}")
    lines = [
        f"curl {quote(url)}",
        f"-H {bearer}",
        "-H 'Content-Type: application/json'",
        f"-d {quote(_to_ascii(body))}",
    ]
    return " \\\n  ".join(lines)


def find_import(tool: object) -> tuple[str, str] | None:
    """Return the module of a tool and its name there; None if no module has it under a name.

    >>> print(find_import(object()))
    None
    """
    function = getattr(tool, "__wrapped__", None)
    for home in (getattr(function, "__module__", None), type(tool).__module__):
        module = sys.modules.get(home) if isinstance(home, str) else None
        for name, value in [] if module is None else list(vars(module).items()):
            if value is tool and name.isidentifier() and not name.startswith("_"):
                # The module of a file that was named on the command line has its path as its name.
                stem = Path(str(home)).stem if str(home).endswith(".py") else str(home)
                return (stem, name) if all(part.isidentifier() for part in stem.split(".")) else None
    return None


def _name_tool(target: str, tool_name: str) -> str:
    """Return the target of one tool of a target; a built-in tool is a target itself."""
    stem, suffix, _ = target.partition(".py")
    if suffix:
        return f"{stem}.py:{tool_name}"
    first = target.partition(":")[0]
    return target if first == tool_name else f"{first}:{tool_name}"


def _to_ascii(value: Any) -> str:
    """Return JSON without characters that a terminal would act on, or that hide others."""
    return compact_json(value, ensure_ascii=True).replace("\x7f", "\\u007f")


def _quote_name(text: str) -> str:
    """Return a text as Python, with double quotes."""
    return compact_json(text, ensure_ascii=True)
