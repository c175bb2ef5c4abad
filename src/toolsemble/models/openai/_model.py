"""The model for OpenAI and servers compatible with one of its two APIs."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import cache, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import urlsplit

from toolsemble._runtime.checks import check_count
from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.trace_level import trace_tools
from toolsemble._vocabulary.errors import ModelError, ToolDefinitionError
from toolsemble.models._adapter.conversation import Inputs
from toolsemble.models._adapter.dialect import require_model_name
from toolsemble.models._adapter.errors import find_keys, translate_errors
from toolsemble.models._adapter.offer import Offer, offer_with_key
from toolsemble.models._adapter.per_loop import PerLoop
from toolsemble.models._chat import MAX_REPLY, Assembly, ChatReply, ChatRequest, Chunk, limit_responses
from toolsemble.models.openai import _chat as chat, _responses as responses
from toolsemble.models.openai._parts import INPUT_KINDS, openai_inputs, server_inputs
from toolsemble.models.openai._site import is_openai, resolve_site, site_from_client, translate
from toolsemble.models.openai._wire import Api

if TYPE_CHECKING:
    from openai import AsyncOpenAI

LOGGER = logging.getLogger("toolsemble.models")
_CONNECT = 5.0
_WIRES: dict[str, ModuleType] = {"chat": chat, "responses": responses}
_RESERVED = ("messages", "input", "stream")


class OpenAIModel:
    """A model of OpenAI, or of a compatible server.

    >>> OpenAIModel("gpt-5-mini", api_key="sk-...")
    OpenAIModel('gpt-5-mini', api='responses')
    >>> OpenAIModel("qwen3:8b", base_url="http://127.0.0.1:11434/v1")
    OpenAIModel('qwen3:8b', api='chat', base_url='http://127.0.0.1:11434/v1')
    """

    def __init__(  # noqa: PLR0913 - settings by keyword, each with a default
        self,
        name: str,
        *,
        api: Api | None = None,
        base_url: str | None = None,
        api_key: str | Callable[[], Awaitable[str]] | None = None,
        key_variable: str | None = None,
        label: str | None = None,
        native_output: bool | None = None,
        timeout: float = 600.0,
        headers: Mapping[str, str] | None = None,
        inputs: Collection[str] | None = None,
        max_reply: int = MAX_REPLY,
        client: AsyncOpenAI | None = None,
    ) -> None:
        """Check the settings.

        :param name: the model's name, as the server knows it
        :param api: ``"responses"`` or ``"chat"``. The default for OpenAI is responses, which preserve reasoning between
            calls and show images of tools to the model; for other servers it is chat completions, which all support
        :param base_url: the address of the server; by default ``OPENAI_BASE_URL``, or OpenAI
        :param api_key: the key, or an async function that returns it; by default the value of ``key_variable``
        :param key_variable: the environment variable with the key; by default ``OPENAI_API_KEY``, or none if
            ``base_url`` is given, so that a key is never sent to another server
        :param label: the name of the server in messages
        :param native_output: whether the server enforces the schema of an answer, also together with tools; by default
            only OpenAI
        :param timeout: seconds to wait for data from the server
        :param headers: additional headers of each request
        :param inputs: the contents that another server accepts in prompts: ``"image"``, ``"image_url"``, ``"audio"``,
            ``"file"`` and ``"file_url"``; by default ``("image",)``, and everything that OpenAI accepts for OpenAI
        :param max_reply: the maximum size of a reply, in bytes; in characters if ``client`` is given
        :param client: a client such as ``AsyncAzureOpenAI``, instead of the settings of the server
        """
        self._sdk = import_extra("openai", extra="openai", user="OpenAIModel")
        _check(name, api, timeout)
        check_count("OpenAIModel max_reply", max_reply, least=1)
        self._given = None if client is None else client.with_options(max_retries=0)
        self._headers = dict(headers or {})
        settings = (base_url, label, api_key, key_variable, self._headers)
        self._site = resolve_site(*settings) if client is None else site_from_client(client, label)
        own = is_openai(self._site.address)
        self.name = name
        self.api: Api = api or ("responses" if own else "chat")
        self.native_output = own if native_output is None else native_output
        self._wire = _WIRES[self.api]
        known = own or isinstance(client, self._sdk.AsyncAzureOpenAI)
        self._inputs = openai_inputs(self.api) if known and inputs is None else _read_inputs(self._site.label, inputs)
        # Reasoning is sent only to its own model: others reject it.
        self._origin = f"{self.api} of {name} at {self._site.address}"
        self._timeout = timeout
        self.max_reply = max_reply
        # Creating a client takes 25 ms, a connection even more; so both are reused within an event loop.
        self._clients = PerLoop(self._create_client)

    def __repr__(self) -> str:
        elsewhere = f", base_url={self._site.address!r}" if not is_openai(self._site.address) else ""
        return f"{type(self).__name__}({self.name!r}, api={self.api!r}{elsewhere})"

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Return the whole reply."""
        reader = self._wire.ReplyReader(self._site.label, self._origin, streamed=False)
        with self._translate_errors():
            answer = await self._send(request, streamed=False)
            if isinstance(answer, str):
                raise ModelError(f"{self._site.label} sent {answer!r:.80}, not JSON; {self._address_hint()}")
            return Assembly(self.max_reply).assemble([*reader.read(answer), *reader.finish()])

    async def stream(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Yield the reply in chunks; a server that does not stream sends it at once."""
        with self._translate_errors():
            async with await self._send(request, streamed=True) as events:
                kind = events.response.headers.get("content-type", "")
                if "text/html" in kind:
                    raise ModelError(f"{self._site.label} sent a web page; {self._address_hint()}")
                is_whole = "json" in kind
                reader = self._wire.ReplyReader(self._site.label, self._origin, streamed=not is_whole)
                async for event in _body(events.response) if is_whole else events:
                    for chunk in reader.read(event):
                        yield chunk
            for chunk in reader.finish():
                yield chunk

    async def _send(self, request: ChatRequest, *, streamed: bool) -> Any:
        """Send a request; return the SDK's response or stream."""
        client: Any = self._given or await self._clients.get()
        ask = client.chat.completions.create if self.api == "chat" else client.responses.create
        self._inputs.check(request.messages)
        own = self._wire.write_parameters(request, self._origin, streamed=streamed)
        sent = _merge({"model": self.name, **own}, request.settings, _parameter_names(ask.__func__))
        trace_tools(LOGGER, f"openai {self.name}", sent.get("tools"))
        return await ask(**sent, stream=streamed)

    def _create_client(self) -> AbstractAsyncContextManager[AsyncOpenAI]:
        sdk, site = self._sdk, self._site
        # Local servers bypass the proxy.
        is_local = urlsplit(site.address).hostname in {"localhost", "127.0.0.1", "::1"}
        client: AbstractAsyncContextManager[AsyncOpenAI] = sdk.AsyncOpenAI(
            api_key=site.key or "none",  # required by the SDK
            base_url=site.address,
            timeout=sdk.Timeout(self._timeout, connect=min(_CONNECT, self._timeout)),
            max_retries=0,  # the caller retries
            default_headers=self._headers,
            http_client=limit_responses(sdk.DefaultAsyncHttpxClient(trust_env=not is_local), self.max_reply),
        )
        return client

    def _translate_errors(self) -> AbstractContextManager[None]:
        label, how = self._site.label, partial(translate, sdk=self._sdk, site=self._site)
        return translate_errors(label, self._keys, how)

    def _keys(self) -> list[Any]:
        """Return the keys to mask in errors; a key from a function is in the client."""
        clients = [self._given] if self._given is not None else self._clients.list_open()
        return [self._site.key, *find_keys(self._headers), *(getattr(each, "api_key", None) for each in clients)]

    def _address_hint(self) -> str:
        return f"is {self._site.address} the address of its API? Most end with /v1"


async def _body(response: Any) -> AsyncIterator[Any]:
    yield json.loads(await response.aread())


def offer() -> Offer:
    """Return the default model, if there is a key."""
    return offer_with_key("openai:gpt-6-luna", "openai", "OPENAI_API_KEY")


def model_from_name(provider: str, rest: str) -> OpenAIModel:
    """Return the model of a name such as ``openai:gpt-5-mini``; ``openai-chat`` and ``openai-responses`` set the API.

    >>> model_from_name("openai", "")
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: 'openai' needs a model name, such as 'openai:gpt-5-mini'
    """
    apis: dict[str, Api] = {"openai-chat": "chat", "openai-responses": "responses"}
    return OpenAIModel(require_model_name(provider, rest, "gpt-5-mini"), api=apis.get(provider))


def _check(name: Any, api: Any, timeout: Any) -> None:
    if not (isinstance(name, str) and name.strip()):
        raise ToolDefinitionError(f"OpenAIModel needs a model name, such as 'gpt-5-mini', not {name!r:.80}")
    if api not in {None, *get_args(Api)}:
        raise ToolDefinitionError(f"OpenAIModel api must be 'chat' or 'responses', not {api!r:.80}")
    if not (isinstance(timeout, (int, float)) and timeout > 0):
        raise ToolDefinitionError(f"OpenAIModel timeout must be a number of seconds > 0, not {timeout!r:.80}")


def _read_inputs(label: str, kinds: Any) -> Inputs:
    kinds = ("image",) if kinds is None else kinds
    if isinstance(kinds, str) or not isinstance(kinds, Collection) or not INPUT_KINDS.keys() >= set(kinds):
        raise ToolDefinitionError(f"OpenAIModel inputs must be a list of {', '.join(INPUT_KINDS)}, not {kinds!r:.80}")
    return server_inputs(label, kinds)


def _merge(own: dict[str, Any], settings: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """Return the parameters of a request, merged with the user's settings.

    Settings unknown to the SDK are sent in the body: many servers have their own.
    """
    sent = {**own, **{name: value for name, value in settings.items() if name in known and name not in _RESERVED}}
    if "tools" in settings and "tools" in own:
        sent["tools"] = [*own["tools"], *settings["tools"]]
    if "text" in settings and "text" in own:
        sent["text"] = {**settings["text"], **own["text"]}
    if "reasoning" in settings and "reasoning" in own:
        sent["reasoning"] = {**own["reasoning"], **settings["reasoning"]}
    foreign = {name: value for name, value in settings.items() if name not in known}
    if foreign:
        sent["extra_body"] = {**foreign, **(sent.get("extra_body") or {})}
    return {name: value for name, value in sent.items() if value is not None}


@cache
def _parameter_names(method: Any) -> frozenset[str]:
    """Return the names of the parameters of an SDK's method."""
    return frozenset(inspect.signature(method).parameters)
