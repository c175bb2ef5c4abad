"""``ToolResult``, the outcome of a call, and its contents: images, audio, files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, TypeAlias, get_args

NO_ATTRIBUTES: Mapping[str, Any] = MappingProxyType({})
_NO_MESSAGE = "Tool execution failed with no message"

ErrorKind: TypeAlias = Literal[
    "unknown_tool", "json", "arguments", "rejected", "timeout", "limit", "unknown_outcome", "execution"
]
"""Why a call failed, for programs: see :attr:`ToolResult.error_kind`."""
ERROR_KINDS: frozenset[str] = frozenset(get_args(ErrorKind))


@dataclass(frozen=True, slots=True)
class TextContent:
    """A text besides a result's output.

    >>> TextContent("a footnote").text
    'a footnote'
    """

    text: str
    """The text."""

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError(f"TextContent text must be a str, not {type(self.text).__name__}")


@dataclass(frozen=True, slots=True)
class _Media:
    """Bytes, or their URL, with a media type; the repr shows the number of bytes, and omits the URL's query."""

    data: bytes
    """The raw bytes, not encoded; empty if there is a URL."""
    mime_type: str
    """The media type, such as ``image/png``."""
    url: str = field(default="", kw_only=True)
    """The http or https URL that the provider reads it from; empty if there are bytes."""

    _FAMILY: ClassVar[str] = ""

    def __new__(cls, *arguments: Any, **_: Any) -> Self:
        """Check the data before Python reports that the media type is missing: it may be a URL or a path."""
        if arguments:
            _check_data(cls.__name__, arguments[0])
        return object.__new__(cls)

    def __post_init__(self) -> None:
        name = type(self).__name__
        _check_data(name, self.data)
        if not isinstance(self.mime_type, str):
            raise TypeError(f"{name} mime_type must be a str, such as 'image/png', not {self.mime_type!r:.80}")
        if not (self.mime_type.isascii() and self.mime_type.isprintable()):
            raise ValueError(f"{name} mime_type must be a media type, such as 'image/png', not {self.mime_type!r:.80}")
        if self.url:
            _check_url(self)

    @classmethod
    def from_url(cls, url: str, mime_type: str | None = None) -> Self:
        """Return the content at a URL, which the provider fetches, never this library; ``data:`` URLs are decoded.

        :param url: an http, https or data URL; others raise ``ValueError``
        :param mime_type: the media type; by default, guessed from the extension
        """
        return cls(**cls._read_url(url, mime_type))

    @classmethod
    def _read_url(cls, url: str, mime_type: str | None) -> dict[str, Any]:
        from toolsemble._vocabulary.media_url import check_url, guess_media_type, read_data_url

        if str(url)[:5].lower() == "data:":
            data, kind = read_data_url(cls.__name__, url)
            known = mime_type or kind
            if cls._FAMILY and not (data and known.startswith(cls._FAMILY[:-1])):
                raise ValueError(
                    f"{cls.__name__} needs a data URL with data of the type {cls._FAMILY}, not {url!r:.80} "
                    f"({len(data)} bytes of {known!r:.80})"
                )
            return {"data": data, "mime_type": known}
        check_url(cls.__name__, url)
        known = mime_type or guess_media_type(url) or cls._FAMILY
        if not known:
            raise ValueError(f"{cls.__name__} cannot guess the media type of {url!r:.80}; pass mime_type=")
        return {"data": b"", "mime_type": known, "url": url}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_show_source(self)}, mime_type={self.mime_type!r})"


def _check_data(name: str, data: object) -> None:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        # A URL or a path is accepted by other libraries; here it would fail at the request to the provider.
        raise TypeError(
            f"{name} data must be bytes, not {data!r:.80}; read the file or fetch the URL first: "
            f"{name}(Path(...).read_bytes(), ...); or use {name}.from_url(url)"
        )


def _check_url(content: _Media) -> None:
    from toolsemble._vocabulary.media_url import check_url

    check_url(type(content).__name__, content.url)
    if content.data:
        raise ValueError(f"{type(content).__name__} takes bytes or a URL, not both")


def _show_source(content: _Media) -> str:
    if not content.url:
        return f"<{len(content.data)} bytes>"
    from toolsemble._vocabulary.media_url import hide_query

    return f"url={hide_query(content.url)!r}"


