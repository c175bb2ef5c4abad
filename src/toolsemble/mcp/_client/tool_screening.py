"""A filter between the SDK and a transport: removes broken tools from listings, and adjusts capabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from toolsemble.mcp._client.dispatcher import MessageReader, WrappedStream, read_number
from toolsemble.mcp._client.process_group import LOGGER
from toolsemble.mcp._client.remote_call import RemoteCall, current_call
from toolsemble.mcp._client.text_cleaning import RemoteDefinition
from toolsemble.mcp._param_headers import names_header

_LIST = "tools/list"
_PLAIN = {"name", "description", "inputSchema"}
_ANY_OBJECT = {"type": "object"}
_MAX_OPEN = 1000
_ELICITATION = "elicitation"


class Screen:
    """A filter for the messages of one connection.

    :param may_ask: whether a person can be asked, for messages without a call
    :param on_break: called with the reason when the connection must end
    """

    def __init__(
        self,
        server: str,
        *,
        max_message: int,
        max_tools: int,
        may_ask: bool,
        on_break: Callable[[str], object],
    ) -> None:
        self.max_message = max_message
        self.listed: dict[str, RemoteDefinition] = {}
        """The tools of the list being read, by name."""
        self._server = server
        self._max_tools = max_tools
        self._may_ask = may_ask
        self._on_break = on_break
        self._lists: dict[types.RequestId, bool] = {}

    def break_off(self, problem: str) -> None:
        """End the connection."""
        self._on_break(problem)

    def outgoing(self, message: Any) -> None:
        """Transform an outgoing message of the SDK."""
        if isinstance(message, types.JSONRPCRequest):
            if message.method == _LIST and len(self._lists) < _MAX_OPEN:
                self._lists[message.id] = not isinstance(current_call.get(), RemoteCall)
            self._state_capabilities(message)

    def _state_capabilities(self, message: types.JSONRPCRequest) -> None:
        """Remove the elicitation capability from a request, if there is no reviewer."""
        call = current_call.get()
        if self._may_ask or (isinstance(call, RemoteCall) and call.context.review is not None):
            return
        params = message.params or {}
        if message.method == "initialize":
            _drop_capability(params, "capabilities")
        elif isinstance(params.get("_meta"), dict):
            _drop_capability(params["_meta"], types.CLIENT_CAPABILITIES_META_KEY)

    def incoming(self, message: Any) -> None:
        """Transform an incoming server message for the SDK."""
        if self._lists and isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            is_own = self._lists.pop(read_number(message.id), None)
            if is_own is not None and isinstance(message, types.JSONRPCResponse):
                self._screen_list(message.result, is_own=is_own)

    def _screen_list(self, result: dict[str, Any], *, is_own: bool) -> None:
        """Store a list's definitions, and skip invalid ones.

        :param is_own: whether this class stores the list, so that the SDK needs only part of it
        """
        listed = result.get("tools")
        if not isinstance(listed, list):
            return
        # One more than allowed is enough to reject the server.
        read = [(each, remote) for each in listed[: self._max_tools + 1] if (remote := self._read(each)) is not None]
        if is_own:
            self.listed |= {remote.name: remote for _, remote in reversed(read)}  # of duplicates, the first
        result["tools"] = [_reduce(item, remote) if is_own else item for item, remote in read]

    def _read(self, item: Any) -> RemoteDefinition | None:
        """Return a tool's definition; log a warning and return None if it is invalid."""
        try:
            return _read_definition(item)
        except ValidationError as problem:
            name = item.get("name") if isinstance(item, dict) else item
            fields = ", ".join(sorted({str(each["loc"][0]) for each in problem.errors() if each["loc"]}))
            LOGGER.warning("Skipped a tool of %s with an invalid definition: %.100r: %s", self._server, name, fields)
            return None


def _read_definition(item: Any) -> RemoteDefinition:
    """Return a tool's definition; remove its output schema from the item.

    The SDK's result validation could be slowed down by a malicious server.
    """
    if _is_plain(item):
        name, schema = item["name"], item["inputSchema"]
        return RemoteDefinition(name, None, item.get("description"), schema, None, {}, target=name)
    output_schema = item.pop("outputSchema", None) if isinstance(item, dict) else None
    tool = types.Tool.model_validate(item, by_name=False)
    hints = {} if tool.annotations is None else tool.annotations.model_dump(by_alias=True, exclude_none=True)
    title = tool.title or hints.pop("title", None)
    return RemoteDefinition(
        tool.name, title, tool.description, tool.input_schema, output_schema, hints, target=tool.name
    )


def _is_plain(item: Any) -> bool:
    """Return whether a tool has only a name, a description and a schema, all valid."""
    return (
        isinstance(item, dict)
        and item.keys() <= _PLAIN
        and isinstance(item.get("name"), str)
        and isinstance(item.get("description", ""), str)
        and isinstance(item.get("inputSchema"), dict)
    )


def _reduce(item: dict[str, Any], remote: RemoteDefinition) -> dict[str, Any]:
    """Return the part of a tool that the SDK needs: of its schema, only the headers to send."""
    if remote.is_plain or not names_header(remote.input_schema):
        return {"name": remote.name, "inputSchema": _ANY_OBJECT}
    return item


def _drop_capability(holder: dict[str, Any], key: str) -> None:
    stated = holder.get(key)
    if isinstance(stated, dict) and _ELICITATION in stated:
        # A copy: the SDK sends the same object with every request.
        holder[key] = {name: value for name, value in stated.items() if name != _ELICITATION}


class ScreenedReader(MessageReader):
    """An SDK stream whose messages pass a screen."""

    def __init__(self, stream: Any, screen: Screen) -> None:
        super().__init__(stream)
        self._screen = screen

    async def __anext__(self) -> Any:
        item = await self._stream.__anext__()
        if isinstance(item, SessionMessage):  # and not an exception
            self._screen.incoming(item.message)
        return item


class ScreenedWriter(WrappedStream):
    """A stream to the SDK's transport whose messages pass a screen."""

    def __init__(self, stream: Any, screen: Screen) -> None:
        super().__init__(stream)
        self._screen = screen

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message."""
        self._screen.outgoing(item.message)
        if isinstance(item.message, types.JSONRPCRequest):
            # Now, not when a connection is open: the transport may still send it after its caller has gone.
            current_call.get().begin_request()
        await self._stream.send(item)
