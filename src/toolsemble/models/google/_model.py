"""The model of Google, through the Gemini API or Vertex AI."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, aclosing
from functools import partial
from typing import Any

from pydantic import ValidationError

from toolsemble._runtime.checks import check_count
from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.trace import trace_tools
from toolsemble._vocabulary.errors import ModelError, ToolConfigurationError
from toolsemble.models._adapter.checks import require_model_name
from toolsemble.models._adapter.errors import connection_error, quote, status_error, unreadable_error
from toolsemble.models._adapter.inputs import MEGABYTE, Inputs
from toolsemble.models._adapter.key_source import CLIENT_KEY, find_key_source, key_hint
from toolsemble.models._adapter.offer import Offer, offer_with_key
from toolsemble.models._adapter.retry import is_retryable
from toolsemble.models._adapter.task_stream import stream_in_task
from toolsemble.models._adapter.translation import translate_errors
from toolsemble.models._chat import Assembly, ChatModel, ChatReply, ChatRequest, Chunk
from toolsemble.models._reply_limit import MAX_REPLY
from toolsemble.models.google._messages import signs_calls, write_config, write_contents
from toolsemble.models.google._reply import ReplyReader
from toolsemble.models.google._wire import PROMPT_MEDIA

LOGGER = logging.getLogger("toolsemble.models")
TIMEOUT = 600.0
"""The default seconds to wait for data."""

_INPUTS = Inputs("Gemini", PROMPT_MEDIA, PROMPT_MEDIA, 100 * MEGABYTE)
_KEYS = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_KEY = f"set {_KEYS[0]}, or pass api_key="
_CLOUD = "set GOOGLE_APPLICATION_CREDENTIALS, or run 'gcloud auth application-default login'"
_DENIED = {401, 403}
_DELAY = re.compile(r"(\d+(?:\.\d+)?)s")


def offer() -> Offer:
    """Return the default model, if there is a key."""
    return offer_with_key("google:gemini-3.5-flash-lite", "google.genai", "GEMINI_API_KEY", "GOOGLE_API_KEY")


def model_from_name(provider: str, rest: str) -> ChatModel:
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
        max_reply: int = MAX_REPLY,
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

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Return the whole reply."""
        ask, reader = self._prepare("generate_content", request), ReplyReader(self.name)
        with self._translate_errors():
            return Assembly(self.max_reply).assemble([*reader.read_response(await ask()), reader.finish()])

    async def stream(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Yield the reply in chunks as they arrive."""
        ask, reader = self._prepare("generate_content_stream", request), ReplyReader(self.name)
        with self._translate_errors():
            async with aclosing(stream_in_task(ask)) as responses:
                async for response in responses:
                    for chunk in reader.read_response(response):
                        yield chunk
            yield reader.finish()

    def _prepare(self, method: str, request: ChatRequest) -> Callable[[], Awaitable[Any]]:
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
        return translate_errors(
            "Gemini", lambda: self._secrets, partial(_translate, sdk=self._sdk, key_source=self._key_source)
        )


def _create_client(
    sdk: Any, options: dict[str, str | None], base_url: str | None, timeout: float, max_reply: int
) -> Any:
    """Return a client that works in every event loop."""
    http = _package("httpx2")
    from toolsemble.models.google._http import LoopHttp

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
    """Return where the key comes from; a project or a location uses the credentials of Google Cloud."""
    variables = () if options["project"] or options["location"] else _KEYS
    return find_key_source(options["api_key"], *variables) or "the credentials of Google Cloud"


def _status_error(error: Any, keys: list[str], key_source: str) -> ModelError:
    message = error.message if isinstance(error.message, str) else "no reason is given"
    hint = key_hint(key_source, _KEY) if error.code in _DENIED or "API key" in message else ""
    headers = {"retry-after": _read_delay(error.details), **(getattr(error.response, "headers", None) or {})}
    reason, retryable = f"{quote(message, keys)}{hint}", is_retryable(error.code)
    return status_error("Gemini", f"{error.code}, {error.status}", reason, headers, retryable=retryable)


def _read_delay(details: Any) -> str | None:
    """Return the seconds to wait from the body of an error, where Google puts them."""
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
    message = quote(str(error), keys)
    # The package does not validate responses, so unexpected ones raise these.
    unread = ValidationError, sdk.errors.UnknownApiResponseError, AttributeError, KeyError, TypeError
    if isinstance(error, (json.JSONDecodeError, *unread, RecursionError)):
        return unreadable_error("Gemini", error)
    if isinstance(error, (http.HTTPError, OSError)):
        return connection_error("Gemini", error, keys)
    if isinstance(error, auth.GoogleAuthError):
        return ModelError(f"Google Cloud refused the credentials: {message}; {_CLOUD}", retryable=bool(error.retryable))
    if isinstance(error, ValueError):
        return ToolConfigurationError(f"Invalid request for Gemini: {message}")
    return ModelError(f"Google's package says: {message}")


def _package(name: str) -> Any:
    return import_extra(name, extra="google", user="GoogleModel")