@dataclass(frozen=True, slots=True, repr=False)
class ImageContent(_Media):
    """An image.

    >>> ImageContent(b"...", "image/png")
    ImageContent(<3 bytes>, mime_type='image/png')
    >>> ImageContent.from_url("https://example.com/map.png")
    ImageContent(url='https://example.com/map.png', mime_type='image/png')
    """

    _FAMILY: ClassVar[str] = "image/*"


@dataclass(frozen=True, slots=True, repr=False)
class AudioContent(_Media):
    """An audio clip.

    >>> AudioContent(b"...", "audio/wav")
    AudioContent(<3 bytes>, mime_type='audio/wav')
    """


@dataclass(frozen=True, slots=True, repr=False)
class FileContent(_Media):
    """A file with its name.

    >>> FileContent(b"...", "application/pdf", "report.pdf").name
    'report.pdf'
    >>> FileContent.from_url("https://example.com/report.pdf").name
    'report.pdf'
    """

    name: str
    """The file name, without a directory."""

    @classmethod
    def from_url(cls, url: str, mime_type: str | None = None, name: str | None = None) -> Self:
        """Return the file at a URL, which the provider fetches, never this library; ``data:`` URLs are decoded.

        :param url: an http, https or data URL; others raise ``ValueError``
        :param mime_type: the media type; by default, guessed from the extension
        :param name: the file name; by default the last part of the URL
        """
        from toolsemble._vocabulary.media_url import file_name_of

        fields = cls._read_url(url, mime_type)
        return cls(**fields, name=name or (file_name_of(url) if "url" in fields else "") or "file")

    def __repr__(self) -> str:
        return f"FileContent({_show_source(self)}, mime_type={self.mime_type!r}, name={self.name!r})"


Content: TypeAlias = TextContent | ImageContent | AudioContent | FileContent
"""The contents that a result can have besides its text."""

Media: TypeAlias = ImageContent | AudioContent | FileContent
"""The contents that a prompt can have besides its text."""


@dataclass(frozen=True, slots=True, repr=False, init=False)
class ToolResult:
    """The outcome of one call, created by :meth:`success` or :meth:`failure`; immutable.

    >>> ToolResult.success("21 °C", structured_output={"celsius": 21}).text
    '21 °C'
    >>> ToolResult.failure("no such city").text
    'Error: no such city'
    """

    output: str = ""
    """The text for the model; empty on failure."""
    error_message: str | None = None
    """Why the call failed; None on success."""
    structured_output: Any = None
    """A payload for programs; never sent to the model."""
    contents: tuple[Content, ...] = ()
    """Images, audio and files besides the text."""
    attributes: Mapping[str, Any] = field(default_factory=lambda: NO_ATTRIBUTES)
    """Metadata for programs; never sent to the model."""
    error_kind: ErrorKind | None = field(default=None, compare=False)
    """The kind of the failure, for programs; None on success, never sent to the model. Results that differ only here
    are equal."""

    def __init__(
        self,
        output: str = "",
        error_message: str | None = None,
        structured_output: Any = None,
        contents: tuple[Content, ...] = (),
        attributes: Mapping[str, Any] = NO_ATTRIBUTES,
        error_kind: ErrorKind | None = None,
    ) -> None:
        # Every call creates one: setting the slots takes half as long as the __init__ of a frozen dataclass.
        _set_output(self, output)
        _set_error_message(self, error_message)
        _set_structured_output(self, structured_output)
        _set_contents(self, contents)
        _set_attributes(self, attributes)
        if error_message is not None:  # a success has none: see _get_error_kind
            _set_error_kind(self, error_kind or "execution")

    @classmethod
    def success(
        cls,
        output: str | None = "",
        structured_output: Any = None,
        *,
        contents: Iterable[Content] = (),
        attributes: Mapping[str, Any] | None = None,
    ) -> ToolResult:
        """Return a successful result; an output of None is the empty text.

        >>> ToolResult.success(None)
        ToolResult.success('')
        """
        text = _check_text("output", output) if output is not None else ""
        added = _check_contents(contents) if contents != () else ()
        return cls(text, None, structured_output, added, _freeze(attributes))

    @classmethod
    def failure(
        cls,
        error_message: str | None = None,
        *,
        structured_output: Any = None,
        attributes: Mapping[str, Any] | None = None,
        error_kind: ErrorKind = "execution",
    ) -> ToolResult:
        """Return a failed result; without a message it has a default message.

        >>> ToolResult.failure()
        ToolResult.failure('Tool execution failed with no message')
        >>> ToolResult.failure("The quota is used up", error_kind="limit").error_kind
        'limit'
        """
        if error_kind not in ERROR_KINDS:
            raise ValueError(f"error_kind must be one of {', '.join(get_args(ErrorKind))}, not {error_kind!r:.80}")
        message = _check_text("error_message", error_message) if error_message is not None else ""
        return cls("", message or _NO_MESSAGE, structured_output, (), _freeze(attributes), error_kind)

    @property
    def is_success(self) -> bool:
        """Whether the call succeeded."""
        return self.error_message is None

    @property
    def text(self) -> str:
        """The text for the model: the output, or ``Error:`` and the message."""
        return self.output if self.error_message is None else f"Error: {self.error_message}"

    def __repr__(self) -> str:
        name = "success" if self.is_success else "failure"
        shown = [repr(self.output if self.is_success else self.error_message)]
        if self.structured_output is not None:
            shown.append(f"structured_output={self.structured_output!r}")
        if self.contents:
            shown.append(f"contents={self.contents!r}")
        if self.attributes:
            shown.append(f"attributes={dict(self.attributes)!r}")
        if self.error_kind not in (None, "execution"):
            shown.append(f"error_kind={self.error_kind!r}")
        return f"ToolResult.{name}({', '.join(shown)})"

    def _repr_html_(self) -> str:
        from toolsemble._runtime.notebook import format_note, format_table, format_text

        rows = [] if self.structured_output is None else [("structured_output", repr(self.structured_output))]
        rows += [("content", repr(each)) for each in self.contents]
        rows += [(f"{name}", repr(value)) for name, value in self.attributes.items()]
        state = format_note("success" if self.is_success else "failure")
        return format_text(self.text) + format_table(rows) + state

    def __hash__(self) -> int:
        # Payloads and attributes are often unhashable; equal results still have equal hashes without them.
        return hash((self.output, self.error_message))

    def __reduce__(self) -> tuple[Any, ...]:
        # A read-only mapping cannot be pickled or deep-copied, a dict can.
        parts = (self.output, self.error_message, self.structured_output, self.contents)
        return _restore, (*parts, dict(self.attributes), self.error_kind)


