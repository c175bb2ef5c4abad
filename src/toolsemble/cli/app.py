"""The commands and their options. What a command does is loaded when it is used, so that help comes at once."""

# ruff: noqa: PLC0415 - each command loads what it does

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from toolsemble import __version__
from toolsemble.cli.exit_codes import Exit, exit_of, line_of
from toolsemble.cli.visible import one_line, visible

if TYPE_CHECKING:
    from toolsemble.cli.screen import Screen

PROGRAM = "toolsemble"
VARIABLE = "_TOOLSEMBLE_COMPLETE"
PROVIDERS = ("openai", "anthropic", "google", "bedrock", "mistral", "ollama", "mcp")
"""The providers whose wire formats are known."""
APPROVALS = ("ask", "always", "never")
"""What ``--approve`` can say: a person is asked, every call may run, none that needs approval may."""
TARGETS = (
    "calculator",
    "datetime",
    "json_parser",
    "file_read:",
    "file_write:",
    "web_search",
    "web_scraper",
    "human_input",
)
"""The beginnings of built-in targets, for shells to complete."""

_LONGEST = 2000

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(slots=True)
class Wishes:
    """What a person wants of every command.

    >>> Wishes().debug
    False
    """

    debug: bool = False
    """Whether errors are shown with where they come from."""
    colors: bool | None = None
    """Whether there are colors; None for where they can be seen."""

    def screen(self) -> Screen:
        """Give the screen that commands write on."""
        from toolsemble.cli.screen import Screen

        return Screen(colors=self.colors)


def run(argv: Sequence[str]) -> int:
    """Give the exit code of a command, once it is done; errors are told in one line.

    >>> run(["version", "--nothing"])
    2
    """
    try:
        return int(_done(argv, Wishes()) or 0)
    except (BrokenPipeError, _UnheardError):
        # The interpreter would try to write the rest once more, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.UNHEARD


def _done(argv: Sequence[str], wishes: Wishes) -> int | None:
    """Do what a command says; what goes wrong is told, unless nobody listens."""
    try:
        code: int | None = app.main(list(argv), PROGRAM, VARIABLE, standalone_mode=False, obj=wishes)
    except click.UsageError as error:
        code = _misused(error, argv)
    except click.Abort:
        code = Exit.INTERRUPTED
    except _UnheardError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, a person gets one line
        if wishes.debug:
            _trace()
        ended = error.__cause__ if isinstance(error, _EndedError) else None
        code = _told(line_of(ended or error), exit_of(error))
    return code


def _misused(error: click.UsageError, argv: Sequence[str]) -> Exit:
    """Tell what is wrong with the words of a command; to who reads the events of a run, as its only one, too."""
    where = error.ctx.command_path if error.ctx else PROGRAM
    line = f"{error.format_message()} See '{where} --help'."
    if where in {f"{PROGRAM} ask", f"{PROGRAM} chat"} and "--json" in argv:
        from toolsemble.agent.result import AgentResult
        from toolsemble.cli.json_output import Journal
        from toolsemble.errors import ToolConfigurationError

        Journal(Wishes().screen()).end(ToolConfigurationError(line), AgentResult())
    return _told(line, Exit.MISUSED)


def _told(line: str, code: Exit) -> Exit:
    click.echo(f"{PROGRAM}: {one_line(line, _LONGEST)}", err=True)
    return code


def _trace() -> None:
    import traceback

    click.echo(visible(traceback.format_exc()), err=True, nl=False)


class _UnheardError(Exception):
    """Whoever read the output has gone; click would end the process with a code of its own for a broken pipe."""


class _EndedError(Exception):
    """A tool or a module raised what ends programs, such as SystemExit; that is its failure, not our end."""


