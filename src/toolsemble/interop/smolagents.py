"""smolagents: export toolbox tools as ``Tool`` objects, and adopt its tools."""

from __future__ import annotations

import keyword
import re
from functools import cache, partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, Unpack

from toolsemble._tools.schema import SchemaTool
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolReply
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolExecutionError
from toolsemble._vocabulary.result import ImageContent, ToolResult
from toolsemble.interop import _exporting as exporting
from toolsemble.interop._adopting import ForeignTool, adopt_tools, failure, flatten, refuse

if TYPE_CHECKING:
    from toolsemble._tools.settings import ToolSettings

_import = partial(exporting.import_framework, install="smolagents", user="smolagents")
_CANNOT_PAUSE = "smolagents cannot pause a run for approval"
_MEDIA = frozenset({"image", "audio"})


def export(
    box: Toolbox,
    *,
    memory_id: exporting.Choice = None,
    run_id: exporting.Choice = None,
    parameters: exporting.Parameters = None,
    approval: exporting.Approval = "ours",
) -> list[Any]:
    """Return a toolbox's tools as smolagents tools, for ``ToolCallingAgent`` and ``CodeAgent``.

    A failed call is a text that begins with ``Error:`` for a ``ToolCallingAgent``, which would lose the turn's other
    calls on an exception; a ``CodeAgent``'s code gets a :class:`~toolsemble.ToolExecutionError`. Names become Python
    identifiers.

    :param memory_id: the conversation or user that calls belong to, or a function, which is called with None
    :param run_id: the run that calls belong to, or a function, which is called with None
    :param parameters: values that the tools of a run share, or a function, which is called with None
    :param approval: "ours": the reviewer of the toolbox is asked

    .. code-block:: python

        from smolagents import ToolCallingAgent

        agent = ToolCallingAgent(tools=smolagents.export(box), model=model)
    """
    kind = _tool_class()
    settings = exporting.CallSettings(memory_id, run_id, parameters)
    found = exporting.export_tools(box, settings, approval, cannot_pause=_CANNOT_PAUSE, fit_name=_fit_name)
    return [kind(each) for each in found]


def _fit_name(name: str) -> str:
    """Return a name that code can call."""
    fitting = re.sub(r"\W", "_", name)
    return fitting if fitting.isidentifier() and not keyword.iskeyword(fitting) else f"tool_{fitting}"


@cache
def _tool_class() -> Any:
    """Return the class of exported tools, defined only if smolagents is installed."""
    base: Any = _import("smolagents").Tool

    class ToolsembleTool(base):
        """A tool of a toolbox."""

        output_type = "string"
        skip_forward_signature_validation = True

        def __init__(self, exported: exporting.ExportedTool) -> None:
            self.exported = exported
            self.name, self.description = exported.shown_name, exported.description
            self.inputs = _Inputs(_write_inputs(exported.parameters))
            super().__init__()

        # An agent passes the flag, code does not; self is positional, because a parameter may have its name.
        def __call__(self, /, *values: Any, sanitize_inputs_outputs: bool = False, **named: Any) -> str:
            if not sanitize_inputs_outputs:
                return self.forward(*values, **named)
            return exporting.full_text_of(self.exported.execute(_read_arguments(self.exported, values, named)))

        def forward(self, /, *values: Any, **named: Any) -> str:
            return _raise_failure(self.exported.execute(exporting.bind_arguments(self.exported, values, named)))

        def to_dict(self) -> dict[str, Any]:
            raise ToolConfigurationError(
                f"'{self.name}' is a tool of a toolbox and cannot be saved; save the code that makes the toolbox"
            )

    return ToolsembleTool


class _Inputs(dict[str, Any]):
    """A tool's inputs as shown to the model.

    smolagents validates arguments with the other methods, which accept everything, so that the toolbox can repair them
    or report all problems.
    """

    def __contains__(self, name: object) -> bool:
        return True

    def __getitem__(self, name: str) -> dict[str, Any]:
        return {"type": "any"}

    def values(self) -> Any:
        """Return the type of a positional input."""
        return [{"type": "any"}]

    def __deepcopy__(self, memo: Any) -> dict[str, Any]:
        return {name: dict(each) for name, each in self.items()}


