"""Prompts: messages for the client's model, returned by plain functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    Prompt,
    PromptArgument,
)
from pydantic import ValidationError

from toolsemble._engine.context import Exposure
from toolsemble._runtime.text import preview
from toolsemble._schema.shape import to_result
from toolsemble._vocabulary.call import ToolCall, ToolReply
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.mcp._server.caller import Caller, current_caller
from toolsemble.mcp._server.exchange import Exchange
from toolsemble.mcp._server.functions import ServedFunction
from toolsemble.mcp._server.listeners import Listeners
from toolsemble.mcp._server.parking import Parking
from toolsemble.mcp._server.per_caller import PerCaller

PromptSource: TypeAlias = (
    Iterable[Callable[..., Any]]
    | Callable[[Caller], Iterable[Callable[..., Any]] | Awaitable[Iterable[Callable[..., Any]]]]
)
"""What ``serve`` takes as prompts: functions, or a function of the caller that returns them."""


class Prompts:
    """The handlers of ``prompts/list`` and ``prompts/get``.

    :param functions: functions that return a text, contents, or a list of messages; or a function of the caller that
        returns such functions
    :param parking: the requests that wait for answers
    :param expose_errors: which error messages clients see
    """

    def __init__(self, functions: PromptSource, parking: Parking, expose_errors: Exposure) -> None:
        self.served = PerCaller(functions, _read_functions)
        self.listeners: Listeners | None = None
        """The clients that are told when the prompts change; None if they do not."""
        self._parking = parking
        self._expose_errors = expose_errors

    @property
    def can_change(self) -> bool:
        """Whether the prompts come from a function of the caller."""
        return self.served.fixed is None

    async def list_prompts(self, request: ServerRequestContext[Any, Any], _: Any) -> ListPromptsResult:
        """Return the prompts."""
        listed = await self.list_now(current_caller())
        if self.listeners is not None:
            self.listeners.record("prompts", request, listed)
        return listed

    async def list_now(self, caller: Caller) -> ListPromptsResult:
        """Return the prompts of a caller as they are now."""
        return ListPromptsResult(prompts=[_describe(each) for each in (await self.served.find(caller)).values()])

    async def get(self, request: ServerRequestContext[Any, Any], params: GetPromptRequestParams) -> Any:
        """Return the messages of a prompt."""
        caller = current_caller()
        function = (await self.served.find(caller)).get(params.name)
        if function is None:
            raise MCPError(INVALID_PARAMS, f"Unknown prompt: {preview(params.name)}")
        arguments = dict(params.arguments or {})
        work = partial(self._get, function, arguments, caller)
        return await self._parking.run(request, params, arguments, caller, work)

    async def _get(
        self, function: ServedFunction, arguments: dict[str, str], caller: Caller, exchange: Exchange
    ) -> GetPromptResult:
        value = await function.call(arguments, caller, exchange, self._expose_errors)
        messages = [_write_message(each) for each in (value if isinstance(value, list) else [value])]
        try:
            return GetPromptResult.model_validate(
                {"description": function.description or None, "messages": messages}, by_name=False
            )
        except ValidationError:
            raise MCPError(INTERNAL_ERROR, "The prompt returned what is not a message") from None


def _read_functions(functions: Iterable[Callable[..., Any]]) -> dict[str, ServedFunction]:
    """Return the prompts of functions, by name; raise ToolDefinitionError if they are not valid."""
    served = [ServedFunction(each, "prompts") for each in functions]
    by_name = {each.name: each for each in served}
    if len(by_name) < len(served):
        raise ToolDefinitionError("serve: two prompts have the same name")
    return by_name


def _describe(function: ServedFunction) -> Prompt:
    required = function.schema.get("required", ())
    arguments = [
        PromptArgument(name=name, description=schema.get("description"), required=name in required)
        for name, schema in function.parameters.items()
    ]
    return Prompt(name=function.name, description=function.description or None, arguments=arguments or None)


def _write_message(value: Any) -> dict[str, Any]:
    """Return a message; a text or contents are one of the user, a dict has a role and contents."""
    if isinstance(value, Mapping):
        return {"role": value.get("role", "user"), "content": _write_content(value.get("content", ""))}
    return {"role": "user", "content": _write_content(value)}


def _write_content(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)  # in the form of the protocol already
    blocks: list[dict[str, Any]] = ToolReply(ToolCall("prompt"), to_result(value)).to_mcp()["content"]
    return blocks[-1]
