"""Models of OpenAI, and of every server that speaks one of its two APIs."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import urlsplit

from toolsemble.errors import ModelError, ToolDefinitionError
from toolsemble.models.adapter.key_masking import keys_in, without_keys
from toolsemble.models.adapter.misuse import name_after
from toolsemble.models.adapter.per_loop import PerLoop
from toolsemble.models.chat import Assembly, ChatReply, ChatRequest, Chunk
from toolsemble.models.openai import chat, responses
from toolsemble.models.openai.failure import explained
from toolsemble.models.openai.site import is_openai, site, site_of
from toolsemble.models.reply_limit import MAX_REPLY, limit_responses
from toolsemble.providers.openai import Api
from toolsemble.runtime.checks import check_count
from toolsemble.runtime.extras import import_extra

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_CONNECT = 5.0
_WIRES: dict[str, ModuleType] = {"chat": chat, "responses": responses}
_OURS = ("messages", "input", "stream")


class OpenAIModel:
    """A model behind OpenAI's API, or behind any server that speaks it.

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
        max_reply: int = MAX_REPLY,
        client: AsyncOpenAI | None = None,
    ) -> None:
        """Check the settings; refuse what cannot work.

        :param name: the model's name, as the server knows it
        :param api: ``"responses"`` or ``"chat"``. OpenAI itself is asked by responses, which keep a model's thoughts
            between its calls and show it the images of tools; other servers by chat completions, which all of them have
        :param base_url: where the server is; by default ``OPENAI_BASE_URL``, or OpenAI
        :param api_key: the key, or an async function that gives it; by default what ``key_variable`` holds
        :param key_variable: the variable of the environment that holds the key: ``OPENAI_API_KEY``, unless
            ``base_url`` is given: a key is never sent to a server that it was not meant for
        :param label: what the server is called in messages
        :param native_output: whether the server can be relied on to hold an answer to a schema, also where tools are
            offered; only OpenAI is, unless you say so
        :param timeout: how many seconds the server may be silent
        :param headers: further headers of each request
        :param max_reply: how many bytes the server may send for one reply; of a client of your own, how many characters
        :param client: a client of your own, such as ``AsyncAzureOpenAI``, in place of all the settings about the server
        """
        self._sdk = import_extra("openai", extra="openai", user="OpenAIModel")
        _check(name, api, timeout)
        check_count("OpenAIModel max_reply", max_reply, least=1)
        self._given = None if client is None else client.with_options(max_retries=0)
        self._site = site(base_url, label, api_key, key_variable) if client is None else site_of(client, label)
        own = is_openai(self._site.address)
        self.name = name
        self.api: Api = api or ("responses" if own else "chat")
        self.native_output = own if native_output is None else native_output
        self._wire = _WIRES[self.api]
        # Thoughts go back to the model that they came from: others would refuse them.
        self._origin = f"{self.api} of {name} at {self._site.address}"
        self._timeout = timeout
        self._headers = dict(headers or {})
        self.max_reply = max_reply
        # A client costs 25 ms, and a connection more than that; so both are kept, as long as their loop lives.
        self._clients = PerLoop(self._client)

    def __repr__(self) -> str:
        elsewhere = f", base_url={self._site.address!r}" if not is_openai(self._site.address) else ""
        return f"{type(self).__name__}({self.name!r}, api={self.api!r}{elsewhere})"

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Give the whole reply."""
        pieces = self._wire.Pieces(self._site.label, self._origin, streamed=False)
        with without_keys(self._keys):
            with explained(self._sdk, self._site):
                answer = await self._asked(request, streamed=False)
            if isinstance(answer, str):
                raise ModelError(f"{self._site.label} sent no JSON but {answer!r:.80}; {self._doubt()}")
            assembly = Assembly(self.max_reply)
            for chunk in [*pieces.taken(answer), *pieces.ended()]:
                assembly.add(chunk)
            return assembly.reply()

    async def stream(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Give the reply piece by piece; of a server that does not stream, in one."""
        with without_keys(self._keys), explained(self._sdk, self._site):
            async with await self._asked(request, streamed=True) as events:
                kind = events.response.headers.get("content-type", "")
                if "text/html" in kind:
                    raise ModelError(f"{self._site.label} sent a web page; {self._doubt()}")
                is_whole = "json" in kind
                pieces = self._wire.Pieces(self._site.label, self._origin, streamed=not is_whole)
                async for event in _body(events.response) if is_whole else events:
                    for chunk in pieces.taken(event):
                        yield chunk
            for chunk in pieces.ended():
                yield chunk

    async def _asked(self, request: ChatRequest, *, streamed: bool) -> Any:
        """Give what the SDK gives for a request."""
        ask = self._wire.endpoint(self._given or await self._clients.get())
        own = self._wire.parameters(request, self._origin, streamed=streamed)
        sent = _merged({"model": self.name, **own}, request.settings, _known(ask.__func__))
        return await ask(**sent, stream=streamed)

    def _client(self) -> AbstractAsyncContextManager[AsyncOpenAI]:
        sdk, site = self._sdk, self._site
        # A proxy for the network is not the way to a server on this machine.
        near = urlsplit(site.address).hostname in {"localhost", "127.0.0.1", "::1"}
        client: AbstractAsyncContextManager[AsyncOpenAI] = sdk.AsyncOpenAI(
            api_key=site.key or "none",  # the SDK insists on one
            base_url=site.address,
            timeout=sdk.Timeout(self._timeout, connect=min(_CONNECT, self._timeout)),
            max_retries=0,  # whoever asks knows when to ask again
            default_headers=self._headers,
            http_client=limit_responses(sdk.DefaultAsyncHttpxClient(trust_env=not near), self.max_reply),
        )
        return client

    def _keys(self) -> list[Any]:
        """Give what a server must not be quoted with; a function for the key has left its last one in the client."""
        clients = [self._given] if self._given is not None else self._clients.open()
        return [self._site.key, *keys_in(self._headers), *(getattr(each, "api_key", None) for each in clients)]

    def _doubt(self) -> str:
        return f"is {self._site.address} the address of its API? Most end with /v1"


