"""The shared parameters of a run as JSON values, which another process can read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import NoneType
from typing import Any

from toolsemble._vocabulary.errors import ToolConfigurationError


def to_json_object(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy of the parameters; raise :class:`ToolConfigurationError` if JSON does not hold them unchanged.

    >>> to_json_object({"user": "ada"})
    {'user': 'ada'}
    """
    if not isinstance(parameters, (Mapping, NoneType)):
        raise TypeError(f"The parameters of a run must be a mapping, such as {{'user': 'ada'}}, not {parameters!r:.80}")
    values = dict(parameters or {})
    try:
        copied: dict[str, Any] = json.loads(json.dumps(values, allow_nan=False))
        if copied == values:
            return copied
    except (TypeError, ValueError, RecursionError):
        pass
    raise ToolConfigurationError(
        "The parameters of a run with a journal must be JSON values, which another process can read; pass other "
        "objects as deps"
    )
