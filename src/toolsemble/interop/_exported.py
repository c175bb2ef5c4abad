"""Tools of a toolbox as other frameworks call them: always through the toolbox, with what the framework knows."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from toolsemble._engine.context import ToolContext
from toolsemble._engine.execution.failure import error_kind_of
from toolsemble._schema.shape import to_json_value
from toolsemble._tools.toolbox.reviewer_check import check_pauses, check_reviewer
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolCall, ToolReply
from toolsemble._vocabulary.errors import CallPausedError, ExitEarlyError, ToolConfigurationError, ToolDefinitionError
from toolsemble._vocabulary.result import Content, TextContent, ToolResult
from toolsemble.interop._names import map_names
from toolsemble.interop._pausing import make_pausable
from toolsemble.models._adapter.wire import join_text, parameters_of
from toolsemble.review._request import ReviewRequest

Choice: TypeAlias = str | Callable[[Any], str | None] | None
"""A value for all calls, or a function that returns it for what the framework passes to a call; None: the default."""
Parameters: TypeAlias = MutableMapping[str, Any] | Callable[[Any], MutableMapping[str, Any] | None] | None
"""The values that the tools of a run share, or a function that returns them for what the framework passes."""
Approval: TypeAlias = Literal["ours", "theirs"]
"""Who asks for approval: the reviewer of the toolbox, or the framework, which pauses its run."""


@dataclass(frozen=True, slots=True)
class CallSettings:
    """The facts that are passed to the toolbox with each call."""

    memory_id: Choice = None
    """The conversation or user that a call belongs to."""
    run_id: Choice = None
    """The run that a call belongs to; by default what the framework says."""
    parameters: Parameters = None
    """Values that the tools of a run share."""

    def __post_init__(self) -> None:
        """Raise ToolConfigurationError for a setting that no call could use."""
        for name, value, kind, expected in (
            ("memory_id", self.memory_id, str, "a str"),
            ("run_id", self.run_id, str, "a str"),
            ("parameters", self.parameters, MutableMapping, "a mutable mapping such as {'user': 'ada'}"),
        ):
            if value is not None and not isinstance(value, kind) and not callable(value):
                wanted = f"{expected}, or a function that returns it for each call"
                raise ToolConfigurationError(f"{name} of export must be {wanted}, not {value!r:.80}")

    def for_call(self, source: Any, run_id: str | None, deps: Any) -> dict[str, Any]:
        """Return the keyword arguments of ``execute`` for one call.

        :param source: what the framework passes to a call, for the functions among the settings
        :param run_id: the id of the run by the framework
        :param deps: the dependencies of the run by the framework

        >>> CallSettings(memory_id=lambda context: context["user"]).for_call({"user": "ada"}, "run_1", None)
        {'memory_id': 'ada', 'run_id': 'run_1', 'parameters': None, 'deps': None}
        """
        memory_id, chosen, parameters = self.memory_id, self.run_id, self.parameters
        if callable(chosen):
            chosen = chosen(source)
        return {
            "memory_id": memory_id(source) if callable(memory_id) else memory_id,
            "run_id": run_id if chosen is None else chosen,
            "parameters": parameters(source) if callable(parameters) else parameters,
            "deps": deps,
        }


_NO_SETTINGS = CallSettings()


@dataclass(frozen=True, slots=True)
class ExportedTool:
    """A tool of a toolbox, as a framework sees and calls it.

    >>> from toolsemble import tool
    >>> @tool
    ... def double(number: int) -> int:
    ...     '''Double a number.'''
    ...     return 2 * number
    >>> [exported] = export_tools(Toolbox([double]))
    >>> exported.execute({"number": "21"}, "call_1").text
    '42'
    """

    box: Toolbox
    """The toolbox that executes the calls."""
    name: str
    """The name of the tool in the toolbox."""
    shown_name: str
    """The name of the tool in the framework."""
    description: str
    """The description for the model."""
    parameters: dict[str, Any]
    """The JSON Schema of the arguments, always an object."""
    settings: CallSettings
    """The facts that are passed to the toolbox with each call."""

    def execute(
        self, arguments: Any, call_id: str | None = None, source: Any = None, *, run_id: str | None = None,
        deps: Any = None, box: Toolbox | None = None,
    ) -> ToolReply:  # fmt: skip
        """Execute a call and return the reply; what a model can cause is never raised.

        :param arguments: JSON text, or a dict
        :param call_id: the id of the call by the framework
        :param source: what the framework passes to a call, for the functions among the settings
        :param run_id: the id of the run by the framework
        :param deps: the dependencies of the run by the framework, for ``ToolContext.deps``
        :param box: another toolbox with this tool, such as one whose reviewer has the answer already
        """
        try:
            call = ToolCall(self.name, arguments, call_id)
        except TypeError as problem:
            return self._refuse_values(call_id, problem)
        try:
            return (box or self.box).execute(call, **self.settings.for_call(source, run_id, deps))
        except ExitEarlyError as stop:
            return _refuse(call, stop)

    async def aexecute(
        self, arguments: Any, call_id: str | None = None, source: Any = None, *, run_id: str | None = None,
        deps: Any = None, box: Toolbox | None = None,
    ) -> ToolReply:  # fmt: skip
        """Execute a call without blocking the event loop; parameters as in :meth:`execute`."""
        try:
            call = ToolCall(self.name, arguments, call_id)
        except TypeError as problem:
            return self._refuse_values(call_id, problem)
        try:
            return await (box or self.box).aexecute(call, **self.settings.for_call(source, run_id, deps))
        except ExitEarlyError as stop:
            return _refuse(call, stop)

    @property
    def is_gated(self) -> bool:
        """Whether calls may need approval."""
        return self.box.registered(self.name).definition.gate is not None

    async def find_request(
        self, arguments: Any, call_id: str, source: Any = None, *, run_id: str | None = None, deps: Any = None
    ) -> ReviewRequest | None:
        """Return the request that a call of a pausable toolbox would put to a person; None if it needs no approval.

        Nothing is run. A call that does not fit needs no approval: its reply tells the model why.
        """
        try:
            call = ToolCall(self.name, arguments, call_id)
        except TypeError:
            return None
        try:
            await self.box.aexecute(call, **self.settings.for_call(source, run_id, deps), dry_run=True)
        except CallPausedError as paused:
            request: ReviewRequest = paused.request
            return request
        return None

    def fail(self, call_id: str | None, problem: Exception) -> ToolReply:
        """Return the failed reply to a call that could not be executed."""
        return ToolReply(
            ToolCall(self.name, id=call_id), ToolResult.failure(str(problem), error_kind=error_kind_of(problem))
        )

    def _refuse_values(self, call_id: str | None, problem: TypeError) -> ToolReply:
        """Return the reply to a call with values that JSON cannot hold, which code of a model can pass."""
        message = str(problem).removeprefix(f"ToolCall '{self.name}': ")
        failure = ToolResult.failure(f"Invalid JSON input for '{self.name}': {message}", error_kind="json")
        return ToolReply(ToolCall(self.name, id=call_id), failure)


def _refuse(call: ToolCall, stop: ExitEarlyError) -> ToolReply:
    """Return the reply to a call whose reviewer stopped the run: a raise would end the framework's run without it."""
    return ToolReply(call, ToolResult.failure(str(stop) or "A reviewer stopped the run", error_kind="rejected"))