class _Program(click.Group):
    """The group of all commands; whoever reads its output may go at any time."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except BrokenPipeError as error:
            raise _UnheardError from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise _UnheardError from error
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise _EndedError from error
        return code


def _common(command: _Function) -> _Function:
    """Add the options that every command has, so that they can stand before and after its name."""

    def debug(ctx: click.Context, _: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click's own form
        ctx.ensure_object(Wishes).debug |= given

    def colors(ctx: click.Context, _: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click's own form
        if given:
            ctx.ensure_object(Wishes).colors = False

    settings: dict[str, Any] = {"is_flag": True, "expose_value": False, "is_eager": True}
    command = click.option("--debug", callback=debug, help="Show where errors come from.", **settings)(command)
    return click.option("--no-color", callback=colors, help="Write without colors.", **settings)(command)


def _completed(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    done, comma, last = incomplete.rpartition(",")
    return [CompletionItem(f"{done}{comma}{name}") for name in TARGETS if name.startswith(last)]


def _talking(command: _Function) -> _Function:
    """Add the options of commands that talk to a model."""
    options = (
        click.option("-m", "--model", help="A name such as openai:gpt-5-mini or local, or module:attribute."),
        click.option(
            "-t",
            "--tools",
            multiple=True,
            metavar="TARGETS",
            shell_complete=_completed,
            help="Tools that the model can use, such as calculator,file_read:./docs,my_module:my_tools.",
        ),
        _approve,
        click.option("--max-calls", type=click.IntRange(0), help="How many calls an answer may take (25)."),
        click.option("--max-tokens", type=click.IntRange(1), help="How many tokens an answer may take."),
        click.option("--max-seconds", type=click.FloatRange(0, min_open=True), help="How long an answer may take."),
        click.option("--memory", type=click.Path(dir_okay=False), help="Keep the conversation in this file."),
        _json,
        click.option("-q", "--quiet", is_flag=True, help="Write only the answer."),
    )
    for option in reversed(options):
        command = option(command)
    return command


_approve = click.option(
    "--approve",
    type=click.Choice(APPROVALS),
    default=APPROVALS[0],
    show_default=True,
    help="Who decides about calls that need approval: you, or nobody.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Write lines of JSON.")
_provider = click.option("-p", "--provider", type=click.Choice(PROVIDERS), help="One provider's wire format.")


@click.group(
    cls=_Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 failed, 2 misused, 3 stopped by a budget or a reviewer, 130 interrupted.",
)
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
@click.option("--show-completion", metavar="SHELL", help="Print the completion script for bash, zsh or fish.")
@click.option("--install-completion", metavar="SHELL", help="Set completion up for a shell, or 'auto' for yours.")
@_common
@click.pass_context
def app(ctx: click.Context, show_completion: str | None, install_completion: str | None) -> int | None:
    """Let models use tools, and tools be used by hand."""
    from toolsemble.cli import completion

    if show_completion is not None:
        ctx.exit(completion.show(app, completion.shell_of(show_completion)))
    if install_completion is not None:
        ctx.exit(completion.install(completion.shell_of(install_completion)))
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    return None


@app.command()
@click.argument("question", nargs=-1, required=True)
@_talking
@_common
@click.pass_obj
def ask(wishes: Wishes, /, question: tuple[str, ...], **wanted: Any) -> int:
    """Answer a QUESTION; "-" reads it from standard input.

    The answer goes to standard output, what is done for it to standard error.
    """
    from toolsemble.cli.ask import Setup
    from toolsemble.cli.ask import ask as do

    return do(question, Setup(**wanted), wishes.screen())


@app.command()
@_talking
@_common
@click.pass_obj
def chat(wishes: Wishes, /, **wanted: Any) -> int:
    """Hold a conversation; Ctrl-C stops an answer, Ctrl-D leaves."""
    from toolsemble.cli.ask import Setup
    from toolsemble.cli.ask import chat as do

    return do(Setup(**wanted), wishes.screen())


@app.command()
@click.argument("target", required=False, shell_complete=_completed)
@_provider
@_json
@_common
@click.pass_obj
def tools(wishes: Wishes, target: str | None, provider: str | None, *, as_json: bool) -> int:
    """Show the built-in tools, or those of TARGET.

    TARGET is a built-in name, a module, module:attribute, or a file.py. Naming a module or a file runs its code.
    """
    from toolsemble.cli.catalog import tools as do

    return do(target, provider, wishes.screen(), as_json=as_json)


@app.command()
@click.argument("tool", shell_complete=_completed)
@click.argument("arguments", nargs=-1)
@_approve
@_json
@_common
@click.pass_obj
def call(wishes: Wishes, tool: str, arguments: tuple[str, ...], approve: str, *, as_json: bool) -> int:
    """Call TOOL by hand, as a model would.

    ARGUMENTS are JSON text, pairs such as path=notes.txt, "-" for JSON from standard input, or the text of a tool that
    takes one text. A word that begins with a dash goes after "--".
    """
    from toolsemble.cli.call import call as do

    return do(tool, arguments, approve, wishes.screen(), as_json=as_json)


@app.command()
@click.argument("tool", shell_complete=_completed)
@_provider
@_json
@_common
@click.pass_obj
def explain(wishes: Wishes, tool: str, provider: str | None, *, as_json: bool) -> int:
    """Show what models do not see of TOOL.

    A tool's schema can say more than a provider's format; this lists what is moved, rewritten or dropped on the way.
    """
    from toolsemble.cli.catalog import explain as do

    return do(tool, provider, wishes.screen(), as_json=as_json)


@app.group(invoke_without_command=True)
@_json
@_common
@click.pass_context
def models(ctx: click.Context, *, as_json: bool) -> int | None:
    """Show which models can be used here, and why others cannot."""
    if ctx.invoked_subcommand is not None:
        return None
    from toolsemble.cli.models import offers

    return offers(ctx.ensure_object(Wishes).screen(), as_json=as_json)


@models.command()
@click.argument("name", required=False)
@_common
@click.pass_obj
def pull(wishes: Wishes, name: str | None) -> int:
    """Download the embedded model NAME, unless it is there; print where it is."""
    from toolsemble.cli.models import pull as do

    return do(name, wishes.screen())


@models.command()
@click.argument("name", required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="The port.")
@click.option("--api-key", envvar="TOOLSEMBLE_API_KEY", help="What clients must send.")
@_common
@click.pass_obj
def serve(wishes: Wishes, name: str | None, host: str, port: int, api_key: str | None) -> int:
    """Serve the embedded model NAME to other programs, in OpenAI's format."""
    from toolsemble.cli.models import serve as do

    return do(name, host, port, api_key, wishes.screen())


@app.command()
@_common
def version() -> int:
    """Show the version."""
    import platform

    click.echo(f"{PROGRAM} {__version__} (Python {platform.python_version()}, {platform.system()})")
    return Exit.DONE
