"""Amazon Bedrock's models: all that its Converse offers."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import aclosing, closing, contextmanager, suppress
from functools import partial
from typing import Any

from toolsemble.errors import ModelError, ToolConfigurationError
from toolsemble.models.adapter.exchange import answered, followed
from toolsemble.models.adapter.failure import retry_after, worth_retrying
from toolsemble.models.adapter.key_masking import without_keys
from toolsemble.models.adapter.misuse import name_after
from toolsemble.models.adapter.refusal import broken, shown, unreadable
from toolsemble.models.bedrock.messages import written_arguments
from toolsemble.models.bedrock.reply import Reading
from toolsemble.models.chat import Assembly, ChatModel, ChatReply, ChatRequest, Chunk
from toolsemble.models.reply_limit import MAX_REPLY, too_long
from toolsemble.runtime.checks import check_count
from toolsemble.runtime.extras import import_extra

TIMEOUT = 600.0
"""How many seconds may pass without a sign of life."""

_CONNECTING = 10.0
_CONNECTIONS = 100
_DENIED = {401, 403}
# As the events of a stream spell them, which come without a status of their own.
_PASSING = {
    "internalserverexception", "modelerrorexception", "modelnotreadyexception", "modelstreamerrorexception",
    "modeltimeoutexception", "serviceunavailableexception", "throttlingexception",
}  # fmt: skip
_CREDENTIALS = (
    "set AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_BEARER_TOKEN_BEDROCK, "
    "or pass profile= or api_key="
)


def named(provider: str, rest: str) -> ChatModel:
    """Give the model of a name such as ``bedrock:amazon.nova-2-lite-v1:0``."""
    return BedrockModel(name_after(provider, rest, "amazon.nova-2-lite-v1:0"))


class BedrockModel:
    """Asks a model of Amazon Bedrock's by Converse, through the official package (extra ``bedrock``).

    The package blocks, so each request has a thread of its own. Whoever is cancelled does not wait for it, and its
    connection is closed.

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
        """Say which model, and how it is reached; refuse to go without a region.

        :param name: the id of a model or of an inference profile, or an ARN
        :param api_key: an API key of Bedrock's; without one, the credentials that the official package finds
        :param base_url: another address than the region's own
        :param region: the AWS region; without one, AWS_REGION, AWS_DEFAULT_REGION, or the profile's
        :param profile: the profile in AWS's own files; without one, AWS_PROFILE
        :param timeout: how many seconds may pass without a sign of life
        :param native_output: whether answers of a declared type are asked for by a schema, not by a tool; only some
            models take one
        :param max_reply: how many bytes the server may send for one reply; of a client of your own, how many characters
        :param client: a ``bedrock-runtime`` client of boto3's in place of all these
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
        self._session: Any = None if client is not None else _session(region, profile, self._errors)
        self._made = client
        self._making = threading.Lock()

    def __repr__(self) -> str:
        return f"BedrockModel({self.name!r})"

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Give the model's whole reply."""
        with without_keys(self._secrets):
            response = await answered(partial(self._response, written_arguments(request, self.name)))
            assembly, reading = Assembly(self.max_reply), Reading(self.name)
            with self._told():
                for chunk in reading.response(response):
                    assembly.add(chunk)
            assembly.add(reading.end())
            return assembly.reply()

    async def stream(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Give the model's reply as it comes."""
        job, reading = partial(self._events, written_arguments(request, self.name)), Reading(self.name)
        with without_keys(self._secrets):
            async with aclosing(followed(job)) as events:
                async for event in events:
                    with self._told():
                        chunks = list(reading.event(event))
                    for chunk in chunks:
                        yield chunk
            yield reading.end()

    def _response(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._told():
            response: Mapping[str, Any] = self._client().converse(**arguments)
            return response

    def _events(self, arguments: Mapping[str, Any]) -> Generator[Mapping[str, Any], None, None]:
        with self._told(), closing(self._client().converse_stream(**arguments)["stream"]) as events:
            yield from events

    def _client(self) -> Any:
        """Give the client; the first thread that needs it makes it, as looking for credentials can take its time."""
        with self._making:
            if self._made is None:
                self._made = _made(self._session, **self._address)
            return self._made

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raise what goes wrong inside as an error of the model's."""
        try:
            yield
        except self._errors.ClientError as error:
            # The package's own error shows everything that was answered, which may repeat the credentials.
            raise _refused(error, self._secrets()) from None
        except Exception as error:
            raise _failed(error, self._errors) from error

    def _secrets(self) -> list[str | None]:
        secrets = [self._address["api_key"], os.environ.get("AWS_BEARER_TOKEN_BEDROCK")]
        with suppress(Exception):  # of a client that was given, or of credentials that nobody can get, there are none
            secrets += self._session.get_credentials().get_frozen_credentials()[:3]
        return secrets


def _session(region: str | None, profile: str | None, errors: Any) -> Any:
    """Give a session, which knows the region and where credentials are to be found."""
    try:
        # The package knows the older of the two names only.
        asked = region or os.environ.get("AWS_REGION")
        session = _package("boto3").Session(region_name=asked, profile_name=profile)
    except errors.ProfileNotFound as problem:
        raise ToolConfigurationError(f"Bedrock: {problem}; see the files in ~/.aws") from None
    if not session.region_name:
        raise ToolConfigurationError("Bedrock needs a region: set AWS_REGION, or pass region=")
    return session


def _made(session: Any, api_key: str | None, base_url: str | None, timeout: float, max_reply: int) -> Any:
    from toolsemble.models.bedrock.http import tell_exchanges  # noqa: PLC0415 - it needs the package

    signing = {} if api_key is None else {"signature_version": _package("botocore").UNSIGNED}
    config = _package("botocore.config").Config(
        retries={"mode": "standard", "total_max_attempts": 1},  # the agent's own are enough
        connect_timeout=min(timeout, _CONNECTING),
        read_timeout=timeout,
        max_pool_connections=_CONNECTIONS,
        tcp_keepalive=True,
        **signing,
    )
    client = session.client("bedrock-runtime", endpoint_url=base_url, config=config)
    if api_key is not None:
        client.meta.events.register("before-call.bedrock-runtime", partial(_authorize, api_key))
    tell_exchanges(client, max_reply)
    return client


def _authorize(api_key: str, params: Mapping[str, Any], **_: Any) -> None:
    params["headers"]["Authorization"] = f"Bearer {api_key}"


def _refused(error: Any, secrets: list[str | None]) -> ModelError:
    said, sent = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
    code, status = str(said.get("Code")), sent.get("HTTPStatusCode", 0)
    # Where a signature is wrong, a second paragraph repeats the whole request.
    first, _, _ = str(said.get("Message")).partition("\n\n")
    hint = f"; {_CREDENTIALS}" if status in _DENIED else ""
    headers = sent.get("HTTPHeaders", {})
    original = error.response.get("originalStatusCode")
    return ModelError(
        f"Bedrock refused the request ({code}): {shown(first, secrets)}{hint}",
        retryable=worth_retrying(original or status) or (not original and code.lower() in _PASSING),
        retry_after=retry_after({"retry-after-ms": headers.get("x-amz-retry-after"), **headers}),
    )


def _failed(error: Exception, errors: Any) -> Exception:
    """Give an error for what kept the answer from coming."""
    if (flood := too_long(error)) is not None:
        return flood
    unread = _package("botocore.eventstream").ParserError, _package("botocore.parsers").ResponseParserError
    # The package trusts what it reads, and trips over what it did not expect.
    if isinstance(error, (*unread, AttributeError, KeyError, TypeError, RecursionError)):
        return unreadable("Bedrock", error)
    if isinstance(
        error, (errors.HTTPClientError, errors.ConnectionError, _package("urllib3.exceptions").HTTPError, OSError)
    ):
        return broken("Bedrock", error)
    if isinstance(error, (errors.ParamValidationError, ValueError)):
        return ToolConfigurationError(f"Bedrock cannot be told this: {shown(str(error))}")
    return ModelError(f"Amazon's package says: {shown(str(error))}; {_CREDENTIALS}")


def _package(name: str) -> Any:
    return import_extra(name, extra="bedrock", user="BedrockModel")