_set_output = vars(ToolResult)["output"].__set__
_set_error_message = vars(ToolResult)["error_message"].__set__
_set_structured_output = vars(ToolResult)["structured_output"].__set__
_set_contents = vars(ToolResult)["contents"].__set__
_set_attributes = vars(ToolResult)["attributes"].__set__
_error_kind_slot = vars(ToolResult)["error_kind"]
_set_error_kind = _error_kind_slot.__set__


def _get_error_kind(result: ToolResult) -> ErrorKind | None:
    """Return the kind of a failure; None for a success."""
    kind: ErrorKind | None = None if result.error_message is None else _error_kind_slot.__get__(result)
    return kind


# The slot of a success is never set, which would take time in every call.
setattr(ToolResult, "error_kind", property(_get_error_kind))  # noqa: B010 - reads as the field does


def _restore(
    output: str,
    error: str | None,
    payload: Any,
    contents: tuple[Content, ...],
    attributes: dict[str, Any],
    kind: ErrorKind | None = None,
) -> ToolResult:
    return ToolResult(output, error, payload, contents, _freeze(attributes), kind)


def _freeze(attributes: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return MappingProxyType(dict(attributes)) if attributes else NO_ATTRIBUTES


def _check_contents(contents: Any) -> tuple[Content, ...]:
    is_list = isinstance(contents, Iterable) and not isinstance(contents, (str, bytes))
    listed = tuple(contents) if is_list else (contents,)
    for each in listed:
        if isinstance(each, (str, bytes)) or each is None:  # a program may define its own contents
            raise TypeError(
                "ToolResult contents must be a list of TextContent, ImageContent, AudioContent or FileContent, "
                f"not {each!r:.80}"
            )
    if not is_list:
        raise TypeError(f"ToolResult contents must be a list: contents=[{contents!r:.80}]")
    return listed


def _check_text(field: str, value: object) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(
        f"ToolResult {field} must be a str, not {type(value).__name__}; "
        "put other values into structured_output, or return them from the tool as they are"
    )
