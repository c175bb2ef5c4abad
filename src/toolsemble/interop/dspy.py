"""DSPy: export toolbox tools as ``dspy.Tool`` objects, and adopt its tools."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any, Unpack

from toolsemble._runtime.event_loops import is_async
from toolsemble._tools.schema import SchemaTool
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.result import ToolResult
from toolsemble.interop import _exporting as exporting
from toolsemble.interop._adopting import ForeignTool, adopt_tools, failure, flatten

if TYPE_CHECKING:
    from toolsemble._tools.settings import ToolSettings

_import = partial(exporting.import_framework, install="dspy", user="dspy")
_CANNOT_PAUSE = "DSPy cannot pause a run for approval"
_RESERVED = ("finish", "submit")  # ReAct replaces a tool with the first name, ReActV2 rejects the second


def export(
    box: Toolbox,
    *,
    memory_id: exporting.Choice = None,
    run_id: exporting.Choice = None,
    parameters: exporting.Parameters = None,
    approval: exporting.Approval = "ours",
) -> list[Any]:
    """Return a toolbox's tools as DSPy tools, for ``dspy.ReAct(signature, tools=...)``.

    The observation is a text, which begins with "Error:" if the call failed. DSPy passes no context to a tool;
    function settings get ``dspy.settings``, which ``dspy.context`` changes for the calls inside it.

    .. code-block:: python

        import dspy as d
        from toolsemble.interop import dspy

        agent = d.ReAct("question -> answer", tools=dspy.export(box, memory_id=lambda settings: settings.user))
        with d.context(user="ada"):
            agent(question="What is 2 + 3?")

    :param memory_id: the conversation or user that calls belong to, or a function of ``dspy.settings``
    :param run_id: the run that calls belong to, or a function of ``dspy.settings``
    :param parameters: values that the tools of a run share, or a function of ``dspy.settings``
    :param approval: "ours": the reviewer of the toolbox is asked
    """
    kind = _tool_class()
    settings = exporting.CallSettings(memory_id, run_id, parameters)
    found = exporting.export_tools(box, settings, approval, cannot_pause=_CANNOT_PAUSE, fit_name=_fit_name)
    return [kind(each) for each in found]


def _fit_name(name: str) -> str:
    return f"{name}_tool" if name in _RESERVED else name


@cache
def _tool_class() -> Any:
    """Return the class of exported tools, defined only if DSPy is installed."""
    library, callbacks = _import("dspy"), _import("dspy.utils.callback")
    base: Any = library.Tool

    class ToolsembleTool(base):
        """A toolbox tool without DSPy's own validation, which would reject arguments that the toolbox repairs."""

        def __init__(self, exported: exporting.ExportedTool) -> None:
            def execute(**arguments: Any) -> str:
                return exporting.full_text_of(exported.execute(arguments, source=library.settings))

            # On the function, which copies of a program share; a toolbox cannot be copied.
            execute.exported = exported  # type: ignore[attr-defined]  # read by adopt
            shown = _add_defaults(exported.parameters)
            super().__init__(execute, exported.shown_name, exported.description, shown, dict.fromkeys(shown, Any))

        def __call__(self, /, **arguments: Any) -> str:
            answer: str = self._answer(arguments)
            return answer

        async def acall(self, /, **arguments: Any) -> str:
            answer: str = await self._aanswer(arguments)
            return answer

        # DSPy shows the parameter's name to its callbacks; a call by keywords must not conflict with "self".
        @callbacks.with_callbacks  # type: ignore[untyped-decorator]  # as above
        def _answer(self, kwargs: dict[str, Any]) -> str:
            answer: str = self.func(**kwargs)
            return answer

        @callbacks.with_callbacks  # type: ignore[untyped-decorator]  # as above
        async def _aanswer(self, kwargs: dict[str, Any]) -> str:
            exported: exporting.ExportedTool = self.func.exported
            return exporting.full_text_of(await exported.aexecute(kwargs, source=library.settings))

    return ToolsembleTool


def _add_defaults(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters' schemas; DSPy treats parameters without a default as required."""
    required = parameters.get("required", ())
    return {
        name: schema if name in required or "default" in schema else {**schema, "default": None}
        for name, schema in parameters["properties"].items()
    }


def adopt(tools: Any, **settings: Unpack[ToolSettings]) -> list[SchemaTool]:
    """Return DSPy tools as tools for a toolbox: one ``dspy.Tool``, or a list of them.

    Their arguments are validated against their schema; their exceptions are failed results.

    .. code-block:: python

        import dspy as d
        from toolsemble.interop import dspy

        def double(number: int) -> int:
            '''Double a number.'''
            return 2 * number

        box = Toolbox(dspy.adopt([d.Tool(double)]))

    :param settings: the settings of the new tools, such as ``requires_approval`` or ``timeout``
    """
    kind = _import("dspy").Tool
    found = flatten(tools, lambda each: isinstance(each, kind), "a dspy.Tool")
    return adopt_tools("dspy", [_read(each) for each in found], dict(settings))


def _read(tool: Any) -> ForeignTool:
    exported = getattr(tool.func, "exported", None)
    if isinstance(exported, exporting.ExportedTool):
        return _read_exported(exported)

    def call(arguments: dict[str, Any], _: str) -> Any:
        return tool(**arguments)

    async def acall(arguments: dict[str, Any], _: str) -> Any:
        return await tool.acall(**arguments)

    schema = {"type": "object", "properties": tool.args, "required": _find_required(tool.args)}
    return ForeignTool(tool.name, tool.desc or "", schema, acall if is_async(tool.func) else call)


def _read_exported(exported: exporting.ExportedTool) -> ForeignTool:
    async def call(arguments: dict[str, Any], call_id: str) -> ToolResult:
        reply = await exported.aexecute(arguments, call_id, _import("dspy").settings)
        return (
            failure(exporting.full_text_of(reply))
            if reply.is_error
            else ToolResult.success(exporting.full_text_of(reply))
        )

    return ForeignTool(exported.shown_name, exported.description, exported.parameters, call, exported)


def _find_required(parameters: dict[str, Any]) -> list[str]:
    return [name for name, schema in parameters.items() if "default" not in schema]
