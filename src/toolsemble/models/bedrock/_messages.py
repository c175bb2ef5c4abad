"""Conversations in the format of Bedrock's Converse API."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolsemble._runtime.text import escape_surrogates
from toolsemble._vocabulary.call import ToolCall
from toolsemble.models._adapter.calls import CallIds, sanitize_arguments, sanitize_name
from toolsemble.models._adapter.checks import require_strict_schema
from toolsemble.models._adapter.conversation import merge_turns, removed_tools, system_texts
from toolsemble.models._adapter.inputs import MEGABYTE, Inputs
from toolsemble.models._adapter.reasoning import claude_reasoning, reasoning_refusal, require_level
from toolsemble.models._adapter.reply_details import Block, restore_blocks
from toolsemble.models._chat import ChatRequest
from toolsemble.models._message import AssistantMessage, Message, ToolMessage, UserMessage
from toolsemble.models.bedrock._wire import AUDIO, DOCUMENTS, IMAGES, VIDEOS, write_prompt, write_reply, write_tools

_INPUTS = Inputs("Bedrock", frozenset({*IMAGES, *DOCUMENTS, *VIDEOS, *AUDIO}), max_bytes=25 * MEGABYTE)
_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_CLAUDE_TOKENS = 32_000  # the model's own limit of an answer, or less
_FIRST_TURN = {"role": "user", "content": [{"text": "(The conversation goes on.)"}]}


def write_arguments(request: ChatRequest, model: str) -> dict[str, Any]:
    """Return the arguments of ``converse`` and ``converse_stream``; the user's settings take precedence.

    >>> write_arguments(ChatRequest([UserMessage("hi")]), "amazon.nova-lite-v1:0")
    {'modelId': 'amazon.nova-lite-v1:0', 'messages': [{'role': 'user', 'content': [{'text': 'hi'}]}]}
    """
    _INPUTS.check(request.messages)
    parts = {
        "modelId": model,
        "messages": write_messages(request.messages, model),
        "system": [block for text in system_texts(request.messages) for block in write_prompt(text)],
        "toolConfig": _tool_config(request),
        "outputConfig": _answer_format(request.output_schema),
        "additionalModelRequestFields": _write_reasoning(request, model),
    }
    arguments: dict[str, Any] = {name: part for name, part in parts.items() if part or name == "messages"}
    for name, value in request.settings.items():
        is_merged = isinstance(arguments.get(name), Mapping) and isinstance(value, Mapping)
        arguments[name] = {**arguments[name], **value} if is_merged else value
    return arguments


def _write_reasoning(request: ChatRequest, model: str) -> dict[str, Any]:
    """Return the reasoning setting of the model's maker; raise ``ToolConfigurationError`` if there is none."""
    reasoning = request.reasoning
    if reasoning is None:
        return {}
    if "anthropic.claude" in model:
        # Claude rejects reasoning before a call that it must make.
        most = request.settings.get("inferenceConfig", {}).get("maxTokens", _CLAUDE_TOKENS)
        return {} if request.tool_choice == "required" else claude_reasoning(reasoning, model, most)
    if "amazon.nova" in model:
        level = require_level(reasoning, "Nova")
        return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": level}}
    if "openai.gpt" in model:
        return {"reasoning_effort": require_level(reasoning, "OpenAI on Bedrock")}
    raise reasoning_refusal(model)


def _tool_config(request: ChatRequest) -> dict[str, Any]:
    """Return the tools; listing none is the only way to forbid them, but a conversation with calls needs some."""
    removed = removed_tools(request.messages)
    if request.tool_choice == "none" and not removed:
        return {}
    tools = write_tools(request.specifications or removed)
    choice: dict[str, Any] = {"toolChoice": {"any": {}}} if request.tool_choice == "required" else {}
    return {"tools": tools, **choice} if tools else {}


def _answer_format(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    if schema is None:
        return {}
    strict = require_strict_schema(schema, "Bedrock", "BedrockModel")
    structure = {"jsonSchema": {"name": "answer", "schema": json.dumps(strict)}}
    return {"textFormat": {"type": "json_schema", "structure": structure}}


def write_messages(messages: Sequence[Message], model: str) -> list[dict[str, Any]]:
    """Return the conversation: user and model alternate, the user first.

    >>> write_messages([UserMessage("hi"), UserMessage("there")], "amazon.nova-lite-v1:0")
    [{'role': 'user', 'content': [{'text': 'hi'}, {'text': 'there'}]}]
    """
    ids = CallIds(messages, _ID, "call_{}".format)
    turns = merge_turns(_write_message(message, ids, model) for message in messages)
    return [_FIRST_TURN, *turns] if turns and turns[0]["role"] == "assistant" else turns


def _write_message(message: Message, ids: CallIds, model: str) -> tuple[str, list[Block]]:
    if isinstance(message, AssistantMessage):
        calls = [_write_call(call, ids.assign(call)) for call in message.calls]
        return "assistant", [_write_block(block) for block in restore_blocks(f"bedrock:{model}", message, calls)]
    if isinstance(message, ToolMessage):
        result = write_reply(message.reply)["toolResult"]
        return "user", [{"toolResult": {**result, "toolUseId": ids.take(message.call)}}]
    if isinstance(message, UserMessage):
        return "user", write_prompt(escape_surrogates(message.text), message.contents)
    return "user", []  # a system message, which is sent separately


def _write_call(call: ToolCall, id: str) -> Block:
    use = {"toolUseId": id, "name": sanitize_name(call.name), "input": sanitize_arguments(call)}
    return {"type": "tool_use", "toolUse": use}


def _write_block(block: Block) -> dict[str, Any]:
    """Return a stored block in Bedrock's format."""
    fields = {name: value for name, value in block.items() if name != "type"}
    if block["type"] != "reasoning":
        return fields
    if "redactedContent" in fields:
        fields["redactedContent"] = base64.b64decode(fields["redactedContent"])
    return {"reasoningContent": fields}
