"""The model of Google, through the Gemini API or Vertex AI."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import httpx2
from pydantic import ValidationError

from toolsemble._runtime.checks import check_count
from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.text import escape_surrogates
from toolsemble._runtime.trace_level import trace_tools
from toolsemble._vocabulary.call import ToolCall, ToolReply
from toolsemble._vocabulary.errors import ModelError, ToolConfigurationError
from toolsemble.models import _chat as chat
from toolsemble.models._adapter import conversation, errors
from toolsemble.models._adapter.dialect import merge_settings, require_model_name
from toolsemble.models._adapter.offer import CLIENT_KEY, Offer, find_key_source, key_hint, offer_with_key
from toolsemble.models._adapter.per_loop import PerLoop
from toolsemble.models._adapter.replies import Block, append_text, has_text, make_details, restore_blocks
from toolsemble.models._adapter.retry import is_retryable
from toolsemble.models._adapter.wire import base64_text
from toolsemble.models._message import AssistantMessage, Message, ToolMessage, UserMessage
from toolsemble.models.google._wire import PROMPT_MEDIA, write_prompt, write_reply, write_tools

_CONNECT_TIMEOUT = 10.0


class LoopHttp(httpx2.AsyncClient):
    """An HTTP client that sends requests through a client of the running loop, which is closed when the loop ends.

    It does not follow redirects: providers do not use them, and they would forward the key in a header.

    >>> LoopHttp(httpx2.create_ssl_context(), 60.0, 1_000_000).is_closed
    False
    """

    def __init__(self, trusted: ssl.SSLContext, timeout: float, max_reply: int) -> None:
        """Set the trusted certificates, the seconds to wait for data, and the maximum bytes of a reply."""
        super().__init__(verify=trusted)
        self._timeouts = httpx2.Timeout(timeout, connect=min(timeout, _CONNECT_TIMEOUT), pool=None).as_dict()
        # Many runs share a model, and none should wait for another run's connection.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
        self._clients = PerLoop(
            lambda: chat.limit_responses(httpx2.AsyncClient(verify=trusted, limits=limits), max_reply)
        )

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request through the client of the running loop; replace its timeouts."""
        request.extensions["timeout"] = self._timeouts
        client = await self._clients.get()
        return await client.send(request, **options)


_VERSION = re.compile(r"gemini-(\d+)")
# From this version on, calls must be sent back signed, work with an answer schema, and replies may contain images.
_SIGNING_VERSION = 3
# Google's placeholder signature for a call made by another model.
_UNSIGNED = b"skip_thought_signature_validator"
_MODES = {"required": "ANY", "none": "NONE"}
# Protocol buffers allow 100 nested messages, and each level of arguments takes three.
_MAX_DEPTH = 30
# Models before this version accept only a number of tokens.
_TOKENS = {"low": 1024, "medium": 8192, "high": 24_576}


def signs_calls(model: str) -> bool:
    """Return whether a model signs its calls and accepts an answer schema together with tools.

    >>> [signs_calls(name) for name in ("gemini-2.5-pro", "gemini-3-flash", "models/gemini-3.8-pro", "gemma-3")]
    [False, True, True, False]
    """
    found = _VERSION.search(model)
    return found is not None and int(found[1]) >= _SIGNING_VERSION


def write_config(request: chat.ChatRequest, model: str) -> dict[str, Any]:
    """Return the ``config`` argument: everything except the conversation; the user's settings take precedence.

    >>> write_config(chat.ChatRequest([UserMessage("hi")], settings={"temperature": 0}), "gemini-3-flash")
    {'automatic_function_calling': {'disable': True}, 'temperature': 0}
    """
    settings = dict(request.settings)
    tools = [*write_tools(request.specifications), *settings.pop("tools", ())]
    choice = dict(settings.pop("tool_config", ()))
    if request.specifications and request.tool_choice in _MODES:
        choice["function_calling_config"] = {"mode": _MODES[request.tool_choice]}
    system = "\n\n".join(conversation.system_texts(request.messages))
    return {
        "automatic_function_calling": {"disable": True},
        **({"system_instruction": system} if system else {}),
        **({"tools": tools} if tools else {}),
        **({"tool_config": choice} if choice else {}),
        **_answer_format(request, model),
        **merge_settings(_write_reasoning(request.reasoning, model), settings),
    }


