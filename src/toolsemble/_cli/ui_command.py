"""The command ``ui``: the web interface, and the people who may use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from toolsemble._cli.options import Exit, GlobalOptions, common_options, deps_option

_START = "start"
_FOLDER = click.Path(file_okay=False)


class _UiGroup(click.Group):
    """A group whose first word may be a target: then the server is started."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = [_START, *args]
        return super().parse_args(ctx, args)


@click.group(cls=_UiGroup)
def ui() -> None:
    """Open the web interface: runs, approvals, and tools as forms."""


@ui.command(_START)
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--data", type=_FOLDER, default=".toolsemble", show_default=True, help="The folder with the runs.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=7771, show_default=True, help="The port; 0 picks a free one."
)
@click.option("--no-open", is_flag=True, help="Print the link without opening a browser.")
@click.option("--read-only", is_flag=True, help="Read-only: show everything, change nothing.")
@click.option(
    "--people",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="A TOML file of the people who may sign in.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on; any address except loopback needs --people.",
)
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="A host name under which browsers reach it.")
@deps_option
@common_options
@click.pass_obj
def start(
    options: GlobalOptions,
    /,
    targets: tuple[str, ...],
    *,
    hosts: tuple[str, ...],
    no_open: bool,
    deps: str | None,
    **given: Any,
) -> int:
    """Open the web interface: runs, approvals, and the tools and agents of each TARGET.

    The folder contains the files that programs write: history.db (RunHistory), reviews.db (ReviewStore), runs.db
    (RunJournal) and effects.db (EffectLedger). TARGET is a built-in name, a module, module:attribute, a file.py, or a
    server: mcp:URL. Naming a module or a file runs its code.

    \b
    toolsemble ui my_tools.py
    toolsemble ui --data /var/lib/bots --read-only
    toolsemble ui add-person ada --role admin --people people.toml
    """
    from toolsemble._cli.ui_targets import load_targets
    from toolsemble._runtime.extras import import_extra

    import_extra("starlette", extra="ui", user="toolsemble ui")
    import_extra("uvicorn", extra="ui", user="toolsemble ui")
    from toolsemble._ui.server import ServerSettings, serve

    settings = ServerSettings(open_browser=not no_open, allowed_hosts=hosts, **given)
    serve(settings, load_targets(targets, deps), options.make_screen().write)
    return Exit.DONE


@ui.command("add-person")
@click.argument("name")
@click.option("--role", "roles", multiple=True, help="A role; operator may call tools, viewer has read-only access.")
@click.option("--people", type=click.Path(dir_okay=False), default="people.toml", show_default=True, help="The file.")
@common_options
@click.pass_obj
def add(options: GlobalOptions, name: str, roles: tuple[str, ...], people: str) -> int:
    """Add the user NAME, and print the token.

    The file keeps only a digest of the token.
    """
    from toolsemble._ui.people import add_person

    token = add_person(Path(people), name, roles)
    screen = options.make_screen()
    screen.report(f"toolsemble: {name} is in {people} now, and signs in with this token, which is not shown again:")
    screen.write(token)
    return Exit.DONE
