"""A conversation, as Gemini takes it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from toolsemble.call import ToolCall, ToolReply
from toolsemble.errors import ToolConfigurationError
from toolsemble.models.adapter.calls import fitting_arguments, fitting_name
from toolsemble.models.adapter.kept import Block, restored
from toolsemble.models.chat import ChatRequest
from toolsemble.models.message import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from toolsemble.providers.google import write_prompt, write_reply, write_tools
from toolsemble.shape import escape_surrogates

_NUMBER = re.compile(r"gemini-(\d+)")
# From this generation on, calls must come back signed, may be asked for beside a schema, and replies may hold images.
_SIGNING = 3
# What Google has put in place of the signature of a call that the model did not make itself.
_UNSIGNED = b"skip_thought_signature_validator"
_MODES = {"required": "ANY", "none": "NONE"}
# Google reads arguments by protocol buffers, which nest a hundred messages, and each level takes three of them.
_DEEPEST = 30


def owner(model: str) -> str:
    """Give the key under which a message's details are this model's: another one cannot check what this one signed.

    >>> owner("gemini-3-flash")
    'google:gemini-3-flash'
    """
    return f"google:{model}"


def signs_calls(model: str) -> bool:
    """Whether a model is of the generations that sign their calls, and take a schema beside tools.

    >>> [signs_calls(name) for name in ("gemini-2.5-pro", "gemini-3-flash", "models/gemini-3.8-pro", "gemma-3")]
    [False, True, True, False]
    """
    found = _NUMBER.search(model)
    return found is not None and int(found[1]) >= _SIGNING


def written_config(request: ChatRequest, model: str) -> dict[str, Any]:
    """Give the ``config`` argument: everything but the conversation; what the user says about it comes last.

    >>> written_config(ChatRequest([UserMessage("hi")], settings={"temperature": 0}), "gemini-3-flash")
    {'automatic_function_calling': {'disable': True}, 'temperature': 0}
    """
    settings = dict(request.settings)
    tools = [*write_tools(request.specifications), *settings.pop("tools", ())]
    choice = dict(settings.pop("tool_config", ()))
    if request.specifications and request.tool_choice in _MODES:
        choice["function_calling_config"] = {"mode": _MODES[request.tool_choice]}
    said = [message.text for message in request.messages if isinstance(message, SystemMessage) and message.text]
    return {
        "automatic_function_calling": {"disable": True},
        **({"system_instruction": escape_surrogates("\n\n".join(said))} if said else {}),
        **({"tools": tools} if tools else {}),
        **({"tool_config": choice} if choice else {}),
        **_answer_format(request, model),
        **settings,
    }


def _answer_format(request: ChatRequest, model: str) -> dict[str, Any]:
    if request.output_schema is None:
        return {}
    if request.specifications and not signs_calls(model):
        raise ToolConfigurationError(
            f"{model} takes no schema for its answer beside tools; Gemini {_SIGNING} and later do, or have the answer "
            "given by a tool: GoogleModel(..., native_output=False)"
        )
    return {"response_mime_type": "application/json", "response_json_schema": dict(request.output_schema)}


def written_contents(messages: Sequence[Message], model: str) -> list[dict[str, Any]]:
    """Give the ``contents`` argument: the conversation without its system message.

    >>> written_contents([UserMessage("hi"), AssistantMessage("hello")], "gemini-3-flash")
    [{'role': 'user', 'parts': [{'text': 'hi'}]}, {'role': 'model', 'parts': [{'text': 'hello'}]}]
    """
    contents: list[dict[str, Any]] = []
    replies: list[ToolReply] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            replies.append(message.reply)
            continue
        # The replies to the calls of one turn are one turn, too.
        contents.append({"role": "user", "parts": _reply_parts(replies, model)})
        replies = []
        if isinstance(message, UserMessage):
            contents.append({"role": "user", "parts": write_prompt(escape_surrogates(message.text), message.images)})
        elif isinstance(message, AssistantMessage):
            contents.append({"role": "model", "parts": _model_parts(message, model)})
    contents.append({"role": "user", "parts": _reply_parts(replies, model)})
    return [content for content in contents if content["parts"]]


def _model_parts(message: AssistantMessage, model: str) -> list[dict[str, Any]]:
    parts = [_part(block) for block in restored(owner(model), message, [_call(call) for call in message.calls])]
    if signs_calls(model):
        # Of several calls only the first is signed.
        for call in [part for part in parts if "function_call" in part][:1]:
            call.setdefault("thought_signature", _UNSIGNED)
    return parts


def _call(call: ToolCall) -> Block:
    named = {"id": call.id} if call.id else {}
    arguments = fitting_arguments(call, _DEEPEST)
    return {"type": "tool_use", "function_call": {**named, "name": fitting_name(call.name), "args": arguments}}


def _part(block: Block) -> dict[str, Any]:
    """Give a part of what was kept as the SDK takes it."""
    if block["type"] == "part":
        return dict(block["part"])
    part = {name: value for name, value in block.items() if name not in {"type", "signature"}}
    return {**part, "thought_signature": block["signature"]} if "signature" in block else part


def _reply_parts(replies: Sequence[ToolReply], model: str) -> list[dict[str, Any]]:
    """Give the parts that answer the calls of a turn; images stand after them where a reply cannot hold any."""
    parts = [write_reply(_fitting(reply)) for reply in replies]
    if signs_calls(model):
        return parts
    shown = [image for part in parts for image in part["function_response"].pop("parts", ())]
    return [*parts, *shown]


def _fitting(reply: ToolReply) -> ToolReply:
    call = ToolCall(fitting_name(reply.name), reply.call.json, reply.call_id)
    return replace(reply, call=call)
