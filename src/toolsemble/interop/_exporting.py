"""Export of tools to other frameworks: names, parameters, calls and results."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from toolsemble._engine.context import ToolContext
from toolsemble._engine.execution.failure import error_kind_of
from toolsemble._schema.result_shape import to_json_value
from toolsemble._tools.toolbox.approval import check_pauses, check_reviewer
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary import errors
from toolsemble._vocabulary.call import ToolCall, ToolReply
from toolsemble._vocabulary.result import Content, TextContent, ToolResult
from toolsemble._vocabulary.specification import LONGEST_NAME, is_name
from toolsemble.interop._pausing import make_pausable
from toolsemble.models._adapter.wire import join_text, parameters_of
from toolsemble.review._request import ReviewRequest


def import_framework(module: str, *, install: str, user: str) -> Any:
    """Import a framework's module; if it is missing, raise an error that names the package to install.

    :param install: the distribution that contains the module
    :param user: the module of this package that needs it

    >>> import_framework("missing.tools", install="missing-core", user="missing")
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: toolsemble.interop.missing needs the package 'missing': \
pip install missing-core
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as problem:
        missing = problem.name or module
        raise errors.ToolDefinitionError(
            f"toolsemble.interop.{user} needs the package {missing!r}: pip install {install}"
        ) from problem


_NOT_ADMITTED = re.compile(r"[^a-zA-Z0-9_-]+")


def map_names(names: Iterable[str], fit: Callable[[str], str]) -> dict[str, str]:
    """Return a valid name for each name; number duplicates.

    >>> map_names(["get-tea", "get_tea"], lambda name: name.replace("-", "_"))
    {'get-tea': 'get_tea_2', 'get_tea': 'get_tea'}
    """
    listed = list(names)
    mapped = {name: name for name in listed if fit(name) == name}
    taken = set(mapped)
    for name in listed:
        if name not in mapped:
            mapped[name] = _add_number(fit(name), taken)
            taken.add(mapped[name])
    return {name: mapped[name] for name in listed}


def _add_number(name: str, taken: set[str]) -> str:
    number, found = 2, name
    while found in taken:
        found = f"{name[: LONGEST_NAME - 4]}_{number}"
        number += 1
    return found


def fit_name(name: str) -> str:
    """Return a name that a toolbox accepts.

    >>> fit_name("Search the web!"), fit_name("_search"), fit_name("")
    ('Search_the_web', '_search', 'tool')
    """
    if is_name(name):
        return name
    return _NOT_ADMITTED.sub("_", name).strip("_")[:LONGEST_NAME] or "tool"