class _Input(dict[str, Any]):
    """One input: shown unchanged, and never missing in smolagents' validation."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value; inputs are always optional."""
        return True if key == "nullable" else super().get(key, default)


def _write_inputs(schema: dict[str, Any]) -> _Inputs:
    required = schema.get("required", [])
    parameters = schema["properties"].items()
    return _Inputs({name: _write_input(name, each, required=name in required) for name, each in parameters})


def _write_input(name: str, schema: dict[str, Any], *, required: bool) -> _Input:
    """Return a parameter in smolagents' form: always with a type and a description."""
    kept = {key: value for key, value in schema.items() if key != "anyOf"}
    kinds = [each.get("type", "any") for each in schema.get("anyOf", [])]
    whole = all(isinstance(each, str) and each != "any" for each in kinds)
    kind = schema.get("type") or (list(dict.fromkeys(kinds)) if kinds and whole else "any")
    optional = {} if required else {"nullable": True}
    return _Input({**kept, "type": kind, "description": schema.get("description", name), **optional})


def _read_arguments(exported: exporting.ExportedTool, values: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Return the arguments of an agent's call, which passes unparseable JSON as a single text."""
    broken = len(values) == 1 and isinstance(values[0], str) and values[0].lstrip().startswith("{")
    return values[0] if broken else exporting.bind_arguments(exported, values, named)


def _raise_failure(reply: ToolReply) -> str:
    """Return the text for code; raise if the call failed, because code would continue with the error text."""
    text = exporting.full_text_of(reply)
    if reply.is_error:
        raise ToolExecutionError(text)
    return text


def adopt(tools: Any, **settings: Unpack[ToolSettings]) -> list[SchemaTool]:
    """Return smolagents tools as tools for a toolbox: one tool, a ``ToolCollection``, or a list of them.

    Their arguments are validated against their inputs; images that they return become contents of the result. A tool
    that takes images or audio is rejected.

    :param settings: the settings of the new tools, such as ``requires_approval`` or ``timeout``

    .. code-block:: python

        from smolagents import WebSearchTool

        box = Toolbox(smolagents.adopt(WebSearchTool(), timeout=20))
    """
    library = _import("smolagents")
    listed = tools.tools if isinstance(tools, library.ToolCollection) else tools
    found = flatten(listed, lambda each: isinstance(each, library.Tool), "a tool of smolagents")
    return adopt_tools("smolagents", [_read(each) for each in found], dict(settings))


def _read(tool: Any) -> ForeignTool:
    exported = getattr(tool, "exported", None)
    schema = _read_inputs(tool) if exported is None else exported.parameters

    def call(arguments: dict[str, Any], _: str) -> Any:
        try:
            return _read_output(tool(**arguments))
        except ToolExecutionError as problem:
            return failure(str(problem))

    return ForeignTool(tool.name, tool.description, schema, call, exported)


def _read_inputs(tool: Any) -> dict[str, Any]:
    """Return the inputs of a tool as a JSON Schema; "any" is smolagents' word for no type."""
    properties: dict[str, Any] = {}
    for name, each in tool.inputs.items():
        kinds = each["type"] if isinstance(each["type"], list) else [each["type"]]
        if _MEDIA.intersection(kinds):
            raise refuse(tool.name, f"an {'image' if 'image' in kinds else 'audio'} object for the input {name}")
        nullable = ["null"] if each.get("nullable") and "null" not in kinds else []
        kept = {key: value for key, value in each.items() if key not in ("type", "nullable")}
        properties[name] = kept if "any" in kinds else {**kept, "type": [*kinds, *nullable]}
    required = [name for name, each in tool.inputs.items() if not each.get("nullable")]
    return {"type": "object", "properties": properties, "required": required}


def _read_output(value: Any) -> Any:
    """Return a tool's result; a Pillow image, or smolagents' own, becomes an image content."""
    if not hasattr(value, "save"):
        return value
    written = BytesIO()
    value.save(written, "PNG")
    return ToolResult.success("an image", contents=[ImageContent(written.getvalue(), "image/png")])
