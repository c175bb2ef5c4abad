"""Mistral's models."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, NamedTuple

from toolsemble.errors import ModelError, ToolConfigurationError
from toolsemble.models.adapter.failure import retry_after, worth_retrying
from toolsemble.models.adapter.key_masking import without_keys
from toolsemble.models.adapter.misuse import held_to, name_after
from toolsemble.models.adapter.per_loop import PerLoop
from toolsemble.models.adapter.refusal import broken, cut_off, shown, unreadable
from toolsemble.models.chat import Assembly, ChatModel, ChatReply, ChatRequest, Chunk
from toolsemble.models.mistral.messages import written_messages
from toolsemble.models.mistral.reply import Reading
from toolsemble.models.reply_limit import MAX_REPLY, limit_responses, too_long
from toolsemble.providers.mistral import adapt, write_tools
from toolsemble.providers.wire import field
from toolsemble.runtime.checks import check_count
from toolsemble.runtime.extras import import_extra

TIMEOUT = 300.0
"""How many seconds may pass without a sign of life: as many as Mistral's own package allows."""

_KEY = "set MISTRAL_API_KEY, or pass api_key="
_CHOICES = {"required": "any", "none": "none"}
_SUCCESS = 200
_UNAUTHORIZED = 401


class _Opened(NamedTuple):
    """A client with its connections, which the package does not close when it was given them."""

    client: Any
    connections: Any

    async def __aenter__(self) -> Any:
        return self.client

    async def __aexit__(self, *_: object) -> None:
        await self.connections.aclose()


def named(provider: str, rest: str) -> ChatModel:
    """Give the model of a name such as ``mistral:mistral-large-latest``."""
    return MistralModel(name_after(provider, rest, "mistral-large-latest"))


