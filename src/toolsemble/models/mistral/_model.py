"""The model of Mistral."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing
from typing import Any, NamedTuple

from toolsemble._runtime.checks import check_count
from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.text import escape_surrogates
from toolsemble._runtime.trace_level import trace_tools
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import ModelError, ToolConfigurationError
from toolsemble.models import _chat as chat
from toolsemble.models._adapter import errors, replies
from toolsemble.models._adapter.conversation import CallIds, Inputs, sanitize_call, sanitize_name, system_texts
from toolsemble.models._adapter.dialect import require_level, require_model_name, require_strict_schema
from toolsemble.models._adapter.offer import CLIENT_KEY, Offer, find_key_source, key_hint, offer_with_key
from toolsemble.models._adapter.per_loop import PerLoop
from toolsemble.models._adapter.retry import is_retryable
from toolsemble.models._adapter.wire import as_list, field
from toolsemble.models._message import AssistantMessage, Message, ToolMessage, UserMessage
from toolsemble.models.mistral._wire import AUDIO, DOCUMENTS, IMAGES, write_prompt, write_reply, write_tools

_ID = re.compile(r"[a-zA-Z0-9]{9}")
# Mistral rejects a user message right after a tool message; a message of the model must be in between.
_BRIDGE = {"role": "assistant", "content": "OK."}


def write_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the conversation; system messages come first, the only position that Mistral accepts.

    >>> from toolsemble.models import SystemMessage
    >>> write_messages([UserMessage("hello"), SystemMessage("You are brief.")])
    [{'role': 'system', 'content': 'You are brief.'}, {'role': 'user', 'content': 'hello'}]
    """
    ids = CallIds(messages, _ID, "call{:05d}".format)
    system = "\n\n".join(system_texts(messages))
    written: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for message in messages:
        for each in _write_message(message, ids):
            if each["role"] == "user" and written and written[-1]["role"] == "tool":
                written.append(_BRIDGE)
            written.append(each)
    return written


def _write_message(message: Message, ids: CallIds) -> list[dict[str, Any]]:
    """Return a message in Mistral's format: a list of one, or empty."""
    if isinstance(message, AssistantMessage):
        return _write_assistant(message, [_write_call(call, ids.assign(call)) for call in message.calls])
    if isinstance(message, ToolMessage):
        own = {"tool_call_id": ids.take(message.call), "name": sanitize_name(message.call.name)}
        return [{**write_reply(message.reply), **own}]
    if isinstance(message, UserMessage):
        return [{"role": "user", "content": write_prompt(escape_surrogates(message.text), message.contents)}]
    return []


