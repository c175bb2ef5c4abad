"""Types and functions shared by the wire formats: tools, calls, replies and media."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

from toolsemble._vocabulary.result import Content, FileContent, Media, TextContent

Call: TypeAlias = tuple[str, str | dict[str, Any] | None, str | None]
"""The name, the arguments and the id of a call."""

TEXT_TYPES = frozenset({
    "application/javascript", "application/json", "application/sql", "application/toml", "application/x-ndjson",
    "application/x-sh", "application/x-yaml", "application/xml", "application/yaml",
})  # fmt: skip
"""The types of text files beside those that begin with ``text/``."""
_TEXT_SUFFIXES = ("+json", "+xml", "+yaml")


class Offer(Protocol):
    """A tool as the model sees it, such as a ``ToolSpecification``."""

    @property
    def name(self) -> str:
        """The name by which the model calls the tool."""
        ...

    @property
    def description(self) -> str:
        """The description for the model."""
        ...

    @property
    def parameters(self) -> dict[str, Any] | None:
        """The portable JSON Schema of the arguments; None if there are none."""
        ...

    @property
    def strict(self) -> bool | None:
        """Whether to use the provider's strict mode."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Additional settings, such as a title and hints."""
        ...


class Answer(Protocol):
    """The reply to one call, as the model sees it."""

    @property
    def call_id(self) -> str | None:
        """The provider's id of the call."""
        ...

    @property
    def name(self) -> str:
        """The name of the tool that was called."""
        ...

    @property
    def text(self) -> str:
        """The text for the model; begins with ``Error:`` on failure."""
        ...

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        ...

    @property
    def contents(self) -> tuple[Content, ...]:
        """Images, audio and files beside the text."""
        ...


def field(source: object, *names: str) -> Any:
    """Return the first existing one of these fields of an SDK object or its dict; None if there is none.

    >>> field({"functionCall": {"name": "now"}}, "function_call", "functionCall")
    {'name': 'now'}
    """
    for name in names:
        value = source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
        if value is not None:
            return value
    return None


def as_list(value: object) -> list[Any]:
    """Return a value if it is a list, or else an empty list.

    >>> as_list([1]), as_list(None), as_list("text")
    ([1], [], [])
    """
    return value if isinstance(value, list) else []


def make_call(name: object, arguments: object, id: object) -> Call:
    """Return the parts of a call, converted to the types of a call.

    >>> make_call("add", [1, 2], 7)
    ('add', '[1, 2]', '7')
    """
    return _to_text(name) or "", _to_arguments(arguments), _to_text(id)


def read_function_call(source: object, expected: str) -> Call:
    """Return the parts of a call in the format of OpenAI's chat completions.

    >>> read_function_call({"id": "c1", "function": {"name": "now", "arguments": "{}"}}, "a tool call")
    ('now', '{}', 'c1')
    """
    function = field(source, "function")
    if function is None:
        raise unexpected_source(source, expected)
    return make_call(field(function, "name"), field(function, "arguments"), field(source, "id"))


def unexpected_source(source: object, expected: str) -> TypeError:
    """Return the error for an object that is not a call.

    >>> unexpected_source({"role": "user"}, "an Anthropic tool_use block")
    TypeError("Expected an Anthropic tool_use block, got a dict with the keys 'role'")
    """
    if isinstance(source, Mapping):
        keys = ", ".join(repr(key) for key in source) or "(none)"
        return TypeError(f"Expected {expected}, got a {type(source).__name__} with the keys {keys}")
    return TypeError(f"Expected {expected}, got {type(source).__name__}")


def _to_text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def _to_arguments(value: object) -> str | dict[str, Any] | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return dict(value)
    # A list or a number is the model's mistake: as text, it is rejected with a message for the model.
    return json.dumps(value, default=str)


def base64_text(data: bytes) -> str:
    """Return bytes as base64 text.

    >>> base64_text(b"hi")
    'aGk='
    """
    return base64.b64encode(data).decode("ascii")


def media_type(content: Media) -> str:
    """Return the media type in its usual spelling, without parameters.

    >>> from toolsemble import ImageContent
    >>> media_type(ImageContent(b"...", "image/JPG")), media_type(FileContent(b"a", "text/csv; header=absent", "a.csv"))
    ('image/jpeg', 'text/csv')
    """
    kind = content.mime_type.split(";")[0].strip().lower()
    return "image/jpeg" if kind == "image/jpg" else kind


def data_url(content: Media) -> str:
    """Return media as a data URL, or their own URL.

    >>> from toolsemble import ImageContent
    >>> data_url(ImageContent(b"hi", "image/png"))
    'data:image/png;base64,aGk='
    """
    return content.url or f"data:{media_type(content)};base64,{base64_text(content.data)}"


def decode_text(content: Media) -> str | None:
    """Return the text of UTF-8 text media; None for any other.

    >>> from toolsemble import ImageContent
    >>> decode_text(FileContent(b"a;b", "text/csv", "a.csv")), decode_text(ImageContent(b"...", "image/png"))
    ('a;b', None)
    """
    return _decode(content) if media_type(content).startswith("text/") else None


