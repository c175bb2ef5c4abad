"""Checks of tools and replies by the types of the providers' official SDKs."""

import functools
from collections.abc import Mapping

import botocore.session
import botocore.validate
import mcp.types
import ollama
from anthropic.types import ToolParam
from google.genai import types as gemini
from mistralai.client import models as mistral_models
from openai.types.chat import (
    ChatCompletionToolParam,
)
from pydantic import TypeAdapter

from toolsemble.mcp import _wire as to_mcp
from toolsemble.models import _ollama as to_ollama
from toolsemble.models.anthropic import _wire as to_anthropic
from toolsemble.models.bedrock import _wire as to_bedrock
from toolsemble.models.google import _wire as to_google
from toolsemble.models.mistral import _wire as to_mistral
from toolsemble.models.openai import _wire as to_openai


def read_out(value):
    """Return a validated value with its lazy parts read, for only then they are validated."""
    if isinstance(value, Mapping):
        return {key: read_out(each) for key, each in value.items()}
    if value is None or isinstance(value, str | bytes | int | float):
        return value
    return [read_out(each) for each in value]


@functools.cache  # lazy parts need it alive
def adapter_of(kind):
    return TypeAdapter(kind)


def check(kind, value):
    """Check that an SDK type takes the value, and loses nothing of it."""
    assert read_out(adapter_of(kind).validate_python(value)) == value


def check_model(kind, value):
    dumped = kind.model_validate(value).model_dump(by_alias=kind.__module__.startswith("mcp"), exclude_none=True)
    dumped.pop("resultType", None)  # newer releases of MCP add it
    assert dumped == value


@functools.cache
def converse():
    return botocore.session.Session().get_service_model("bedrock-runtime").operation_model("Converse").input_shape


def check_converse(**request):
    problems = botocore.validate.ParamValidator().validate({"modelId": "m", **request}, converse())
    assert problems.generate_report() == ""


def check_bedrock_reply(reply):
    check_converse(messages=[{"role": "user", "content": [reply]}])


def check_google(kind, value):
    assert kind.model_validate(value).model_dump(exclude_none=True) == value


def check_google_tool(tool):
    assert gemini.Tool.model_validate(tool).model_dump(exclude_none=True, mode="json") == tool


def check_mcp_tool(tool):
    assert tool["inputSchema"]["type"] == "object"
    check_model(mcp.types.Tool, tool)


CHECK_TOOL = {
    to_openai: functools.partial(check, ChatCompletionToolParam),
    to_anthropic: functools.partial(check, ToolParam),
    to_google: check_google_tool,
    to_bedrock: lambda tool: check_converse(toolConfig={"tools": [tool]}),
    to_mistral: functools.partial(check_model, mistral_models.Tool),
    to_ollama: functools.partial(check_model, ollama.Tool),
    to_mcp: check_mcp_tool,
}
