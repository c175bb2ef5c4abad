"""The requests behind remote tools: calls of tools, and on request prompts and resources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolsemble._vocabulary.result import Content, ToolResult
from toolsemble.mcp._client.cleaning import clean_line
from toolsemble.mcp._client.definitions import PROMPT, READ_RESOURCE, TOOL, RemoteDefinition
from toolsemble.mcp._client.results import OutputCheck, read_block, read_resource, read_result

_MAX_LINE = 500

Send = Callable[[Any, Any], Any]
"""Sends a request with the SDK's client, for a call."""
Read = Callable[[Any], ToolResult]
"""Returns the result for an answer."""


def build_request(remote: RemoteDefinition, arguments: dict[str, Any], check: OutputCheck | None) -> tuple[Send, Read]:
    """Return how to send a call of a remote tool, and how to read its answer."""
    if remote.kind == TOOL:

        async def call_tool(client: Any, call: Any) -> Any:
            report = call.report if call.watched else None
            return await client.call_tool(remote.target, arguments, progress_callback=report)

        return call_tool, lambda answer: read_result(answer, check)
    if remote.kind == PROMPT:
        return lambda client, _: client.get_prompt(remote.target, arguments), _read_prompt
    if remote.kind == READ_RESOURCE:
        return lambda client, _: client.read_resource(arguments["uri"], cache_mode="bypass"), _read_resources
    cursor = arguments.get("cursor")
    return lambda client, _: client.list_resources(cursor=cursor, cache_mode="bypass"), _read_list


def _read_prompt(answer: Any) -> ToolResult:
    texts: list[str] = []
    contents: list[Content] = []
    for message in answer.messages:
        said: list[str] = []
        read_block(message.content, said, contents)
        texts += [f"{message.role}: {text}" for text in said]
    return ToolResult.success("\n".join(texts), contents=contents)


def _read_resources(answer: Any) -> ToolResult:
    texts: list[str] = []
    contents: list[Content] = []
    for resource in answer.contents:
        read_resource(resource, texts, contents)
    return ToolResult.success("\n".join(texts), contents=contents)


def _read_list(answer: Any) -> ToolResult:
    lines = [_describe(each) for each in answer.resources]
    if answer.next_cursor is not None:
        lines.append(f"There are more; call again with cursor: {clean_line(answer.next_cursor, _MAX_LINE)}")
    return ToolResult.success("\n".join(lines), [str(each.uri) for each in answer.resources])


def _describe(resource: Any) -> str:
    words = (resource.title or resource.name, resource.mime_type, resource.description)
    details = ", ".join(clean_line(each, _MAX_LINE) for each in words if each)
    return f"{clean_line(str(resource.uri), _MAX_LINE)} ({details})"
