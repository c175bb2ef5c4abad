"""The model for Anthropic and servers compatible with its Messages API."""

from __future__ import annotations

import inspect
import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from toolsemble._runtime.checks import check_count
from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.text import escape_surrogates, preview
from toolsemble._runtime.trace_level import trace_tools
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import ModelError, ToolConfigurationError
from toolsemble._vocabulary.result import Content, FileContent, ImageContent, TextContent, ToolResult
from toolsemble.models import _chat as chat
from toolsemble.models._adapter import conversation, dialect, errors, history_reader, wire
from toolsemble.models._adapter.conversation import MEGABYTE, Inputs, removed_tools, system_texts
from toolsemble.models._adapter.offer import CLIENT_KEY, Offer, find_key_source, key_hint, offer_with_key
from toolsemble.models._adapter.per_loop import PerLoop
from toolsemble.models._adapter.replies import Block, append_text, has_text, join_texts, make_details, restore_blocks
from toolsemble.models._adapter.retry import is_retryable
from toolsemble.models._message import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    Transcript,
    UserMessage,
    list_messages,
)
from toolsemble.models.anthropic._wire import IMAGES, write_prompt, write_reply, write_tools

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def write_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the conversation; consecutive messages of one role are merged, including the replies to calls.

    >>> write_messages([UserMessage("hello"), UserMessage("there?")])
    [{'role': 'user', 'content': [{'type': 'text', 'text': 'hello'}, {'type': 'text', 'text': 'there?'}]}]
    """
    ids = conversation.CallIds(messages, _ID, "call_{}".format)
    return conversation.merge_turns(_write_message(message, ids) for message in messages)


def _write_message(message: Message, ids: conversation.CallIds) -> tuple[str, list[Block]]:
    if isinstance(message, AssistantMessage):
        calls = [_write_call(call, ids.assign(call)) for call in message.calls]
        return "assistant", restore_blocks("anthropic", message, calls)
    if isinstance(message, ToolMessage):
        return "user", [{**write_reply(message.reply), "tool_use_id": ids.take(message.call)}]
    if isinstance(message, UserMessage):
        return "user", write_prompt(escape_surrogates(message.text), message.contents)
    return "user", []  # a system message, which is sent separately


def _write_call(call: ToolCall, id: str) -> Block:
    return {
        "type": "tool_use",
        "id": id,
        "name": conversation.sanitize_name(call.name),
        "input": conversation.sanitize_arguments(call),
    }


_PARTS = "a text, an image or a document"


def messages_from_anthropic(messages: Iterable[object], system: object = None) -> Transcript:
    """Return the conversation in messages of Anthropic; raise ``ValueError`` if it is not one.

    Takes dicts and objects of Anthropic's SDK. Thinking is kept for Anthropic's models. Images and documents are
    converted; nothing is fetched from URLs. Files referenced by id are rejected, since only Anthropic has them.

    :param system: the system prompt, a text or a list of text blocks

    >>> messages = messages_from_anthropic([{"role": "user", "content": "hello"}], system="Be brief.")
    >>> [(message.role, message.text) for message in messages]
    [('system', 'Be brief.'), ('user', 'hello')]
    >>> messages_from_anthropic([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}]}])
    Traceback (most recent call last):
    ...
    ValueError: messages[0].content[0]: it answers the call 'c1', which was not made just before it
    """
    if isinstance(messages, Mapping) and "messages" in messages:
        raise ValueError("messages: expected a list, got a dict with messages; write messages_from_anthropic(**it)")
    reader = history_reader.HistoryReader()
    if system is not None:
        reader.add("system", SystemMessage(_read_system(system)))
    for place, message in history_reader.iterate_items(messages, "messages"):
        role, content = wire.field(message, "role"), wire.field(message, "content")
        text = [(f"{place}.content", {"type": "text", "text": content})]
        items = (
            text
            if isinstance(content, str)
            else list(history_reader.iterate_items(content, f"{place}.content", "a str or a list"))
        )
        if role == "user":
            _read_user(reader, place, items)
        elif role == "assistant":
            reader.add(place, _read_assistant(items))
        else:
            raise ValueError(f"{place}.role: expected user or assistant, got {role!r:.80}")
    return reader.finish()


def messages_to_anthropic(messages: Iterable[Message]) -> dict[str, Any]:
    """Return messages in Anthropic's format: a dict with ``messages`` and, if there is one, ``system``.

    A text, such as ``[audio/wav, 3 bytes, not shown]``, replaces unsupported contents.

    >>> from toolsemble.models import UserMessage
    >>> messages_to_anthropic([SystemMessage("Be brief."), UserMessage("hello")])
    {'system': 'Be brief.', 'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': 'hello'}]}]}
    """
    listed = list_messages("messages_to_anthropic", messages)
    system = "\n\n".join(conversation.system_texts(listed))
    return {**({"system": system} if system else {}), "messages": write_messages(listed)}


def _read_system(system: object) -> str:
    if isinstance(system, str):
        return system
    return "\n\n".join(
        history_reader.read_text(wire.field(block, "text"), f"{place}.text")
        for place, block in history_reader.iterate_items(system, "system", "a str or a list")
    )


def _read_user(reader: history_reader.HistoryReader, place: str, blocks: list[tuple[str, Any]]) -> None:
    """Read a user message: the replies to calls first, then the rest as one message."""
    parts: list[Content] = []
    for where, block in blocks:
        if wire.field(block, "type") == "tool_result":
            call_id = history_reader.read_text(wire.field(block, "tool_use_id"), f"{where}.tool_use_id")
            reader.add_reply(where, call_id, _read_result(where, block))
        else:
            parts.append(_read_part(where, block, "a text, an image, a document or a tool_result"))
    if parts or not blocks:
        reader.add(place, history_reader.make_prompt(parts))


def _read_assistant(items: list[tuple[str, Any]]) -> AssistantMessage:
    blocks = [history_reader.to_values(block, where) for where, block in items]
    calls, texts = [], []
    for (where, _), block in zip(items, blocks, strict=True):
        kind = block.get("type")
        if kind == "text":
            texts.append(history_reader.read_text(block.get("text"), f"{where}.text"))
        elif kind == "tool_use":
            calls.append(history_reader.read_call(ToolCall.from_anthropic, block, where))
        elif not isinstance(kind, str):
            raise history_reader.unsupported(where, block, "a block with a type")
    return AssistantMessage("".join(texts), tuple(calls), make_details("anthropic", blocks))


def _read_result(place: str, block: object) -> ToolResult:
    content, is_error = wire.field(block, "content"), bool(wire.field(block, "is_error"))
    if content is None or isinstance(content, str):
        return history_reader.make_result(content or "", is_error=is_error)
    items = history_reader.iterate_items(content, f"{place}.content", "a str or a list")
    return history_reader.make_result_of((_read_part(where, part, _PARTS) for where, part in items), is_error=is_error)


def _read_part(place: str, part: object, expected: str) -> Content:
    match wire.field(part, "type"):
        case "text":
            return TextContent(history_reader.read_text(wire.field(part, "text"), f"{place}.text"))
        case "image":
            return _read_image(place, part)
        case "document":
            return _read_document(place, part)
    raise history_reader.unsupported(place, part, expected)


def _read_image(place: str, block: object) -> ImageContent:
    source = wire.field(block, "source")
    match wire.field(source, "type"):
        case "base64":
            return history_reader.read_image(
                wire.field(source, "data"), wire.field(source, "media_type"), f"{place}.source"
            )
        case "url":
            return history_reader.read_image_url(wire.field(source, "url"), f"{place}.source.url")
    raise history_reader.unsupported(f"{place}.source", source, "a source of the type base64 or url")


def _read_document(place: str, block: object) -> FileContent:
    source, title = wire.field(block, "source"), wire.field(block, "title")
    name = "" if title is None else history_reader.read_text(title, f"{place}.title")
    data, where = wire.field(source, "data"), f"{place}.source.data"
    match wire.field(source, "type"):
        case "base64":
            mime_type = history_reader.read_text(wire.field(source, "media_type"), f"{place}.source.media_type")
            return FileContent(history_reader.read_base64(data, where), mime_type, name)
        case "text":
            return FileContent(history_reader.read_text(data, where).encode(errors="replace"), "text/plain", name)
        case "url":
            return history_reader.read_file_url(wire.field(source, "url"), name, f"{place}.source.url")
    raise history_reader.unsupported(f"{place}.source", source, "a source of the type base64, text or url")


_STOP_REASONS = errors.StopReasons(
    "Anthropic",
    {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "tool_use": "calls",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "refusal": "refusal",
    },
    may_be_empty=True,
)


@dataclass(slots=True)
class _Part:
    """A block that may still be incomplete."""

    block: Block
    number: int | None = None
    """The index of the call; None if it is not a call."""
    json: list[str] = field(default_factory=list)
    """The streamed pieces of its input."""


class ReplyReader:
    """A reader of one reply, which has several messages if the model pauses for Anthropic's own tools.

    >>> reader = ReplyReader()
    >>> list(reader.read_message({"content": [{"type": "text", "text": "Rome"}], "stop_reason": "end_turn"}))
    [TextDelta(text='Rome')]
    >>> reader.finish().stop_reason
    'stop'
    """

    def __init__(self) -> None:
        self._done: list[_Part] = []
        self._parts: dict[int | None, _Part] = {}
        self._calls = 0
        self._before = chat.TokenUsage()
        self._counts: dict[str, int] = {}
        self._last: Mapping[str, Any] = {}
        self.is_complete = False
        """Whether the message is complete."""

    @property
    def is_paused(self) -> bool:
        """Whether the model waits for a request to continue."""
        return self.is_complete and self._last.get("stop_reason") == "pause_turn"

    def resume(self) -> list[Block]:
        """Return the content so far, to be sent to a paused model, and prepare to read the next message."""
        self._done = [*self._done, *self._parts.values()]
        self._before, self._counts = self._usage(), {}
        self._parts, self._last, self.is_complete = {}, {}, False
        return [block for block in self._content() if block["type"] != "text" or block["text"].strip()]

    def read_message(self, message: Mapping[str, Any]) -> Iterator[chat.Chunk]:
        """Yield the chunks of a whole message."""
        for index, block in enumerate(message["content"]):
            yield from self._start_block(index, block)
            yield from self._end_block(self._parts.get(index))
        self._counts, self._last = _counts(message.get("usage")), message
        self.is_complete = True

    def read_event(self, event: Mapping[str, Any]) -> Iterator[chat.Chunk]:
        """Yield the chunks of an event; unknown events have none."""
        index = event["index"] if isinstance(event.get("index"), int) else None
        match event.get("type"):
            case "message_start":
                self._counts = _counts(_as_mapping(event.get("message")).get("usage"))
            case "content_block_start":
                yield from self._start_block(index, event.get("content_block"))
            case "content_block_delta" if index in self._parts:
                yield from _add_delta(self._parts[index], _as_mapping(event.get("delta")))
            case "content_block_stop":
                yield from self._end_block(self._parts.get(index))
            case "message_delta":
                self._counts |= _counts(event.get("usage"))
                self._last = _as_mapping(event.get("delta"))
            case "message_stop":
                self.is_complete = True

    def finish(self) -> chat.StreamEnd:
        """Return the end of the reply; raise a ``ModelError`` if it is empty for a known reason."""
        content, reason = self._content(), str(self._last.get("stop_reason"))
        details = _as_mapping(self._last.get("stop_details"))
        why = preview(str(details.get("explanation") or details.get("category") or ""))
        stop = _STOP_REASONS.read(reason, has_calls=self._calls > 0, has_text=has_text(content), why=why)
        return chat.StreamEnd(self._usage(), stop, make_details("anthropic", content))

    def _start_block(self, index: int | None, block: object) -> Iterator[chat.Chunk]:
        fields = {name: value for name, value in _as_mapping(block).items() if value is not None}
        if fields.get("type") == "text":
            part = self._parts[index] = _Part({**fields, "text": ""})
            yield from _add_delta(part, {"type": "text_delta", "text": fields.get("text")})
        elif fields.get("type") == "tool_use":
            call = ToolCall.from_anthropic(fields)
            self._parts[index] = _Part(fields, self._calls)
            yield chat.CallDelta(self._calls, call.name, call.id)
            self._calls += 1
        elif isinstance(fields.get("type"), str):
            self._parts[index] = _Part(fields)
            if fields["type"] == "thinking" and isinstance(fields.get("thinking"), str) and fields["thinking"]:
                yield chat.ThoughtDelta(fields["thinking"])

    def _end_block(self, part: _Part | None) -> Iterator[chat.Chunk]:
        if part is not None and part.number is not None and not part.json:
            part.json.append(ToolCall.from_anthropic(part.block).json)
            yield chat.ArgumentsDelta(part.number, part.json[0])

    def _content(self) -> list[Block]:
        """Return the blocks without unsigned reasoning, which the API rejects."""
        blocks = map(_complete_block, (*self._done, *self._parts.values()))
        return [block for block in blocks if block["type"] != "thinking" or block.get("signature")]

    def _usage(self) -> chat.TokenUsage:
        counts, before = self._counts, self._before
        cached, written = counts.get("cache_read_input_tokens", 0), counts.get("cache_creation_input_tokens", 0)
        return chat.TokenUsage(
            before.input + counts.get("input_tokens", 0) + cached + written,
            before.output + counts.get("output_tokens", 0),
            before.cached + cached,
            before.reasoning + counts.get("thinking_tokens", 0),
            before.cache_write + written,
        )


def _add_delta(part: _Part, delta: Mapping[str, Any]) -> Iterator[chat.Chunk]:
    """Add a delta to a block; yield its chunk, if any."""
    piece = _read_piece(delta)
    match delta.get("type"):
        case "text_delta" if piece:
            append_text(part.block, "text", piece)
            yield chat.TextDelta(piece)
        case "input_json_delta" if piece:
            part.json.append(piece)
            if part.number is not None:
                yield chat.ArgumentsDelta(part.number, piece)
        case "thinking_delta" if piece:
            append_text(part.block, "thinking", piece)
            yield chat.ThoughtDelta(piece)
        case "signature_delta":
            part.block["signature"] = piece
        case "citations_delta":
            part.block["citations"] = [*part.block.get("citations", ()), delta.get("citation")]


def _read_piece(delta: Mapping[str, Any]) -> str:
    names = ("text", "partial_json", "thinking", "signature")
    return next((delta[name] for name in names if isinstance(delta.get(name), str)), "")


def _complete_block(part: _Part) -> Block:
    """Return a block with its streamed input; the input of calls is in the message."""
    join_texts([part.block])
    if part.json and part.number is None:
        try:
            return {**part.block, "input": json.loads("".join(part.json))}
        except ValueError:
            return {**part.block, "input": {}}
    return part.block


def _counts(usage: object) -> dict[str, int]:
    fields = _as_mapping(usage)
    all_fields = {**fields, **_as_mapping(fields.get("output_tokens_details"))}
    return {name: count for name, count in all_fields.items() if type(count) is int}


def _as_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


LOGGER = logging.getLogger("toolsemble.models")
TIMEOUT = 600.0
"""The default seconds to wait for data, the same as in Anthropic's package."""

