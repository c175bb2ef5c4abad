"""What a model asks for, and what it is told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolsemble.result import ToolResult


class ToolCall:
    """One call that a model asks for; it never changes once made.

    Arguments are the JSON text that the model wrote, or a dict of JSON values; None counts as no arguments.
    Without an id, a call is told from its like by its place in the request.

    >>> call = ToolCall("weather", {"city": "Rome"}, id="call_1")
    >>> call.arguments, call.json
    ({'city': 'Rome'}, '{"city":"Rome"}')
    """

    __slots__ = ("_given_as_dict", "_id", "_json", "_name")

    def __init__(self, name: str, arguments: str | dict[str, Any] | None = "{}", id: str | None = None) -> None:
        if not isinstance(name, str):
            raise TypeError(f"ToolCall name must be a str, not {type(name).__name__}")
        self._name = name
        self._id = id
        self._given_as_dict = isinstance(arguments, dict)
        self._json = arguments if isinstance(arguments, str) else _written(name, arguments)

    @property
    def name(self) -> str:
        """The name of the tool that is called."""
        return self._name

    @property
    def arguments(self) -> str | dict[str, Any]:
        """The arguments as they were given; a dict is a fresh copy each time."""
        return json.loads(self._json) if self._given_as_dict else self._json

    @property
    def id(self) -> str | None:
        """The provider's id of the call, by which the reply finds its way back."""
        return self._id

    @property
    def json(self) -> str:
        """The arguments as JSON text, or whatever the model wrote in its place."""
        return self._json

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolCall):
            return NotImplemented
        return (self._name, self._json, self._id) == (other._name, other._json, other._id)

    def __hash__(self) -> int:
        return hash((self._name, self._json, self._id))

    def __repr__(self) -> str:
        return f"ToolCall({self._name!r}, {self.arguments!r}, id={self._id!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ToolCall, (self._name, self.arguments, self._id)


@dataclass(frozen=True, slots=True)
class ToolReply:
    """What the model is told about one call.

    >>> from toolsemble import ToolResult
    >>> reply = ToolReply(ToolCall("weather"), ToolResult.failure("no such city"))
    >>> reply.text, reply.is_error
    ('Error: no such city', True)
    """

    call: ToolCall
    """The call that this answers."""
    result: ToolResult
    """The whole result, for programs."""
    limit: int | None = None
    """How many characters of the result's text the model gets; None for all."""

    @property
    def text(self) -> str:
        """The result's text, cut to the limit with a note of its full length."""
        text = self.result.text
        if self.limit is None or len(text) <= self.limit:
            return text
        return f"{text[: self.limit]}... [truncated, full length: {len(text)} chars]"

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        return not self.result.is_success


def _written(name: str, arguments: object) -> str:
    if arguments is None:
        return "{}"
    if not isinstance(arguments, dict):
        raise TypeError(f"ToolCall '{name}': arguments must be JSON text or a dict, not {type(arguments).__name__}")
    try:
        # NaN passes here and is refused when the arguments are read: a model can send it, so it is no misuse.
        return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as problem:
        raise TypeError(f"ToolCall '{name}': arguments must be JSON values: {problem}") from None
