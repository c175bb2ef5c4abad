"""The log level TRACE, below DEBUG: what providers are sent."""

from __future__ import annotations

import json
import logging
from typing import Any

TRACE = 5
"""The log level of what providers are sent, below DEBUG."""

if logging.getLevelName(TRACE) == f"Level {TRACE}":  # the program may have a name of its own for it
    logging.addLevelName(TRACE, "TRACE")


def trace_tools(logger: logging.Logger, receiver: str, tools: Any) -> None:
    """Write the tools in a provider's format to the log, if it has the level TRACE; never raise.

    :param receiver: who is sent the tools: a provider, and its model

    >>> trace_tools(logging.getLogger("toolsemble.models"), "anthropic claude", [{"name": "now"}])
    """
    if tools and logger.isEnabledFor(TRACE):
        logger.log(TRACE, "%s tools: %s", receiver, json.dumps(tools, ensure_ascii=False, default=str))
