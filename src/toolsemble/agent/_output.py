"""Typed answers: the schema for a model's answer, and the parsing of the answer."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from functools import cached_property
from typing import Any, get_origin

from toolsemble._runtime.text import escape_line
from toolsemble._schema.decode import decode_arguments
from toolsemble._schema.members import Field, members_reader, resolve_field
from toolsemble._schema.provider_schema import make_portable
from toolsemble._schema.repair import STEPS
from toolsemble._schema.result_shape import to_result
from toolsemble._schema.typed_arguments import TypedArguments
from toolsemble._vocabulary.errors import ToolArgumentsError, ToolDefinitionError, ToolExecutionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble._vocabulary.specification import ToolSpecification

FINAL_ANSWER = "final_answer"
"""The name of the tool with which a model without native structured output returns its answer."""

_LOGGER = logging.getLogger("toolsemble.agent")
_MAX_PLACES = 500
_KEY = "answer"
_NOTHING = '{"answer":null}'
_FENCE = "```"


class Output:
    """The schema and parser of answers of one type; raises :class:`ToolDefinitionError` for an unsupported type.

    >>> Output(list[int]).read("[1, 2, 3]")
    [1, 2, 3]
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        origin = get_origin(kind) or kind
        # Tools and providers require objects, so any other type is wrapped in one.
        self._is_wrapped = not (
            isinstance(origin, type) and (members_reader(origin) or hasattr(origin, "__pydantic_fields__"))
        )
        try:
            self._arguments = _wrap_type(kind) if self._is_wrapped else TypedArguments.of_type(kind, {})
            self._arguments.check()
        except ToolDefinitionError as problem:
            raise ToolDefinitionError(f"Agent output_type: {problem}") from None

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema of answers, always an object, as a new dict."""
        return self.specification.parameters

    @cached_property
    def specification(self) -> ToolSpecification:
        """The tool with which a model returns its answer."""
        schema = {"type": "object", **make_portable(self._arguments.schema)[0]}
        return ToolSpecification(FINAL_ANSWER, "Give the final answer, once everything is known.", schema)

    def read(self, text: str) -> Any:
        """Return the answer in a JSON text, or raise :class:`ToolArgumentsError`."""
        if not self._is_wrapped:
            return self._decode(text)
        try:
            return self._decode(_wrap_answer(text))[_KEY]
        except ToolArgumentsError:
            # The text may be in a fence, or be almost JSON; a str answer never gets here.
            for inner in (text, _wrap_answer(_strip_fence(text))):
                with suppress(ToolArgumentsError):
                    return self._decode(inner)[_KEY]
            raise

    def read_text(self, text: str) -> Any:
        """Return the answer in plain text; raise :class:`ToolArgumentsError` if it is blank."""
        if not text.strip():
            raise ToolArgumentsError("The answer is empty")
        return self.read(text)

    def text(self, given: str, answer: Any) -> str:
        """Return an answer as text: an object as the model wrote it, any other value without the wrapping object.

        >>> Output(str).text('{"answer": "Rome"}', "Rome"), Output(int | None).text('{"answer": null}', None)
        ('Rome', 'null')
        """
        if not self._is_wrapped:
            return given
        try:
            return "null" if answer is None else to_result(answer).output
        except ToolExecutionError:
            return given  # a value that JSON cannot hold

    def read_result(self, result: ToolResult) -> Any:
        """Return a tool's result as the answer: its payload if it fits, else its text; None if both are empty."""
        given = result.structured_output
        if type(given) is self._kind:
            return given
        if given is not None:
            with suppress(ToolArgumentsError, ToolExecutionError):
                return self.read(to_result(given).output)
        elif self._is_wrapped and not result.output and not result.contents:
            with suppress(ToolArgumentsError):
                return self._decode(_NOTHING)[_KEY]
        return self.read_text(result.output)

    def _decode(self, text: str) -> Any:
        value, repairs = decode_arguments(self._arguments, text, STEPS)
        if repairs:
            places = ", ".join(f"{each['step']} at {each['path']}" for each in repairs)
            _LOGGER.info("An answer was repaired: %s", escape_line(places, _MAX_PLACES))
        return value


def _wrap_type(kind: Any) -> TypedArguments:
    return TypedArguments.of_fields(FINAL_ANSWER, [resolve_field(Field(_KEY, kind), {})], {}, frozenset())


def _strip_fence(text: str) -> str:
    """Return the content of a Markdown fence that spans the whole text, without its first line."""
    stripped = text.strip()
    if not (stripped.startswith(_FENCE) and stripped.endswith(_FENCE)):
        return text
    return stripped.removesuffix(_FENCE).partition("\n")[2]


def _wrap_answer(text: str) -> str:
    """Return the wrapping object as JSON; a model may send only the value inside."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return json.dumps({_KEY: text})
    return text if isinstance(value, dict) and value.keys() == {_KEY} else f'{{"{_KEY}":{text}}}'