async def _body(response: Any) -> AsyncIterator[Any]:
    yield json.loads(await response.aread())


def named(provider: str, rest: str) -> OpenAIModel:
    """Give the model of a name such as ``openai:gpt-5-mini``; ``openai-chat`` and ``openai-responses`` choose the API.

    >>> named("openai", "")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolConfigurationError: 'openai' needs the name of a model behind it, such as 'openai:gpt-5-mini'
    """
    apis: dict[str, Api] = {"openai-chat": "chat", "openai-responses": "responses"}
    return OpenAIModel(name_after(provider, rest, "gpt-5-mini"), api=apis.get(provider))


def _check(name: Any, api: Any, timeout: Any) -> None:
    if not (isinstance(name, str) and name.strip()):
        raise ToolDefinitionError(f"OpenAIModel needs the name of a model, such as 'gpt-5-mini', not {name!r:.80}")
    if api not in {None, *get_args(Api)}:
        raise ToolDefinitionError(f"OpenAIModel api must be 'chat' or 'responses', not {api!r:.80}")
    if not (isinstance(timeout, (int, float)) and timeout > 0):
        raise ToolDefinitionError(f"OpenAIModel timeout must be a number of seconds above 0, not {timeout!r:.80}")


def _merged(own: dict[str, Any], settings: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """Give what is sent: what the request says, and the user's settings beside or above it.

    Settings that the SDK does not know go to the server all the same: many have some of their own.
    """
    sent = {**own, **{name: value for name, value in settings.items() if name in known and name not in _OURS}}
    if "tools" in settings and "tools" in own:
        sent["tools"] = [*own["tools"], *settings["tools"]]
    if "text" in settings and "text" in own:
        sent["text"] = {**settings["text"], **own["text"]}
    foreign = {name: value for name, value in settings.items() if name not in known}
    if foreign:
        sent["extra_body"] = {**foreign, **(sent.get("extra_body") or {})}
    return {name: value for name, value in sent.items() if value is not None}


@cache
def _known(method: Any) -> frozenset[str]:
    """Give the names of the settings that the SDK takes."""
    return frozenset(inspect.signature(method).parameters)
