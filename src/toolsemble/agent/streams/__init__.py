"""Runs for browsers: server-sent events, the AG-UI protocol, and the stream of the Vercel AI SDK.

These functions take the events of :meth:`~toolsemble.Agent.stream`, and yield text for a streaming HTTP response. They
work with any web framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble.runtime.lazy import export_lazily

if TYPE_CHECKING:
    from toolsemble.agent.streams.ag_ui import to_ag_ui as to_ag_ui
    from toolsemble.agent.streams.ag_ui_request import read_ag_ui as read_ag_ui
    from toolsemble.agent.streams.delivery import SSE_HEADERS as SSE_HEADERS
    from toolsemble.agent.streams.request import UiRequest as UiRequest
    from toolsemble.agent.streams.server_sent import sse as sse
    from toolsemble.agent.streams.vercel import VERCEL_HEADERS as VERCEL_HEADERS, to_vercel as to_vercel
    from toolsemble.agent.streams.vercel_request import read_vercel as read_vercel

__getattr__, __dir__, __all__ = export_lazily(
    globals(),
    {
        "ag_ui": ("to_ag_ui",),
        "ag_ui_request": ("read_ag_ui",),
        "delivery": ("SSE_HEADERS",),
        "request": ("UiRequest",),
        "server_sent": ("sse",),
        "vercel": ("VERCEL_HEADERS", "to_vercel"),
        "vercel_request": ("read_vercel",),
    },
)