def _write_reasoning(reasoning: chat.Reasoning | None, model: str) -> dict[str, Any]:
    if reasoning is None:
        return {}
    if isinstance(reasoning, str) and signs_calls(model):
        return {"thinking_config": {"thinking_level": reasoning.upper(), "include_thoughts": True}}
    tokens = _TOKENS[reasoning] if isinstance(reasoning, str) else reasoning
    return {"thinking_config": {"thinking_budget": tokens, "include_thoughts": True}}


def _answer_format(request: chat.ChatRequest, model: str) -> dict[str, Any]:
    if request.output_schema is None:
        return {}
    if request.specifications and not signs_calls(model):
        raise ToolConfigurationError(
            f"{model} takes no answer schema together with tools; use Gemini {_SIGNING_VERSION} or later, or receive "
            "the answer through a tool: GoogleModel(..., native_output=False)"
        )
    return {"response_mime_type": "application/json", "response_json_schema": dict(request.output_schema)}


def write_contents(messages: Sequence[Message], model: str) -> list[dict[str, Any]]:
    """Return the ``contents`` argument: the conversation without its system message.

    >>> write_contents([UserMessage("hi"), AssistantMessage("hello")], "gemini-3-flash")
    [{'role': 'user', 'parts': [{'text': 'hi'}]}, {'role': 'model', 'parts': [{'text': 'hello'}]}]
    """
    contents: list[dict[str, Any]] = []
    replies: list[ToolReply] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            replies.append(message.reply)
            continue
        # The replies to the calls of a turn form one turn.
        contents.append({"role": "user", "parts": _reply_parts(replies, model)})
        replies = []
        if isinstance(message, UserMessage):
            contents.append({"role": "user", "parts": write_prompt(escape_surrogates(message.text), message.contents)})
        elif isinstance(message, AssistantMessage):
            contents.append({"role": "model", "parts": _model_parts(message, model)})
    contents.append({"role": "user", "parts": _reply_parts(replies, model)})
    return [content for content in contents if content["parts"]]


def _model_parts(message: AssistantMessage, model: str) -> list[dict[str, Any]]:
    calls = [_write_call(call) for call in message.calls]
    parts = [_write_part(block) for block in restore_blocks(f"google:{model}", message, calls)]
    if signs_calls(model):
        # Only the first of several calls is signed.
        for call in [part for part in parts if "function_call" in part][:1]:
            call.setdefault("thought_signature", _UNSIGNED)
    return parts


def _write_call(call: ToolCall) -> Block:
    identified = {"id": call.id} if call.id else {}
    arguments = conversation.sanitize_arguments(call, _MAX_DEPTH)
    return {
        "type": "tool_use",
        "function_call": {**identified, "name": conversation.sanitize_name(call.name), "args": arguments},
    }


def _write_part(block: Block) -> dict[str, Any]:
    """Return a stored block in the SDK's format."""
    if block["type"] == "part":
        return dict(block["part"])
    part = {name: value for name, value in block.items() if name not in {"type", "signature"}}
    return {**part, "thought_signature": block["signature"]} if "signature" in block else part


def _reply_parts(replies: Sequence[ToolReply], model: str) -> list[dict[str, Any]]:
    """Return the parts that answer the calls of a turn; images follow them if replies cannot contain images."""
    parts = [write_reply(replace(each, call=conversation.sanitize_call(each.call, each.call_id))) for each in replies]
    if signs_calls(model):
        return parts
    images = [image for part in parts for image in part["function_response"].pop("parts", ())]
    return [*parts, *images]


T = TypeVar("T")

_END = object()


