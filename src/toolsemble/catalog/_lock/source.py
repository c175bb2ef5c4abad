"""The identity of a source of tools: stable, and without secrets."""

from __future__ import annotations

import re
import shlex
from urllib.parse import urlsplit

PREFIX = "mcp:"
"""How the target of a server begins."""
HIDDEN = "***"
"""The text that stands for a secret."""
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
    """Return the identity of a server that is a program: the target of its command line, with secrets replaced.

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
    """Return the identity of a server at a URL: the target of its origin and path.

    The user, the query and the fragment are left out.

    >>> identify_url("HTTPS://ada:secret@Tools.Example.com:443/mcp/?key=1#top")
    'mcp:https://tools.example.com/mcp'
    """
    return f"{PREFIX}{_clean_url(url)}"


def identify_target(target: str) -> str:
    """Return the identity of a target: its text, without the secrets in the command line or the URL of a server.

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
    # A word begins at a capital letter, too: apiKey.
    return _SECRET_NAME.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)) is not None
