"""The options that every command has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from toolsemble._cli.screen import Screen

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
    """Whether to use colors; None: if the stream is a terminal."""

    def make_screen(self) -> Screen:
        """Return the screen of a command."""
        from toolsemble._cli.screen import Screen

        return Screen(colors=self.colors)


def common_options(command: _Function) -> _Function:
    """Add the options of every command, so that they are accepted before and after its name."""

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
    help="The deps of tools, such as shop.py:shop: an object, or what an agent's make_deps takes.",
)
"""The option of commands that call tools."""

json_option = click.option("--json", "as_json", is_flag=True, help="Write lines of JSON.")
"""The option of commands that can write JSON."""


class _StorePath(click.Path):
    """The path of a file that exists, or a URL."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a URL as it is; the store reads it."""
        return value if "://" in value else super().convert(value, param, ctx)


STORE = _StorePath(exists=True, dir_okay=False)
"""The file of a store, or its URL."""

secret_option = click.option(
    "--secret",
    envvar="TOOLSEMBLE_REVIEW_SECRET",
    show_envvar=True,
    help="The secret of the store, if it is not in FILE.key.",
)
"""The option for the secret of a review store."""
