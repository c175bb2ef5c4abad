"""Completion of the arguments of prompts and resource templates, from the values that their types allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp_types import CompleteRequestParams, CompleteResult, Completion, PromptReference

from toolsemble.mcp._server.caller import Caller, current_caller
from toolsemble.mcp._server.functions import ServedFunction
from toolsemble.mcp._server.prompts import Prompts
from toolsemble.mcp._server.resources import Resources

_MOST_VALUES = 100


class Completions:
    """The handler of ``completion/complete``."""

    def __init__(self, prompts: Prompts, resources: Resources) -> None:
        self._prompts = prompts
        self._resources = resources

    async def complete(self, _: ServerRequestContext[Any, Any], params: CompleteRequestParams) -> CompleteResult:
        """Return the values that begin with what was typed; none for a parameter of any value."""
        function = await self._find(params.ref, current_caller())
        schema = {} if function is None else function.parameters.get(params.argument.name, {})
        typed = params.argument.value
        found = [each for each in _choices(schema) if each.startswith(typed)]
        shown = found[:_MOST_VALUES]
        return CompleteResult(completion=Completion(values=shown, total=len(found), has_more=len(found) > len(shown)))

    async def _find(self, reference: Any, caller: Caller) -> ServedFunction | None:
        if isinstance(reference, PromptReference):
            return (await self._prompts.served.find(caller)).get(reference.name)
        served = await self._resources.served.find(caller)
        return next((each.function for each in served if each.uri == reference.uri), None)


def _choices(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts that a schema lists, itself or in its options."""
    for each in (schema, *schema.get("anyOf", ())):
        values = [*each.get("enum", ()), *([each["const"]] if "const" in each else ())]
        yield from (value for value in values if isinstance(value, str))
