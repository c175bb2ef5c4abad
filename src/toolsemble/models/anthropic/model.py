"""Anthropic's models, and others behind servers that speak as Anthropic's does."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any, TypeAlias

from toolsemble.errors import ModelError, ToolConfigurationError
from toolsemble.models.adapter.failure import retry_after, worth_retrying
from toolsemble.models.adapter.key_masking import keys_in, without_keys
from toolsemble.models.adapter.misuse import held_to, name_after
from toolsemble.models.adapter.per_loop import PerLoop
from toolsemble.models.adapter.refusal import broken, cut_off, shown, unreadable
from toolsemble.models.anthropic.messages import called_names, written_messages, written_system
from toolsemble.models.anthropic.reply import Reading
from toolsemble.models.chat import Assembly, ChatModel, ChatReply, ChatRequest, Chunk
from toolsemble.models.reply_limit import MAX_REPLY, limit_responses, too_long
from toolsemble.providers.anthropic import adapt, write_tools
from toolsemble.runtime.checks import check_count
from toolsemble.runtime.extras import import_extra

TIMEOUT = 600.0
"""How many seconds may pass without a sign of life: as many as Anthropic's own package allows."""

_Ask: TypeAlias = Callable[[Any, dict[str, Any], Reading], AsyncGenerator[Chunk, None]]

_KEY = "set ANTHROPIC_API_KEY, or pass api_key="
_MARK = {"cache_control": {"type": "ephemeral"}}
_CHOICES = {"required": {"type": "any"}, "none": {"type": "none"}}
_CONNECT = 10.0
_PAUSES = 10
_REFUSED = 400
_UNAUTHORIZED = 401
# What an error in the middle of a stream is called when the same request would fail again.
_FINAL = {
    "authentication_error", "billing_error", "invalid_request_error", "not_found_error", "permission_error",
    "request_too_large",
}  # fmt: skip


def named(provider: str, rest: str) -> ChatModel:
    """Give the model of a name such as ``anthropic:claude-haiku-5-5``."""
    return AnthropicModel(name_after(provider, rest, "claude-haiku-5-5"))


