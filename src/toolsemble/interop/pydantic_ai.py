"""Contents of Pydantic AI's tool returns: texts, images, audio and files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Unpack

from toolsemble._schema.result_shape import to_result
from toolsemble._tools.schema import SchemaTool
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolReply
from toolsemble._vocabulary.errors import CallPausedError
from toolsemble._vocabulary.result import AudioContent, Content, FileContent, ImageContent, ToolResult
from toolsemble.interop import _adopting as adopting, _exporting as exporting
from toolsemble.interop._pausing import ShownRequests, asks_before, bind_decision, edit_arguments, show_request
from toolsemble.review._request import Continue

if TYPE_CHECKING:
    from toolsemble._tools.settings import ToolSettings


def write_contents(messages: Any, media: Iterable[Content]) -> list[Any]:
    """Return media as objects of ``pydantic_ai.messages``."""
    return [_write(messages, content) for content in media]


def _write(messages: Any, content: Any) -> Any:
    if not content.url:
        return messages.BinaryContent(content.data, media_type=content.mime_type)
    kinds = {ImageContent: messages.ImageUrl, AudioContent: messages.AudioUrl, FileContent: messages.DocumentUrl}
    return kinds[type(content)](content.url)


def read_contents(messages: Any, value: Any) -> tuple[str, list[Content]]:
    """Return the text and media of a tool's return value; other values become JSON text."""
    return adopting.join_parts(
        _read_content(messages, each) for each in (value if isinstance(value, list) else [value])
    )


def _read_content(messages: Any, item: Any) -> str | Content:
    if isinstance(item, messages.BinaryContent):
        return adopting.read_media(item.data, item.media_type)
    urls: dict[Any, Any] = {
        messages.ImageUrl: ImageContent,
        messages.AudioUrl: AudioContent,
        messages.DocumentUrl: FileContent,
    }
    found: str | Content = urls[type(item)].from_url(item.url) if type(item) in urls else to_result(item).output
    return found


_import = partial(exporting.import_framework, install="pydantic-ai-slim", user="pydantic_ai")
_TEXT = "__text__"  # the key of arguments that are not a JSON object


def export(
    box: Toolbox,
    *,
    memory_id: exporting.Choice = None,
    run_id: exporting.Choice = None,
    parameters: exporting.Parameters = None,
    approval: exporting.Approval = "ours",
) -> Any:
    """Return a toolbox's tools as a toolset, for ``Agent(model, toolsets=[...])``.

    A failed call is reported to the model as failed, and uses no retry. The structured output is the metadata of the
    ``ToolReturnPart``; media are part of its content. ``ToolContext.deps`` are the run's ``deps``.

    :param memory_id: the conversation or user that calls belong to, or a function of the ``RunContext``
    :param run_id: the run that calls belong to, or a function of the ``RunContext``
    :param parameters: values that the tools of a run share, or a function of the ``RunContext``
    :param approval: "theirs" ends the run with ``DeferredToolRequests``, which the agent needs as an output type; the
        run id is then the conversation id

    >>> from toolsemble import tool
    >>> @tool
    ... def double(number: int) -> int:
    ...     '''Double a number.'''
    ...     return 2 * number
    >>> export(Toolbox([double])).label
    'Toolbox: double'
    """
    found = exporting.export_tools(box, exporting.CallSettings(memory_id, run_id, parameters), approval)
    return _toolset_class()(
        {each.shown_name: each for each in found}, ShownRequests() if approval == "theirs" else None
    )


@cache
def _toolset_class() -> Any:
    """Return the class of exported toolsets, defined only if Pydantic AI is installed."""
    abstract, tools = _import("pydantic_ai.toolsets.abstract"), _import("pydantic_ai.tools")
    base: Any = abstract.AbstractToolset

    class ToolsembleToolset(base):
        """The tools of a toolbox."""

        def __init__(self, exported: dict[str, exporting.ExportedTool], shown: ShownRequests | None) -> None:
            self.exported = exported
            self._shown = shown

        @property
        def id(self) -> str | None:
            return None

        @property
        def label(self) -> str:
            return f"Toolbox: {', '.join(self.exported)}"

        async def get_tools(self, ctx: Any) -> dict[str, Any]:
            return {name: self._describe(each, ctx.max_retries) for name, each in self.exported.items()}

        def _describe(self, tool: exporting.ExportedTool, max_retries: int) -> Any:
            definition = tools.ToolDefinition(
                name=tool.shown_name, description=tool.description, parameters_json_schema=tool.parameters
            )
            return abstract.ToolsetTool(
                toolset=self, tool_def=definition, max_retries=max_retries, args_validator=PassedArguments()
            )

        async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, _: Any) -> Any:
            exported, arguments = self.exported[name], tool_args.get(_TEXT, tool_args)
            if self._shown is not None:
                return write_answer(await ask(exported, arguments, ctx, self._shown))
            reply = await exported.aexecute(arguments, ctx.tool_call_id, ctx, run_id=ctx.run_id, deps=ctx.deps)
            return write_answer(reply)

    return ToolsembleToolset


