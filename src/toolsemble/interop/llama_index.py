"""Content blocks of LlamaIndex: texts, images, audio and documents."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Unpack

from toolsemble._tools.schema import SchemaTool
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolReply
from toolsemble._vocabulary.result import AudioContent, Content, FileContent, ImageContent, ToolResult
from toolsemble.interop import _exporting as exporting
from toolsemble.interop._adopting import ForeignTool, adopt_tools, failure, flatten, join_parts, refuse

if TYPE_CHECKING:
    from toolsemble._tools.settings import ToolSettings


# LlamaIndex identifies audio by file suffix.
_SUFFIXES = {"audio/mpeg": "mp3", "audio/x-wav": "wav"}
_AUDIO_TYPES = {"mp3": "audio/mpeg"}


def write_blocks(library: Any, text: str, media: Iterable[Content]) -> list[Any]:
    """Return a text and media as content blocks.

    :param library: the module with the classes of the blocks
    """
    return [library.TextBlock(text=text), *(_write_block(library, each) for each in media)]


def _write_block(library: Any, content: Any) -> Any:
    mime_type = content.mime_type
    if isinstance(content, ImageContent):
        return library.ImageBlock(**_write_source(content, "image"), image_mimetype=mime_type)
    if isinstance(content, AudioContent):
        suffix = _SUFFIXES.get(mime_type, mime_type.partition("/")[2])
        return library.AudioBlock(**_write_source(content, "audio"), format=suffix)
    return library.DocumentBlock(**_write_source(content, "data"), document_mimetype=mime_type, title=content.name)


def _write_source(content: Any, field: str) -> dict[str, Any]:
    """Return the URL, or the data, always in base64, because LlamaIndex decodes bytes that look like base64."""
    return {"url": content.url} if content.url else {field: b64encode(content.data)}


def read_blocks(blocks: Iterable[Any]) -> tuple[str, list[Content]]:
    """Return the text and media of blocks; other types become JSON text."""
    return join_parts(map(_read_block, blocks))


def _read_block(block: Any) -> Any:
    if block.block_type == "text":
        return block.text
    reader = _READERS.get(block.block_type)
    if reader is None:
        return block.model_dump_json()
    try:
        return reader(block)
    except (OSError, TypeError, ValueError):
        return f"[a broken block: {block.block_type}]"


def _read_image(block: Any) -> Content:
    if block.url:
        return ImageContent.from_url(str(block.url), block.image_mimetype)
    return ImageContent(block.resolve_image().read(), block.image_mimetype or "image/png")


def _read_audio(block: Any) -> Content:
    kind = block.format or "wav"
    mime_type = _AUDIO_TYPES.get(kind, f"audio/{kind}")
    if block.url:
        return AudioContent.from_url(str(block.url), mime_type)
    return AudioContent(block.resolve_audio().read(), mime_type)


def _read_document(block: Any) -> Content:
    mime_type = block.document_mimetype or "application/octet-stream"
    if block.url:
        return FileContent.from_url(block.url, mime_type, block.title)
    return FileContent(block.resolve_document().read(), mime_type, name=block.title)


_READERS = {"image": _read_image, "audio": _read_audio, "document": _read_document}


_import = partial(exporting.import_framework, install="llama-index-core", user="llama_index")
_CANNOT_PAUSE = "LlamaIndex cannot pause a run for approval"
# The name under which an agent passes its context; no schema contains it.
_CONTEXT = "toolsemble context"


def export(
    box: Toolbox,
    *,
    memory_id: exporting.Choice = None,
    run_id: exporting.Choice = None,
    parameters: exporting.Parameters = None,
    approval: exporting.Approval = "ours",
) -> list[Any]:
    """Return a toolbox's tools as LlamaIndex tools, for ``FunctionAgent`` and other agents.

    A failed call is a ``ToolOutput`` with ``is_error``; the structured output is its ``raw_output``, as JSON values.
    Media are blocks. A call's run id is the workflow's.

    :param memory_id: the conversation or user that calls belong to, or a function of the workflow's ``Context`` (None
    outside a workflow) :param run_id: the run that calls belong to, or a function of the ``Context``
    :param parameters: values that the tools of a run share, or a function of the ``Context``
    :param approval: "ours": the reviewer of the toolbox is asked

    .. code-block:: python

        from llama_index.core.agent.workflow import FunctionAgent

        agent = FunctionAgent(tools=llama_index.export(box), llm=llm)
    """
    kind = _tool_class()
    settings = exporting.CallSettings(memory_id, run_id, parameters)
    return [kind(each) for each in exporting.export_tools(box, settings, approval, cannot_pause=_CANNOT_PAUSE)]


@cache
def _tool_class() -> Any:
    """Return the class of exported tools, defined only if LlamaIndex is installed."""
    base: Any = _import("llama_index.core.tools").FunctionTool
    metadata = _metadata_class()
    tags = _import("llama_index_instrumentation.dispatcher").active_instrument_tags

    # LlamaIndex passes arguments by name, and the context of the run, only to a FunctionTool; a call of any other tool
    # with one parameter is repeated if it raises. Self is positional, because a parameter may have its name.
    class ToolsembleTool(base):
        """A tool of a toolbox."""

        def __init__(self, exported: exporting.ExportedTool) -> None:
            shown = metadata(
                exported.description, exported.shown_name, exporting.model_of(exported.shown_name, exported.parameters)
            )
            super().__init__(fn=_accept, metadata=shown)
            self.exported = exported
            self.requires_context, self.ctx_param_name = True, _CONTEXT

        def __call__(self, /, *values: Any, **named: Any) -> Any:
            return self.call(*values, **named)

        def call(self, /, *values: Any, **named: Any) -> Any:
            source, arguments = named.pop(_CONTEXT, None), exporting.bind_arguments(self.exported, values, named)
            run_id = tags.get().get("llamaindex.run_id")
            return _write_output(self.exported.execute(arguments, None, source, run_id=run_id), arguments)

        async def acall(self, /, *values: Any, **named: Any) -> Any:
            source, arguments = named.pop(_CONTEXT, None), exporting.bind_arguments(self.exported, values, named)
            run_id = tags.get().get("llamaindex.run_id")
            return _write_output(await self.exported.aexecute(arguments, None, source, run_id=run_id), arguments)

    return ToolsembleTool


def _metadata_class() -> Any:
    base: Any = _import("llama_index.core.tools").ToolMetadata

    class Metadata(base):
        """A tool's metadata, which allows long descriptions, for which LlamaIndex would end the run."""

        def to_openai_tool(self, skip_length_check: bool = True) -> Any:  # noqa: FBT001, FBT002 - LlamaIndex's
            return super().to_openai_tool(skip_length_check=True)

    return Metadata