class MistralModel:
    """Asks a model by Mistral's chat completions, through the official package (extra ``mistral``).

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
        max_reply: int = MAX_REPLY,
        client: Any = None,
    ) -> None:
        """Say which model, and how it is reached; refuse to go without a key where one is needed.

        :param name: the model's name
        :param api_key: the key; without one, what the official package finds: MISTRAL_API_KEY, or a token's file
        :param base_url: another server than Mistral's; its path ends before ``/v1/chat/completions``
        :param timeout: how many seconds may pass without a sign of life; 300, or what the client says
        :param native_output: whether answers of a declared type are asked for by ``response_format``, not by a tool;
            Mistral does not promise that it goes together with tools, so this is for agents that have none
        :param max_reply: how many bytes the server may send for one reply; of a client of your own, how many characters
        :param client: a ``Mistral`` in place of key and address; it belongs to one event loop, and whoever made it
            closes it
        """
        self._sdk: Any = import_extra("mistralai.client", extra="mistral", user="MistralModel")
        self._errors: Any = import_extra("mistralai.client.errors", extra="mistral", user="MistralModel")
        self._events: Any = import_extra("mistralai.client.utils.eventstreaming", extra="mistral", user="MistralModel")
        self._http: Any = import_extra("httpx2", extra="mistral", user="MistralModel")
        if client is not None and (api_key is not None or base_url is not None):
            raise TypeError("MistralModel takes a client, or api_key and base_url, not both")
        self._key = api_key or os.environ.get("MISTRAL_API_KEY")
        if not (self._key or os.environ.get("MISTRAL_SA_TOKEN_PATH") or base_url or client):
            raise ToolConfigurationError(f"Mistral needs a key: {_KEY}")
        check_count("MistralModel max_reply", max_reply, least=1)
        self.name = name
        self.max_reply = max_reply
        self.native_output = native_output
        seconds = TIMEOUT if timeout is None and client is None else timeout
        self._timing = {} if seconds is None else {"timeout_ms": round(seconds * 1000)}
        self._given = client
        self._address = {"api_key": api_key, "server_url": base_url}
        # To read the certificates takes far longer than all the rest of making a client; any loop can use them.
        self._certificates = None if client is not None else self._http.create_ssl_context()
        self._clients = PerLoop(self._made)

    def __repr__(self) -> str:
        return f"MistralModel({self.name!r})"

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Give the model's whole reply."""
        client, reading, assembly = self._given or await self._clients.get(), Reading(), Assembly(self.max_reply)
        with without_keys(self._keys), self._told():
            for chunk in reading.part(await self._completed(client, self._arguments(request))):
                assembly.add(chunk)
        if not reading.is_complete:
            raise ModelError("Mistral's answer has nothing in it; is base_url right?", retryable=True)
        assembly.add(reading.end())
        return assembly.reply()

    async def stream(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Give the model's reply as it comes."""
        client, reading = self._given or await self._clients.get(), Reading()
        with without_keys(self._keys), self._told():
            async with aclosing(self._streamed(client, self._arguments(request))) as events:
                async for event in events:
                    for chunk in reading.part(event):
                        yield chunk
        if not reading.is_complete:
            raise cut_off("Mistral")
        yield reading.end()

    async def _completed(self, client: Any, arguments: dict[str, Any]) -> Any:
        try:
            return await client.chat.complete_async(**arguments)
        except self._errors.ResponseValidationError as error:
            if error.status_code != _SUCCESS:
                raise
            return json.loads(error.body)  # what the package refuses, such as a list of arguments, is the model's doing

    async def _streamed(self, client: Any, arguments: dict[str, Any]) -> AsyncGenerator[Any, None]:
        """Give the chunks of a stream as dicts.

        Not as the package's objects: it breaks the stream off at further pieces of a call that do not repeat its name.
        """
        async with await client.chat.stream_async(**arguments) as stream:
            events = self._events.EventStreamAsync(stream.response, json.loads, sentinel="[DONE]", client_ref=stream)
            async with aclosing(events.generator) as generator:
                async for event in generator:
                    data = field(event, "data")
                    if field(data, "choices") is None:
                        raise ModelError(f"Mistral broke its answer off: {self._shown(data)}", retryable=True)
                    yield data

    def _arguments(self, request: ChatRequest) -> dict[str, Any]:
        """Give the arguments of the package's own function."""
        settings = {name: value for name, value in request.settings.items() if name != "stream"}
        tools = [*write_tools(request.specifications), *settings.get("tools", ())]
        choice = _CHOICES.get(request.tool_choice)
        return {
            "model": self.name,
            **self._timing,
            **settings,
            **({"tools": tools} if tools else {}),
            **({"tool_choice": choice} if tools and choice else {}),
            **self._format(request),
            "messages": written_messages(request.messages),
            "retries": None,  # the agent's own are enough
        }

    def _format(self, request: ChatRequest) -> dict[str, Any]:
        if request.output_schema is None:
            return {}
        schema = held_to(request.output_schema, adapt, "Mistral", "MistralModel")
        named = {"name": "answer", "schema": schema, "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": named}}

    def _made(self) -> _Opened:
        settings = {"follow_redirects": True, "verify": self._certificates}
        # The package makes a second one, for sync code, unless it is given it; nobody uses it.
        clients = {"client": self._http.Client(**settings), "async_client": self._http.AsyncClient(**settings)}
        limit_responses(clients["async_client"], self.max_reply)
        return _Opened(self._sdk.Mistral(**self._address, **clients), clients["async_client"])

    def _keys(self) -> list[str | None]:
        return [self._key]

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raise what goes wrong inside as an error of the model's."""
        try:
            yield
        except self._errors.MistralError as error:
            raise too_long(error) or self._refused(error) from error
        except (self._http.HTTPError, self._errors.NoResponseError) as error:
            raise too_long(error) or broken("Mistral", error, [self._key]) from error
        except self._http.StreamError as error:
            # What the package stumbles over when a request for a stream is refused with nothing in the body.
            raise ModelError("Mistral refused the request without a word", retryable=True) from error
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise unreadable("Mistral", error) from error

    def _refused(self, error: Any) -> ModelError:
        try:
            body = json.loads(error.body)
        except ValueError:
            body = error.body
        hint = f"; {_KEY}" if error.status_code == _UNAUTHORIZED else ""
        return ModelError(
            f"Mistral refused the request ({error.status_code}): {self._shown(body)}{hint}",
            retryable=worth_retrying(error.status_code),
            retry_after=retry_after(error.headers),
        )

    def _shown(self, body: object) -> str:
        """Give what Mistral says about an error, which it does in several shapes."""
        said = body
        while (inner := field(said, "message", "detail", "error")) is not None:
            said = inner
        words = said if isinstance(said, str) else json.dumps(said, default=str)
        return shown(words or "no reason is given", [self._key])