class AnthropicModel:
    """Asks a model by Anthropic's messages API, through the official package (extra ``anthropic``).

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
        max_reply: int = MAX_REPLY,
        client: Any = None,
    ) -> None:
        """Say which model, and how it is reached; refuse to go without a key where one is needed.

        :param name: the model's name
        :param api_key: the key; without one, what the official package finds: ANTHROPIC_API_KEY, or a profile
        :param base_url: another server than Anthropic's; its path ends before ``/v1/messages``
        :param timeout: how many seconds may pass without a sign of life; 600, or what the client says
        :param max_tokens: how long an answer may be, thoughts included; the API insists on a limit
        :param cache: whether the tools and the system message are marked for Anthropic's cache, and the conversation
            of a model that has tools, as it is sent again after each call
        :param native_output: whether answers of a declared type are asked for by ``output_config``, not by a tool; by
            default when the server is Anthropic's own, as others may ignore it
        :param max_reply: how many bytes the server may send for one reply; of a client of your own, how many characters
        :param client: an ``AsyncAnthropic``, or one for another cloud, in place of key and address; it belongs to one
            event loop, and whoever made it closes it
        """
        self._sdk: Any = import_extra("anthropic", extra="anthropic", user="AnthropicModel")
        self._http: Any = import_extra("httpx2", extra="anthropic", user="AnthropicModel")
        if client is not None and (api_key is not None or base_url is not None):
            raise TypeError("AnthropicModel takes a client, or api_key and base_url, not both")
        if isinstance(client, self._sdk.Anthropic):
            raise TypeError("AnthropicModel needs a client for async code: an AsyncAnthropic")
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
        # To read the certificates takes far longer than all the rest of making a client; any loop can use them.
        self._certificates = None if client is not None else self._http.create_ssl_context()
        self._clients = PerLoop(self._made)
        self._known = frozenset(inspect.signature(self._checked().messages.create).parameters)

    def __repr__(self) -> str:
        return f"AnthropicModel({self.name!r})"

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Give the model's whole reply."""
        assembly = Assembly(self.max_reply)
        async for chunk in self._chunks(request, _whole):
            assembly.add(chunk)
        return assembly.reply()

    async def stream(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Give the model's reply as it comes."""
        async with aclosing(self._chunks(request, _streamed)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _chunks(self, request: ChatRequest, ask: _Ask) -> AsyncGenerator[Chunk, None]:
        client = self._given or await self._clients.get()
        arguments, reading = self._arguments(request), Reading()
        said = arguments["messages"]
        for _ in range(_PAUSES):
            with without_keys(partial(_keys, client)), self._told(client):
                async with aclosing(ask(client, arguments, reading)) as chunks:
                    async for chunk in chunks:
                        yield chunk
            if not reading.is_complete:
                raise cut_off("Anthropic")
            if not reading.is_paused:
                break
            arguments["messages"] = [*said, {"role": "assistant", "content": reading.resume()}]
        with without_keys(partial(_keys, client)):
            yield reading.end()

    def _arguments(self, request: ChatRequest) -> dict[str, Any]:
        """Give the arguments of the package's own function; settings that it does not know go into the body as well."""
        settings = {name: value for name, value in request.settings.items() if name != "stream"}
        known = {name: value for name, value in settings.items() if name in self._known}
        unknown = {name: value for name, value in settings.items() if name not in self._known}
        if unknown:
            known["extra_body"] = {**unknown, **known.get("extra_body", {})}
        return {
            "model": self.name,
            "max_tokens": self._max_tokens,
            **self._timing,
            **known,
            **self._conversation(request),
            **self._format(request),
        }

    def _conversation(self, request: ChatRequest) -> dict[str, Any]:
        tools = [*write_tools(request.specifications), *request.settings.get("tools", ())]
        choice = _CHOICES.get(request.tool_choice)
        if not tools:
            # A conversation in which tools were used is refused unless they are named.
            tools = [_gone(name) for name in called_names(request.messages)]
            choice = _CHOICES["none"]
        system, messages = written_system(request.messages), written_messages(request.messages)
        if self._cache:
            _mark(system or tools)
            _mark(messages[-1]["content"] if tools and messages and messages[-1]["role"] == "user" else [])
        parts = {"system": system, "messages": messages, "tools": tools, "tool_choice": choice if tools else None}
        return {name: part for name, part in parts.items() if part or name == "messages"}

    def _format(self, request: ChatRequest) -> dict[str, Any]:
        if request.output_schema is None:
            return {}
        schema = held_to(request.output_schema, adapt, "Anthropic", "AnthropicModel")
        settings = request.settings.get("output_config", {})
        return {"output_config": {**settings, "format": {"type": "json_schema", "schema": schema}}}

    def _timeout(self, seconds: float) -> Any:
        return self._sdk.Timeout(seconds, connect=min(seconds, _CONNECT))

    def _made(self) -> Any:
        http_client = limit_responses(self._sdk.DefaultAsyncHttpxClient(verify=self._certificates), self.max_reply)
        return self._sdk.AsyncAnthropic(**self._address, max_retries=0, http_client=http_client)

    def _checked(self) -> Any:
        """Give a client to look at, or say that there is no key."""
        if self._given is not None:
            return self._given
        try:
            client = self._made()
        except self._sdk.AnthropicError as problem:
            raise ToolConfigurationError(f"Anthropic's package cannot find a key: {problem}; {_KEY}") from problem
        if not client.auth_headers and client.credentials is None:
            if self._address["base_url"] is None:
                raise ToolConfigurationError(f"Anthropic needs a key: {_KEY}")
            self._address["api_key"] = "none"  # servers of one's own seldom ask for one, but the package insists
        return client

    @contextmanager
    def _told(self, client: Any) -> Iterator[None]:
        """Raise what goes wrong inside as an error of the model's."""
        secrets = _keys(client)
        try:
            yield
        except self._sdk.APIStatusError as error:
            raise _refused(error, secrets) from error
        except (self._sdk.APIConnectionError, self._http.HTTPError) as error:
            raise too_long(error) or broken("Anthropic", error.__cause__ or error, secrets) from error
        except self._sdk.AnthropicError as error:
            raise ModelError(f"Anthropic's package says: {shown(str(error), secrets)}") from error
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise unreadable("Anthropic", error) from error


def _keys(client: Any) -> list[str]:
    """Give what a server must not be quoted with."""
    known = [getattr(client, name, None) for name in ("api_key", "auth_token")]
    return [key for key in (*known, *keys_in(client.auth_headers)) if isinstance(key, str)]


async def _whole(client: Any, arguments: dict[str, Any], reading: Reading) -> AsyncGenerator[Chunk, None]:
    message = _fields(await client.messages.create(**arguments))
    if not isinstance(message.get("content"), list):
        raise ModelError("What Anthropic answered is no message; is base_url right?")
    for chunk in reading.message(message):
        yield chunk


async def _streamed(client: Any, arguments: dict[str, Any], reading: Reading) -> AsyncGenerator[Chunk, None]:
    async with await client.messages.create(**arguments, stream=True) as events:
        async for event in events:
            for chunk in reading.event(_fields(event)):
                yield chunk


def _fields(received: Any) -> Mapping[str, Any]:
    """Give what the package made of a message or an event as JSON values; nothing where it could make nothing of it."""
    try:
        fields: Mapping[str, Any] = received.to_dict(mode="json", warnings=False)
    except AttributeError:
        return {}
    except ValueError as problem:
        raise unreadable("Anthropic", problem) from problem
    return fields


def _refused(error: Any, secrets: list[str]) -> ModelError:
    said = error.api_message if isinstance(error.api_message, str) else str(error)
    kind, status, headers = str(error.type), error.status_code, error.response.headers
    # An error in the middle of a stream comes after the status of success.
    passing = worth_retrying(status) if status >= _REFUSED else kind not in _FINAL
    passing = {"true": True, "false": False}.get(headers.get("x-should-retry", ""), passing)
    hint = f"; {_KEY}" if status == _UNAUTHORIZED else ""
    text = f"Anthropic refused the request ({status}, {kind}): {shown(said, secrets)}{hint}"
    return ModelError(text, retryable=passing, retry_after=retry_after(headers))


def _gone(name: str) -> dict[str, Any]:
    return {"name": name, "description": "Not available any more", "input_schema": {"type": "object", "properties": {}}}


def _mark(blocks: list[dict[str, Any]]) -> None:
    """Say of the last block that everything up to it is worth keeping."""
    blocks[-1:] = [{**block, **_MARK} for block in blocks[-1:]]
