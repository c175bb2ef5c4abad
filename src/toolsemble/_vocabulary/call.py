"""``ToolCall``, a model's request, and ``ToolReply``, the answer to it."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from toolsemble._vocabulary.result import ToolResult
from toolsemble._vocabulary.serialization import compact_json

if TYPE_CHECKING:
    from toolsemble._vocabulary.result import Content, ErrorKind


# Created once: creating an encoder takes longer than using it.
_CANONICAL = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))


_NAMELESS = "(no name)"
_ids: deque[str] = deque()
# The parent will use them.
getattr(os, "register_at_fork", lambda **_: None)(after_in_child=_ids.clear)


def new_id() -> str:
    """Return a random id, unique across processes, including forked ones."""
    try:
        return _ids.popleft()
    except IndexError:
        digits = os.urandom(8 * 64).hex()  # one system call for many ids takes a quarter of the time
        _ids.extend(digits[start : start + 16] for start in range(16, len(digits), 16))
        return digits[:16]


class GeneratedRunId(str):
    """The generated id of a run for which the program did not set one; no later run reuses it.

    >>> GeneratedRunId("4f1c") == "4f1c"
    True
    """

    __slots__ = ()


def new_run_id() -> GeneratedRunId:
    """Return a new run id whose type shows that it was generated."""
    return GeneratedRunId(new_id())


class ToolCall:
    """A tool call requested by a model; immutable.

    Arguments are the JSON text that the model wrote, or a dict of JSON values; None means no arguments. Calls without
    an id are matched to their replies by position.

    >>> call = ToolCall("weather", '{"city": "Rome"}', id="call_1")
    >>> call.arguments, call.json
    ({'city': 'Rome'}, '{"city": "Rome"}')
    """

    __slots__ = ("_answered_in", "_given_as_dict", "_id", "_json", "_name")

    def __init__(self, name: str, arguments: str | dict[str, Any] | None = "{}", id: str | None = None) -> None:
        if not isinstance(name, str):
            raise TypeError(f"ToolCall name must be a str, not {type(name).__name__}")
        if not name:
            raise ValueError("ToolCall name is empty; pass the name of a tool")
        self._name = name
        self._id = id
        self._answered_in: Literal["chat", "responses"] = "chat"
        self._given_as_dict = isinstance(arguments, dict)
        self._json = arguments if isinstance(arguments, str) else _dump_arguments(name, arguments)

    @property
    def name(self) -> str:
        """The name of the tool that is called."""
        return self._name

    @property
    def arguments(self) -> dict[str, Any]:
        """The requested arguments, a new dict each time; empty if the model's text is not a JSON object (see ``json``).

        They are not validated or repaired; :attr:`~toolsemble.agent.ToolCallRecord.arguments` has the final ones.

        >>> ToolCall("weather", '{"city": "Ro').arguments
        {}
        """
        try:
            values = json.loads(self._json)
        except (ValueError, RecursionError):
            return {}
        return values if isinstance(values, dict) else {}

    @property
    def original(self) -> str | dict[str, Any]:
        """The arguments as passed: the model's text, or a dict, which is a new copy each time.

        >>> ToolCall("weather", '{"city": "Ro').original
        '{"city": "Ro'
        """
        return json.loads(self._json) if self._given_as_dict else self._json

    @property
    def id(self) -> str | None:
        """The provider's id of the call, which the reply repeats."""
        return self._id

    @property
    def json(self) -> str:
        """The arguments as JSON text, or the model's text if it is not JSON."""
        return self._json

    @property
    def canonical(self) -> str:
        """The arguments as canonical JSON with sorted keys; text that is not JSON is returned unchanged.

        >>> ToolCall("route", '{"to": "Rome", "from": "Bonn"}').canonical
        '{"from":"Bonn","to":"Rome"}'
        """
        try:
            return _CANONICAL.encode(json.loads(self._json))
        except (ValueError, RecursionError):
            return self._json

    @classmethod
    def from_openai(cls, source: object) -> ToolCall:
        """Return the call for a chat completion's tool call, or a response's function call; SDK object or dict.

        >>> ToolCall.from_openai({"id": "c1", "function": {"name": "now", "arguments": "{}"}})
        ToolCall('now', '{}', id='c1')
        """
        return cls.from_provider("openai", source)

    @classmethod
    def from_anthropic(cls, source: object) -> ToolCall:
        """Return the call for a ``tool_use`` block of Anthropic; SDK object or dict."""
        return cls.from_provider("anthropic", source)

    @classmethod
    def from_google(cls, source: object) -> ToolCall:
        """Return the call for a function call of Google Gemini, or the part that holds it; SDK object or dict."""
        return cls.from_provider("google", source)

    @classmethod
    def from_bedrock(cls, source: object) -> ToolCall:
        """Return the call for a ``toolUse`` block of Amazon Bedrock; SDK object or dict."""
        return cls.from_provider("bedrock", source)

    @classmethod
    def from_mistral(cls, source: object) -> ToolCall:
        """Return the call for a tool call of Mistral; SDK object or dict."""
        return cls.from_provider("mistral", source)

    @classmethod
    def from_ollama(cls, source: object) -> ToolCall:
        """Return the call for a tool call of Ollama; SDK object or dict."""
        return cls.from_provider("ollama", source)

    @classmethod
    def from_mcp(cls, source: object) -> ToolCall:
        """Return the call for a ``tools/call`` request of MCP, or its parameters; SDK object or dict."""
        return cls.from_provider("mcp", source)

    @classmethod
    def from_provider(cls, provider: str, source: object) -> ToolCall:
        """Return the call for a call of a provider, by the provider's name; SDK object or dict.

        >>> ToolCall.from_provider("mcp", {"name": "now", "arguments": {}})
        ToolCall('now', {}, id=None)
        """
        call = received_call(*_load(provider).read_call(source))
        if provider == "openai":  # the only one with two APIs
            kind = source.get("type") if isinstance(source, Mapping) else getattr(source, "type", None)
            call._answered_in = "responses" if kind == "function_call" else "chat"  # noqa: SLF001 - its own class
        return call

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolCall):
            return NotImplemented
        return (self._name, self._json, self._id) == (other._name, other._json, other._id)

    def __hash__(self) -> int:
        return hash((self._name, self._json, self._id))

    def __repr__(self) -> str:
        return f"ToolCall({self._name!r}, {self.original!r}, id={self._id!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._name, self.original, self._id, self._answered_in)


