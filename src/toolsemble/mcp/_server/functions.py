"""Plain functions behind prompts and resources: called as tools are, so that arguments are validated and repaired."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from toolsemble._engine.context import Exposure
from toolsemble._runtime.concurrency import is_async
from toolsemble._schema.members import find_return_type
from toolsemble._tools.function import FunctionTool
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble.mcp._server.caller import Caller
from toolsemble.mcp._server.calls import check_capability, execute
from toolsemble.mcp._server.exchange import Exchange

_WRONG_ARGUMENTS = ("Missing required parameter(s)", "Invalid arguments", "Expected a JSON object")


class ServedFunction:
    """A function that a prompt or a resource comes from.

    :param function: a function, sync or async; a parameter of type ``ToolContext`` gets the context of the call
    :param kind: what it is for, in the plural, for messages
    """

    def __init__(self, function: Any, kind: str) -> None:
        if not callable(function) or isinstance(function, type):
            raise ToolDefinitionError(f"serve: {kind} must be functions, not {function!r:.80}")
        source = getattr(function, "__wrapped__", function) if isinstance(function, FunctionTool) else function
        self._box = Toolbox([FunctionTool(_keep_value(source), {}, None, None, {})])
        (self.name,) = self._box.names
        definition = self._box.registered(self.name).definition
        self.description = definition.description
        self.schema = definition.schema()
        self.returns = find_return_type(source, {})

    @property
    def parameters(self) -> Mapping[str, Mapping[str, Any]]:
        """The schemas of the parameters, by name."""
        found: Mapping[str, Mapping[str, Any]] = self.schema.get("properties", {})
        return found

    async def call(
        self, arguments: Mapping[str, Any], caller: Caller, exchange: Exchange, expose_errors: Exposure
    ) -> Any:
        """Return what the function returns; raise MCPError if it fails."""
        reply = await execute(self._box, ToolCall(self.name, dict(arguments)), caller, exchange, expose_errors)
        check_capability(exchange, reply)
        if reply.is_error:
            message = str(reply.result.error_message)
            code = INVALID_PARAMS if message.startswith(_WRONG_ARGUMENTS) else INTERNAL_ERROR
            raise MCPError(code, message)
        return reply.result.structured_output


def _keep_value(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with its value kept as it is, whatever it is."""
    if is_async(function):

        @functools.wraps(function)
        async def run_later(*args: Any, **kwargs: Any) -> ToolResult:
            return ToolResult.success(structured_output=await function(*args, **kwargs))

        return run_later

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> ToolResult:
        return ToolResult.success(structured_output=function(*args, **kwargs))

    return run