def _write_assistant(message: AssistantMessage, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    blocks = replies.restore_blocks("mistral", message, [])
    plain = all(block["type"] == "text" for block in blocks)
    content = "".join(block["text"] for block in blocks) if plain else blocks
    if not content and not calls:
        return []
    return [{"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}]


def _write_call(call: ToolCall, id: str) -> dict[str, Any]:
    sent = sanitize_call(call, id)
    return {"id": id, "function": {"name": sent.name, "arguments": sent.json}}


_STOP_REASONS = errors.StopReasons(
    "Mistral",
    {"stop": "stop", "tool_calls": "calls", "length": "length", "model_length": "length", "content_filter": "refusal"},
    may_be_empty=True,
)


class ReplyReader:
    """A reader of one reply.

    >>> reader = ReplyReader()
    >>> list(reader.read({"choices": [{"message": {"content": "Rome"}, "finish_reason": "stop"}]}))
    [TextDelta(text='Rome')]
    >>> [end.stop_reason for end in reader.finish()]
    ['stop']
    """

    def __init__(self) -> None:
        self._blocks: list[replies.Block] = []
        self._calls = replies.StreamedCalls()
        self._usage = chat.NO_TOKENS
        self._reason = ""

    @property
    def is_complete(self) -> bool:
        """Whether the reply has a finish reason."""
        return bool(self._reason)

    def read(self, part: object) -> Iterator[chat.Chunk]:
        """Yield the chunks of a whole reply, or of a piece of a stream: the package's object, or a dict."""
        usage = field(part, "usage")
        self._usage = self._usage if usage is None else replies.read_usage(usage)
        for choice in as_list(field(part, "choices")):
            if not field(choice, "index"):  # others are alternatives that were not requested
                message = field(choice, "message", "delta")
                yield from self._read_content(field(message, "content"))
                for call in as_list(field(message, "tool_calls")):
                    yield from self._read_call(call, is_whole=field(choice, "message") is not None)
                self._reason = str(field(choice, "finish_reason") or self._reason)

    def finish(self) -> Iterator[chat.Chunk]:
        """Yield the remaining chunks; raise a ``ModelError`` if the reply failed, or is incomplete or empty."""
        if self._reason == "error":
            raise ModelError("Mistral ended the answer with an error", retryable=True)
        yield from self._calls.finish()
        is_text = replies.has_text(self._blocks)
        for block in self._blocks:
            replies.join_texts([thought for thought in as_list(block.get("thinking")) if isinstance(thought, dict)])
        stop = _STOP_REASONS.read(self._reason, has_calls=len(self._calls) > 0, has_text=is_text)
        yield chat.StreamEnd(self._usage, stop, replies.make_details("mistral", self._blocks))

    def _read_content(self, content: object) -> Iterator[chat.Chunk]:
        chunks = (
            [{"type": "text", "text": content}] if isinstance(content, str) else map(_to_json_values, as_list(content))
        )
        for chunk in chunks:
            text = chunk.get("text")
            if chunk.get("type") != "text":
                self._store(chunk)
                yield from _read_thoughts(chunk)
            elif isinstance(text, str) and text:
                self._store(chunk)
                yield chat.TextDelta(text)

    def _store(self, chunk: replies.Block) -> None:
        """Store a chunk; a piece of the same text or reasoning is added to the last one."""
        last: replies.Block = self._blocks[-1] if self._blocks else {"type": None}
        if last["type"] != chunk.get("type") or last["type"] not in {"text", "thinking"}:
            self._blocks += [dict(chunk)] if isinstance(chunk.get("type"), str) else []
        elif last["type"] == "text":
            replies.append_text(last, "text", chunk["text"])
        else:
            thoughts = _add_reasoning(as_list(last.get("thinking")), as_list(chunk.get("thinking")))
            last |= {name: value for name, value in chunk.items() if value is not None} | {"thinking": thoughts}

    def _read_call(self, call: object, *, is_whole: bool) -> Iterator[chat.Chunk]:
        """Yield the chunks of a call, or of a piece of one."""
        if field(call, "function") is None:
            return
        read = ToolCall.from_mistral(call)
        arguments = read.json if field(field(call, "function"), "arguments") else ""
        if is_whole:
            yield from self._calls.add(read.id, read.name, arguments)
        else:
            yield from self._calls.add_piece(_read_position(call), read.id, read.name, arguments)


def _read_thoughts(chunk: replies.Block) -> Iterator[chat.Chunk]:
    for thought in as_list(chunk.get("thinking")):
        text = field(thought, "text")
        if isinstance(text, str) and text:
            yield chat.ThoughtDelta(text)


def _read_position(call: Any) -> int | None:
    """Return the position that the server sent for a call; the package makes up missing ones."""
    position = field(call, "index") if "index" in getattr(call, "model_fields_set", call) else None
    return position if isinstance(position, int) else None


def _to_json_values(chunk: Any) -> replies.Block:
    """Return a chunk as JSON values; the raw one if the package does not know its type."""
    if hasattr(chunk, "model_dump"):
        chunk = chunk.raw if hasattr(chunk, "raw") else chunk.model_dump(mode="json", by_alias=True)
    return chunk if isinstance(chunk, dict) else {}


def _add_reasoning(thoughts: list[Any], more: list[Any]) -> list[Any]:
    """Add pieces of reasoning; consecutive texts are joined. Return the list."""
    for thought in more:
        last = thoughts[-1] if thoughts else None
        if isinstance(last, dict) and field(thought, "type") == last.get("type") == "text":
            replies.append_text(last, "text", str(field(thought, "text") or ""))
        else:
            thoughts.append(dict(thought) if isinstance(thought, dict) else thought)
    return thoughts


LOGGER = logging.getLogger("toolsemble.models")
TIMEOUT = 300.0
"""The default seconds to wait for data, the same as in Mistral's package."""

_INPUTS = Inputs("Mistral", frozenset({*IMAGES, *AUDIO, *DOCUMENTS}), frozenset({"image/*", *AUDIO, *DOCUMENTS}))
_KEY = "set MISTRAL_API_KEY, or pass api_key="
_CHOICES = {"required": "any", "none": "none"}
_NO_REASON = "no reason is given"
_SUCCESS = 200
_UNAUTHORIZED = 401


class _Client(NamedTuple):
    """A client and its connections, which the package does not close if it did not create them."""

    client: Any
    connections: Any

    async def __aenter__(self) -> Any:
        return self.client

    async def __aexit__(self, *_: object) -> None:
        await self.connections.aclose()


def offer() -> Offer:
    """Return the default model, if there is a key."""
    return offer_with_key("mistral:mistral-small-latest", "mistralai", "MISTRAL_API_KEY")


def model_from_name(provider: str, rest: str) -> chat.ChatModel:
    """Return the model of a name such as ``mistral:mistral-large-latest``."""
    return MistralModel(require_model_name(provider, rest, "mistral-large-latest"))


class MistralModel:
    """A model of Mistral, used through the official package (extra ``mistral``).

    >>> MistralModel("mistral-large-latest", api_key="...")
    MistralModel('mistral-large-latest')
    """

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float | None = None,
        native_output: bool = False,
        max_reply: int = chat.MAX_REPLY,
        client: Any = None,
    ) -> None:
        """Set the model and its server; raise ``ToolConfigurationError`` if a required key is missing.

        :param name: the model's name
        :param api_key: the key; by default the official package looks for MISTRAL_API_KEY or a token file
        :param base_url: the address of another server, without ``/v1/chat/completions``
        :param timeout: seconds to wait for data; by default 300, or the client's
        :param native_output: whether typed answers use ``response_format`` instead of a tool; for agents without tools,
        because Mistral does not guarantee that both work together :param max_reply: the maximum size of a reply, in
        bytes; in characters if ``client`` is given :param client: a ``Mistral`` instead of key and address; it is bound
        to one event loop; its creator closes it
        """
        self._sdk: Any = import_extra("mistralai.client", extra="mistral", user="MistralModel")
        self._errors: Any = import_extra("mistralai.client.errors", extra="mistral", user="MistralModel")
        self._events: Any = import_extra("mistralai.client.utils.eventstreaming", extra="mistral", user="MistralModel")
        self._http: Any = import_extra("httpx2", extra="mistral", user="MistralModel")
        if client is not None and (api_key is not None or base_url is not None):
            raise TypeError("MistralModel takes a client, or api_key and base_url, not both")
        self._key = api_key or os.environ.get("MISTRAL_API_KEY")
        found = find_key_source(api_key, "MISTRAL_API_KEY", "MISTRAL_SA_TOKEN_PATH")
        self._key_source = found if client is None else CLIENT_KEY
        if self._key_source is None and not base_url:
            raise ToolConfigurationError(f"Mistral needs a key: {_KEY}")
        check_count("MistralModel max_reply", max_reply, least=1)
        self.name = name
        self.max_reply = max_reply
        self.native_output = native_output
        seconds = TIMEOUT if timeout is None and client is None else timeout
        self._timing = {} if seconds is None else {"timeout_ms": round(seconds * 1000)}
        self._given = client
        self._address = {"api_key": api_key, "server_url": base_url}
        # Loading the certificates is the slowest part of creating a client, and any loop can use them.
        self._certificates = None if client is not None else self._http.create_ssl_context()
        self._clients = PerLoop(self._create_client)

    def __repr__(self) -> str:
        return f"MistralModel({self.name!r})"

    async def reply(self, request: chat.ChatRequest) -> chat.ChatReply:
        """Return the whole reply."""
        client, reader = self._given or await self._clients.get(), ReplyReader()
        arguments = self._arguments(request)
        trace_tools(LOGGER, f"mistral {self.name}", arguments.get("tools"))
        with self._translate_errors():
            chunks = list(reader.read(await self._complete(client, arguments)))
            if not reader.is_complete:
                raise ModelError("Mistral's answer is empty; is base_url right?", retryable=True)
            return chat.Assembly(self.max_reply).assemble([*chunks, *reader.finish()])

    async def stream(self, request: chat.ChatRequest) -> AsyncIterator[chat.Chunk]:
        """Yield the reply in chunks as they arrive."""
        client, reader = self._given or await self._clients.get(), ReplyReader()
        arguments = self._arguments(request)
        trace_tools(LOGGER, f"mistral {self.name}", arguments.get("tools"))
        with self._translate_errors():
            async with aclosing(self._stream(client, arguments)) as events:
                async for event in events:
                    for chunk in reader.read(event):
                        yield chunk
            for chunk in reader.finish():
                yield chunk

    async def _complete(self, client: Any, arguments: dict[str, Any]) -> Any:
        try:
            return await client.chat.complete_async(**arguments)
        except self._errors.ResponseValidationError as error:
            if error.status_code != _SUCCESS:
                raise
            return json.loads(error.body)  # the package rejects malformed calls of a model, such as a list of arguments

    async def _stream(self, client: Any, arguments: dict[str, Any]) -> AsyncGenerator[Any, None]:
        """Yield the chunks of a stream as dicts.

        The package's own objects fail at pieces of a call that do not repeat its name.
        """
        async with await client.chat.stream_async(**arguments) as stream:
            events = self._events.EventStreamAsync(stream.response, json.loads, sentinel="[DONE]", client_ref=stream)
            async with aclosing(events.generator) as generator:
                async for event in generator:
                    data = field(event, "data")
                    if field(data, "choices") is None:
                        reason = errors.quote(errors.read_reason(data) or _NO_REASON, [self._key])
                        raise ModelError(f"Mistral ended the answer with an error: {reason}", retryable=True)
                    yield data

    def _arguments(self, request: chat.ChatRequest) -> dict[str, Any]:
        """Return the arguments of the package's method."""
        _INPUTS.check(request.messages)
        settings = {name: value for name, value in request.settings.items() if name != "stream"}
        tools = [*write_tools(request.specifications), *settings.get("tools", ())]
        choice = _CHOICES.get(request.tool_choice)
        return {
            "model": self.name,
            **self._timing,
            **_write_reasoning(request),
            **settings,
            **({"tools": tools} if tools else {}),
            **({"tool_choice": choice} if tools and choice else {}),
            **self._format(request),
            "messages": write_messages(request.messages),
            "retries": None,  # the agent retries
        }

    def _format(self, request: chat.ChatRequest) -> dict[str, Any]:
        if request.output_schema is None:
            return {}
        schema = require_strict_schema(request.output_schema, "Mistral", "MistralModel")
        answer = {"name": "answer", "schema": schema, "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": answer}}

    def _create_client(self) -> _Client:
        settings = {"follow_redirects": True, "verify": self._certificates}
        # Without a sync client the package would create one, which is not needed.
        clients = {"client": self._http.Client(**settings), "async_client": self._http.AsyncClient(**settings)}
        chat.limit_responses(clients["async_client"], self.max_reply)
        return _Client(self._sdk.Mistral(**self._address, **clients), clients["async_client"])

    def _translate_errors(self) -> AbstractContextManager[None]:
        return errors.translate_errors("Mistral", lambda: [self._key], self._translate)

    def _translate(self, error: Any, keys: list[str]) -> ModelError | None:
        if isinstance(error, self._errors.MistralError):
            return _status_error(error, keys, self._key_source)
        if isinstance(error, (self._http.HTTPError, self._errors.NoResponseError)):
            return errors.connection_error("Mistral", error, keys)
        if isinstance(error, self._http.StreamError):
            # Raised by the package when a request for a stream is rejected with an empty body.
            return ModelError("Mistral refused the request without a reason", retryable=True)
        return None


def _write_reasoning(request: chat.ChatRequest) -> dict[str, str]:
    return {} if request.reasoning is None else {"reasoning_effort": require_level(request.reasoning, "Mistral")}


def _status_error(error: Any, keys: list[str], key_source: str | None) -> ModelError:
    try:
        body = json.loads(error.body)
    except ValueError:
        body = error.body
    hint = key_hint(key_source, _KEY) if error.status_code == _UNAUTHORIZED else ""
    reason, retryable = errors.quote(errors.read_reason(body) or _NO_REASON, keys), is_retryable(error.status_code)
    return errors.status_error("Mistral", error.status_code, f"{reason}{hint}", error.headers, retryable=retryable)