def export_tools(
    box: Toolbox,
    settings: CallSettings = _NO_SETTINGS,
    approval: Approval = "ours",
    *,
    cannot_pause: str | None = None,
    fit_name: Callable[[str], str] | None = None,
) -> list[ExportedTool]:
    """Return the tools of a toolbox for a framework, with unique names.

    :param settings: the facts that are passed to the toolbox with each call
    :param approval: "theirs" if the framework asks: gated calls raise ``CallPausedError``
    :param cannot_pause: why the framework cannot ask, as the beginning of a sentence; None if it can
    :param fit_name: returns a name that the framework accepts

    >>> export_tools(Toolbox([]), CallSettings(), "theirs", cannot_pause="DSPy cannot pause a run for approval")
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: DSPy cannot pause a run for approval; pass approval="ours", and a \
reviewer to the toolbox
    """
    if not isinstance(box, Toolbox):
        raise ToolDefinitionError(f"export takes a Toolbox, not {type(box).__name__}; write export(Toolbox([...]))")
    box = _prepare_approval(box, approval, cannot_pause)
    names = map_names(box.names, fit_name or str)
    return [
        ExportedTool(box, each.name, names[each.name], each.description, parameters_of(each), settings)
        for each in box.specifications
    ]


def _prepare_approval(box: Toolbox, approval: str, cannot_pause: str | None) -> Toolbox:
    """Return the toolbox with a reviewer for the setting; raise ToolConfigurationError if nobody could ask."""
    if approval not in ("ours", "theirs"):
        raise ToolConfigurationError(f'approval must be "ours" or "theirs", not {approval!r:.80}')
    if approval == "ours":
        check_reviewer(box, ToolContext())
        _refuse_pauses(box)
        return box
    if cannot_pause is not None:
        raise ToolConfigurationError(f'{cannot_pause}; pass approval="ours", and a reviewer to the toolbox')
    return make_pausable(box)


def _refuse_pauses(box: Toolbox) -> None:
    """Raise ToolConfigurationError if a reviewer of the toolbox would leave a call open."""
    try:
        check_pauses(box, ToolContext(), nested=True)
    except ToolConfigurationError as problem:
        raise ToolConfigurationError(
            "PauseReview can pause the runs of an Agent only; pass the toolbox a reviewer that waits, such as "
            'QueueReview, or export it with approval="theirs" if the framework can pause a run'
        ) from problem


def text_of(reply: ToolReply) -> str:
    r"""Return the text for the model, with the note about edits; contents that are texts are part of it.

    >>> from toolsemble import TextContent
    >>> text_of(ToolReply(ToolCall("now"), ToolResult.success("noon", contents=[TextContent("in Rome")])))
    'noon\nin Rome'
    """
    text = reply.with_edits().text
    if not reply.contents:
        return text
    return "\n".join([text, *(each.text for each in reply.contents if isinstance(each, TextContent))])


def full_text_of(reply: ToolReply) -> str:
    r"""Return the text for the model where a framework carries no media: each of them is a line of it.

    >>> from toolsemble import ImageContent
    >>> result = ToolResult.success("a map", contents=[ImageContent(b"..", "image/png")])
    >>> full_text_of(ToolReply(ToolCall("map"), result))
    'a map\n[image/png, 2 bytes, not shown]'
    """
    return join_text(reply.with_edits())


def media_of(reply: ToolReply) -> list[Content]:
    """Return the images, audio and files of a reply."""
    return [content for content in reply.contents if not isinstance(content, TextContent)]


def payload_of(reply: ToolReply) -> Any:
    """Return the structured output as plain JSON values, because frameworks store it; None if there is none.

    >>> payload_of(ToolReply(ToolCall("sizes"), ToolResult.success("", structured_output={"sizes": (1, 2)})))
    {'sizes': [1, 2]}
    """
    return to_json_value(reply.result.structured_output)
