"""What went wrong at a server, in words."""

from __future__ import annotations

from http import HTTPStatus

import httpx2
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, PARSE_ERROR
from pydantic import ValidationError

from toolsemble._runtime.text import describe_error
from toolsemble._vocabulary.errors import LostError, ToolExecutionError
from toolsemble.mcp._client.cleaning import clean_text
from toolsemble.mcp._client.remote_call import Delivery
from toolsemble.mcp._client.results import invalid_answer

_MAX_MESSAGE = 2000
STAND_IN = "Server returned an error response"
"""The message of the SDK for a status of HTTP without an error of MCP."""
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
    """Return the status of HTTP with which a server refused a request; "" if it said why, or there was none.

    >>> refused = Delivery()
    >>> refused.status = 401
    >>> describe_refusal(MCPError(INTERNAL_ERROR, "Server returned an error response"), refused)
    'HTTP 401 Unauthorized'
    """
    is_bare = not isinstance(error, MCPError) or error.message in _STAND_INS
    status = find_status(error, delivery) if is_bare else 0
    return f"HTTP {status} {_PHRASES.get(status, '')}".rstrip() if status else ""


def find_status(error: BaseException, delivery: Delivery) -> int:
    """Return the status of HTTP that led to an error; 0 if there was none."""
    if isinstance(error, MCPError):
        return delivery.status
    return error.response.status_code if isinstance(error, httpx2.HTTPStatusError) else 0


def is_not_admitted(error: BaseException, delivery: Delivery) -> bool:
    """Return whether a server wants to know who asks, or does not want that one."""
    return find_status(error, delivery) in _NOT_ADMITTED


def translate_error(error: Exception, server: str, delivery: Delivery) -> Exception:
    """Return the error for the model: what the SDK raised for a request that the server did not answer properly."""
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
    # A server that reports an internal error may have done something before.
    kind = LostError if cause.code == INTERNAL_ERROR else ToolExecutionError
    return kind(f"The MCP server '{server}' reported an error: {message}", error_code=cause.code)
