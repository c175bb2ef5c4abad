"""Endpoints of the playground: tools as forms, calls, provider formats, and calls as code."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from pprint import pformat
from shlex import quote
from typing import Any, NamedTuple

from toolsemble._engine.context import ToolContext, enter, leave
from toolsemble._engine.definition import ToolDefinition
from toolsemble._runtime.text import HIDDEN
from toolsemble._tools.collection import collect_tools
from toolsemble._tools.pipeline.pipeline import ToolPipeline
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._ui.endpoint import Asked, RefusedError, acts, changes, expand_or_refuse, reads
from toolsemble._ui.forms import MISSING, build_form, mask_secrets, read_form
from toolsemble._ui.guard import TOKEN_FILE
from toolsemble._ui.interface import Interface
from toolsemble._vocabulary.call import ToolCall, ToolReply, new_id, new_run_id
from toolsemble._vocabulary.errors import ToolsembleError
from toolsemble._vocabulary.provider_list import PROVIDERS
from toolsemble._vocabulary.result import ImageContent
from toolsemble._vocabulary.serialization import compact_json
from toolsemble._vocabulary.specification import Note, ToolSpecification
from toolsemble.agent._deps import DepsMaker
from toolsemble.agent._run.start import call_with_deps
from toolsemble.review._automatic import AutoApprove


@dataclass(frozen=True, slots=True)
class ProviderView:
    """A tool in the format of a provider.

    >>> ProviderView("mcp", [{"name": "pay"}]).problem
    ''
    """

    provider: str
    """The name of the provider."""
    tools: list[dict[str, Any]]
    """The provider's ``tools`` value; empty if the provider cannot take this tool."""
    notes: tuple[Note, ...] = ()
    """What the format cannot express as declared, and how it was changed."""
    problem: str = ""
    """Why the provider cannot take the tool; empty if it can."""


def view_providers(tool: object, providers: Iterable[str] = tuple(PROVIDERS)) -> tuple[ProviderView, ...]:
    """Return a tool in the formats of providers.

    :param tool: a tool, such as ``box["pay"]``
    """
    box = Toolbox([tool])
    ((_, definition),) = collect_tools(tool)
    views = []
    for provider in providers:
        try:
            views.append(ProviderView(provider, box.to_provider(provider), tuple(definition.explain(provider))))
        except (ToolsembleError, ValueError) as problem:
            views.append(ProviderView(provider, [], problem=str(problem)))
    return tuple(views)


_WIDTH = 88
_MCP = "mcp:"


class Surroundings(NamedTuple):
    """The parts of a call that a model does not send."""

    memory_id: str = ""
    """The memory id, if the tool takes one; else empty."""
    takes_deps: bool = False
    """Whether the call has deps."""
    deps: str = ""
    """The deps' target for ``--deps``; empty if there is none."""
    is_made: bool = False
    """Whether the target is a factory function."""


_NONE = Surroundings()


def as_python(tool_name: str, arguments: Any, tool: object | None = None, surroundings: Surroundings = _NONE) -> str:
    """Return a program that makes a call and prints the reply.

    :param tool: the tool, imported if a module has it under a name; otherwise, and for None, the program uses a toolbox
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

    :param target: the tool's target for ``toolsemble call``

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

    :param token: the token, or a shell variable that contains it

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
                # The module of a file named on the command line has its path as its name.
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
    """Return JSON without control characters and characters that hide others."""
    return compact_json(value, ensure_ascii=True).replace("\x7f", "\\u007f")


def _quote_name(text: str) -> str:
    """Return a text as Python, with double quotes."""
    return compact_json(text, ensure_ascii=True)


_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def list_tools(interface: Interface, _: Asked) -> dict[str, Any]:
    """Return the server's tools, one line each."""
    return {"tools": [_summarize(*_find(interface, name)) for name in interface.targets.names]}


