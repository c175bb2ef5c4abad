"""A client's options and their validation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from toolsemble._runtime.checks import check_count, check_seconds
from toolsemble._runtime.extras import install_command
from toolsemble._tools.settings import BareSettings, ToolSettings
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.review._request import is_reviewer
from toolsemble.review._rules.pattern import matches_name

if TYPE_CHECKING:
    from os import PathLike

    from toolsemble._engine.limits.retries import Retries
    from toolsemble.catalog._pinning.tool_lock import ToolLock
    from toolsemble.review._gate import Predicate
    from toolsemble.review._request import ReviewHandler

Approve: TypeAlias = "str | Iterable[str] | Predicate | None"
"""Which tools need approval: ``"destructive"``, names, patterns of names, or a predicate."""

DESTRUCTIVE = "destructive"
"""The value of ``approve`` for all tools that may destroy something, by their hints."""

CONNECT_TIMEOUT = 30.0
"""The default start timeout, in seconds."""

_IMPOSSIBLE = ("inline", "isolation", "max_memory", "editable", "resources", "cpus", "gpus", "memory")
_NEEDS_REPEATABLE = ("cache", "retries")
_LONGEST_PREFIX = 40


class ClientOptions(BareSettings, total=False):
    """A client's options besides its target; any others are settings for all its tools."""

    name: str | None
    """The server's name in messages, logs and reviews; default: the program's or host's name."""
    prefix: str
    """The prefix of each tool's name."""
    only: str | Iterable[str] | None
    """The tools to use, by their names on the server, or patterns; None: all."""
    timeout: float | None
    """Timeout of a call in seconds, excluding time spent waiting for a person; None: no limit."""
    connect_timeout: float
    """Timeout in seconds for server start, handshake and tool list together."""
    trust_hints: bool
    """Whether the server's ``readOnlyHint`` and ``idempotentHint`` are trusted."""
    approve: Approve
    """Which tools need approval: ``"destructive"``, names, patterns of names, or a predicate."""
    review: ReviewHandler | None
    """The reviewer that answers the server's questions; None: the toolbox's."""
    lock: ToolLock | str | PathLike[str] | None
    """The lock, or its file: tools that changed since the review are refused; None: no lock."""
    roots: Iterable[str]
    """The directories, or their ``file:`` URIs, that the server is told to work in."""
    resource_tools: bool
    """Whether to add two tools that list and read the server's resources."""
    prompt_tools: bool
    """Whether each of the server's prompts becomes a tool."""
    max_message: int
    """The maximum message size, in bytes."""
    max_tools: int
    """The maximum number of tools; a server with more is rejected."""
    retries: int | Retries
    """As for any tool; for tools that may be repeated."""
    max_concurrency: int | None
    """As for any tool."""
    max_output: int | None
    """As for any tool."""