class PassedArguments:
    """A validator that passes arguments through: the toolbox repairs and validates them."""

    def validate_json(self, input: Any, **_: Any) -> dict[str, Any]:
        """Return the arguments in a JSON text; text that is not an object is passed through."""
        text = input if isinstance(input, str) else bytes(input).decode(errors="replace")
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            return {_TEXT: text}
        return values if isinstance(values, dict) else {_TEXT: text}

    def validate_python(self, input: Any, **_: Any) -> dict[str, Any]:
        """Return the arguments."""
        return dict(input)


async def ask(tool: exporting.ExportedTool, arguments: Any, ctx: Any, shown: ShownRequests) -> ToolReply:
    """Execute a call; raise ``ApprovalRequired`` if it needs approval and the shown request was not approved."""
    execute = partial(tool.aexecute, call_id=ctx.tool_call_id, source=ctx, run_id=ctx.conversation_id, deps=ctx.deps)
    requested = _find_requested(ctx, arguments) if ctx.tool_call_approved else arguments
    try:
        return await execute(requested)
    except CallPausedError as paused:
        if not asks_before(paused):
            return tool.fail(ctx.tool_call_id, paused)
        request = paused.request
        known = ctx.tool_call_approved and shown.has(request, ctx.tool_call_metadata)
    try:
        if known:
            # Approving with other arguments edits the call.
            edited = requested != arguments
            decision = edit_arguments(show_request(request), arguments) if edited else Continue()
            return await execute(requested, box=bind_decision(tool.box, request, decision))
    except CallPausedError as paused:  # the edit does not fit
        request = paused.request
    shown.add(request)
    raise _import("pydantic_ai.exceptions").ApprovalRequired(metadata=show_request(request))


def _find_requested(ctx: Any, arguments: Any) -> Any:
    """Return the model's requested arguments, which a person may have changed."""
    for message in reversed(ctx.messages):
        for part in message.parts:
            if getattr(part, "part_kind", "") == "tool-call" and part.tool_call_id == ctx.tool_call_id:
                given = part.args or {}
                read = PassedArguments()
                values = read.validate_json(given) if isinstance(given, str) else read.validate_python(given)
                return values.get(_TEXT, values)
    return arguments


def write_answer(reply: ToolReply) -> Any:
    """Return the value in Pydantic AI's form; raise an exception that it reports to the model as a failure."""
    text, media = exporting.text_of(reply), exporting.media_of(reply)
    if reply.is_error:
        raise _import("pydantic_ai.exceptions").ToolFailed(text)
    content = [text, *write_contents(_import("pydantic_ai.messages"), media)] if media else text
    return _import("pydantic_ai.messages").ToolReturn(content, metadata=exporting.payload_of(reply))


def adopt(tools: Any, **settings: Unpack[ToolSettings]) -> list[SchemaTool]:
    """Return Pydantic AI tools as tools for a toolbox: ``Tool`` objects, function toolsets, and exported ones.

    A tool that requires approval there requires it here. A tool that takes a ``RunContext`` is rejected, and so are
    other toolsets, which work only in a run.

    :param settings: the settings of the new tools, such as ``requires_approval`` or ``timeout``

    >>> from pydantic_ai import Tool
    >>> def double(number: int) -> int:
    ...     '''Double a number.'''
    ...     return 2 * number
    >>> Toolbox(adopt(Tool(double)))["double"].execute({"number": "21"}).output
    '42'
    """
    kinds = _import("pydantic_ai.tools").Tool, _import("pydantic_ai.toolsets.abstract").AbstractToolset
    found = adopting.flatten(tools, lambda each: isinstance(each, kinds), "a Tool or a toolset of Pydantic AI")
    foreign = [tool for each in found for tool in _read(each, kinds[0])]
    return adopting.adopt_tools("pydantic_ai", foreign, dict(settings))


def _read(source: Any, kind: type) -> list[adopting.ForeignTool]:
    if isinstance(source, kind):
        return [_read_tool(source)]
    if isinstance(source, _toolset_class()):
        return [adopting.read_exported(each) for each in source.exported.values()]
    if not isinstance(getattr(source, "tools", None), dict):
        raise adopting.refuse(type(source).__name__, "a run of an agent, for its tools")
    return [_read_tool(each) for each in source.tools.values()]


def _read_tool(tool: Any) -> adopting.ForeignTool:
    if tool.takes_ctx:
        raise adopting.refuse(tool.name, "a RunContext")
    schema = tool.function_schema

    async def call(arguments: dict[str, Any], _: str) -> Any:
        return await _run(lambda: schema.call(schema.validator.validate_python(arguments), None))

    gate = {"requires_approval": True} if tool.requires_approval else {}
    return adopting.ForeignTool(tool.name, tool.description or "", schema.json_schema, call, settings=gate)


async def _run(call: Any) -> Any:
    """Return the result of a tool call; a failure reported to the model is a failed result."""
    exceptions, messages = _import("pydantic_ai.exceptions"), _import("pydantic_ai.messages")
    try:
        value = await call()
    except (exceptions.ToolFailed, exceptions.ModelRetry) as told:
        return adopting.failure(told.message)
    except (exceptions.ApprovalRequired, exceptions.CallDeferred) as deferred:
        return adopting.failure(
            f"The tool raised {type(deferred).__name__}, which only a run of Pydantic AI can handle"
        )
    if not isinstance(value, messages.ToolReturn):
        return value
    text, contents = read_contents(messages, value.return_value)
    return ToolResult.success(text, value.metadata, contents=contents)