def bind_arguments(exported: ExportedTool, values: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
    """Return a call's arguments by name; positional values are assigned in parameter order.

    A single dict of parameters counts as all arguments.

    :param values: the positional values
    :param named: the keyword arguments
    """
    names = list(exported.parameters.get("properties", {}))
    if len(values) == 1 and not named and isinstance(values[0], dict) and values[0].keys() <= set(names):
        return dict(values[0])
    if len(values) > len(names):
        raise errors.ToolArgumentsError(
            f"'{exported.shown_name}' takes {len(names)} positional values, not {len(values)}"
        )
    bound = dict(zip(names, values, strict=False))
    twice = sorted(bound.keys() & named.keys())
    if twice:
        raise errors.ToolArgumentsError(f"'{exported.shown_name}' got two values for {', '.join(twice)}")
    return {**bound, **named}


def model_of(name: str, parameters: dict[str, Any]) -> type[BaseModel]:
    """Return a pydantic model with a schema that accepts any arguments, because the toolbox validates them.

    >>> schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
    >>> model = model_of("double", schema)
    >>> model.model_json_schema()["properties"]
    {'number': {'type': 'integer'}}
    >>> model.model_validate({"number": "21"}).model_dump()
    {'number': '21'}
    """
    schema = {"title": name, **parameters}

    class Arguments(BaseModel):
        model_config = ConfigDict(extra="allow", title=name)

        @classmethod
        def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
            return copy.deepcopy(schema)

    return Arguments


Choice: TypeAlias = str | Callable[[Any], str | None] | None
"""A value for all calls, or a function of the framework's call context; None: the default."""
Parameters: TypeAlias = MutableMapping[str, Any] | Callable[[Any], MutableMapping[str, Any] | None] | None
"""The values shared by a run's tools, or a function of the framework's call context."""
Approval: TypeAlias = Literal["ours", "theirs"]
"""Whether the toolbox's reviewer asks for approval, or the framework, which pauses its run."""


@dataclass(frozen=True, slots=True)
class CallSettings:
    """The settings passed to the toolbox with each call."""

    memory_id: Choice = None
    """The conversation or user of a call."""
    run_id: Choice = None
    """The run of a call; default: the framework's run id."""
    parameters: Parameters = None
    """Values shared by a run's tools."""

    def __post_init__(self) -> None:
        """Raise ToolConfigurationError for an invalid setting."""
        for name, value, kind, expected in (
            ("memory_id", self.memory_id, str, "a str"),
            ("run_id", self.run_id, str, "a str"),
            ("parameters", self.parameters, MutableMapping, "a mutable mapping such as {'user': 'ada'}"),
        ):
            if value is not None and not isinstance(value, kind) and not callable(value):
                wanted = f"{expected}, or a function that returns it for each call"
                raise errors.ToolConfigurationError(f"{name} of export must be {wanted}, not {value!r:.80}")

    def for_call(self, source: Any, run_id: str | None, deps: Any) -> dict[str, Any]:
        """Return the keyword arguments of ``execute`` for one call.

        :param source: the framework's call context, for function settings
        :param run_id: the framework's run id
        :param deps: the framework's dependencies of the run

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
    """A toolbox tool, as a framework sees and calls it.

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
    """The executing toolbox."""
    name: str
    """The name of the tool in the toolbox."""
    shown_name: str
    """The name of the tool in the framework."""
    description: str
    """The description for the model."""
    parameters: dict[str, Any]
    """The JSON Schema of the arguments, always an object."""
    settings: CallSettings
    """The settings passed to the toolbox with each call."""

    def execute(
        self, arguments: Any, call_id: str | None = None, source: Any = None, *, run_id: str | None = None,
        deps: Any = None, box: Toolbox | None = None,
    ) -> ToolReply:  # fmt: skip
        """Execute a call and return the reply; failures that a model can cause are never raised.

        :param arguments: JSON text, or a dict
        :param call_id: the framework's call id
        :param source: the framework's call context, for function settings
        :param run_id: the framework's run id
        :param deps: the framework's dependencies of the run, for ``ToolContext.deps``
        :param box: another toolbox with this tool, such as one whose reviewer already has the answer
        """
        try:
            call = ToolCall(self.name, arguments, call_id)
        except TypeError as problem:
            return self._refuse_values(call_id, problem)
        try:
            return (box or self.box).execute(call, **self.settings.for_call(source, run_id, deps))
        except errors.ExitEarlyError as stop:
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
        except errors.ExitEarlyError as stop:
            return _refuse(call, stop)

    @property
    def is_gated(self) -> bool:
        """Whether calls may need approval."""
        return self.box.registered(self.name).definition.gate is not None

    async def find_request(
        self, arguments: Any, call_id: str, source: Any = None, *, run_id: str | None = None, deps: Any = None
    ) -> ReviewRequest | None:
        """Return the review request that a call of a pausable toolbox would make; None if it needs no approval.

        Nothing is run. An invalid call needs no approval: its reply tells the model why.
        """
        try:
            call = ToolCall(self.name, arguments, call_id)
        except TypeError:
            return None
        try:
            await self.box.aexecute(call, **self.settings.for_call(source, run_id, deps), dry_run=True)
        except errors.CallPausedError as paused:
            request: ReviewRequest = paused.request
            return request
        return None

    def fail(self, call_id: str | None, problem: Exception) -> ToolReply:
        """Return the failed reply to a call that could not be executed."""
        return ToolReply(
            ToolCall(self.name, id=call_id), ToolResult.failure(str(problem), error_kind=error_kind_of(problem))
        )

    def _refuse_values(self, call_id: str | None, problem: TypeError) -> ToolReply:
        """Return the reply to a call with values that are not JSON-serializable, which model-written code can pass."""
        message = str(problem).removeprefix(f"ToolCall '{self.name}': ")
        failure = ToolResult.failure(f"Invalid JSON input for '{self.name}': {message}", error_kind="json")
        return ToolReply(ToolCall(self.name, id=call_id), failure)


def _refuse(call: ToolCall, stop: errors.ExitEarlyError) -> ToolReply:
    """Return the reply to a call whose reviewer stopped the run, because raising would lose the reply."""
    return ToolReply(call, ToolResult.failure(str(stop) or "A reviewer stopped the run", error_kind="rejected"))


def export_tools(
    box: Toolbox,
    settings: CallSettings = _NO_SETTINGS,
    approval: Approval = "ours",
    *,
    cannot_pause: str | None = None,
    fit_name: Callable[[str], str] | None = None,
) -> list[ExportedTool]:
    """Return a toolbox's tools for a framework, with unique names.

    :param settings: the settings passed to the toolbox with each call
    :param approval: "theirs" if the framework asks: gated calls raise ``CallPausedError``
    :param cannot_pause: why the framework cannot ask, as the start of a sentence; None if it can
    :param fit_name: returns a name that the framework accepts

    >>> export_tools(Toolbox([]), CallSettings(), "theirs", cannot_pause="DSPy cannot pause a run for approval")
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: DSPy cannot pause a run for approval; pass approval="ours", and a \
reviewer to the toolbox
    """
    if not isinstance(box, Toolbox):
        raise errors.ToolDefinitionError(
            f"export takes a Toolbox, not {type(box).__name__}; write export(Toolbox([...]))"
        )
    box = _prepare_approval(box, approval, cannot_pause)
    names = map_names(box.names, fit_name or str)
    return [
        ExportedTool(box, each.name, names[each.name], each.description, parameters_of(each), settings)
        for each in box.specifications
    ]


def _prepare_approval(box: Toolbox, approval: str, cannot_pause: str | None) -> Toolbox:
    """Return the toolbox with a reviewer for the setting; raise ToolConfigurationError if there is none."""
    if approval not in ("ours", "theirs"):
        raise errors.ToolConfigurationError(f'approval must be "ours" or "theirs", not {approval!r:.80}')
    if approval == "ours":
        check_reviewer(box, ToolContext())
        _refuse_pauses(box)
        return box
    if cannot_pause is not None:
        raise errors.ToolConfigurationError(f'{cannot_pause}; pass approval="ours", and a reviewer to the toolbox')
    return make_pausable(box)


def _refuse_pauses(box: Toolbox) -> None:
    """Raise ToolConfigurationError if a toolbox's reviewer would leave a call open."""
    try:
        check_pauses(box, ToolContext(), nested=True)
    except errors.ToolConfigurationError as problem:
        raise errors.ToolConfigurationError(
            "PauseReview can pause the runs of an Agent only; pass the toolbox a reviewer that waits, such as "
            'QueueReview, or export it with approval="theirs" if the framework can pause a run'
        ) from problem


def text_of(reply: ToolReply) -> str:
    r"""Return the text for the model, with the note about edits and text contents.

    >>> from toolsemble import TextContent
    >>> text_of(ToolReply(ToolCall("now"), ToolResult.success("noon", contents=[TextContent("in Rome")])))
    'noon\nin Rome'
    """
    text = reply.with_edits().text
    if not reply.contents:
        return text
    return "\n".join([text, *(each.text for each in reply.contents if isinstance(each, TextContent))])


def full_text_of(reply: ToolReply) -> str:
    r"""Return the text for the model for frameworks without media, with a line for each media item.

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
