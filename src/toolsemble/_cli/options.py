"""The options common to all commands, exit codes, and one-line error messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolsemble._vocabulary import errors

if TYPE_CHECKING:
    from toolsemble._cli.screen import Screen
    from toolsemble.review import ReviewStore

_STOPPED = (errors.ExitEarlyError, errors.BudgetExceededError, errors.RunParkedError)
_USAGE_ERRORS = (errors.ToolConfigurationError, errors.ToolDefinitionError)


class Exit(IntEnum):
    """The exit codes of the program.

    >>> Exit.STOPPED.value
    3
    """

    DONE = 0
    """The command succeeded."""
    FAILED = 1
    """The run or the call failed."""
    USAGE_ERROR = 2
    """The command is not valid: an unknown option, tool or model, or a missing package."""
    STOPPED = 3
    """A budget was exhausted, a reviewer stopped the run or rejected a call, or the run waits for approval; there may
    still be an answer."""
    INTERRUPTED = 130
    """Ctrl-C."""
    BROKEN_PIPE = 141
    """The reader closed the output (SIGPIPE)."""


def exit_code_for(error: BaseException) -> Exit:
    """Return the exit code for an error.

    >>> exit_code_for(errors.ToolConfigurationError("no model")).name
    'USAGE_ERROR'
    """
    if isinstance(error, _STOPPED):
        return Exit.STOPPED
    return Exit.USAGE_ERROR if isinstance(error, _USAGE_ERRORS) else Exit.FAILED


def format_error(error: BaseException) -> str:
    r"""Return the message of an error in one line.

    >>> format_error(errors.ToolDefinitionError("first\nsecond"))
    'first; second'
    >>> format_error(KeyError("city"))
    "KeyError: 'city'"
    """
    text = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
    if not text:
        return type(error).__name__
    is_self_explanatory = type(error).__module__.partition(".")[0] == "toolsemble" or isinstance(error, OSError)
    return text if is_self_explanatory else f"{type(error).__name__}: {text}"


_MINUTE, _HOUR, _DAY = 60, 3600, 24 * 3600


def format_age(seconds: float) -> str:
    """Return a duration in its largest unit.

    >>> [format_age(each) for each in (-1, 59, 3599, 7200, 200_000)]
    ['0 s', '59 s', '59 min', '2 h', '2 d']
    """
    whole = max(int(seconds), 0)
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if whole >= size:
            return f"{whole // size} {unit}"
    return f"{whole} s"


def open_store(file: str, secret: str | None) -> ReviewStore:
    """Return the store at a path or URL; raise ToolConfigurationError if its secret is unknown."""
    if secret is None and "://" not in file and not Path(f"{file}.key").exists():
        raise errors.ToolConfigurationError(
            f"The review store '{file}' has no file '{file}.key'; set TOOLSEMBLE_REVIEW_SECRET to its secret"
        )
    from toolsemble.review import ReviewStore

    return ReviewStore(file, secret)


_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(slots=True)
class GlobalOptions:
    """The options of every command.

    >>> GlobalOptions().debug
    False
    """

    debug: bool = False
    """Whether errors are shown with their traceback."""
    colors: bool | None = None
    """Whether to use colors; None: only in a terminal."""

    def make_screen(self) -> Screen:
        """Return the screen of a command."""
        from toolsemble._cli.screen import Screen

        return Screen(colors=self.colors)


def common_options(command: _Function) -> _Function:
    """Add the common options, so that they are accepted before and after a command's name."""

    def debug(ctx: click.Context, _: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click's signature
        ctx.ensure_object(GlobalOptions).debug |= given

    def colors(ctx: click.Context, _: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click's signature
        if given:
            ctx.ensure_object(GlobalOptions).colors = False

    settings: dict[str, Any] = {"is_flag": True, "expose_value": False, "is_eager": True}
    command = click.option("--debug", callback=debug, help="Show tracebacks of errors.", **settings)(command)
    return click.option("--no-color", callback=colors, help="Write without colors.", **settings)(command)


deps_option = click.option(
    "--deps",
    metavar="MODULE:NAME",
    help="The tools' deps, such as shop.py:shop: an object, or anything that make_deps accepts.",
)
"""The option of commands that call tools."""

json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON Lines.")
"""The option of commands that can write JSON."""


class _StorePath(click.Path):
    """The path of a file that exists, or a URL."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a URL unchanged; the store parses it."""
        return value if "://" in value else super().convert(value, param, ctx)


STORE = _StorePath(exists=True, dir_okay=False)
"""A store's path or URL."""

secret_option = click.option(
    "--secret",
    envvar="TOOLSEMBLE_REVIEW_SECRET",
    show_envvar=True,
    help="The store's secret, if it is not in FILE.key.",
)
"""The option for a review store's secret."""
