"""Google's models, by the Gemini API or by Vertex AI."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

from pydantic import ValidationError

from toolsemble.errors import ModelError, ToolConfigurationError
from toolsemble.models.adapter.failure import retry_after, worth_retrying
from toolsemble.models.adapter.key_masking import without_keys
from toolsemble.models.adapter.misuse import name_after
from toolsemble.models.adapter.pump import pumped
from toolsemble.models.adapter.refusal import broken, shown, unreadable
from toolsemble.models.chat import Assembly, ChatModel, ChatReply, ChatRequest, Chunk
from toolsemble.models.google.messages import signs_calls, written_config, written_contents
from toolsemble.models.google.reply import Reading
from toolsemble.models.reply_limit import MAX_REPLY, too_long
from toolsemble.runtime.checks import check_count
from toolsemble.runtime.extras import import_extra

T = TypeVar("T")

TIMEOUT = 600.0
"""How many seconds may pass without a sign of life."""

_KEYS = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_KEY = f"set {_KEYS[0]}, or pass api_key="
_CLOUD = "set GOOGLE_APPLICATION_CREDENTIALS, or run 'gcloud auth application-default login'"
_DENIED = {401, 403}
_DELAY = re.compile(r"(\d+(?:\.\d+)?)s")


def named(provider: str, rest: str) -> ChatModel:
    """Give the model of a name such as ``google:gemini-3.8-flash``."""
    return GoogleModel(name_after(provider, rest, "gemini-3.8-flash"))


class GoogleModel:
    """Asks a Gemini model, through the official package (extra ``google``).

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
        max_reply: int = MAX_REPLY,
        client: Any = None,
    ) -> None:
        """Say which model, and how it is reached; refuse to go without a key where one is needed.

        :param name: the model's name
        :param api_key: the key; without one, what the official package finds: GOOGLE_API_KEY, or GEMINI_API_KEY
        :param base_url: another server than Google's; its path ends before ``/v1/models``
        :param project: the Google Cloud project, for Vertex AI, which takes the credentials of the environment
        :param location: the Google Cloud location, for Vertex AI
        :param timeout: how many seconds may pass without a sign of life
        :param native_output: whether answers of a declared type are asked for by a schema, not by a tool; by default
            where the API takes both, which is from Gemini 3 on
        :param max_reply: how many bytes the server may send for one reply; of a client of your own, how many characters
        :param client: a ``google.genai.Client`` in place of key and address; it belongs to one event loop, and whoever
            made it closes it
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
        self._client = client or _made(self._sdk, options, base_url, timeout, max_reply)

    def __repr__(self) -> str:
        return f"GoogleModel({self.name!r})"

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Give the model's whole reply."""
        with without_keys(self._keys):
            response = await self._told(self._asking("generate_content", request))
            assembly, reading = Assembly(self.max_reply), Reading(self.name)
            for chunk in reading.response(response):
                assembly.add(chunk)
            assembly.add(reading.end())
            return assembly.reply()

    async def stream(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Give the model's reply as it comes."""
        ask, reading = self._asking("generate_content_stream", request), Reading(self.name)
        with without_keys(self._keys):
            async with aclosing(pumped(ask)) as responses:
                while (response := await self._told(partial(anext, responses, None))) is not None:
                    for chunk in reading.response(response):
                        yield chunk
            yield reading.end()

    def _keys(self) -> Iterable[str | None]:
        return self._secrets

    def _asking(self, method: str, request: ChatRequest) -> Callable[[], Awaitable[Any]]:
        """Give what asks the model, by one of the package's own functions."""
        types, config = self._sdk.types, written_config(request, self.name)
        try:
            contents = [types.Content(**content) for content in written_contents(request.messages, self.name)]
            checked = types.GenerateContentConfig(**config)
        except ValueError as problem:
            raise ToolConfigurationError(f"Gemini cannot be told this: {problem}") from problem
        return partial(getattr(self._client.aio.models, method), model=self.name, contents=contents, config=checked)

    async def _told(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Give what the package gives; what it raises as an error of the model's."""
        try:
            return await ask()
        except self._sdk.errors.APIError as error:
            # The package's own error shows everything that was answered, which may repeat the key.
            raise _refused(error, self._secrets) from None
        except Exception as error:
            raise _failed(error, self._sdk, self._secrets) from error


def _made(sdk: Any, options: dict[str, str | None], base_url: str | None, timeout: float, max_reply: int) -> Any:
    """Give a client for every event loop."""
    http = _package("httpx2")
    from toolsemble.models.google.http import LoopHttp  # noqa: PLC0415 - it needs the package that was just asked for

    # To read the certificates takes far longer than all the rest, and the package would do so three times.
    trusted = http.create_ssl_context()
    shared = {"client_args": {"verify": trusted}, "async_client_args": {"verify": trusted, "ssl": trusted}}
    http_options = {"base_url": base_url, "httpx_async_client": LoopHttp(trusted, timeout, max_reply), **shared}
    is_cloud = True if options["project"] or options["location"] else None  # None leaves it to the environment
    try:
        return sdk.Client(enterprise=is_cloud, http_options=http_options, **options)
    except ValueError as problem:
        raise ToolConfigurationError(f"Google's package says: {problem} For the Gemini API, {_KEY}") from None


def _refused(error: Any, secrets: tuple[str | None, ...]) -> ModelError:
    said = error.message if isinstance(error.message, str) else "no reason is given"
    hint = f"; {_KEY}" if error.code in _DENIED or "API key" in said else ""
    wait = retry_after(getattr(error.response, "headers", None) or {})
    return ModelError(
        f"Gemini refused the request ({error.code}, {error.status}): {shown(said, secrets)}{hint}",
        retryable=worth_retrying(error.code),
        retry_after=_delay(error.details) if wait is None else wait,
    )


def _delay(details: Any) -> float | None:
    """Give the wait that an error asks for in its body, where Google puts it."""
    error = details.get("error", details) if isinstance(details, Mapping) else None
    listed = error.get("details") if isinstance(error, Mapping) else None
    for each in listed if isinstance(listed, list) else ():
        found = _DELAY.fullmatch(str(each.get("retryDelay"))) if isinstance(each, Mapping) else None
        if found:
            return float(found[1])
    return None


def _failed(error: Exception, sdk: Any, secrets: tuple[str | None, ...]) -> Exception:
    """Give an error for what kept the answer from coming."""
    http, auth = _package("httpx2"), _package("google.auth.exceptions")
    if (flood := too_long(error)) is not None:
        return flood
    said = shown(str(error), secrets)
    # The package trusts what it reads, and trips over what it did not expect.
    unread = json.JSONDecodeError, sdk.errors.UnknownApiResponseError, AttributeError, KeyError, TypeError
    if isinstance(error, (ValidationError, *unread, RecursionError)):
        return unreadable("Gemini", error)
    if isinstance(error, (http.HTTPError, OSError)):
        return broken("Gemini", error, secrets)
    if isinstance(error, auth.GoogleAuthError):
        return ModelError(f"Google Cloud refused the credentials: {said}; {_CLOUD}", retryable=bool(error.retryable))
    if isinstance(error, ValueError):
        return ToolConfigurationError(f"Gemini cannot be told this: {said}")
    return ModelError(f"Google's package says: {said}")


def _package(name: str) -> Any:
    return import_extra(name, extra="google", user="GoogleModel")