async def stream_in_task(start: Callable[[], Awaitable[AsyncIterator[T]]]) -> AsyncGenerator[T, None]:
    """Yield the items of a stream; closing this generator closes the stream before it returns.

    Closing nested async generators closes only the outermost one: the inner ones, and the connection, are left to the
    garbage collector. Cancelling the task that reads closes them from the inside out.
    """
    queue: asyncio.Queue[Any] = asyncio.Queue()

    async def read() -> None:
        try:
            async for item in await start():
                queue.put_nowait(item)
        finally:
            queue.put_nowait(_END)

    task = asyncio.create_task(read())
    try:
        while (item := await queue.get()) is not _END:
            yield item
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


_REFUSALS = (
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION",
)  # fmt: skip
_STOP_REASONS = errors.StopReasons(
    "Gemini",
    {"STOP": "stop", "MAX_TOKENS": "length", "CONTINUATION": "length", **dict.fromkeys(_REFUSALS, "refusal")},
    {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"},
)


class ReplyReader:
    """A reader of one reply, from a whole response or the responses of a stream."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._blocks: list[Block] = []
        self._calls = 0
        self._usage = chat.NO_TOKENS
        self._reason = ""
        self._feedback: Any = None

    def read_response(self, response: Any) -> Iterator[chat.Chunk]:
        """Yield the chunks of a response."""
        if response.usage_metadata is not None:
            self._usage = _usage(response.usage_metadata)
        self._feedback = response.prompt_feedback or self._feedback
        for candidate in (response.candidates or ())[:1]:
            for part in (candidate.content and candidate.content.parts) or ():
                yield from self._read_part(part)
            if candidate.finish_reason is not None:
                self._reason = candidate.finish_reason.value

    def finish(self) -> chat.StreamEnd:
        """Return the end of the reply; raise a ``ModelError`` if it is blocked, incomplete or empty."""
        if self._feedback is not None and self._feedback.block_reason is not None:
            raise _blocked_error(self._feedback)
        stop = _STOP_REASONS.read(self._reason, has_calls=self._calls > 0, has_text=has_text(self._blocks))
        return chat.StreamEnd(self._usage, stop, make_details(f"google:{self._model}", self._blocks))

    def _read_part(self, part: Any) -> Iterator[chat.Chunk]:
        signed = {"signature": base64_text(part.thought_signature)} if part.thought_signature else {}
        if part.thought and part.text:
            yield chat.ThoughtDelta(part.text)
        if part.function_call is not None:
            yield from self._read_call(part, signed)
        elif part.text is not None and not part.thought:
            yield from self._read_text(part.text, signed)
        elif not part.thought or signed:
            # Code that Google executed, or an image: not part of the text, but must be sent back.
            self._blocks.append({"type": "part", "part": part.to_json_dict()})

    def _read_text(self, text: str, signed: Mapping[str, str]) -> Iterator[chat.Chunk]:
        last = self._blocks[-1] if self._blocks else {}
        if signed or last.keys() != {"type", "text"}:
            self._blocks.append({"type": "text", "text": text, **signed})
        else:
            append_text(last, "text", text)
        if text:
            yield chat.TextDelta(text)

    def _read_call(self, part: Any, signed: Mapping[str, str]) -> Iterator[chat.Chunk]:
        if part.function_call.partial_args or part.function_call.will_continue:
            raise ModelError(
                "Gemini streamed arguments of a call, which is not supported; turn off stream_function_call_arguments"
            )
        self._blocks.append({"type": "tool_use", **signed})
        call = ToolCall.from_google(part)
        yield chat.CallDelta(self._calls, call.name, call.id)
        yield chat.ArgumentsDelta(self._calls, call.json)
        self._calls += 1


def _blocked_error(feedback: Any) -> ModelError:
    reason = f": {feedback.block_reason_message}" if feedback.block_reason_message else ""
    return ModelError(f"Gemini blocked the prompt ({feedback.block_reason.value}){reason}")


def _usage(usage: Any) -> chat.TokenUsage:
    given = (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0)
    thoughts = usage.thoughts_token_count or 0
    output = (usage.candidates_token_count or 0) + thoughts
    return chat.TokenUsage(given, output, usage.cached_content_token_count or 0, thoughts)


LOGGER = logging.getLogger("toolsemble.models")
TIMEOUT = 600.0
"""The default seconds to wait for data."""

_INPUTS = conversation.Inputs("Gemini", PROMPT_MEDIA, PROMPT_MEDIA, 100 * conversation.MEGABYTE)
_KEYS = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_KEY = f"set {_KEYS[0]}, or pass api_key="
_CLOUD = "set GOOGLE_APPLICATION_CREDENTIALS, or run 'gcloud auth application-default login'"
_DENIED = {401, 403}
_DELAY = re.compile(r"(\d+(?:\.\d+)?)s")


def offer() -> Offer:
    """Return the default model, if there is a key."""
    return offer_with_key("google:gemini-3.5-flash-lite", "google.genai", "GEMINI_API_KEY", "GOOGLE_API_KEY")


def model_from_name(provider: str, rest: str) -> chat.ChatModel:
    """Return the model of a name such as ``google:gemini-3.8-flash``."""
    return GoogleModel(require_model_name(provider, rest, "gemini-3.8-flash"))


class GoogleModel:
    """A Gemini model, used through the official package (extra ``google``).

    >>> GoogleModel("gemini-3.8-flash", api_key="...")
    GoogleModel('gemini-3.8-flash')
    """

    def __init__(  # noqa: PLR0913 - settings by keyword, each with a default
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        project: str | None = None,
        location: str | None = None,
        timeout: float = TIMEOUT,
        native_output: bool | None = None,
        max_reply: int = chat.MAX_REPLY,
        client: Any = None,
    ) -> None:
        """Set the model and its server; raise ``ToolConfigurationError`` if a required key is missing.

        :param name: the model's name
        :param api_key: the key; by default the official package looks for GOOGLE_API_KEY or GEMINI_API_KEY
        :param base_url: the address of another server, without ``/v1/models``
        :param project: the Google Cloud project, for Vertex AI, which uses the credentials of the environment
        :param location: the Google Cloud location, for Vertex AI
        :param timeout: seconds to wait for data
        :param native_output: whether typed answers use a schema instead of a tool; by default where the API supports
            both, which is from Gemini 3 on
        :param max_reply: the maximum size of a reply, in bytes; in characters if ``client`` is given
        :param client: a ``google.genai.Client`` instead of key and address; it is bound to one event loop, and its
            creator closes it
        """
        self._sdk = _package("google.genai")
        options = {"api_key": api_key, "project": project, "location": location}
        if client is not None and (base_url is not None or any(options.values())):
            raise TypeError("GoogleModel takes a client, or api_key, base_url, project and location, not both")
        check_count("GoogleModel max_reply", max_reply, least=1)
        self.name = name
        self.max_reply = max_reply
        self.native_output = signs_calls(name) if native_output is None else native_output
        self._secrets = (api_key, *map(os.environ.get, _KEYS))
        self._key_source = _find_source(options) if client is None else CLIENT_KEY
        self._client = client or _create_client(self._sdk, options, base_url, timeout, max_reply)

    def __repr__(self) -> str:
        return f"GoogleModel({self.name!r})"

    async def reply(self, request: chat.ChatRequest) -> chat.ChatReply:
        """Return the whole reply."""
        ask, reader = self._prepare("generate_content", request), ReplyReader(self.name)
        with self._translate_errors():
            return chat.Assembly(self.max_reply).assemble([*reader.read_response(await ask()), reader.finish()])

    async def stream(self, request: chat.ChatRequest) -> AsyncIterator[chat.Chunk]:
        """Yield the reply in chunks as they arrive."""
        ask, reader = self._prepare("generate_content_stream", request), ReplyReader(self.name)
        with self._translate_errors():
            async with aclosing(stream_in_task(ask)) as responses:
                async for response in responses:
                    for chunk in reader.read_response(response):
                        yield chunk
            yield reader.finish()

    def _prepare(self, method: str, request: chat.ChatRequest) -> Callable[[], Awaitable[Any]]:
        """Return a function that sends the request by a method of the package."""
        _INPUTS.check(request.messages)
        types, config = self._sdk.types, write_config(request, self.name)
        try:
            contents = [types.Content(**content) for content in write_contents(request.messages, self.name)]
            checked = types.GenerateContentConfig(**config)
        except ValueError as problem:
            raise ToolConfigurationError(f"Invalid request for Gemini: {problem}") from problem
        trace_tools(LOGGER, f"google {self.name}", config.get("tools"))
        return partial(getattr(self._client.aio.models, method), model=self.name, contents=contents, config=checked)

    def _translate_errors(self) -> AbstractContextManager[None]:
        return errors.translate_errors(
            "Gemini", lambda: self._secrets, partial(_translate, sdk=self._sdk, key_source=self._key_source)
        )


def _create_client(
    sdk: Any, options: dict[str, str | None], base_url: str | None, timeout: float, max_reply: int
) -> Any:
    """Return a client that works in every event loop."""
    http = _package("httpx2")
    # Loading the certificates is the slowest part, and the package would do it three times.
    trusted = http.create_ssl_context()
    shared = {"client_args": {"verify": trusted}, "async_client_args": {"verify": trusted, "ssl": trusted}}
    http_options = {"base_url": base_url, "httpx_async_client": LoopHttp(trusted, timeout, max_reply), **shared}
    is_cloud = True if options["project"] or options["location"] else None  # None: decided by the environment
    try:
        return sdk.Client(enterprise=is_cloud, http_options=http_options, **options)
    except ValueError as problem:
        raise ToolConfigurationError(f"Google's package says: {problem} For the Gemini API, {_KEY}") from None


def _find_source(options: Mapping[str, str | None]) -> str:
    """Return the key's source; with a project or a location, Google Cloud credentials are used."""
    variables = () if options["project"] or options["location"] else _KEYS
    return find_key_source(options["api_key"], *variables) or "the credentials of Google Cloud"


def _status_error(error: Any, keys: list[str], key_source: str) -> ModelError:
    message = error.message if isinstance(error.message, str) else "no reason is given"
    hint = key_hint(key_source, _KEY) if error.code in _DENIED or "API key" in message else ""
    headers = {"retry-after": _read_delay(error.details), **(getattr(error.response, "headers", None) or {})}
    reason, retryable = f"{errors.quote(message, keys)}{hint}", is_retryable(error.code)
    return errors.status_error("Gemini", f"{error.code}, {error.status}", reason, headers, retryable=retryable)


def _read_delay(details: Any) -> str | None:
    """Return the retry delay in seconds from Google's error body."""
    error = details.get("error", details) if isinstance(details, Mapping) else None
    listed = error.get("details") if isinstance(error, Mapping) else None
    for each in listed if isinstance(listed, list) else ():
        found = _DELAY.fullmatch(str(each.get("retryDelay"))) if isinstance(each, Mapping) else None
        if found:
            return found[1]
    return None


def _translate(error: Any, keys: list[str], sdk: Any, key_source: str) -> Exception:
    """Return the error for an exception of the package."""
    if isinstance(error, sdk.errors.APIError):
        # The package's error contains the whole response, which may repeat the key.
        raise _status_error(error, keys, key_source) from None
    http, auth = _package("httpx2"), _package("google.auth.exceptions")
    message = errors.quote(str(error), keys)
    # The package does not validate responses, so unexpected ones raise these.
    unread = ValidationError, sdk.errors.UnknownApiResponseError, AttributeError, KeyError, TypeError
    if isinstance(error, (json.JSONDecodeError, *unread, RecursionError)):
        return errors.unreadable_error("Gemini", error)
    if isinstance(error, (http.HTTPError, OSError)):
        return errors.connection_error("Gemini", error, keys)
    if isinstance(error, auth.GoogleAuthError):
        return ModelError(f"Google Cloud refused the credentials: {message}; {_CLOUD}", retryable=bool(error.retryable))
    if isinstance(error, ValueError):
        return ToolConfigurationError(f"Invalid request for Gemini: {message}")
    return ModelError(f"Google's package says: {message}")


def _package(name: str) -> Any:
    return import_extra(name, extra="google", user="GoogleModel")
