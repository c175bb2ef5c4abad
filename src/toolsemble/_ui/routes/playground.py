"""Endpoints of the playground: tools as forms, calls, what providers are shown, and pipelines."""

from __future__ import annotations

import json
import shlex
import time
from functools import partial
from typing import Any

from toolsemble._engine.context import ToolContext, enter, leave
from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._runtime.text import HIDDEN
from toolsemble._tools.pipeline.pipeline import ToolPipeline
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._ui.endpoint import Asked, RefusedError, acts, changes, expand_or_refuse, reads
from toolsemble._ui.forms import MISSING, build_form, mask_secrets, read_form
from toolsemble._ui.interface import Interface
from toolsemble._ui.provider_view import ProviderView, view_providers
from toolsemble._ui.sessions import TOKEN_FILE
from toolsemble._ui.snippets import Surroundings, as_command, as_curl, as_python
from toolsemble._vocabulary.call import ToolCall, ToolReply, new_id, new_run_id
from toolsemble._vocabulary.providers import PROVIDERS
from toolsemble._vocabulary.result import ImageContent
from toolsemble._vocabulary.serialization import compact_json
from toolsemble._vocabulary.specification import ToolSpecification
from toolsemble.agent._deps import DepsMaker
from toolsemble.agent._start import call_with_deps
from toolsemble.review._automatic import AutoApprove

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def list_tools(interface: Interface, _: Asked) -> dict[str, Any]:
    """Return the tools of the server, each in a line."""
    return {"tools": [_summarize(*_find(interface, name)) for name in interface.targets.names]}


def show_tool(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return one tool: its form, its schema, and what each provider is shown."""
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
    """Return the tools that consist of others, as graphs."""
    found = [(_find(interface, name)) for name in interface.targets.names]
    graphs = [(_summarize(box, name), _find_graph(box, name)) for box, name in found]
    return {"pipelines": [{**tool, "graph": graph} for tool, graph in graphs if graph is not None]}


def expand(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return what is inside a field that repeats."""
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
    """Make a call as a model would, and return exactly what the model would be told."""
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
    """Return the memory id of the calls that a person makes here."""
    return f"ui/{asked.person.name}/playground"


async def _execute(
    interface: Interface, box: Toolbox, made: ToolCall, memory_id: str, *, dry_run: bool
) -> tuple[ToolReply, str]:
    run_id = new_run_id()
    if dry_run:
        # In a toolbox of its own: nobody is asked, and nothing is recorded, because nothing happens.
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
    """Return the JSON text of the arguments: as it was written, or that of a form."""
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
    """Return the call as code, to be copied and shown to others; arguments that are not JSON stay a text."""
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
    """Return the schema as it was declared, with the marks of secrets, which models are not shown."""
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
