"""Lines and messages over the descriptors of standard streams."""

import asyncio
import os

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification

from helpers.wait import auntil
from toolsemble.mcp._server import stdio as standard_streams
from toolsemble.mcp._server.stdio import (
    DescriptorLines,
    DescriptorOutput,
    MessageReader,
    MessageWriter,
    ThreadLines,
    ThreadOutput,
    open_lines,
    open_output,
)


@pytest.fixture
def pipe():
    """Return both ends of a pipe as files without buffers."""
    ends = os.pipe()
    with os.fdopen(ends[0], "rb", 0) as read, os.fdopen(ends[1], "wb", 0) as write:
        yield read, write


async def collect(lines):
    found = []
    while line := await lines.get():
        found.append(line)
    return found


async def test_lines_of_a_pipe(pipe):
    read, write = pipe
    lines = open_lines(read)
    assert isinstance(lines, DescriptorLines)
    write.write(b"one\ntw")
    assert await lines.get() == b"one\n"
    write.write(b"o\nrest")
    write.close()
    assert await collect(lines) == [b"two\n", b"rest"]
    assert await lines.get() == b""
    lines.close()
    lines.close()


async def test_a_client_that_writes_much_waits(pipe, monkeypatch):
    read, write = pipe
    lines = open_lines(read)
    os.set_blocking(write.fileno(), False)
    sent = 0
    while sent < 100_000 and (written := write.write(b"x" * 99 + b"\n")):
        sent += written // 100
        await asyncio.sleep(0)
    assert sent < 100_000
    os.set_blocking(write.fileno(), True)
    found = [await lines.get() for _ in range(sent)]
    assert set(found) == {b"x" * 99 + b"\n"}
    lines.close()


async def test_a_line_without_an_end_is_cut(pipe, monkeypatch):
    monkeypatch.setattr(standard_streams, "_LONGEST", 10)
    read, write = pipe
    lines = open_lines(read)
    write.write(b"x" * 25)
    assert await lines.get() == b"x" * 10
    lines.close()


async def test_a_file_is_read_and_written_in_a_thread(tmp_path):
    (tmp_path / "in").write_bytes(b"one\ntwo\n")
    with (tmp_path / "in").open("rb") as read, (tmp_path / "out").open("wb") as write:
        lines, output = open_lines(read), open_output(write)
        assert isinstance(lines, ThreadLines)
        assert isinstance(output, ThreadOutput)
        assert await collect(lines) == [b"one\n", b"two\n"]
        await output.write(b"three\n")
        lines.close()
    assert (tmp_path / "out").read_bytes() == b"three\n"


async def test_a_long_message_is_written_as_a_whole_although_its_writer_is_cancelled(pipe):
    read, write = pipe
    output = open_output(write)
    assert isinstance(output, DescriptorOutput)
    first = asyncio.create_task(output.write(b"a" * 1_000_000))
    await asyncio.sleep(0)
    second = asyncio.create_task(output.write(b"b" * 10))
    await asyncio.sleep(0)
    first.cancel()
    found = bytearray()
    while len(found) < 1_000_010:
        found += await asyncio.to_thread(os.read, read.fileno(), 100_000)
    await second
    assert found == b"a" * 1_000_000 + b"b" * 10
    assert first.cancelled()


async def test_a_client_that_is_gone_is_an_error(pipe):
    read, write = pipe
    writer = MessageWriter(open_output(write))
    read.close()
    message = SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="notifications/x"))
    async with writer:
        with pytest.raises(anyio.BrokenResourceError):
            await writer.send(message)


async def test_a_client_that_leaves_while_it_is_written_to_is_an_error(pipe):
    read, write = pipe
    task = asyncio.create_task(open_output(write).write(b"a" * 1_000_000))
    await asyncio.sleep(0)
    read.close()
    await auntil(task.done)
    assert isinstance(task.exception(), BrokenPipeError)


async def test_messages_are_read_and_others_are_exceptions(pipe):
    read, write = pipe
    async with MessageReader(open_lines(read)) as reader:
        write.write(b'{"jsonrpc": "2.0", "method": "notifications/x"}\nhello\n')
        write.close()
        found = [each async for each in reader]
        assert found[0].message.method == "notifications/x"
        assert isinstance(found[1], ValueError)
        with pytest.raises(anyio.EndOfStream):
            await reader.receive()
