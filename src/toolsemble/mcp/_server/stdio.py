"""A server on standard input and output, for clients that start it as a program."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, BinaryIO

from toolsemble.mcp._server.server import Offer, build_server
from toolsemble.mcp._server.standard_streams import MessageReader, MessageWriter, open_lines, open_output


async def serve_stdio(offer: Offer) -> None:
    """Serve until the client closes standard input; what tools print goes to standard error."""
    server = build_server(offer, "all")
    with _take_input() as requests, _take_output() as answers:
        lines = open_lines(requests)
        try:
            streams = MessageReader(lines), MessageWriter(open_output(answers))
            await server.run(*streams, server.create_initialization_options())
        finally:
            lines.close()


@contextmanager
def _take_input() -> Iterator[BinaryIO]:
    """Yield standard input, and leave an empty one in its place: tools and their children must not read requests."""
    if not _is_descriptor(sys.stdin, 0):
        yield sys.stdin.buffer
        return
    own, empty = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    try:
        yield os.fdopen(own, "rb", closefd=False)  # not closed: the thread may still wait for it
    finally:
        os.dup2(own, 0)


def _is_descriptor(stream: Any, descriptor: int) -> bool:
    with suppress(AttributeError, OSError, ValueError):
        return bool(stream.fileno() == descriptor)
    return False


@contextmanager
def _take_output() -> Iterator[BinaryIO]:
    """Yield standard output, and leave standard error in its place: what tools and their children print goes there."""
    stream = sys.stdout
    if not _is_descriptor(stream, 1):
        with redirect_stdout(sys.stderr):
            yield stream.buffer
        return
    with os.fdopen(os.dup(1), "wb") as output, redirect_stdout(sys.stderr):
        _replace_output()
        stream.flush()  # what was printed before, and is not a message either
        try:
            yield output
        finally:
            stream.flush()
            os.dup2(output.fileno(), 1)


def _replace_output() -> None:
    if sys.__stderr__ is not None:
        os.dup2(2, 1)
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)  # the descriptor 2 may be anything
    os.dup2(nowhere, 1)
    os.close(nowhere)
