"""Answers of a declared type: what the model is told to give, and how what it gave is read."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cached_property
from typing import Any, get_origin

from toolsemble.errors import ToolArgumentsError, ToolDefinitionError, ToolExecutionError
from toolsemble.result import ToolResult
from toolsemble.schema.decode import decode_arguments
from toolsemble.schema.field import Field, declared
from toolsemble.schema.members import members_reader
from toolsemble.schema.portable import portable
from toolsemble.schema.repair import STEPS
from toolsemble.schema.typed import TypedArguments
from toolsemble.shape import to_result
from toolsemble.specification import ToolSpecification

FINAL_ANSWER = "final_answer"
"""The name of the tool by which a model without a native way gives its answer."""

_KEY = "answer"
_NOTHING = '{"answer":null}'
_FENCE = "```"


class Output:
    """How answers of one type are asked for and read; refuses a type that cannot be.

    >>> Output(list[int]).read("[1, 2, 3]")
    [1, 2, 3]
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        origin = get_origin(kind) or kind
        # An object is asked for as it is; of anything else, one is made, as tools and providers insist on objects.
        self._bare = not (
            isinstance(origin, type) and (members_reader(origin) or hasattr(origin, "__pydantic_fields__"))
        )
        try:
            self._arguments = _wrapped(kind) if self._bare else TypedArguments.of_type(kind, {})
            self._arguments.check()
        except ToolDefinitionError as problem:
            raise ToolDefinitionError(f"Agent output_type: {problem}") from None

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema that answers fit, always of an object, as a fresh dict."""
        return self.specification.parameters

    @cached_property
    def specification(self) -> ToolSpecification:
        """The tool by which a model gives its answer."""
        schema = {"type": "object", **portable(self._arguments.schema)[0]}
        return ToolSpecification(FINAL_ANSWER, "Give the final answer, once everything is known.", schema)

    def read(self, text: str) -> Any:
        """Give the answer that JSON text holds, or raise a :class:`ToolArgumentsError` that says what is wrong."""
        if not self._bare:
            return self._decoded(text)
        try:
            return self._decoded(_whole(text))[_KEY]
        except ToolArgumentsError:
            # What stands in a fence, or is nearly JSON; text that was asked for as it is never comes here.
            for inner in (text, _whole(_unfenced(text))):
                with suppress(ToolArgumentsError):
                    return self._decoded(inner)[_KEY]
            raise

    def read_text(self, text: str) -> Any:
        """Give the answer that a model wrote as plain text; nothing at all is none."""
        if not text.strip():
            raise ToolArgumentsError("The answer is empty")
        return self.read(text)

    def text(self, given: str, answer: Any) -> str:
        """Give an answer as text: an object as the model gave it, any other value without the object around it.

        >>> Output(str).text('{"answer": "Rome"}', "Rome"), Output(int | None).text('{"answer": null}', None)
        ('Rome', 'null')
        """
        if not self._bare:
            return given
        try:
            return "null" if answer is None else to_result(answer).output
        except ToolExecutionError:
            return given  # a value that JSON cannot hold

    def read_result(self, result: ToolResult) -> Any:
        """Give the answer that a tool's result is: its object if that fits, else its text; nothing at all is None."""
        given = result.structured_output
        if type(given) is self._kind:
            return given
        if given is not None:
            with suppress(ToolArgumentsError, ToolExecutionError):
                return self.read(to_result(given).output)
        elif self._bare and not result.output and not result.contents:
            with suppress(ToolArgumentsError):
                return self._decoded(_NOTHING)[_KEY]
        return self.read_text(result.output)

    def _decoded(self, text: str) -> Any:
        return decode_arguments(self._arguments, text, STEPS)[0]


def _wrapped(kind: Any) -> TypedArguments:
    return TypedArguments.of_fields(FINAL_ANSWER, [declared(Field(_KEY, kind), {})], {}, frozenset())


def _unfenced(text: str) -> str:
    """Give what stands in a Markdown fence that is all of a text; the first line names a language."""
    stripped = text.strip()
    if not (stripped.startswith(_FENCE) and stripped.endswith(_FENCE)):
        return text
    return stripped.removesuffix(_FENCE).partition("\n")[2]


def _whole(text: str) -> str:
    """Give the object that was asked for; a model may send only what stands inside."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return json.dumps({_KEY: text})
    return text if isinstance(value, dict) and value.keys() == {_KEY} else f'{{"{_KEY}":{text}}}'
