"""Runs for browsers: server-sent events, the AG-UI protocol, and the stream of the Vercel AI SDK.

These functions take the events of :meth:`~toolsemble.Agent.stream`, and yield text for a streaming HTTP response. They
work with any web framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble._runtime.lazy import export_lazily

if TYPE_CHECKING:
    from toolsemble.agent.streams._ag_ui import read_ag_ui as read_ag_ui, to_ag_ui as to_ag_ui
    from toolsemble.agent.streams._delivery import SSE_HEADERS as SSE_HEADERS
    from toolsemble.agent.streams._server_sent import sse as sse
    from toolsemble.agent.streams._ui_request import UiRequest as UiRequest
    from toolsemble.agent.streams._vercel import (
        VERCEL_HEADERS as VERCEL_HEADERS,
        read_vercel as read_vercel,
        to_vercel as to_vercel,
    )

__getattr__, __dir__, __all__ = export_lazily(
    globals(),
    {
        "_ag_ui": (
            "read_ag_ui",
            "to_ag_ui",
        ),
        "_delivery": ("SSE_HEADERS",),
        "_ui_request": ("UiRequest",),
        "_server_sent": ("sse",),
        "_vercel": (
            "VERCEL_HEADERS",
            "read_vercel",
            "to_vercel",
        ),
    },
)
