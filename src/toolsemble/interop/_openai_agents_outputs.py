"""Outputs of tools in the OpenAI Agents SDK: texts, images and files."""

from __future__ import annotations

from typing import Any

from toolsemble._vocabulary.call import ToolReply
from toolsemble._vocabulary.result import Content, FileContent, ImageContent, ToolResult
from toolsemble.interop._adopted import failure
from toolsemble.interop._exported import media_of, text_of
from toolsemble.models._adapter.wire import data_url, file_name


def write_output(agents: Any, reply: ToolReply) -> Any:
    """Return the output of a call: a text, or a list if there are media.

    :param agents: the package of the SDK
    """
    media = media_of(reply)
    if not media:
        return text_of(reply)
    return [agents.ToolOutputText(text=text_of(reply)), *(_write_media(agents, each) for each in media)]


def _write_media(agents: Any, content: Any) -> Any:
    if isinstance(content, ImageContent):
        return agents.ToolOutputImage(image_url=data_url(content))
    if content.url:
        return agents.ToolOutputFileContent(file_url=content.url)
    return agents.ToolOutputFileContent(file_data=data_url(content), filename=file_name(content))


def read_own_output(agents: Any, output: Any, payload: Any) -> ToolResult:
    """Return the result for the output of a tool of a toolbox, whose failures begin with ``Error:``."""
    if isinstance(output, str):
        return failure(output) if output.startswith("Error: ") else ToolResult.success(output, payload)
    found: ToolResult = read_output(agents, output)
    return ToolResult.success(found.output, payload, contents=found.contents)


def read_output(agents: Any, output: Any) -> Any:
    """Return the result for the output of a tool; what is not an object of the SDK is returned as it is."""
    kinds = agents.ToolOutputText, agents.ToolOutputImage, agents.ToolOutputFileContent
    items = output if isinstance(output, list) and output else [output]
    if not all(isinstance(each, kinds) for each in items):
        return output
    texts = [each.text for each in items if each.type == "text"]
    contents = [_read_media(each) for each in items if each.type != "text"]
    return ToolResult.success("\n".join(texts), contents=contents)


def _read_media(item: Any) -> Content:
    if item.type == "image" and item.image_url:
        return ImageContent.from_url(item.image_url)
    url = getattr(item, "file_url", None) or getattr(item, "file_data", None)
    if not url:
        raise ValueError(f"The tool returned a file of OpenAI's servers ({item.file_id}), which cannot be read here")
    address = url if ":" in url else f"data:application/octet-stream;base64,{url}"
    return FileContent.from_url(address, name=item.filename)