class NumberedCall(ToolCall):
    """A call with its number in a turn of a journaled run, starting at 1.

    >>> NumberedCall(ToolCall("now", id="c1"), 2).number
    2
    """

    __slots__ = ("number",)

    def __init__(self, call: ToolCall, number: int) -> None:
        super().__init__(call.name or _NAMELESS, call.original, call.id)
        self._name = call.name
        self.number = number


def received_call(name: str, arguments: str | dict[str, Any] | None = "{}", id: str | None = None) -> ToolCall:
    """Return a model's call; unlike a program's call, it may have an empty name, which is answered with an error.

    >>> received_call("")
    ToolCall('', '{}', id=None)
    """
    call = ToolCall(_NAMELESS if name == "" else name, arguments, id)
    call._name = name  # noqa: SLF001 - a new object of this module
    return call


# Without slots: every call creates one, and setting one dict is faster than each field.
@dataclass(frozen=True, init=False)
class ToolReply:
    """The answer to a call, for the model and for programs.

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
    """Characters of the result's text that the model gets; None: no limit."""
    more: str = ""
    """Text for the model after the truncation notice, such as how to read the rest."""
    note: str = ""
    """Text for the model after the result, added by the caller and not by the tool."""
    edits: str = ""
    """A note for the model about the arguments that a reviewer changed. It is not in ``text``; the messages for
    providers and the conversations of agents have it: see :meth:`with_edits`."""
    arguments: dict[str, Any] | None = field(default=None, compare=False, repr=False)
    """The arguments that ran, as JSON values with secrets masked: in an agent run, and with ``observe``.
    None if they were not kept, or if the call did not run."""

    def __init__(
        self,
        call: ToolCall,
        result: ToolResult,
        limit: int | None = None,
        more: str = "",
        note: str = "",
        edits: str = "",
        arguments: dict[str, Any] | None = None,
    ) -> None:
        if type(result) is not ToolResult and not isinstance(result, ToolResult):
            raise TypeError(
                f"ToolReply result must be a ToolResult, not {type(result).__name__}; pass ToolResult.success(text) or "
                "ToolResult.failure(message)"
            )
        values = {
            "call": call,
            "result": result,
            "limit": limit,
            "more": more,
            "note": note,
            "edits": edits,
            "arguments": arguments,
        }
        _set_fields(self, values)

    @property
    def text(self) -> str:
        """The result's text, truncated to the limit with a notice of its full length, and the note."""
        text = self.result.text
        if self.limit is not None and len(text) > self.limit:
            text = f"{text[: self.limit]}... [truncated, full length: {len(text)} chars]{self.more}"
        return f"{text}\n\n{self.note}" if self.note else text

    def with_edits(self) -> ToolReply:
        """Return the reply with the note about edits in its text, for a message that you build yourself.

        >>> from toolsemble import ToolResult
        >>> edits = "Note: a reviewer changed the arguments of 'pay' to {'amount': 5}"
        >>> print(ToolReply(ToolCall("pay"), ToolResult.success("paid"), edits=edits).with_edits().text)
        paid
        <BLANKLINE>
        Note: a reviewer changed the arguments of 'pay' to {'amount': 5}
        """
        if not self.edits:
            return self
        note = f"{self.edits}\n{self.note}" if self.note else self.edits
        return replace(self, note=note, edits="")

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        return not self.result.is_success

    @property
    def error_kind(self) -> ErrorKind | None:
        """The kind of the failure, for programs; None on success."""
        return self.result.error_kind

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
        """Images, audio and files of the result."""
        return self.result.contents

    def to_openai(self, api: Literal["chat", "responses"] | None = None) -> dict[str, Any]:
        """Return the message for OpenAI; by default for the API that the call came from.

        >>> from toolsemble import ToolResult
        >>> ToolReply(ToolCall("now", id="c1"), ToolResult.success("noon")).to_openai()
        {'role': 'tool', 'tool_call_id': 'c1', 'content': 'noon'}
        """
        return self.to_provider("openai", **({"api": api} if api else {}))

    def to_anthropic(self) -> dict[str, Any]:
        """Return the content block for Anthropic."""
        return self.to_provider("anthropic")

    def to_google(self) -> dict[str, Any]:
        """Return the part for Google Gemini."""
        return self.to_provider("google")

    def to_bedrock(self) -> dict[str, Any]:
        """Return the content block for Amazon Bedrock."""
        return self.to_provider("bedrock")

    def to_mistral(self) -> dict[str, Any]:
        """Return the message for Mistral."""
        return self.to_provider("mistral")

    def to_ollama(self) -> dict[str, Any]:
        """Return the message for Ollama."""
        return self.to_provider("ollama")

    def to_mcp(self) -> dict[str, Any]:
        """Return the result of ``tools/call`` for MCP."""
        return self.to_provider("mcp")

    def to_provider(self, provider: str, **settings: Any) -> dict[str, Any]:
        """Return the reply in a provider's format, by the provider's name, with the format's settings.

        >>> from toolsemble import ToolResult
        >>> ToolReply(ToolCall("now"), ToolResult.success("noon")).to_provider("ollama")
        {'role': 'tool', 'tool_name': 'now', 'content': 'noon'}
        """
        if provider == "openai":
            settings.setdefault("api", self.call._answered_in)  # noqa: SLF001 - its own class
        message: dict[str, Any] = _load(provider).write_reply(self.with_edits(), **settings)
        return message


_set_fields = vars(ToolReply)["__dict__"].__set__


def _restore(name: str, arguments: Any, id: str | None, answered_in: Literal["chat", "responses"]) -> ToolCall:
    call = received_call(name, arguments, id)
    call._answered_in = answered_in  # noqa: SLF001 - a new object of this module
    return call


def _load(provider: str) -> Any:
    from toolsemble._vocabulary.provider_list import load_wire_format

    return load_wire_format(provider)


def _dump_arguments(name: str, arguments: object) -> str:
    if arguments is None:
        return "{}"
    if not isinstance(arguments, dict):
        raise TypeError(f"ToolCall '{name}': arguments must be JSON text or a dict, not {type(arguments).__name__}")
    try:
        # NaN is accepted here and rejected when the arguments are decoded: a model can send it, so it is not misuse.
        return compact_json(arguments)
    except (TypeError, ValueError, RecursionError) as problem:
        raise TypeError(f"ToolCall '{name}': arguments must be JSON values: {problem}") from None