def write_as_text(content: Media) -> str | None:
    r"""Return a text file, including code and data, as text for the model; None for any other.

    >>> write_as_text(FileContent(b"[1]", "application/json", "a.json"))
    'File a.json:\n\n[1]'
    """
    kind = media_type(content)
    text = _decode(content) if kind.startswith("text/") or kind in TEXT_TYPES or kind.endswith(_TEXT_SUFFIXES) else None
    return f"File {file_name(content)}:\n\n{text}" if text and text.strip() else None


def _decode(content: Media) -> str | None:
    try:
        return None if content.url else content.data.decode()
    except UnicodeDecodeError:
        return None


def file_name(content: Media) -> str:
    """Return the name of a file, or one derived from the media type.

    >>> from toolsemble import ImageContent
    >>> file_name(FileContent(b"...", "application/pdf", "report.pdf")), file_name(ImageContent(b"...", "image/png"))
    ('report.pdf', 'image.png')
    """
    name = content.name if isinstance(content, FileContent) else ""
    return name or media_type(content).replace("/", ".")


def describe_omitted(content: Media) -> str:
    """Return the text line that replaces unsupported media.

    >>> describe_omitted(FileContent(b"...", "application/zip", "a.zip"))
    '[a.zip, application/zip, 3 bytes, not shown]'
    """
    name = f"{content.name}, " if isinstance(content, FileContent) and content.name else ""
    size = content.url or f"{len(content.data)} bytes"
    return f"[{name}{content.mime_type}, {size}, not shown]"


def write_blocks(
    answer: Answer, write_text: Callable[[str], Any], write_media: Callable[[Media], dict[str, Any] | None]
) -> list[dict[str, Any]]:
    """Return the content blocks of an answer; media for which ``write_media`` returns None become a text line.

    Blank text has no block, since several providers reject it.

    >>> from types import SimpleNamespace
    >>> answer = SimpleNamespace(call_id="c1", name="now", text="noon", is_error=False, contents=())
    >>> write_blocks(answer, lambda text: {"text": text}, lambda content: None)
    [{'text': 'noon'}]
    """
    written = [write_text(answer.text)] if answer.text.strip() else []
    for content in answer.contents:
        if not isinstance(content, TextContent):
            written.append(write_media(content) or write_text(describe_omitted(content)))
        elif content.text.strip():
            written.append(write_text(content.text))
    return written


def join_text(answer: Answer, admitted: frozenset[str] = frozenset()) -> str:
    r"""Return the answer as text, with a line for each media item of an unsupported type.

    >>> from types import SimpleNamespace
    >>> from toolsemble import ImageContent
    >>> join_text(SimpleNamespace(text="a map", contents=(ImageContent(b"...", "image/png"),)))
    'a map\n[image/png, 3 bytes, not shown]'
    """
    return "\n".join(line for line in _text_lines(answer, admitted) if line)


def _text_lines(answer: Answer, admitted: frozenset[str]) -> Iterator[str]:
    yield answer.text
    for content in answer.contents:
        if isinstance(content, TextContent):
            yield content.text
        elif content.url or media_type(content) not in admitted:
            yield describe_omitted(content)


def select_media(answer: Answer, admitted: frozenset[str]) -> list[Media]:
    """Return the answer's media of supported types, except URLs."""
    pieces = [content for content in answer.contents if not isinstance(content, TextContent)]
    return [content for content in pieces if media_type(content) in admitted and not content.url]


def parameters_of(offer: Offer) -> dict[str, Any]:
    """Return the schema of a tool's arguments; an empty object for a tool without parameters.

    >>> from toolsemble import ToolSpecification
    >>> parameters_of(ToolSpecification("now", "The time"))
    {'type': 'object', 'properties': {}}
    """
    return {"type": "object", "properties": {}} if offer.parameters is None else offer.parameters


def settings_for(provider: str, offer: Offer) -> dict[str, Any]:
    """Return a tool's metadata keys for a provider, which are sent next to the tool's name.

    >>> from toolsemble import ToolSpecification
    >>> weather = ToolSpecification("weather", "The weather", metadata={"anthropic": {"defer_loading": True}})
    >>> settings_for("anthropic", weather), settings_for("openai", weather)
    ({'defer_loading': True}, {})
    """
    settings = offer.metadata.get(provider)
    return dict(settings) if isinstance(settings, Mapping) else {}


def function_tool(provider: str, offer: Offer, parameters: dict[str, Any], *, strict: bool = False) -> dict[str, Any]:
    """Return a tool in the format of OpenAI's chat completions.

    >>> from toolsemble import ToolSpecification
    >>> function_tool("openai", ToolSpecification("now", "The time"), {"type": "object"})["function"]
    {'name': 'now', 'description': 'The time', 'parameters': {'type': 'object'}}
    """
    function = {"name": offer.name, "description": offer.description, "parameters": parameters}
    more = {**({"strict": True} if strict else {}), **settings_for(provider, offer)}
    return {"type": "function", "function": {**function, **more}}
