"""The lock file, and the identities of its sources."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from toolsemble._runtime.text import has_invisible
from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError
from toolsemble.catalog._pinning.pins import PinnedTool

PREFIX = "mcp:"
"""The prefix of a server target."""
HIDDEN = "***"
"""The placeholder for a secret."""
_PORTS = {"http": 80, "https": 443}
_SECRET_NAME = re.compile(
    r"(?:^|[^a-z])(?:api.?key|key|tokens?|secrets?|passw(?:or)?d|pwd|pat|auth|authorization|credentials?|bearer|cookie"
    r"|dsn|private.?key|access.?key|session)(?:$|[^a-z])|(?:key|token|secret|password)$",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"(?:sk|pk|rk|ghp|gho|ghs|ghu|github_pat|glpat|xox[a-z]|AKIA|ASIA|AIza|npm|hf|eyJ)[-_A-Za-z0-9.]{12,}"
    r"|(?:bearer|basic)\s+\S+",
    re.IGNORECASE,
)
_ASSIGNMENT = re.compile(r"(?P<name>-{0,2}[A-Za-z][\w.-]*)(?P<sign>[=:]\s*)(?P<value>.+)", re.DOTALL)
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def identify_program(command: str, *args: str) -> str:
    """Return the identity of a server program: its command-line target, with secrets replaced.

    An argument is a secret after an option such as ``--api-key``, in an assignment such as ``TOKEN=...``, or if it
    looks like a key of a known service. A URL is shortened to its origin and path.

    >>> identify_program("npx", "server", "--api-key", "hunter2", "-e", "TOKEN=hunter2", "https://u:p@h.example/x?k=1")
    "mcp:npx server --api-key '***' -e 'TOKEN=***' https://h.example/x"
    """
    shown, hide = [command], False
    for arg in args:
        if hide and not arg.startswith("-"):
            shown.append(HIDDEN)
            hide = False
            continue
        shown.append(_clean_argument(arg))
        hide = arg.startswith("-") and _ASSIGNMENT.fullmatch(arg) is None and _is_secret_name(arg)
    return f"{PREFIX}{shlex.join(shown)}"


def identify_url(url: str) -> str:
    """Return the identity of a server at a URL: a target with its origin and path.

    User, query and fragment are omitted.

    >>> identify_url("HTTPS://ada:secret@Tools.Example.com:443/mcp/?key=1#top")
    'mcp:https://tools.example.com/mcp'
    """
    return f"{PREFIX}{_clean_url(url)}"


def identify_target(target: str) -> str:
    """Return the identity of a target: its text, without secrets in a server's command line or URL.

    >>> identify_target("my_tools.py"), identify_target("mcp:server --token hunter2")
    ('my_tools.py', "mcp:server --token '***'")
    """
    if not target.startswith(PREFIX):
        return target
    place = target.removeprefix(PREFIX).strip()
    return identify_url(place) if _URL.match(place) else identify_program(*shlex.split(place))


def _clean_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url.partition("?")[0].rpartition("@")[2]
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    number = "" if port is None or port == _PORTS.get(parts.scheme) else f":{port}"
    return f"{parts.scheme}://{host}{number}{parts.path.rstrip('/')}"


def _clean_argument(arg: str) -> str:
    if _URL.match(arg):
        return _clean_url(arg)
    assignment = _ASSIGNMENT.fullmatch(arg)
    if assignment is None:
        return _SECRET_VALUE.sub(HIDDEN, arg)
    name, sign, value = assignment.groups()
    return f"{name}{sign}{HIDDEN if _is_secret_name(name) else _clean_argument(value)}"


def _is_secret_name(name: str) -> bool:
    # A capital letter also starts a word: apiKey.
    return _SECRET_NAME.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)) is not None


VERSION = 1
"""The version of the file format."""
_VERSION = "toolsemble.lock"
_TEXTS = ("title", "description")
_OBJECTS = ("input_schema", "output_schema", "annotations")

Sources: TypeAlias = dict[str, dict[str, PinnedTool]]
"""The pinned tools by source and name."""


def read_lock(path: Path) -> Sources | None:
    """Return a file's pins; None if there is no file; raise ToolConfigurationError if it is damaged."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as problem:
        raise _unreadable(path, f"{type(problem).__name__}: {problem}") from None
    try:
        return _read_sources(json.loads(text, object_pairs_hook=_read_object, parse_constant=_refuse_constant))
    except (ToolDefinitionError, ValueError, RecursionError) as problem:
        why = "it has marks of a merge conflict" if "\n<<<<<<<" in f"\n{text}" else str(problem)
        raise _unreadable(path, why) from None


