"""The log level TRACE, below DEBUG, for requests to providers."""

from __future__ import annotations

import json
import logging
from typing import Any

TRACE = 5
"""The log level for requests to providers, below DEBUG."""

if logging.getLevelName(TRACE) == f"Level {TRACE}":  # the program may have named it
    logging.addLevelName(TRACE, "TRACE")


def trace_tools(logger: logging.Logger, receiver: str, tools: Any) -> None:
    """Write the tools in a provider's format to the log, if its level is TRACE; never raise.

    :param receiver: the recipient of the tools: a provider and its model

    >>> trace_tools(logging.getLogger("toolsemble.models"), "anthropic claude", [{"name": "now"}])
    """
    if tools and logger.isEnabledFor(TRACE):
        logger.log(TRACE, "%s tools: %s", receiver, json.dumps(tools, ensure_ascii=False, default=str))
