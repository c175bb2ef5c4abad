"""A server on standard input and output, for clients that start it as a program."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

from mcp.server.stdio import stdio_server

from toolsemble.mcp.server.server import Offer, build_server


async def serve_stdio(offer: Offer) -> None:
    """Serve until the client closes standard input; what tools print goes to standard error."""
    server = build_server(offer, "all")
    async with stdio_server() as (incoming, outgoing):
        with _keep_prints_out():
            await server.run(incoming, outgoing, server.create_initialization_options())


@contextmanager
def _keep_prints_out() -> Iterator[None]:
    """Send prints to standard error; the SDK has redirected the file descriptor, but not what Python buffers."""
    stream = sys.stdout
    stream.flush()  # what was printed before must not come out when the descriptor is the protocol's again
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        stream.flush()
