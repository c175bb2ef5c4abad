"""The model of Amazon Bedrock, through its Converse API."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import AbstractContextManager, aclosing, closing, suppress
from functools import partial
from typing import Any

from toolsemble._runtime.checks import check_count
from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.trace import trace_tools
from toolsemble._vocabulary.errors import ModelError, ToolConfigurationError
from toolsemble.models._adapter.checks import require_model_name
from toolsemble.models._adapter.errors import connection_error, quote, status_error, unreadable_error
from toolsemble.models._adapter.exchange import run_blocking, stream_blocking
from toolsemble.models._adapter.key_source import find_key_source, key_hint
from toolsemble.models._adapter.offer import Offer, is_set, offer_with_package
from toolsemble.models._adapter.retry import is_retryable
from toolsemble.models._adapter.translation import translate_errors
from toolsemble.models._chat import Assembly, ChatModel, ChatReply, ChatRequest, Chunk
from toolsemble.models._reply_limit import MAX_REPLY
from toolsemble.models.bedrock._messages import write_arguments
from toolsemble.models.bedrock._reply import ReplyReader

LOGGER = logging.getLogger("toolsemble.models")
TIMEOUT = 600.0
"""The default seconds to wait for data."""

_CONNECT_TIMEOUT = 10.0
_MAX_CONNECTIONS = 100
_DENIED = {401, 403}
# Codes of retryable errors inside of a stream, which have no status.
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


def model_from_name(provider: str, rest: str) -> ChatModel:
    """Return the model of a name such as ``bedrock:amazon.nova-2-lite-v1:0``."""
    return BedrockModel(require_model_name(provider, rest, "amazon.nova-2-lite-v1:0"))


class BedrockModel:
    """A model of Amazon Bedrock, used through the official package (extra ``bedrock``).

    The package blocks, so each request runs in its own thread. Cancelling does not wait for the thread, and closes
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
        max_reply: int = MAX_REPLY,
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

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Return the whole reply."""
        job, reader = partial(self._converse, write_arguments(request, self.name)), ReplyReader(self.name)
        with self._translate_errors():
            chunks = reader.read_response(await run_blocking(job))
            return Assembly(self.max_reply).assemble([*chunks, reader.finish()])

    async def stream(self, request: ChatRequest) -> AsyncIterator[Chunk]:
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
        """Return the client; it is created by the first thread that needs it, as finding credentials can be slow."""
        with self._lock:
            if self._created is None:
                self._created = _create_client(self._session, **self._address)
            return self._created

    def _translate_errors(self) -> AbstractContextManager[None]:
        return translate_errors(
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
        return unreadable_error("Bedrock", error)
    if isinstance(
        error, (errors.HTTPClientError, errors.ConnectionError, _package("urllib3.exceptions").HTTPError, OSError)
    ):
        return connection_error("Bedrock", error, keys)
    if isinstance(error, (errors.ParamValidationError, ValueError)):
        return ToolConfigurationError(f"Invalid request for Bedrock: {quote(str(error), keys)}")
    return ModelError(f"Amazon's package says: {quote(str(error), keys)}; {_CREDENTIALS}")


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
    return status_error("Bedrock", code, f"{quote(first, keys)}{hint}", waiting, retryable=retryable)


def _package(name: str) -> Any:
    return import_extra(name, extra="bedrock", user="BedrockModel")
