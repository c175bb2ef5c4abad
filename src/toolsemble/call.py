"""What a model asks for, and what it is told."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module  # provider modules are loaded when they are used
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from toolsemble.result import Content, ToolResult


# Made once: an encoder takes longer to make than to use.
_CANONICAL = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))


_ids: deque[str] = deque()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.clear)  # the parent uses them


def new_id() -> str:
    """Return an id that no other process makes, not even a fork of this one."""
    try:
        return _ids.popleft()
    except IndexError:
        drawn = os.urandom(8 * 64).hex()  # asking the system once for many takes a quarter of the time
        _ids.extend(drawn[start : start + 16] for start in range(16, len(drawn), 16))
        return drawn[:16]


class ToolCall:
    """One call that a model asks for; it never changes once made.

    Arguments are the JSON text that the model wrote, or a dict of JSON values; None counts as no arguments.
    Without an id, a call is told from its like by its place in the request.

    >>> call = ToolCall("weather", {"city": "Rome"}, id="call_1")
    >>> call.arguments, call.json
    ({'city': 'Rome'}, '{"city":"Rome"}')
    """

    __slots__ = ("_answered_in", "_given_as_dict", "_id", "_json", "_name")

    def __init__(self, name: str, arguments: str | dict[str, Any] | None = "{}", id: str | None = None) -> None:
        if not isinstance(name, str):
            raise TypeError(f"ToolCall name must be a str, not {type(name).__name__}")
        self._name = name
        self._id = id
        self._answered_in: Literal["chat", "responses"] = "chat"
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

    @property
    def canonical(self) -> str:
        """The arguments as the one text that stands for them, with sorted keys; what is no JSON stays as it is.

        >>> ToolCall("route", '{"to": "Rome", "from": "Bonn"}').canonical
        '{"from":"Bonn","to":"Rome"}'
        """
        try:
            return _CANONICAL.encode(json.loads(self._json))
        except (ValueError, RecursionError):
            return self._json

    @classmethod
    def from_openai(cls, source: object) -> ToolCall:
        """Give the call of a chat completion's tool call, or of a response's function call; an SDK object or its dict.

        >>> ToolCall.from_openai({"id": "c1", "function": {"name": "now", "arguments": "{}"}})
        ToolCall('now', '{}', id='c1')
        """
        call = _read("openai", source)
        kind = source.get("type") if isinstance(source, Mapping) else getattr(source, "type", None)
        call._answered_in = "responses" if kind == "function_call" else "chat"  # noqa: SLF001 - just made
        return call

    @classmethod
    def from_anthropic(cls, source: object) -> ToolCall:
        """Give the call of Anthropic's ``tool_use`` block; takes the SDK's object or its dict."""
        return _read("anthropic", source)

    @classmethod
    def from_google(cls, source: object) -> ToolCall:
        """Give the call of Google Gemini's function call, or of the part that holds it; an SDK object or its dict."""
        return _read("google", source)

    @classmethod
    def from_bedrock(cls, source: object) -> ToolCall:
        """Give the call of Amazon Bedrock's ``toolUse`` block; takes the SDK's object or its dict."""
        return _read("bedrock", source)

    @classmethod
    def from_mistral(cls, source: object) -> ToolCall:
        """Give the call of Mistral's tool call; takes the SDK's object or its dict."""
        return _read("mistral", source)

    @classmethod
    def from_ollama(cls, source: object) -> ToolCall:
        """Give the call of Ollama's tool call; takes the SDK's object or its dict."""
        return _read("ollama", source)

    @classmethod
    def from_mcp(cls, source: object) -> ToolCall:
        """Give the call of MCP's ``tools/call`` request, or of its parameters; an SDK object or its dict."""
        return _read("mcp", source)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolCall):
            return NotImplemented
        return (self._name, self._json, self._id) == (other._name, other._json, other._id)

    def __hash__(self) -> int:
        return hash((self._name, self._json, self._id))

    def __repr__(self) -> str:
        return f"ToolCall({self._name!r}, {self.arguments!r}, id={self._id!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._name, self.arguments, self._id, self._answered_in)


@dataclass(frozen=True, slots=True, init=False)
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
    more: str = ""
    """What the model is told after the remark that a text was cut, such as how to get the rest."""
    note: str = ""
    """What the model is told after the text, by whoever called and not by the tool; empty for nothing."""

    def __init__(
        self, call: ToolCall, result: ToolResult, limit: int | None = None, more: str = "", note: str = ""
    ) -> None:
        # Every call makes one, as it makes a result.
        _set_call(self, call)
        _set_result(self, result)
        _set_limit(self, limit)
        _set_more(self, more)
        _set_note(self, note)

    @property
    def text(self) -> str:
        """The result's text, cut to the limit with a remark of its full length; then the note, if there is one."""
        text = self.result.text
        if self.limit is not None and len(text) > self.limit:
            text = f"{text[: self.limit]}... [truncated, full length: {len(text)} chars]{self.more}"
        return f"{text}\n\n{self.note}" if self.note else text

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        return not self.result.is_success

    @property
    def call_id(self) -> str | None:
        """The provider's id of the call."""
        return self.call.id

    @property
    def name(self) -> str:
        """The name of the tool that was called."""
        return self.call.name

    @property
    def contents(self) -> tuple[Content, ...]:
        """Images, sound and files beside the text."""
        return self.result.contents

    def to_openai(self, api: Literal["chat", "responses"] | None = None) -> dict[str, Any]:
        """Give the message that OpenAI is sent back, for the API that the call came from unless told otherwise.

        >>> from toolsemble import ToolResult
        >>> ToolReply(ToolCall("now", id="c1"), ToolResult.success("noon")).to_openai()
        {'role': 'tool', 'tool_call_id': 'c1', 'content': 'noon'}
        """
        return _written_for("openai", self, api=api or self.call._answered_in)  # noqa: SLF001 - this module's own

    def to_anthropic(self) -> dict[str, Any]:
        """Give what Anthropic is sent back about the call."""
        return _written_for("anthropic", self)

    def to_google(self) -> dict[str, Any]:
        """Give what Google Gemini is sent back about the call."""
        return _written_for("google", self)

    def to_bedrock(self) -> dict[str, Any]:
        """Give what Amazon Bedrock is sent back about the call."""
        return _written_for("bedrock", self)

    def to_mistral(self) -> dict[str, Any]:
        """Give what Mistral is sent back about the call."""
        return _written_for("mistral", self)

    def to_ollama(self) -> dict[str, Any]:
        """Give what Ollama is sent back about the call."""
        return _written_for("ollama", self)

    def to_mcp(self) -> dict[str, Any]:
        """Give what MCP is sent back about the call."""
        return _written_for("mcp", self)


_set_call = vars(ToolReply)["call"].__set__
_set_result = vars(ToolReply)["result"].__set__
_set_limit = vars(ToolReply)["limit"].__set__
_set_more = vars(ToolReply)["more"].__set__
_set_note = vars(ToolReply)["note"].__set__


def _restored(name: str, arguments: Any, id: str | None, answered_in: Literal["chat", "responses"]) -> ToolCall:
    call = ToolCall(name, arguments, id)
    call._answered_in = answered_in  # noqa: SLF001 - just made
    return call


def _read(provider: str, source: object) -> ToolCall:
    return ToolCall(*import_module(f"toolsemble.providers.{provider}").read_call(source))


def _written_for(provider: str, reply: ToolReply, **settings: Any) -> dict[str, Any]:
    message: dict[str, Any] = import_module(f"toolsemble.providers.{provider}").write_reply(reply, **settings)
    return message


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