def write_lock(path: Path, sources: Mapping[str, Mapping[str, PinnedTool]]) -> None:
    """Replace the file atomically; a crash leaves the old file or the new one."""
    path = path.resolve()  # replace a link's target, not the link
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{new_id()}")
    try:
        with draft.open("x", encoding="utf-8", newline="\n") as file:
            file.write(format_lock(sources))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def format_lock(sources: Mapping[str, Mapping[str, PinnedTool]]) -> str:
    r"""Return the text of a lock file: sorted, with invisible characters escaped.

    >>> pin = PinnedTool("now", description="The\u200btime")
    >>> print(format_lock({"tools.py": {"now": pin}}), end="")  # doctest: +ELLIPSIS
    {
      "toolsemble.lock": 1,
      "sources": {
        "tools.py": {
          "now": {
            "digest": "sha256:...",
            "description": "The\u200btime"
          }
        }
      }
    }
    """
    values = {
        _VERSION: VERSION,
        "sources": {
            source: {name: _write_pin(pins[name]) for name in sorted(pins)} for source, pins in sorted(sources.items())
        },
    }
    return "\n".join(map(_escape_line, json.dumps(values, ensure_ascii=False, indent=2).split("\n"))) + "\n"


def _write_pin(pin: PinnedTool) -> dict[str, Any]:
    """Return a pin as JSON values; a multi-line text as a list, so that a diff shows the changed line."""
    values: dict[str, Any] = {"digest": pin.digest}
    for name in _TEXTS:
        if text := getattr(pin, name):
            values[name] = text.split("\n") if "\n" in text else text
    for name in _OBJECTS:
        if (value := getattr(pin, name)) is not None and value != {}:
            values[name] = _sort_keys(value)
    return values


def _sort_keys(value: Any) -> Any:
    return json.loads(json.dumps(value, sort_keys=True))


def _escape_line(line: str) -> str:
    """Return a JSON line with invisible characters as JSON escapes."""
    if not has_invisible(line):
        return line
    return "".join(_escape(each) if has_invisible(each) else each for each in line)


def _escape(character: str) -> str:
    code = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{code[place : place + 2].hex()}" for place in range(0, len(code), 2))


def _read_object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object from pairs; raise for a duplicate key, because a reviewer may have seen the other value."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"the key {key!r:.80} is there twice")
        values[key] = value
    return values


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _read_sources(values: Any) -> Sources:
    if not isinstance(values, dict) or _VERSION not in values:
        raise ValueError("it is not a lock file")
    if values[_VERSION] != VERSION or isinstance(values[_VERSION], bool):
        raise ValueError(f"it has version {values[_VERSION]!r:.80}, and this library reads version {VERSION}")
    _check_keys("it", values, {_VERSION, "sources"})
    sources = _check_object("sources", values.get("sources"))
    return {
        source: {name: _read_pin(f"{source}: {name}", name, pin) for name, pin in _check_object(source, pins).items()}
        for source, pins in sources.items()
    }


def _read_pin(place: str, name: str, values: Any) -> PinnedTool:
    _check_keys(place, _check_object(place, values), {"digest", *_TEXTS, *_OBJECTS})
    title, description = (_read_text(place, values.get(each, "")) for each in _TEXTS)
    pin = PinnedTool(name, title, description, **{each: values[each] for each in _OBJECTS if each in values})
    if values.get("digest") != pin.digest:
        raise ValueError(f"the digest of {place!r:.200} does not fit its text, so it was edited")
    return pin


def _read_text(place: str, value: Any) -> str:
    lines = value if isinstance(value, list) else [value]
    if not all(isinstance(line, str) for line in lines):
        raise ValueError(f"{place!r:.200} has a text that is not one")
    return "\n".join(lines)


def _check_object(place: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{place!r:.200} must be an object")
    return value


def _check_keys(place: str, values: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted({*values} - known):
        raise ValueError(f"{place:.200} has an unknown key {unknown[0]!r:.80}")


def _unreadable(path: Path, why: str) -> ToolConfigurationError:
    return ToolConfigurationError(
        f"The lock file '{path}' cannot be used: {why}; restore it from version control, or delete it, write it again "
        "with 'toolsemble lock', and review all of it"
    )