_Ask: TypeAlias = Callable[[Any, dict[str, Any], ReplyReader], AsyncGenerator[chat.Chunk, None]]

_INPUTS = Inputs(
    "Anthropic", frozenset({*IMAGES, "application/pdf"}), frozenset({"image/*", "application/pdf"}), 32 * MEGABYTE
)
_KEY = "set ANTHROPIC_API_KEY, or pass api_key="
_CACHE_MARK = {"cache_control": {"type": "ephemeral"}}
_CHOICES = {"required": {"type": "any"}, "none": {"type": "none"}}
_CONNECT = 10.0
_MAX_PAUSES = 10
_CLIENT_ERROR = 400
_UNAUTHORIZED = 401
# The types of errors inside a stream that are not retryable.
_FINAL = {
    "authentication_error", "billing_error", "invalid_request_error", "not_found_error", "permission_error",
    "request_too_large",
}  # fmt: skip


def offer() -> Offer:
    """Return the default model, if there is a key."""
    return offer_with_key("anthropic:claude-haiku-5-5", "anthropic", "ANTHROPIC_API_KEY")


def model_from_name(provider: str, rest: str) -> chat.ChatModel:
    """Return the model of a name such as ``anthropic:claude-haiku-5-5``."""
    return AnthropicModel(dialect.require_model_name(provider, rest, "claude-haiku-5-5"))


