"""Conversion of a server's results and errors."""

from __future__ import annotations

import base64
import binascii
from http import HTTPStatus
from typing import Any

import httpx2
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, PARSE_ERROR
from pydantic import ValidationError

from toolsemble._runtime.text import describe_error
from toolsemble._schema.argument_problems import MismatchError, format_path
from toolsemble._vocabulary.errors import LostError, ToolDefinitionError, ToolExecutionError
from toolsemble._vocabulary.result import AudioContent, Content, FileContent, ImageContent, ToolResult
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.mcp._client.remote_call import Delivery
from toolsemble.mcp._client.text_cleaning import build_arguments, clean_line, clean_text

_MAX_LINK = 2000
_MAX_PROBLEMS = 10
_RESERVED = ("io.modelcontextprotocol/", "modelcontextprotocol", "mcp.", "mcp/")
_WHOLE = "result"
_AT_TOP = ("$defs", "definitions", "$schema")


class InvalidAnswerError(Exception):
    """Signals an answer that violates MCP or the tool's output schema; the message says why."""


class OutputCheck:
    """A check of structured content against a tool's output schema.

    >>> check = OutputCheck("now", {"type": "object", "properties": {"hour": {"type": "integer"}}})
    >>> check.verify({"hour": "noon"})
    Traceback (most recent call last):
    ...
    toolsemble.mcp._client.results.InvalidAnswerError: its structured content does not fit its output schema: hour: \
expected an integer
    """

    def __init__(self, name: str, schema: Any) -> None:
        self._wraps = isinstance(schema, dict) and schema.get("type", "object") != "object"
        self._arguments = build_arguments(name, _wrap(schema) if self._wraps else schema)

    def verify(self, value: Any) -> None:
        """Raise :class:`InvalidAnswerError` if a value does not fit."""
        value = {_WHOLE: value} if self._wraps else value
        try:
            text = compact_json(value, allow_nan=False)
        except (TypeError, ValueError) as problem:
            raise InvalidAnswerError(f"its structured content is not JSON: {problem}") from None
        try:
            self._arguments.validate(text)
        except MismatchError as mismatch:
            if not isinstance(value, dict):
                raise InvalidAnswerError("its structured content is not an object") from None
            problems = self._arguments.problems(text, value, mismatch)[0]
            listed = "; ".join(f"{format_path(each.path)}: {each.message}" for each in problems[:_MAX_PROBLEMS])
            raise InvalidAnswerError(f"its structured content does not fit its output schema: {listed}") from None


def _wrap(schema: dict[str, Any]) -> dict[str, Any]:
    """Return an object schema around the value's schema; definitions stay where references expect them."""
    kept = {key: schema[key] for key in _AT_TOP if key in schema}
    inner = {key: value for key, value in schema.items() if key not in kept}
    return {"type": "object", "properties": {_WHOLE: inner}, **kept}


def build_output_check(name: str, schema: Any) -> OutputCheck | str | None:
    """Return the check for an output schema, None without a schema, or the reason why it cannot be checked."""
    if schema is None:
        return None
    try:
        return OutputCheck(name, schema)
    except ToolDefinitionError as problem:
        return str(problem)


def read_result(answer: Any, check: OutputCheck | None) -> ToolResult:
    """Return the result for a ``CallToolResult``; raise :class:`InvalidAnswerError` if it is unusable."""
    texts: list[str] = []
    contents: list[Content] = []
    for block in answer.content:
        read_block(block, texts, contents)
    meta = {key: value for key, value in (answer.meta or {}).items() if not key.startswith(_RESERVED)}
    attributes = {"meta": meta} if meta else None
    output = "\n".join(texts)
    if answer.is_error:
        # This library's servers already write the prefix that the model sees.
        message = output.removeprefix("Error: ") or "The server reported an error without a message"
        return ToolResult.failure(message, attributes=attributes)
    structured = answer.structured_content
    if check is not None:
        _check_structured(answer, check)
    if not output and not contents and structured is not None:
        output = compact_json(structured)
    return ToolResult.success(output, structured, contents=contents, attributes=attributes)


def _check_structured(answer: Any, check: OutputCheck) -> None:
    if answer.structured_content is None and "structured_content" not in answer.model_fields_set:
        raise InvalidAnswerError("it has an output schema, but the answer has no structured content")
    check.verify(answer.structured_content)