@dataclass(frozen=True, slots=True)
class Options:
    """The validated options of one client."""

    name: str
    prefix: str = ""
    only: tuple[str, ...] | None = None
    timeout: float | None = 60.0
    connect_timeout: float = CONNECT_TIMEOUT
    trust_hints: bool = False
    approve: Any = None
    review: ReviewHandler | None = None
    lock: ToolLock | None = None
    roots: tuple[str, ...] = ()
    resource_tools: bool = False
    prompt_tools: bool = False
    max_message: int = 32 * 2**20
    max_tools: int = 1000
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings of all tools."""

    def takes(self, remote: str) -> bool:
        """Return whether a tool with this server name is selected."""
        return self.only is None or any(_is_named(pattern, remote) for pattern in self.only)

    def find_unused(self, option: str, names: Sequence[str]) -> list[str]:
        """Return the names and patterns in ``approve`` or ``only`` that match none of the names."""
        patterns = getattr(self, option)
        if not isinstance(patterns, tuple):  # not set, a predicate, or "destructive"
            return []
        # Approval matches names loosely, and is required for all variants; tools are selected by exact names.
        matches = matches_name if option == "approve" else _is_named
        return [each for each in patterns if not any(matches(each, name) for name in names)]


def _is_named(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern)


def build_options(default_name: str, given: Mapping[str, Any]) -> Options:
    """Return a client's options; raise ToolDefinitionError if one is invalid.

    >>> build_options("files", {"timeout": 0})
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: MCPClient timeout must be a number of seconds > 0, not 0
    """
    if find_spec("mcp") is None:
        raise ToolDefinitionError(f"MCPClient needs the package 'mcp': {install_command('mcp')}")
    own = {name: value for name, value in given.items() if name in Options.__dataclass_fields__ and name != "settings"}
    settings = {name: value for name, value in given.items() if name not in own}
    _check_settings(settings, trusted=given.get("trust_hints", False))
    own["name"] = _check_text("name", own.get("name") or default_name)
    for name in ("only", "roots"):
        if own.get(name) is not None:
            own[name] = _read_names(name, own[name])
    own["roots"] = tuple(map(_to_uri, own.get("roots") or ()))
    own["approve"] = _read_approve(own.get("approve"))
    if own.get("lock") is not None:
        from toolsemble.catalog._pinning.tool_lock import as_lock

        own["lock"] = as_lock(own["lock"])
    options = Options(**own, settings=settings)
    _check_values(options)
    return options


def _check_values(options: Options) -> None:
    if options.timeout is not None:
        check_seconds("MCPClient timeout", options.timeout)
    check_seconds("MCPClient connect_timeout", options.connect_timeout)
    check_count("MCPClient max_message", options.max_message, least=1)
    check_count("MCPClient max_tools", options.max_tools, least=1)
    for name in ("trust_hints", "resource_tools", "prompt_tools"):
        if not isinstance(getattr(options, name), bool):
            raise ToolDefinitionError(f"MCPClient {name} must be True or False, not {getattr(options, name)!r:.80}")
    prefix = _check_text("prefix", options.prefix)
    if len(prefix) > _LONGEST_PREFIX or not all(each.isascii() and (each.isalnum() or each in "_-") for each in prefix):
        raise ToolDefinitionError(
            f"MCPClient prefix must be at most {_LONGEST_PREFIX} letters, digits, '_' or '-', not {prefix!r:.80}"
        )
    if options.review is not None and not is_reviewer(options.review):
        raise ToolDefinitionError(
            f"MCPClient review must be an object with a method review(request), not {options.review!r:.80}"
        )


def _check_settings(settings: Mapping[str, Any], *, trusted: bool) -> None:
    known = ToolSettings.__annotations__
    for name in settings:
        if name not in known:
            names = sorted({*ClientOptions.__annotations__, *known} - set(_IMPOSSIBLE))
            raise TypeError(f"MCPClient has no option {name!r}; known are {', '.join(names)}")
        if name in _IMPOSSIBLE:
            raise ToolDefinitionError(f"MCPClient: {name} is not possible for tools of a server")
    repeatable = trusted or settings.get("effects") == "read" or settings.get("idempotent")
    for name in _NEEDS_REPEATABLE:
        if settings.get(name) and not repeatable:
            raise ToolDefinitionError(
                f"MCPClient: {name} is for tools that may be repeated; pass trust_hints=True to believe the server, "
                "or effects='read' if all its tools only read"
            )


def _to_uri(root: str) -> str:
    return root if root.startswith("file://") else Path(root).expanduser().resolve().as_uri()


def _check_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ToolDefinitionError(f"MCPClient {name} must be a str, not {value!r:.80}")
    return value


def _read_names(option: str, value: Any) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (None,)
    if not all(isinstance(each, str) for each in names):
        raise ToolDefinitionError(f"MCPClient {option} must be a list of str, not {value!r:.80}")
    return names


def _read_approve(value: Any) -> Any:
    if value is None or value == DESTRUCTIVE:
        return value
    if callable(value):
        from toolsemble.review._gate import check_predicate

        return check_predicate("MCPClient approve", value)
    return _read_names("approve", value)