class AnthropicModel:
    """A model behind Anthropic's messages API, used through the official package (extra ``anthropic``).

    >>> AnthropicModel("claude-haiku-5-5", api_key="sk-ant-...")
    AnthropicModel('claude-haiku-5-5')
    """

    def __init__(  # noqa: PLR0913 - settings by keyword, each with a default
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float | None = None,
        max_tokens: int = 16_384,
        cache: bool = True,
        native_output: bool | None = None,
        max_reply: int = chat.MAX_REPLY,
        client: Any = None,
    ) -> None:
        """Set the model and its server; raise ``ToolConfigurationError`` if a required key is missing.

        :param name: the model's name
        :param api_key: the key; by default the official package looks for ANTHROPIC_API_KEY or a profile
        :param base_url: the address of another server, without ``/v1/messages``
        :param timeout: seconds to wait for data; by default 600, or the client's
        :param max_tokens: the maximum tokens of an answer, including reasoning; required by the API
        :param cache: whether to mark the tools, the system message, and conversations with tools for Anthropic's
            prompt cache
        :param native_output: whether typed answers use ``output_config`` instead of a tool; by default only for
            Anthropic's own server, because others may ignore it
        :param max_reply: the maximum size of a reply, in bytes; in characters if ``client`` is given
        :param client: an ``AsyncAnthropic``, or one for another cloud, instead of key and address; it is bound to one
            event loop, and its creator closes it
        """
        self._sdk: Any = import_extra("anthropic", extra="anthropic", user="AnthropicModel")
        self._http: Any = import_extra("httpx2", extra="anthropic", user="AnthropicModel")
        if client is not None and (api_key is not None or base_url is not None):
            raise TypeError("AnthropicModel takes a client, or api_key and base_url, not both")
        if isinstance(client, self._sdk.Anthropic):
            raise TypeError("AnthropicModel needs an async client: an AsyncAnthropic")
        check_count("AnthropicModel max_reply", max_reply, least=1)
        self.name = name
        self.max_reply = max_reply
        self.native_output = base_url is None if native_output is None else native_output
        self._max_tokens = max_tokens
        self._cache = cache
        seconds = TIMEOUT if timeout is None and client is None else timeout
        self._timing = {} if seconds is None else {"timeout": self._timeout(seconds)}
        self._given = None if client is None else client.with_options(max_retries=0)
        self._address = {"api_key": api_key, "base_url": base_url}
        found = find_key_source(api_key, "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
        self._key_source: str | None = (found or "the credentials of its profile") if client is None else CLIENT_KEY
        # Loading the certificates is the slowest part of creating a client, and any loop can use them.
        self._certificates = None if client is not None else self._http.create_ssl_context()
        self._clients = PerLoop(self._create_client)
        self._known = frozenset(inspect.signature(self._checked_client().messages.create).parameters)

    def __repr__(self) -> str:
        return f"AnthropicModel({self.name!r})"

    async def reply(self, request: chat.ChatRequest) -> chat.ChatReply:
        """Return the whole reply."""
        assembly = chat.Assembly(self.max_reply)
        async for chunk in self._chunks(request, _send):
            assembly.add(chunk)
        return assembly.reply()

    async def stream(self, request: chat.ChatRequest) -> AsyncIterator[chat.Chunk]:
        """Yield the reply in chunks as they arrive."""
        async with aclosing(self._chunks(request, _stream)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _chunks(self, request: chat.ChatRequest, ask: _Ask) -> AsyncGenerator[chat.Chunk, None]:
        client = self._given or await self._clients.get()
        arguments, reader = self._arguments(request), ReplyReader()
        messages = arguments["messages"]
        with errors.translate_errors("Anthropic", partial(_keys, client), self._translate):
            for _ in range(_MAX_PAUSES):
                trace_tools(LOGGER, f"anthropic {self.name}", arguments.get("tools"))
                async with aclosing(ask(client, arguments, reader)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                if not reader.is_complete:
                    raise errors.cut_off_error("Anthropic")
                if not reader.is_paused:
                    break
                arguments["messages"] = [*messages, {"role": "assistant", "content": reader.resume()}]
            yield reader.finish()

    def _arguments(self, request: chat.ChatRequest) -> dict[str, Any]:
        """Return the arguments of the package's method; settings that it does not know are sent in the body."""
        _INPUTS.check(request.messages)
        settings = {name: value for name, value in request.settings.items() if name != "stream"}
        known = {name: value for name, value in settings.items() if name in self._known}
        unknown = {name: value for name, value in settings.items() if name not in self._known}
        if unknown:
            known["extra_body"] = {**unknown, **known.get("extra_body", {})}
        known = dialect.merge_settings(self._reasoning(request), known)
        return {
            "model": self.name,
            "max_tokens": self._max_tokens,
            **self._timing,
            **known,
            **self._conversation(request),
            **self._format(request, known.get("output_config", {})),
        }

    def _reasoning(self, request: chat.ChatRequest) -> dict[str, Any]:
        # The API rejects reasoning before a call that the model must make.
        if request.reasoning is None or request.tool_choice == "required":
            return {}
        most = request.settings.get("max_tokens", self._max_tokens)
        return dialect.claude_reasoning(request.reasoning, self.name, most)

    def _conversation(self, request: chat.ChatRequest) -> dict[str, Any]:
        tools = [*write_tools(request.specifications), *request.settings.get("tools", ())]
        choice = _CHOICES.get(request.tool_choice)
        if not tools:
            # The API rejects a conversation with calls unless the tools are listed.
            tools = write_tools(removed_tools(request.messages))
            choice = _CHOICES["none"]
        system = [block for text in system_texts(request.messages) for block in write_prompt(text)]
        messages = write_messages(request.messages)
        if self._cache:
            _mark_for_cache(system or tools)
            _mark_for_cache(messages[-1]["content"] if tools and messages and messages[-1]["role"] == "user" else [])
        parts = {"system": system, "messages": messages, "tools": tools, "tool_choice": choice if tools else None}
        return {name: part for name, part in parts.items() if part or name == "messages"}

    def _format(self, request: chat.ChatRequest, settings: Mapping[str, Any]) -> dict[str, Any]:
        if request.output_schema is None:
            return {}
        schema = dialect.require_strict_schema(request.output_schema, "Anthropic", "AnthropicModel")
        return {"output_config": {**settings, "format": {"type": "json_schema", "schema": schema}}}

    def _timeout(self, seconds: float) -> Any:
        return self._sdk.Timeout(seconds, connect=min(seconds, _CONNECT))

    def _create_client(self) -> Any:
        http_client = chat.limit_responses(self._sdk.DefaultAsyncHttpxClient(verify=self._certificates), self.max_reply)
        return self._sdk.AsyncAnthropic(**self._address, max_retries=0, http_client=http_client)

    def _checked_client(self) -> Any:
        """Return a client; raise ``ToolConfigurationError`` if there is no key."""
        if self._given is not None:
            return self._given
        try:
            client = self._create_client()
        except self._sdk.AnthropicError as problem:
            raise ToolConfigurationError(f"Anthropic's package cannot find a key: {problem}; {_KEY}") from problem
        if not client.auth_headers and client.credentials is None:
            if self._address["base_url"] is None:
                raise ToolConfigurationError(f"Anthropic needs a key: {_KEY}")
            self._key_source = None
            self._address["api_key"] = "none"  # other servers seldom need one, but the package does
        return client

    def _translate(self, error: Any, keys: list[str]) -> ModelError | None:
        if isinstance(error, self._sdk.APIStatusError):
            return _status_error(error, keys, self._key_source)
        if isinstance(error, (self._sdk.APIConnectionError, self._http.HTTPError)):
            return errors.connection_error("Anthropic", error.__cause__ or error, keys)
        if isinstance(error, self._sdk.AnthropicError):
            return ModelError(f"Anthropic's package says: {errors.quote(str(error), keys)}")
        return None


def _keys(client: Any) -> list[str]:
    """Return the keys to mask in errors."""
    known = [getattr(client, name, None) for name in ("api_key", "auth_token")]
    return [key for key in (*known, *errors.find_keys(client.auth_headers)) if isinstance(key, str)]


async def _send(client: Any, arguments: dict[str, Any], reader: ReplyReader) -> AsyncGenerator[chat.Chunk, None]:
    message = _to_json_values(await client.messages.create(**arguments))
    if not isinstance(message.get("content"), list):
        raise ModelError("Anthropic's answer is not a message; is base_url right?")
    for chunk in reader.read_message(message):
        yield chunk


async def _stream(client: Any, arguments: dict[str, Any], reader: ReplyReader) -> AsyncGenerator[chat.Chunk, None]:
    async with await client.messages.create(**arguments, stream=True) as events:
        async for event in events:
            for chunk in reader.read_event(_to_json_values(event)):
                yield chunk


def _to_json_values(received: Any) -> Mapping[str, Any]:
    """Return a message or an event as JSON values; empty if the package could not parse it."""
    try:
        fields: Mapping[str, Any] = received.to_dict(mode="json", warnings=False)
    except AttributeError:
        return {}
    except ValueError as problem:
        raise errors.unreadable_error("Anthropic", problem) from problem
    return fields


def _status_error(error: Any, keys: list[str], key_source: str | None) -> ModelError:
    message = error.api_message if isinstance(error.api_message, str) else str(error)
    kind, status, headers = str(error.type), error.status_code, error.response.headers
    hint = key_hint(key_source, _KEY) if status == _UNAUTHORIZED else ""
    # An error inside a stream has a success status.
    retryable = is_retryable(status, headers) if status >= _CLIENT_ERROR else kind not in _FINAL
    return errors.status_error(
        "Anthropic", f"{status}, {kind}", f"{errors.quote(message, keys)}{hint}", headers, retryable=retryable
    )


def _mark_for_cache(blocks: list[dict[str, Any]]) -> None:
    """Mark the last block, so that everything up to it is cached."""
    blocks[-1:] = [{**block, **_CACHE_MARK} for block in blocks[-1:]]