def show_tool(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return one tool: its form, its schema, and its provider formats."""
    box, name = _find(interface, asked.text("name"))
    schema = _declare(box, name)
    return {
        **_summarize(box, name),
        "form": build_form(schema),
        "schema": schema,
        "providers": [_describe_view(each) for each in view_providers(box[name])],
        "graph": _find_graph(box, name),
    }


def list_pipelines(interface: Interface, _: Asked) -> dict[str, Any]:
    """Return composite tools as graphs."""
    found = [(_find(interface, name)) for name in interface.targets.names]
    graphs = [(_summarize(box, name), _find_graph(box, name)) for box, name in found]
    return {"pipelines": [{**tool, "graph": graph} for tool, graph in graphs if graph is not None]}


def expand(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return the content of a recursive field."""
    box, name = _find(interface, asked.text("name"))
    return {"field": expand_or_refuse(_declare(box, name), asked.text("place"))}


def convert(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return the arguments as JSON text and as a form, and the call as code."""
    box, name = _find(interface, asked.take("name", str, ""))
    text = _read_arguments(asked)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        shown = HIDDEN if box.has_secrets(name) else text
        return {"text": text, "form": None, "snippets": _write_snippets(interface, asked, box, name, shown)}
    schema = _declare(box, name)
    form = build_form(schema, value)
    shown = mask_secrets(schema, value) if box.has_secrets(name) else value
    return {"text": text, "form": form, "snippets": _write_snippets(interface, asked, box, name, shown)}


async def call(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Make a call as a model would, and return the exact text that the model would see."""
    box, name = _find(interface, asked.take("name", str, ""))
    made = ToolCall(name, _read_arguments(asked), asked.take("call_id", str, "") or new_id())
    is_dry = asked.take("dry_run", bool, False)  # noqa: FBT003 - the default
    started = time.monotonic()
    reply, run_id = await _execute(interface, box, made, _memory_id(asked), dry_run=is_dry)
    return {
        **_describe_reply(reply),
        "seconds": time.monotonic() - started,
        "run_id": run_id,
        "dry_run": is_dry,
    }


def _memory_id(asked: Asked) -> str:
    """Return the memory id of a person's calls here."""
    return f"ui/{asked.person.name}/playground"


async def _execute(
    interface: Interface, box: Toolbox, made: ToolCall, memory_id: str, *, dry_run: bool
) -> tuple[ToolReply, str]:
    run_id = new_run_id()
    if dry_run:
        # In a separate toolbox: a dry run needs no review and no record.
        alone = Toolbox([box[made.name]], review=AutoApprove())
        return await alone.aexecute(made, run_id=run_id, memory_id=memory_id, dry_run=True), run_id
    token = enter(ToolContext(review=interface.reviewer()))  # the toolbox's own reviewer takes precedence
    try:
        execute = partial(_execute_with, box, made, run_id, memory_id)
        work = call_with_deps(interface.targets.deps, run_id, memory_id, execute)
        return await interface.record().ado(work), run_id
    finally:
        leave(token)


async def _execute_with(box: Toolbox, made: ToolCall, run_id: str, memory_id: str, deps: Any) -> ToolReply:
    return await box.aexecute(made, run_id=run_id, memory_id=memory_id, deps=deps)


def _describe_reply(reply: ToolReply) -> dict[str, Any]:
    images = [each for each in reply.result.contents if isinstance(each, ImageContent)]
    return {
        "text": reply.text,
        "is_error": reply.is_error,
        "repairs": reply.result.attributes.get("repairs", ()),
        "wire": {name: reply.to_provider(name) for name in PROVIDERS},
        "images": [url for each in images if (url := _to_url(each))],
        "contents": [type(each).__name__ for each in reply.result.contents],
    }


def _to_url(image: ImageContent) -> str:
    """Return an image as a URL of data; empty for kinds that can hold programs, such as SVG."""
    import base64

    if image.mime_type not in _IMAGES or image.data is None:
        return ""
    return f"data:{image.mime_type};base64,{base64.b64encode(image.data).decode()}"


def _read_arguments(asked: Asked) -> str:
    """Return the arguments' JSON text: as written, or from a form."""
    text, form = asked.take("text", str), asked.take("form", dict)
    if text is not None:
        return str(text)
    value = read_form(form) if form is not None else asked.body.get("arguments", {})
    return compact_json({} if value is MISSING else value, ensure_ascii=False)


def _summarize(box: Toolbox, name: str) -> dict[str, Any]:
    tool: Any = box[name]
    return {
        "name": name,
        "description": _specify(box, name).description,
        "gated": bool(getattr(tool, "requires_approval", False)),
        "effects": getattr(tool, "effects", None),
        "is_pipeline": _find_graph(box, name) is not None,
    }


def _find_graph(box: Toolbox, name: str) -> Any:
    """Return the graph of a pipeline; None for other tools."""
    tool = box[name]
    return tool.describe().graph if isinstance(tool, ToolPipeline) else None


def _write_snippets(interface: Interface, asked: Asked, box: Toolbox, name: str, arguments: Any) -> dict[str, str]:
    """Return the call as code for copying and sharing; arguments that are not JSON stay text."""
    body = {"name": name, "text": arguments} if isinstance(arguments, str) else {"name": name, "arguments": arguments}
    deps, definition = interface.targets, _define(box, name)
    surroundings = Surroundings(
        _memory_id(asked) if "memory_id" in definition.sees else "",
        takes_deps=bool(deps.deps_source) or definition.deps_need is not None,
        deps=deps.deps_source,
        is_made=isinstance(deps.deps, DepsMaker),
    )
    token = f"$(cat {shlex.quote(str(interface.folder.path / TOKEN_FILE))})"
    return {
        "python": as_python(name, arguments, box[name], surroundings),
        "command": as_command(interface.targets.sources.get(name, name), name, arguments, surroundings),
        "curl": as_curl(f"{interface.address}/api/tool/call", body, token=token),
    }


def _describe_view(view: ProviderView) -> dict[str, Any]:
    notes = [str(note) for note in view.notes]
    return {"name": view.provider, "shown": view.tools, "notes": notes, "error": view.problem}


def _declare(box: Toolbox, name: str) -> dict[str, Any]:
    """Return the schema as declared, including secret markers, which models do not see."""
    return {"type": "object", **_define(box, name).schema()}


def _define(box: Toolbox, name: str) -> ToolDefinition:
    return next(each for each in box.definitions() if each.name == name)


def _specify(box: Toolbox, name: str) -> ToolSpecification:
    return next(each for each in box.specifications if each.name == name)


def _find(interface: Interface, name: str) -> tuple[Toolbox, str]:
    box = interface.targets.find(name)
    if box is None:
        raise RefusedError(404, f"There is no tool '{name:.80}'; start the server with its module or file")
    return box, name


ROUTES = [
    reads("/api/pipelines", list_pipelines),
    reads("/api/tools", list_tools),
    reads("/api/tool", show_tool),
    reads("/api/tool/expand", expand),
    changes("/api/tool/convert", convert),
    acts("/api/tool/call", call),
]