def _accept(**arguments: Any) -> None:
    """Accept all arguments: LlamaIndex inspects this function's parameters, but never calls it."""


def _write_output(reply: ToolReply, arguments: dict[str, Any]) -> Any:
    """Return a reply as a ``ToolOutput``."""
    text, payload = exporting.text_of(reply), exporting.payload_of(reply)
    return _import("llama_index.core.tools").ToolOutput(
        tool_name=reply.name,
        blocks=write_blocks(_import("llama_index.core.llms"), text, exporting.media_of(reply)),
        raw_input=arguments,
        raw_output=text if payload is None else payload,
        is_error=reply.is_error,
    )


def adopt(tools: Any, **settings: Unpack[ToolSettings]) -> list[SchemaTool]:
    """Return LlamaIndex tools as tools for a toolbox: one tool, or a list of them.

    Their arguments are validated against their schema; a tool that needs a workflow's ``Context`` is rejected.

    :param settings: the settings of the new tools, such as ``requires_approval`` or ``timeout``

    .. code-block:: python

        from llama_index.core.tools import QueryEngineTool

        box = Toolbox(llama_index.adopt(QueryEngineTool.from_defaults(engine, name="docs", description="The docs")))
    """
    base: Any = _import("llama_index.core.tools").BaseTool
    found = flatten(tools, lambda each: isinstance(each, base), "a LlamaIndex tool")
    return adopt_tools("llama_index", [_read(each) for each in found], dict(settings))


def _read(tool: Any) -> ForeignTool:
    exported, shown = getattr(tool, "exported", None), tool.metadata
    if exported is None and getattr(tool, "requires_context", False):
        raise refuse(shown.name, f"the Context of a workflow (parameter {tool.ctx_param_name})")

    async def acall(arguments: dict[str, Any], _: str) -> Any:
        return _read_output(await tool.acall(**arguments))

    def call(arguments: dict[str, Any], _: str) -> Any:
        # A tool without acall takes a single positional value.
        single = len(arguments) == 1
        return _read_output(tool(*arguments.values()) if single else tool(**arguments))

    schema = shown.get_parameters_dict()
    chosen = acall if isinstance(tool, _import("llama_index.core.tools").AsyncBaseTool) else call
    return ForeignTool(shown.get_name(), shown.description, schema, chosen, exported)


def _read_output(output: Any) -> Any:
    """Return the result for a ``ToolOutput``."""
    if output.is_error:
        return failure(output.content)
    text, media = read_blocks(output.blocks)
    return ToolResult.success(text, None if output.raw_output == text else output.raw_output, contents=media)
