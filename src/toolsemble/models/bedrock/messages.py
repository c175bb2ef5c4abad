"""A conversation, as Bedrock's Converse takes it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolsemble.call import ToolCall
from toolsemble.models.adapter.calls import CallIds, calls_of, fitting_arguments, fitting_name
from toolsemble.models.adapter.kept import Block, restored
from toolsemble.models.adapter.misuse import held_to
from toolsemble.models.chat import ChatRequest
from toolsemble.models.message import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from toolsemble.providers.bedrock import adapt, write_prompt, write_reply, write_tools
from toolsemble.shape import escape_surrogates
from toolsemble.specification import ToolSpecification

_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_BEGINNING = {"role": "user", "content": [{"text": "(The conversation goes on.)"}]}


def owner(model: str) -> str:
    """Give the key under which a message's details are this model's: another one cannot check what this one signed.

    >>> owner("amazon.nova-lite-v1:0")
    'bedrock:amazon.nova-lite-v1:0'
    """
    return f"bedrock:{model}"


def written_arguments(request: ChatRequest, model: str) -> dict[str, Any]:
    """Give the arguments of ``converse`` and ``converse_stream``; what the user says about them comes last.

    >>> written_arguments(ChatRequest([UserMessage("hi")]), "amazon.nova-lite-v1:0")
    {'modelId': 'amazon.nova-lite-v1:0', 'messages': [{'role': 'user', 'content': [{'text': 'hi'}]}]}
    """
    said = (message.text for message in request.messages if isinstance(message, SystemMessage))
    parts = {
        "modelId": model,
        "messages": written_messages(request.messages, model),
        "system": [block for text in said for block in write_prompt(escape_surrogates(text))],
        "toolConfig": _tool_config(request),
        "outputConfig": _answer_format(request.output_schema),
    }
    arguments: dict[str, Any] = {name: part for name, part in parts.items() if part or name == "messages"}
    for name, value in request.settings.items():
        merges = isinstance(arguments.get(name), Mapping) and isinstance(value, Mapping)
        arguments[name] = {**arguments[name], **value} if merges else value
    return arguments


def _tool_config(request: ChatRequest) -> dict[str, Any]:
    """Give the tools; naming none is the one way to forbid them, and a conversation with calls must name some."""
    used = dict.fromkeys(fitting_name(call.name) for call in calls_of(request.messages))
    if request.tool_choice == "none" and not used:
        return {}
    gone = [ToolSpecification(name, "Not available any more") for name in used]
    tools = write_tools(request.specifications or gone)
    choice: dict[str, Any] = {"toolChoice": {"any": {}}} if request.tool_choice == "required" else {}
    return {"tools": tools, **choice} if tools else {}


def _answer_format(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    if schema is None:
        return {}
    strict = held_to(schema, adapt, "Bedrock", "BedrockModel")
    structure = {"jsonSchema": {"name": "answer", "schema": json.dumps(strict)}}
    return {"textFormat": {"type": "json_schema", "structure": structure}}


def written_messages(messages: Sequence[Message], model: str) -> list[dict[str, Any]]:
    """Give the conversation: users and the model in turns, a user first.

    >>> written_messages([UserMessage("hi"), UserMessage("there")], "amazon.nova-lite-v1:0")
    [{'role': 'user', 'content': [{'text': 'hi'}, {'text': 'there'}]}]
    """
    ids = CallIds(messages, _ID, "call_{}".format)
    turns: list[dict[str, Any]] = []
    for message in messages:
        role, content = _said(message, ids, model)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += content
        elif content:
            turns.append({"role": role, "content": content})
    return [_BEGINNING, *turns] if turns and turns[0]["role"] == "assistant" else turns


def _said(message: Message, ids: CallIds, model: str) -> tuple[str, list[Block]]:
    if isinstance(message, AssistantMessage):
        calls = [_use(call, ids.of_call(call)) for call in message.calls]
        return "assistant", [_block(block) for block in restored(owner(model), message, calls)]
    if isinstance(message, ToolMessage):
        result = write_reply(message.reply)["toolResult"]
        return "user", [{"toolResult": {**result, "toolUseId": ids.of_reply(message.call)}}]
    if isinstance(message, UserMessage):
        return "user", write_prompt(escape_surrogates(message.text), message.images)
    return "user", []  # said elsewhere


def _use(call: ToolCall, id: str) -> Block:
    use = {"toolUseId": id, "name": fitting_name(call.name), "input": fitting_arguments(call)}
    return {"type": "tool_use", "toolUse": use}


def _block(block: Block) -> dict[str, Any]:
    """Give a block of what was kept as Bedrock takes it."""
    said = {name: value for name, value in block.items() if name != "type"}
    if block["type"] != "reasoning":
        return said
    if "redactedContent" in said:
        said["redactedContent"] = base64.b64decode(said["redactedContent"])
    return {"reasoningContent": said}
