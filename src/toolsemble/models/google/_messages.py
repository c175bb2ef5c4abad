"""Conversations in Gemini's format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from toolsemble._runtime.text import escape_surrogates
from toolsemble._vocabulary.call import ToolCall, ToolReply
from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.models._adapter.calls import sanitize_arguments, sanitize_call, sanitize_name
from toolsemble.models._adapter.conversation import system_texts
from toolsemble.models._adapter.reasoning import merge_settings
from toolsemble.models._adapter.reply_details import Block, restore_blocks
from toolsemble.models._chat import ChatRequest, Reasoning
from toolsemble.models._message import AssistantMessage, Message, ToolMessage, UserMessage
from toolsemble.models.google._wire import write_prompt, write_reply, write_tools

_VERSION = re.compile(r"gemini-(\d+)")
# From this version on, calls must be sent back signed, work with an answer schema, and replies may contain images.
_SIGNING_VERSION = 3
# Google's placeholder for the signature of a call that another model made.
_UNSIGNED = b"skip_thought_signature_validator"
_MODES = {"required": "ANY", "none": "NONE"}
# Protocol buffers allow 100 nested messages, and each level of arguments takes three.
_MAX_DEPTH = 30
# Models before this version take a number of tokens only.
_TOKENS = {"low": 1024, "medium": 8192, "high": 24_576}


def signs_calls(model: str) -> bool:
    """Return whether a model signs its calls and accepts an answer schema together with tools.

    >>> [signs_calls(name) for name in ("gemini-2.5-pro", "gemini-3-flash", "models/gemini-3.8-pro", "gemma-3")]
    [False, True, True, False]
    """
    found = _VERSION.search(model)
    return found is not None and int(found[1]) >= _SIGNING_VERSION


def write_config(request: ChatRequest, model: str) -> dict[str, Any]:
    """Return the ``config`` argument: everything but the conversation; the user's settings take precedence.

    >>> write_config(ChatRequest([UserMessage("hi")], settings={"temperature": 0}), "gemini-3-flash")
    {'automatic_function_calling': {'disable': True}, 'temperature': 0}
    """
    settings = dict(request.settings)
    tools = [*write_tools(request.specifications), *settings.pop("tools", ())]
    choice = dict(settings.pop("tool_config", ()))
    if request.specifications and request.tool_choice in _MODES:
        choice["function_calling_config"] = {"mode": _MODES[request.tool_choice]}
    system = "\n\n".join(system_texts(request.messages))
    return {
        "automatic_function_calling": {"disable": True},
        **({"system_instruction": system} if system else {}),
        **({"tools": tools} if tools else {}),
        **({"tool_config": choice} if choice else {}),
        **_answer_format(request, model),
        **merge_settings(_write_reasoning(request.reasoning, model), settings),
    }


def _write_reasoning(reasoning: Reasoning | None, model: str) -> dict[str, Any]:
    if reasoning is None:
        return {}
    if isinstance(reasoning, str) and signs_calls(model):
        return {"thinking_config": {"thinking_level": reasoning.upper(), "include_thoughts": True}}
    tokens = _TOKENS[reasoning] if isinstance(reasoning, str) else reasoning
    return {"thinking_config": {"thinking_budget": tokens, "include_thoughts": True}}


def _answer_format(request: ChatRequest, model: str) -> dict[str, Any]:
    if request.output_schema is None:
        return {}
    if request.specifications and not signs_calls(model):
        raise ToolConfigurationError(
            f"{model} takes no answer schema together with tools; use Gemini {_SIGNING_VERSION} or later, or receive "
            "the answer through a tool: GoogleModel(..., native_output=False)"
        )
    return {"response_mime_type": "application/json", "response_json_schema": dict(request.output_schema)}


def write_contents(messages: Sequence[Message], model: str) -> list[dict[str, Any]]:
    """Return the ``contents`` argument: the conversation without its system message.

    >>> write_contents([UserMessage("hi"), AssistantMessage("hello")], "gemini-3-flash")
    [{'role': 'user', 'parts': [{'text': 'hi'}]}, {'role': 'model', 'parts': [{'text': 'hello'}]}]
    """
    contents: list[dict[str, Any]] = []
    replies: list[ToolReply] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            replies.append(message.reply)
            continue
        # The replies to the calls of a turn form one turn.
        contents.append({"role": "user", "parts": _reply_parts(replies, model)})
        replies = []
        if isinstance(message, UserMessage):
            contents.append({"role": "user", "parts": write_prompt(escape_surrogates(message.text), message.contents)})
        elif isinstance(message, AssistantMessage):
            contents.append({"role": "model", "parts": _model_parts(message, model)})
    contents.append({"role": "user", "parts": _reply_parts(replies, model)})
    return [content for content in contents if content["parts"]]


def _model_parts(message: AssistantMessage, model: str) -> list[dict[str, Any]]:
    calls = [_write_call(call) for call in message.calls]
    parts = [_write_part(block) for block in restore_blocks(f"google:{model}", message, calls)]
    if signs_calls(model):
        # Only the first of several calls is signed.
        for call in [part for part in parts if "function_call" in part][:1]:
            call.setdefault("thought_signature", _UNSIGNED)
    return parts


def _write_call(call: ToolCall) -> Block:
    identified = {"id": call.id} if call.id else {}
    arguments = sanitize_arguments(call, _MAX_DEPTH)
    return {"type": "tool_use", "function_call": {**identified, "name": sanitize_name(call.name), "args": arguments}}


def _write_part(block: Block) -> dict[str, Any]:
    """Return a stored block in the SDK's format."""
    if block["type"] == "part":
        return dict(block["part"])
    part = {name: value for name, value in block.items() if name not in {"type", "signature"}}
    return {**part, "thought_signature": block["signature"]} if "signature" in block else part


def _reply_parts(replies: Sequence[ToolReply], model: str) -> list[dict[str, Any]]:
    """Return the parts that answer the calls of a turn; images follow them if replies cannot contain images."""
    parts = [write_reply(replace(each, call=sanitize_call(each.call, each.call_id))) for each in replies]
    if signs_calls(model):
        return parts
    images = [image for part in parts for image in part["function_response"].pop("parts", ())]
    return [*parts, *images]
