"""What went wrong with OpenAI's API, or with a server that speaks it, in words of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from toolsemble.errors import ModelError
from toolsemble.models.adapter.failure import retry_after, worth_retrying
from toolsemble.models.openai.site import Site
from toolsemble.models.reply_limit import too_long
from toolsemble.providers.wire import field
from toolsemble.runtime.text import preview

_SHOWN = 500
_REFUSED_KEY = 401
# Errors inside of an answer come without a status; these words stand for one that passes.
_PASSING = {
    "api_error", "internal_server_error", "overloaded", "overloaded_error", "rate_limit_error", "rate_limit_exceeded",
    "server_error", "service_unavailable", "timeout", "vector_store_timeout",
}  # fmt: skip
# Nothing comes of asking again when there is no money left.
_LASTING = {"insufficient_quota", "billing_hard_limit_reached"}


@contextmanager
def explained(sdk: ModuleType, site: Site) -> Iterator[None]:
    """Raise what the SDK raises as a :class:`~toolsemble.ModelError` with the provider's words."""
    try:
        yield
    except sdk.OpenAIError as error:
        raise too_long(error) or _explained(error, sdk, site) from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"{site.label} sent something that is no JSON: {error}", retryable=True) from error


def refusal_of(body: object, label: str) -> ModelError:
    """Give the error that a server sent inside of an answer.

    >>> refusal_of({"message": "Overloaded", "code": 503}, "Router").retryable
    True
    """
    code, kind = str(field(body, "code")), str(field(body, "type"))
    status = int(code) if re.fullmatch("[1-5][0-9]{2}", code) else None
    passing = worth_retrying(status) if status is not None else bool({code, kind} & _PASSING)
    return ModelError(f"{label}: {_words(body)}", retryable=passing and code not in _LASTING)


def _explained(error: Any, sdk: ModuleType, site: Site) -> ModelError:
    if isinstance(error, sdk.APIStatusError):
        return _answered(error, site)
    if isinstance(error, sdk.APITimeoutError):
        return ModelError(f"{site.label} at {site.address} did not answer in time", retryable=True)
    if isinstance(error, sdk.APIConnectionError):
        reason = _shown(str(error.__cause__ or error), site)
        return ModelError(f"{site.label} at {site.address} could not be reached: {reason}", retryable=True)
    if isinstance(error, sdk.APIError):
        return refusal_of(error.body if isinstance(error.body, dict) else {"message": error.message}, site.label)
    return ModelError(f"{site.label}: {_shown(str(error), site)}")


def _answered(error: Any, site: Site) -> ModelError:
    status, headers = error.status_code, error.response.headers
    told = headers.get("x-should-retry")  # the provider's own word stands above the status
    passing = told == "true" if told in {"true", "false"} else worth_retrying(status)
    hint = _hint(site) if status == _REFUSED_KEY else ""
    return ModelError(
        f"{site.label} answered {status}: {_shown(_words(error.body) or error.message, site)}{hint}",
        retryable=passing and error.code not in _LASTING,
        retry_after=retry_after(headers),
    )


def _hint(site: Site) -> str:
    """Say how another key is given."""
    return f"; set {site.key_variable} or pass api_key=" if site.key_variable else "; pass api_key="


def _words(body: object) -> str:
    """Give what a server says about its error, in any of the shapes that servers use."""
    said = field(body, "message", "error", "detail") or body
    return preview(said if isinstance(said, str) else json.dumps(said, default=str), _SHOWN) if said else ""


def _shown(text: str, site: Site) -> str:
    """Give a text without the key, should somebody repeat it."""
    return preview(text.replace(site.key, "***") if isinstance(site.key, str) and site.key else text, _SHOWN)
