"""The model of Amazon Bedrock, through its Converse API."""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import threading
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, closing, suppress
from functools import partial
from typing import Any

from toolsemble._runtime.checks import check_count
from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.text import escape_surrogates
from toolsemble._runtime.trace_level import trace_tools
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import ModelError, ToolConfigurationError
from toolsemble.models import _chat as chat
from toolsemble.models._adapter import conversation, dialect, errors as provider_errors
from toolsemble.models._adapter.offer import Offer, find_key_source, is_set, key_hint, offer_with_package
from toolsemble.models._adapter.replies import Block, append_text, has_text, make_details, restore_blocks
from toolsemble.models._adapter.retry import is_retryable
from toolsemble.models._adapter.wire import base64_text
from toolsemble.models._message import AssistantMessage, Message, ToolMessage, UserMessage
from toolsemble.models.bedrock._http import run_blocking, stream_blocking
from toolsemble.models.bedrock._wire import AUDIO, DOCUMENTS, IMAGES, VIDEOS, write_prompt, write_reply, write_tools

_INPUTS = conversation.Inputs(
    "Bedrock", frozenset({*IMAGES, *DOCUMENTS, *VIDEOS, *AUDIO}), max_bytes=25 * conversation.MEGABYTE
)
_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_CLAUDE_TOKENS = 32_000  # the model's own limit of an answer, or less
_FIRST_TURN = {"role": "user", "content": [{"text": "(The conversation goes on.)"}]}


def write_arguments(request: chat.ChatRequest, model: str) -> dict[str, Any]:
    """Return the arguments of ``converse`` and ``converse_stream``; the user's settings take precedence.

    >>> write_arguments(chat.ChatRequest([UserMessage("hi")]), "amazon.nova-lite-v1:0")
    {'modelId': 'amazon.nova-lite-v1:0', 'messages': [{'role': 'user', 'content': [{'text': 'hi'}]}]}
    """
    _INPUTS.check(request.messages)
    parts = {
        "modelId": model,
        "messages": write_messages(request.messages, model),
        "system": [block for text in conversation.system_texts(request.messages) for block in write_prompt(text)],
        "toolConfig": _tool_config(request),
        "outputConfig": _answer_format(request.output_schema),
        "additionalModelRequestFields": _write_reasoning(request, model),
    }
    arguments: dict[str, Any] = {name: part for name, part in parts.items() if part or name == "messages"}
    for name, value in request.settings.items():
        is_merged = isinstance(arguments.get(name), Mapping) and isinstance(value, Mapping)
        arguments[name] = {**arguments[name], **value} if is_merged else value
    return arguments


def _write_reasoning(request: chat.ChatRequest, model: str) -> dict[str, Any]:
    """Return the reasoning setting of the model's maker; raise ``ToolConfigurationError`` if there is none."""
    reasoning = request.reasoning
    if reasoning is None:
        return {}
    if "anthropic.claude" in model:
        # Claude rejects reasoning before a call that it must make.
        most = request.settings.get("inferenceConfig", {}).get("maxTokens", _CLAUDE_TOKENS)
        return {} if request.tool_choice == "required" else dialect.claude_reasoning(reasoning, model, most)
    if "amazon.nova" in model:
        level = dialect.require_level(reasoning, "Nova")
        return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": level}}
    if "openai.gpt" in model:
        return {"reasoning_effort": dialect.require_level(reasoning, "OpenAI on Bedrock")}
    raise dialect.reasoning_refusal(model)


def _tool_config(request: chat.ChatRequest) -> dict[str, Any]:
    """Return the tools; listing none is the only way to forbid them, but a conversation with calls needs some."""
    removed = conversation.removed_tools(request.messages)
    if request.tool_choice == "none" and not removed:
        return {}
    tools = write_tools(request.specifications or removed)
    choice: dict[str, Any] = {"toolChoice": {"any": {}}} if request.tool_choice == "required" else {}
    return {"tools": tools, **choice} if tools else {}