def read_block(block: Any, texts: list[str], contents: list[Content]) -> None:
    """Add an answer's block: texts and links to the texts, everything else to the contents."""
    if block.type == "text":
        texts.append(block.text)
    elif block.type == "image":
        contents.append(ImageContent(_decode(block.data, "an image"), block.mime_type))
    elif block.type == "audio":
        contents.append(AudioContent(_decode(block.data, "audio"), block.mime_type))
    elif block.type == "resource_link":
        texts.append(_describe_link(block))
    else:
        read_resource(block.resource, texts, contents)


def read_resource(resource: Any, texts: list[str], contents: list[Content]) -> None:
    """Add the contents of a resource: a text to the texts, bytes to the contents."""
    text = getattr(resource, "text", None)
    if text is not None:
        texts.append(text)
        return
    name = clean_text(str(resource.uri), _MAX_LINK).rpartition("/")[2] or "resource"
    kind = resource.mime_type or "application/octet-stream"
    contents.append(FileContent(_decode(resource.blob, "a resource"), kind, name))


def _describe_link(link: Any) -> str:
    """Return a line for a link; it is never fetched."""
    details = ", ".join(clean_line(each, _MAX_LINK) for each in (link.mime_type, link.description) if each)
    name = clean_line(link.title or link.name, _MAX_LINK)
    return f"Resource: {name} <{clean_line(str(link.uri), _MAX_LINK)}>{f' ({details})' if details else ''}"


def _decode(data: str, what: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidAnswerError(f"it has {what} that is not base64") from None


def invalid_answer(server: str, problem: object) -> LostError:
    """Return the error for an unusable answer; the call may have taken effect.

    >>> str(invalid_answer("files", "no content"))
    "The answer of the MCP server 'files' cannot be used: no content; it is unknown whether the call took effect"
    """
    return LostError(
        f"The answer of the MCP server '{server}' cannot be used: {clean_text(str(problem), _MAX_LINK)}; "
        "it is unknown whether the call took effect"
    )


_MAX_MESSAGE = 2000
STAND_IN = "Server returned an error response"
"""The SDK's message for an HTTP error status without an MCP error."""
_STAND_INS = (STAND_IN, "Not Found", "Session terminated")  # of the SDK
_PHRASES = {each.value: each.phrase for each in HTTPStatus}
_NOT_ADMITTED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


def find_cause(error: BaseException) -> BaseException:
    """Return the first exception that is not a group.

    >>> find_cause(ExceptionGroup("both", [ValueError("first"), KeyError("second")]))
    ValueError('first')
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def describe_refusal(error: BaseException, delivery: Delivery) -> str:
    """Return the HTTP status with which a server rejected a request; "" if it gave a reason, or there was none.

    >>> refused = Delivery()
    >>> refused.status = 401
    >>> describe_refusal(MCPError(INTERNAL_ERROR, "Server returned an error response"), refused)
    'HTTP 401 Unauthorized'
    """
    is_bare = not isinstance(error, MCPError) or error.message in _STAND_INS
    status = find_status(error, delivery) if is_bare else 0
    return f"HTTP {status} {_PHRASES.get(status, '')}".rstrip() if status else ""


def find_status(error: BaseException, delivery: Delivery) -> int:
    """Return the HTTP status that caused an error; 0 if there was none."""
    if isinstance(error, MCPError):
        return delivery.status
    return error.response.status_code if isinstance(error, httpx2.HTTPStatusError) else 0


def is_not_admitted(error: BaseException, delivery: Delivery) -> bool:
    """Return whether a server rejected the credentials, or their absence."""
    return find_status(error, delivery) in _NOT_ADMITTED


def translate_error(error: Exception, server: str, delivery: Delivery) -> Exception:
    """Return the model-facing error for an SDK exception."""
    cause = find_cause(error)
    if isinstance(cause, ValidationError):
        fields = ", ".join(sorted({".".join(map(str, each["loc"][:3])) for each in cause.errors()}))
        return invalid_answer(server, f"it is not what MCP says ({fields})")
    if not isinstance(cause, MCPError):
        return invalid_answer(server, describe_error(cause))
    message = describe_refusal(cause, delivery) or clean_text(cause.message, _MAX_MESSAGE)
    message = message or "an error without a message"
    if delivery.refused:
        return ToolExecutionError(f"The MCP server '{server}' refused the request: {message}", error_code=cause.code)
    if cause.code == PARSE_ERROR or not delivery.answered:
        return invalid_answer(server, message)
    if cause.code == INVALID_PARAMS:
        return ToolExecutionError(f"The MCP server '{server}' refused the arguments: {message}", error_code=cause.code)
    # A server that reports an internal error may already have taken effect.
    kind = LostError if cause.code == INTERNAL_ERROR else ToolExecutionError
    return kind(f"The MCP server '{server}' reported an error: {message}", error_code=cause.code)
