"""Prompts: messages for the client's model, returned by plain functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

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

from toolsemble.call import ToolCall, ToolReply
from toolsemble.context import Exposure
from toolsemble.errors import ToolDefinitionError
from toolsemble.mcp.server.caller import Caller, current_caller
from toolsemble.mcp.server.exchange import Exchange
from toolsemble.mcp.server.functions import ServedFunction
from toolsemble.mcp.server.parking import Parking
from toolsemble.runtime.text import preview
from toolsemble.shape import to_result


class Prompts:
    """The handlers of ``prompts/list`` and ``prompts/get``.

    :param functions: functions that return a text, contents, or a list of messages
    :param parking: the requests that wait for answers
    :param expose_errors: which error messages clients see
    """

    def __init__(self, functions: Iterable[Callable[..., Any]], parking: Parking, expose_errors: Exposure) -> None:
        served = [ServedFunction(each, "prompts") for each in functions]
        self.served = {each.name: each for each in served}
        self._parking = parking
        self._expose_errors = expose_errors
        if len(self.served) < len(served):
            raise ToolDefinitionError("serve: two prompts have the same name")

    async def list_prompts(self, _: ServerRequestContext[Any, Any], __: Any) -> ListPromptsResult:
        """Return the prompts."""
        return ListPromptsResult(prompts=[_describe(each) for each in self.served.values()])

    async def get(self, request: ServerRequestContext[Any, Any], params: GetPromptRequestParams) -> Any:
        """Return the messages of a prompt."""
        function, caller = self.served.get(params.name), current_caller()
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