def _answer_format(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    if schema is None:
        return {}
    strict = dialect.require_strict_schema(schema, "Bedrock", "BedrockModel")
    structure = {"jsonSchema": {"name": "answer", "schema": json.dumps(strict)}}
    return {"textFormat": {"type": "json_schema", "structure": structure}}


def write_messages(messages: Sequence[Message], model: str) -> list[dict[str, Any]]:
    """Return the conversation: user and model alternate, the user first.

    >>> write_messages([UserMessage("hi"), UserMessage("there")], "amazon.nova-lite-v1:0")
    [{'role': 'user', 'content': [{'text': 'hi'}, {'text': 'there'}]}]
    """
    ids = conversation.CallIds(messages, _ID, "call_{}".format)
    turns = conversation.merge_turns(_write_message(message, ids, model) for message in messages)
    return [_FIRST_TURN, *turns] if turns and turns[0]["role"] == "assistant" else turns


def _write_message(message: Message, ids: conversation.CallIds, model: str) -> tuple[str, list[Block]]:
    if isinstance(message, AssistantMessage):
        calls = [_write_call(call, ids.assign(call)) for call in message.calls]
        return "assistant", [_write_block(block) for block in restore_blocks(f"bedrock:{model}", message, calls)]
    if isinstance(message, ToolMessage):
        result = write_reply(message.reply)["toolResult"]
        return "user", [{"toolResult": {**result, "toolUseId": ids.take(message.call)}}]
    if isinstance(message, UserMessage):
        return "user", write_prompt(escape_surrogates(message.text), message.contents)
    return "user", []  # a system message, which is sent separately


def _write_call(call: ToolCall, id: str) -> Block:
    use = {
        "toolUseId": id,
        "name": conversation.sanitize_name(call.name),
        "input": conversation.sanitize_arguments(call),
    }
    return {"type": "tool_use", "toolUse": use}


def _write_block(block: Block) -> dict[str, Any]:
    """Return a stored block in Bedrock's format."""
    fields = {name: value for name, value in block.items() if name != "type"}
    if block["type"] != "reasoning":
        return fields
    if "redactedContent" in fields:
        fields["redactedContent"] = base64.b64decode(fields["redactedContent"])
    return {"reasoningContent": fields}


_REASONING = {"text", "signature", "redactedContent"}
_STOP_REASONS = provider_errors.StopReasons(
    "Bedrock",
    {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "tool_use": "calls",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "guardrail_intervened": "refusal",
        "content_filtered": "refusal",
    },
    {"malformed_tool_use", "malformed_model_output"},
    may_be_empty=True,
)


class ReplyReader:
    """A reader of one reply, from a whole response or the events of a stream.

    >>> reader = ReplyReader("amazon.nova-lite-v1:0")
    >>> list(reader.read_event({"contentBlockDelta": {"delta": {"text": "Rome"}, "contentBlockIndex": 0}}))
    [TextDelta(text='Rome')]
    >>> list(reader.read_event({"messageStop": {"stopReason": "end_turn"}}))
    []
    >>> reader.finish().stop_reason
    'stop'
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._blocks: list[Block] = []
        self._calls: set[int] = set()
        self._reasoning: dict[int, dict[str, list[Any]]] = {}
        self._usage = chat.NO_TOKENS
        self._reason = ""

    def read_response(self, response: Mapping[str, Any]) -> Iterator[chat.Chunk]:
        """Yield the chunks of a whole response."""
        message = (response.get("output") or {}).get("message") or {}
        for index, block in enumerate(message.get("content") or ()):
            cited = (block.get("citationsContent") or {}).get("content") or ()
            yield from self._add_text(block.get("text") or "".join(each.get("text", "") for each in cited))
            yield from self._start_call(index, block.get("toolUse"))
            if index in self._calls:
                yield chat.ArgumentsDelta(index, ToolCall.from_bedrock(block).json)
            thought = block.get("reasoningContent") or {}
            yield from self._add_reasoning(index, {**thought, **(thought.get("reasoningText") or {})})
            self._store_reasoning(index)
        self._reason = response.get("stopReason") or ""
        self._read_usage(response)

    def read_event(self, event: Mapping[str, Any]) -> Iterator[chat.Chunk]:
        """Yield the chunks of an event of a stream; unknown events have none."""
        for kind, fields in event.items():
            index = fields.get("contentBlockIndex", 0)
            if kind == "contentBlockStart":
                yield from self._start_call(index, fields["start"].get("toolUse"))
            elif kind == "contentBlockDelta":
                yield from self._read_delta(index, fields["delta"])
            elif kind == "contentBlockStop":
                self._store_reasoning(index)
            elif kind == "messageStop":
                self._reason = fields.get("stopReason") or ""
            elif kind == "metadata":
                self._read_usage(fields)

    def finish(self) -> chat.StreamEnd:
        """Return the end of the reply; raise a ``ModelError`` if it is incomplete or empty."""
        stop = _STOP_REASONS.read(self._reason, has_calls=bool(self._calls), has_text=has_text(self._blocks))
        return chat.StreamEnd(self._usage, stop, make_details(f"bedrock:{self._model}", self._blocks))

    def _start_call(self, index: int, use: Mapping[str, Any] | None) -> Iterator[chat.Chunk]:
        # A tool with a type is executed by Bedrock.
        if use and not use.get("type"):
            self._calls.add(index)
            self._blocks.append({"type": "tool_use"})
            yield chat.CallDelta(index, use.get("name", ""), use.get("toolUseId"))

    def _read_delta(self, index: int, delta: Mapping[str, Any]) -> Iterator[chat.Chunk]:
        yield from self._add_text(delta.get("text", ""))
        if index in self._calls and "toolUse" in delta:
            yield chat.ArgumentsDelta(index, delta["toolUse"]["input"])
        yield from self._add_reasoning(index, delta.get("reasoningContent") or {})

    def _add_text(self, text: str) -> Iterator[chat.Chunk]:
        last = self._blocks[-1] if self._blocks else {}
        if text and last.get("type") == "text":
            append_text(last, "text", text)
        elif text:
            self._blocks.append({"type": "text", "text": text})
        if text:
            yield chat.TextDelta(text)

    def _add_reasoning(self, index: int, piece: Mapping[str, Any]) -> Iterator[chat.Chunk]:
        if piece.get("text"):
            yield chat.ThoughtDelta(piece["text"])
        thought = self._reasoning.setdefault(index, {})
        for name in _REASONING & piece.keys():
            thought.setdefault(name, []).append(piece[name])

    def _store_reasoning(self, index: int) -> None:
        """Store reasoning if it is signed; other reasoning need not be sent back."""
        pieces = self._reasoning.pop(index, {})
        thought = {name: type(parts[0])().join(parts) for name, parts in pieces.items()}
        if "redactedContent" in thought:
            self._blocks.append({"type": "reasoning", "redactedContent": base64_text(thought["redactedContent"])})
        elif "signature" in thought:
            self._blocks.append({"type": "reasoning", "reasoningText": {"text": "", **thought}})

    def _read_usage(self, fields: Mapping[str, Any]) -> None:
        used = fields.get("usage") or {}
        cached, written = used.get("cacheReadInputTokens") or 0, used.get("cacheWriteInputTokens") or 0
        total = (used.get("inputTokens") or 0) + cached + written
        # The API does not report how many output tokens were reasoning.
        self._usage = chat.TokenUsage(total, used.get("outputTokens") or 0, cached, cache_write=written)


LOGGER = logging.getLogger("toolsemble.models")
TIMEOUT = 600.0
"""The default seconds to wait for data."""

_CONNECT_TIMEOUT = 10.0
_MAX_CONNECTIONS = 100
_DENIED = {401, 403}
# Codes of retryable errors inside a stream, which have no status.
_RETRYABLE = {
    "internalserverexception", "modelerrorexception", "modelnotreadyexception", "modelstreamerrorexception",
    "modeltimeoutexception", "serviceunavailableexception", "throttlingexception",
}  # fmt: skip
_CREDENTIALS = (
    "set AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_BEARER_TOKEN_BEDROCK, "
    "or pass profile= or api_key="
)


def offer() -> Offer:
    """Return the default model, if there are credentials in environment variables; other checks would need requests."""
    name = "bedrock:global.amazon.nova-2-lite-v1:0"
    keys = is_set("AWS_ACCESS_KEY_ID") and is_set("AWS_SECRET_ACCESS_KEY")
    if not (keys or is_set("AWS_BEARER_TOKEN_BEDROCK")):
        why = "neither AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY nor AWS_BEARER_TOKEN_BEDROCK is set"
        return Offer(name, available=False, why=why)
    if not (is_set("AWS_REGION") or is_set("AWS_DEFAULT_REGION")):
        return Offer(name, available=False, why="there are AWS credentials, but AWS_REGION is not set")
    return offer_with_package(name, "boto3", "AWS credentials and a region are set")


def model_from_name(provider: str, rest: str) -> chat.ChatModel:
    """Return the model of a name such as ``bedrock:amazon.nova-2-lite-v1:0``."""
    return BedrockModel(dialect.require_model_name(provider, rest, "amazon.nova-2-lite-v1:0"))


class BedrockModel:
    """A model of Amazon Bedrock, used through the official package (extra ``bedrock``).

    The package is blocking, so each request runs in its own thread. Cancelling does not wait for the thread, and closes
    the connection.

    >>> BedrockModel("amazon.nova-2-lite-v1:0", region="us-east-1")
    BedrockModel('amazon.nova-2-lite-v1:0')
    """

    def __init__(  # noqa: PLR0913 - settings by keyword, each with a default
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        region: str | None = None,
        profile: str | None = None,
        timeout: float = TIMEOUT,
        native_output: bool = False,
        max_reply: int = chat.MAX_REPLY,
        client: Any = None,
    ) -> None:
        """Set the model and its server; raise ``ToolConfigurationError`` if there is no region.

        :param name: the id of a model or of an inference profile, or an ARN
        :param api_key: an API key of Bedrock; by default the credentials that the official package finds
        :param base_url: another address than the region's
        :param region: the AWS region; by default AWS_REGION, AWS_DEFAULT_REGION, or the profile's
        :param profile: the profile in AWS's configuration files; by default AWS_PROFILE
        :param timeout: seconds to wait for data
        :param native_output: whether typed answers use a schema instead of a tool; only some models support it
        :param max_reply: the maximum size of a reply, in bytes; in characters if ``client`` is given
        :param client: a ``bedrock-runtime`` client of boto3 instead of these settings
        """
        if client is not None and any((api_key, base_url, region, profile)):
            raise TypeError("BedrockModel takes a client, or api_key, base_url, region and profile, not both")
        check_count("BedrockModel max_reply", max_reply, least=1)
        self.name = name
        self.max_reply = max_reply
        self.native_output = native_output
        self._address: dict[str, Any] = {
            "api_key": api_key,
            "base_url": base_url,
            "timeout": timeout,
            "max_reply": max_reply,
        }
        self._errors = _package("botocore.exceptions")
        self._session: Any = None if client is not None else _create_session(region, profile, self._errors)
        found = find_key_source(api_key, "AWS_BEARER_TOKEN_BEDROCK") or "the AWS credentials of this program"
        self._key_source = found if client is None else "the credentials of the client"
        self._created = client
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"BedrockModel({self.name!r})"

    async def reply(self, request: chat.ChatRequest) -> chat.ChatReply:
        """Return the whole reply."""
        job, reader = partial(self._converse, write_arguments(request, self.name)), ReplyReader(self.name)
        with self._translate_errors():
            chunks = reader.read_response(await run_blocking(job))
            return chat.Assembly(self.max_reply).assemble([*chunks, reader.finish()])

    async def stream(self, request: chat.ChatRequest) -> AsyncIterator[chat.Chunk]:
        """Yield the reply in chunks as they arrive."""
        job, reader = partial(self._converse_stream, write_arguments(request, self.name)), ReplyReader(self.name)
        with self._translate_errors():
            async with aclosing(stream_blocking(job)) as events:
                async for event in events:
                    for chunk in reader.read_event(event):
                        yield chunk
            yield reader.finish()

    def _converse(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        self._trace(arguments)
        response: Mapping[str, Any] = self._client().converse(**arguments)
        return response

    def _converse_stream(self, arguments: Mapping[str, Any]) -> Generator[Mapping[str, Any], None, None]:
        self._trace(arguments)
        with closing(self._client().converse_stream(**arguments)["stream"]) as events:
            yield from events

    def _trace(self, arguments: Mapping[str, Any]) -> None:
        trace_tools(LOGGER, f"bedrock {self.name}", arguments.get("toolConfig", {}).get("tools"))

    def _client(self) -> Any:
        """Return the client, created on first use, because finding credentials can be slow."""
        with self._lock:
            if self._created is None:
                self._created = _create_client(self._session, **self._address)
            return self._created

    def _translate_errors(self) -> AbstractContextManager[None]:
        return provider_errors.translate_errors(
            "Bedrock", self._secrets, partial(_translate, errors=self._errors, key_source=self._key_source)
        )

    def _secrets(self) -> list[str | None]:
        secrets = [self._address["api_key"], os.environ.get("AWS_BEARER_TOKEN_BEDROCK")]
        with suppress(Exception):  # no session, or no credentials
            secrets += self._session.get_credentials().get_frozen_credentials()[:3]
        return secrets


def _create_session(region: str | None, profile: str | None, errors: Any) -> Any:
    """Return a session with a region."""
    try:
        # The package only reads AWS_DEFAULT_REGION.
        name = region or os.environ.get("AWS_REGION")
        session = _package("boto3").Session(region_name=name, profile_name=profile)
    except errors.ProfileNotFound as problem:
        raise ToolConfigurationError(f"Bedrock: {problem}; see the files in ~/.aws") from None
    if not session.region_name:
        raise ToolConfigurationError("Bedrock needs a region: set AWS_REGION, or pass region=")
    return session


def _create_client(session: Any, api_key: str | None, base_url: str | None, timeout: float, max_reply: int) -> Any:
    from toolsemble.models.bedrock._http import track_connections

    signing = {} if api_key is None else {"signature_version": _package("botocore").UNSIGNED}
    config = _package("botocore.config").Config(
        retries={"mode": "standard", "total_max_attempts": 1},  # the agent retries
        connect_timeout=min(timeout, _CONNECT_TIMEOUT),
        read_timeout=timeout,
        max_pool_connections=_MAX_CONNECTIONS,
        tcp_keepalive=True,
        **signing,
    )
    client = session.client("bedrock-runtime", endpoint_url=base_url, config=config)
    if api_key is not None:
        client.meta.events.register("before-call.bedrock-runtime", partial(_authorize, api_key))
    track_connections(client, max_reply)
    return client


def _authorize(api_key: str, params: Mapping[str, Any], **_: Any) -> None:
    params["headers"]["Authorization"] = f"Bearer {api_key}"


def _translate(error: Any, keys: list[str], errors: Any, key_source: str) -> Exception:
    """Return the error for an exception of the package."""
    if isinstance(error, errors.ClientError):
        # The package's error contains the whole response, which may repeat the credentials.
        raise _status_error(error, keys, key_source) from None
    unread = _package("botocore.eventstream").ParserError, _package("botocore.parsers").ResponseParserError
    # The package does not validate responses, so unexpected ones raise these.
    if isinstance(error, (*unread, AttributeError, KeyError, TypeError, RecursionError)):
        return provider_errors.unreadable_error("Bedrock", error)
    if isinstance(
        error, (errors.HTTPClientError, errors.ConnectionError, _package("urllib3.exceptions").HTTPError, OSError)
    ):
        return provider_errors.connection_error("Bedrock", error, keys)
    if isinstance(error, (errors.ParamValidationError, ValueError)):
        return ToolConfigurationError(f"Invalid request for Bedrock: {provider_errors.quote(str(error), keys)}")
    return ModelError(f"Amazon's package says: {provider_errors.quote(str(error), keys)}; {_CREDENTIALS}")


def _status_error(error: Any, keys: list[str], key_source: str) -> ModelError:
    reported, sent = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
    code, status = str(reported.get("Code")), sent.get("HTTPStatusCode", 0)
    # If a signature is wrong, a second paragraph repeats the whole request.
    first, _, _ = str(reported.get("Message")).partition("\n\n")
    hint = key_hint(key_source, _CREDENTIALS) if status in _DENIED else ""
    headers = sent.get("HTTPHeaders", {})
    original = error.response.get("originalStatusCode")
    retryable = is_retryable(original or status) or (not original and code.lower() in _RETRYABLE)
    waiting = {"retry-after-ms": headers.get("x-amz-retry-after"), **headers}
    return provider_errors.status_error(
        "Bedrock", code, f"{provider_errors.quote(first, keys)}{hint}", waiting, retryable=retryable
    )


def _package(name: str) -> Any:
    return import_extra(name, extra="bedrock", user="BedrockModel")
