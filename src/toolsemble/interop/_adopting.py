"""Adoption of other frameworks' tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from toolsemble._engine.context import current_context
from toolsemble._runtime.event_loops import is_async
from toolsemble._tools.schema import SchemaTool
from toolsemble._vocabulary.errors import CallPausedError, ToolDefinitionError
from toolsemble._vocabulary.result import AudioContent, Content, FileContent, ImageContent, ToolResult
from toolsemble._vocabulary.specification import read_metadata
from toolsemble.interop._exporting import ExportedTool, fit_name, map_names, media_of, payload_of, text_of


@dataclass(frozen=True, slots=True)
class ForeignTool:
    """A framework's tool, as read by its module for :func:`adopt_tools`."""

    name: str
    """The name in the framework."""
    description: str
    """The description for the model."""
    parameters: dict[str, Any]
    """The JSON Schema of the arguments."""
    call: Callable[[dict[str, Any], str], Any]
    """Calls it with validated arguments and the id of the call, sync or async; returns a :class:`ToolResult`, or
    another value."""
    exported: ExportedTool | None = None
    """The toolbox tool that it was exported from; None for the framework's own."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The tool settings implied by the framework; others are added to them."""


def adopt_tools(framework: str, tools: Iterable[ForeignTool], settings: dict[str, Any]) -> list[SchemaTool]:
    """Return a framework's tools as tools for a toolbox.

    An exported tool's name is restored; other names are mapped if a toolbox does not accept them.

    :param framework: the name of the module, for ``metadata["interop"]``
    :param settings: the settings of the new tools

    >>> async def answer(arguments, call_id):
    ...     return f"{arguments['city']}: sunny"
    >>> city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    >>> [weather] = adopt_tools("acme", [ForeignTool("get.weather", "The weather", city, answer)], {})
    >>> weather.name, weather.execute({"city": "Rome"}).output
    ('get_weather', 'Rome: sunny')
    >>> weather.metadata["interop"]
    {'framework': 'acme', 'name': 'get.weather'}
    """
    listed = list(tools)
    _check_settings(settings)
    own = [each.name if each.exported is None else each.exported.name for each in listed]
    names = map_names(own, fit_name)
    return [_adopt(framework, each, names[name], settings) for each, name in zip(listed, own, strict=True)]


def _check_settings(settings: dict[str, Any]) -> None:
    """Raise ToolDefinitionError for settings that would replace the framework's definition of a tool."""
    fixed = sorted({"name", "description", "execute", "parameters"} & settings.keys())
    if fixed:
        raise ToolDefinitionError(
            f"adopt has no setting {fixed[0]!r}: tools keep the names, descriptions and schemas of their framework"
        )
    read_metadata("adopt", settings.get("metadata"))


def _adopt(framework: str, tool: ForeignTool, name: str, settings: dict[str, Any]) -> SchemaTool:
    metadata = {
        **read_metadata("adopt", settings.get("metadata")),
        "interop": {"framework": framework, "name": tool.name},
    }
    description = tool.description or f"The tool {tool.name} of {framework}"
    own: Any = {**tool.settings, **settings, "metadata": metadata}
    return SchemaTool(name, description, _body_of(tool.call), tool.parameters, **own)


def _body_of(call: Callable[[dict[str, Any], str], Any]) -> Callable[[dict[str, Any]], Any]:
    """Return a tool's body function; async if the framework's is."""

    def run(arguments: dict[str, Any]) -> Any:
        return call(arguments, current_call_id())

    async def arun(arguments: dict[str, Any]) -> Any:
        return await call(arguments, current_call_id())

    return arun if is_async(call) else run


def current_call_id() -> str:
    """Return the id of the current call."""
    context = current_context()
    return "" if context is None else context.call_id


def flatten(tools: Any, is_one: Callable[[Any], bool], expected: str) -> list[Any]:
    """Return a flat list of tools from a single tool or a nested list; raise for anything else.

    :param is_one: whether an object is a framework tool or tool set
    :param expected: what is expected, for the error

    >>> flatten([1, [2, 3]], lambda each: isinstance(each, int), "an int")
    [1, 2, 3]
    """
    if is_one(tools):
        return [tools]
    if isinstance(tools, Iterable) and not isinstance(tools, (str, bytes, dict)):
        return [found for each in tools for found in flatten(each, is_one, expected)]
    raise ToolDefinitionError(f"adopt takes {expected}, or a list of them, not {type(tools).__name__}: {tools!r:.80}")


def refuse(name: object, needs: str) -> ToolDefinitionError:
    """Return the error for a tool that only works inside its framework.

    >>> str(refuse("search", "the state of a graph (InjectedState)"))
    "'search' cannot be adopted: it needs the state of a graph (InjectedState), which only its framework has"
    """
    return ToolDefinitionError(f"'{name!s:.60}' cannot be adopted: it needs {needs}, which only its framework has")


def read_exported(exported: ExportedTool) -> ForeignTool:
    """Return an exported tool's original, with its gates and limits."""

    async def call(arguments: dict[str, Any], call_id: str) -> ToolResult:
        try:
            reply = await exported.aexecute(arguments, call_id)
        except CallPausedError as paused:
            return failure(str(paused))
        if reply.is_error:
            return failure(text_of(reply))
        return ToolResult.success(text_of(reply), payload_of(reply), contents=media_of(reply))

    return ForeignTool(exported.shown_name, exported.description, exported.parameters, call, exported)


def join_parts(parts: Iterable[str | Content]) -> tuple[str, list[Content]]:
    r"""Return an output's text parts joined, and its media.

    >>> join_parts(["a map", ImageContent(b"..", "image/png"), "of Rome"])
    ('a map\nof Rome', [ImageContent(<2 bytes>, mime_type='image/png')])
    """
    listed = list(parts)
    texts = [each for each in listed if isinstance(each, str)]
    return "\n".join(texts), [each for each in listed if not isinstance(each, str)]


def read_media(data: bytes, mime_type: str, name: str = "file") -> Content:
    """Return the content for bytes: an image, audio, or a file.

    >>> read_media(b"..", "audio/wav")
    AudioContent(<2 bytes>, mime_type='audio/wav')
    """
    if mime_type.startswith("image/"):
        return ImageContent(data, mime_type)
    return AudioContent(data, mime_type) if mime_type.startswith("audio/") else FileContent(data, mime_type, name)


def failure(text: str) -> ToolResult:
    """Return the result for a failure reported by a framework; strip the prefix that this library adds.

    >>> failure("Error: no such city")
    ToolResult.failure('no such city')
    """
    return ToolResult.failure(text.removeprefix("Error: "))
