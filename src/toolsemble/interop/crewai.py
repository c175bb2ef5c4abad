"""CrewAI: export toolbox tools as ``BaseTool`` objects, and adopt its tools."""

from __future__ import annotations

from functools import cache, partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Unpack

from pydantic import Field

from toolsemble._tools.schema import SchemaTool
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolReply
from toolsemble._vocabulary.result import ToolResult
from toolsemble.interop import _exporting as exporting
from toolsemble.interop._adopting import ForeignTool, adopt_tools, failure, flatten

if TYPE_CHECKING:
    from toolsemble._tools.settings import ToolSettings

_import = partial(exporting.import_framework, install="crewai", user="crewai")
_CANNOT_PAUSE = "CrewAI cannot pause a run for approval"


def export(
    box: Toolbox,
    *,
    memory_id: exporting.Choice = None,
    run_id: exporting.Choice = None,
    parameters: exporting.Parameters = None,
    approval: exporting.Approval = "ours",
) -> list[Any]:
    """Return a toolbox's tools as CrewAI tools, for ``Agent`` or ``Task``.

    A failed call is a ``ToolFailure``; otherwise a tool returns a text, whose ``payload`` is the structured output as
    JSON values. CrewAI does not cache the results. A call's run id is CrewAI's execution id. Names become
    lower case, with ``_`` for ``-``.

    :param memory_id: the conversation or user that calls belong to, or a function, which is called with None
    :param run_id: the run that calls belong to, or a function, which is called with None
    :param parameters: values that the tools of a run share, or a function, which is called with None
    :param approval: "ours": the reviewer of the toolbox is asked

    .. code-block:: python

        from crewai import Agent

        agent = Agent(role="Buyer", goal="Buy tea", backstory="Likes tea", tools=crewai.export(box))
    """
    kind, fit = _tool_class(), _import("crewai.utilities.string_utils").sanitize_tool_name
    settings = exporting.CallSettings(memory_id, run_id, parameters)
    found = exporting.export_tools(
        box, settings, approval, cannot_pause=_CANNOT_PAUSE, fit_name=lambda name: fit(name) or "tool"
    )
    return [_write_tool(kind, each) for each in found]


def _write_tool(kind: Any, exported: exporting.ExportedTool) -> Any:
    schema, optional = _make_optional(exported.parameters)
    return kind(
        name=exported.shown_name,
        description=exported.description,
        args_schema=exporting.model_of(exported.shown_name, schema),
        cache_function=_never,
        exported=exported,
        optional=optional,
    )


def _never(*_: Any) -> bool:
    """Return False: a cached result would bypass the toolbox, with its gates and limits."""
    return False


def _make_optional(schema: dict[str, Any]) -> tuple[dict[str, Any], frozenset[str]]:
    """Return a schema in which null means an omitted optional parameter, and the names of these parameters.

    CrewAI requires the model to send all parameters.
    """
    properties, required = schema.get("properties", {}), schema.get("required", [])
    optional = frozenset(name for name, each in properties.items() if name not in required and not _has_null(each))
    shown = {name: _add_null(each) if name in optional else each for name, each in properties.items()}
    return {**schema, "properties": shown}, optional


def _has_null(schema: dict[str, Any]) -> bool:
    kinds = schema.get("type", [each.get("type") for each in schema.get("anyOf", [])])
    return kinds == [] or "null" in ([kinds] if isinstance(kinds, str) else kinds)


def _add_null(schema: dict[str, Any]) -> dict[str, Any]:
    outside = ("description", "default")
    inside = {key: each for key, each in schema.items() if key not in outside}
    return {"anyOf": [inside, {"type": "null"}], **{key: schema[key] for key in outside if key in schema}}


@cache
def _tool_class() -> Any:
    """Return the class of exported tools, defined only if CrewAI is installed."""
    base: Any = _import("crewai.tools").BaseTool
    execution = _import("crewai.execution")
    failed = _import("crewai.tools.tool_failure").ToolFailure

    class ToolsembleTool(base):
        """A toolbox tool; self is positional, because a parameter may have its name."""

        exported: Any = Field(exclude=True)
        optional: Any = Field(exclude=True)

        def run(self, /, *values: Any, **named: Any) -> Any:
            return self._claim_usage() or self._run(*values, **named)

        async def arun(self, /, *values: Any, **named: Any) -> Any:
            return self._claim_usage() or await self._arun(*values, **named)

        def _run(self, /, *values: Any, **named: Any) -> Any:
            arguments = _read_arguments(self.exported, values, named, self.optional)
            return _answer(self.exported.execute(arguments, run_id=execution.get_execution_uuid()), failed)

        async def _arun(self, /, *values: Any, **named: Any) -> Any:
            arguments = _read_arguments(self.exported, values, named, self.optional)
            return _answer(await self.exported.aexecute(arguments, run_id=execution.get_execution_uuid()), failed)

    return ToolsembleTool


def _read_arguments(
    exported: exporting.ExportedTool, values: tuple[Any, ...], named: dict[str, Any], optional: frozenset[str]
) -> dict[str, Any]:
    """Return a call's arguments, without optional nulls."""
    bound = exporting.bind_arguments(exported, values, named)
    return {name: value for name, value in bound.items() if value is not None or name not in optional}


class ToolText(str):
    """The text of a result, with its structured output."""

    __slots__ = ("payload",)

    payload: Any
    """The structured output as JSON values; None if there is none."""


def _answer(reply: ToolReply, failed: Any) -> Any:
    """Return the text for the agent, or the failure."""
    text = ToolText(exporting.full_text_of(reply))
    text.payload = exporting.payload_of(reply)
    return failed(message=str(text)) if reply.is_error else text


def adopt(tools: Any, **settings: Unpack[ToolSettings]) -> list[SchemaTool]:
    """Return CrewAI tools as tools for a toolbox: one tool, or a list of them.

    Their arguments are validated against their schema. CrewAI keeps counting their uses.

    :param settings: the settings of the new tools, such as ``requires_approval`` or ``timeout``

    .. code-block:: python

        from crewai_tools import ScrapeWebsiteTool

        box = Toolbox(crewai.adopt(ScrapeWebsiteTool(), timeout=20))
    """
    base = _import("crewai.tools").BaseTool
    found = flatten(tools, lambda each: isinstance(each, base), "a CrewAI tool")
    return adopt_tools("crewai", [_read(each) for each in found], dict(settings))


def _read(tool: Any) -> ForeignTool:
    exported = getattr(tool, "exported", None)

    async def acall(arguments: dict[str, Any], _: str) -> Any:
        return _read_output(await tool.arun(**arguments))

    def call(arguments: dict[str, Any], _: str) -> Any:
        return _read_output(tool.run(**arguments))

    # arun fails for other tools, sometimes after they have run.
    is_async = exported is not None or iscoroutinefunction(getattr(tool, "func", None))
    schema = tool.args_schema.model_json_schema() if exported is None else exported.parameters
    parameters = {key: value for key, value in schema.items() if key not in ("title", "description")}
    return ForeignTool(tool.name, tool.description, parameters, acall if is_async else call, exported)


def _read_output(output: Any) -> Any:
    """Return the result for the output of a tool."""
    if isinstance(output, _import("crewai.tools.tool_failure").ToolFailure):
        return failure(output.as_agent_message())
    return ToolResult.success(str(output), output.payload) if isinstance(output, ToolText) else output
