"""The commands and their options; each command imports its implementation when it runs, so that help is fast."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem, get_completion_class

from toolsemble import __version__
from toolsemble._cli.durable_commands import approvals, ledger, runs, work
from toolsemble._cli.options import (
    Exit,
    GlobalOptions,
    common_options,
    deps_option,
    exit_code_for,
    format_error,
    json_option,
)
from toolsemble._cli.ui_command import ui
from toolsemble._runtime.text import escape_line, escape_prose
from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble._vocabulary.provider_list import PROVIDERS

_STARTUP = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/config.fish"}
_HOOK = {
    "bash": 'eval "$(toolsemble --show-completion bash)"',
    "zsh": 'eval "$(toolsemble --show-completion zsh)"',
    "fish": "toolsemble --show-completion fish | source",
}


def find_shell(name: str | None) -> str:
    """Return the named shell, or the user's; raise if it is not supported.

    >>> find_shell("zsh")
    'zsh'
    """
    shell = Path(os.environ.get("SHELL", "")).name if name in {None, "auto"} else str(name)
    if shell not in _HOOK:
        raise ToolConfigurationError(f"Completion does not support the shell {shell!r}; use one of {', '.join(_HOOK)}")
    return shell


def show(app: click.Command, shell: str, program: str, variable: str) -> Exit:
    """Print the completion script; the shell requests completions with an environment variable."""
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - find_shell checked it
    click.echo(kind(app, {}, program, variable).source())
    return Exit.DONE


def install(shell: str) -> Exit:
    """Add a line to the shell's startup file, unless it is already there."""
    file = Path(_STARTUP[shell]).expanduser()
    hook = _HOOK[shell]
    content = file.read_text(encoding="utf-8", errors="surrogateescape") if file.exists() else ""
    if hook in content.splitlines():
        click.echo(f"Already installed in {file}.")
        return Exit.DONE
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as end:
        end.write(f"{'' if content.endswith(chr(10)) or not content else chr(10)}{hook}\n")
    click.echo(f"Added one line to {file}; start a new shell to use it.")
    return Exit.DONE


PROGRAM = "toolsemble"
VARIABLE = "_TOOLSEMBLE_COMPLETE"
APPROVALS = ("ask", "always", "never")
"""The values of ``--approve``: ask a person, approve every call, or reject every call that needs approval."""

_MAX_LENGTH = 2000

_Function = TypeVar("_Function", bound=Callable[..., Any])


def run(argv: Sequence[str]) -> int:
    """Run a command and return its exit code; errors are reported in one line.

    >>> run(["version", "--nothing"])
    2
    """
    try:
        return int(_invoke(argv, GlobalOptions()) or 0)
    except (BrokenPipeError, _ClosedOutputError):
        # At exit the interpreter would try to flush standard output again, and print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.BROKEN_PIPE


def _invoke(argv: Sequence[str], options: GlobalOptions) -> int | None:
    """Run a command and report its errors, except a broken pipe."""
    try:
        code: int | None = app.main(list(argv), PROGRAM, VARIABLE, standalone_mode=False, obj=options)
    except click.UsageError as error:
        code = _report_usage_error(error, argv)
    except click.Abort:
        code = Exit.INTERRUPTED
    except _ClosedOutputError:
        raise
    except Exception as error:  # any error is reported in one line
        if options.debug:
            _print_traceback()
        cause = error.__cause__ if isinstance(error, _ExitRaisedError) else None
        code = _report_error(format_error(cause or error), exit_code_for(error))
    return code


def _report_usage_error(error: click.UsageError, argv: Sequence[str]) -> Exit:
    """Report a usage error; with ``--json``, also as the only event of the run."""
    where = error.ctx.command_path if error.ctx else PROGRAM
    line = f"{error.format_message()} See '{where} --help'."
    if where in {f"{PROGRAM} ask", f"{PROGRAM} chat"} and "--json" in argv:
        from toolsemble._cli.json_output import JsonOutput
        from toolsemble._vocabulary.errors import ToolConfigurationError
        from toolsemble.agent._result import AgentResult

        JsonOutput(GlobalOptions().make_screen()).end(ToolConfigurationError(line), AgentResult())
    return _report_error(line, Exit.USAGE_ERROR)


def _report_error(line: str, code: Exit) -> Exit:
    click.echo(f"{PROGRAM}: {escape_line(line, _MAX_LENGTH)}", err=True)
    return code


def _print_traceback() -> None:
    import traceback

    click.echo(escape_prose(traceback.format_exc()), err=True, nl=False)


class _ClosedOutputError(Exception):
    """Signals that the output's reader has closed it; click has its own exit code for a ``BrokenPipeError``."""


class _ExitRaisedError(Exception):
    """Signals that a tool or a module raised SystemExit or similar, which must not exit this program."""


class _Program(click.Group):
    """The group of all commands; it translates broken pipes and exceptions such as SystemExit."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except BrokenPipeError as error:
            raise _ClosedOutputError from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise _ClosedOutputError from error
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise _ExitRaisedError from error
        return code


def _complete_target(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from toolsemble._cli.targets import BUILT_INS

    done, comma, last = incomplete.rpartition(",")
    names = [f"{each.name}:" if each.needed else each.name for each in BUILT_INS.values()]
    return [CompletionItem(f"{done}{comma}{name}") for name in names if name.startswith(last)]


_MODEL = "A name such as openai:gpt-5-mini or local, or module:attribute."
_MODEL_OR_AGENT = f"{_MODEL[:-1]}; or an agent with its tools, such as support.py:agent."


def _model_options(command: _Function, model_help: str = _MODEL) -> _Function:
    """Add the options of commands that use a model."""
    options = (
        click.option("-m", "--model", help=model_help),
        click.option(
            "-t",
            "--tools",
            multiple=True,
            metavar="TARGETS",
            shell_complete=_complete_target,
            help="Tools for the model, such as calculator,file_read:./docs.",
        ),
        click.option("--system", metavar="TEXT", help="Instructions for the model."),
        click.option(
            "--system-file",
            type=click.Path(dir_okay=False),
            metavar="FILE",
            help="A file with instructions, appended to --system.",
        ),
        _approve,
        deps_option,
        click.option("--max-calls", type=click.IntRange(0), help="Maximum number of tool calls per answer (25)."),
        click.option("--max-tokens", type=click.IntRange(1), help="Maximum number of tokens per answer."),
        click.option("--max-seconds", type=click.FloatRange(0, min_open=True), help="Maximum time per answer."),
        click.option("--memory", type=click.Path(dir_okay=False), help="Keep the conversation in this file."),
        json_option,
        click.option("-q", "--quiet", is_flag=True, help="Write only the answer, no progress."),
    )
    for option in reversed(options):
        command = option(command)
    return command


_approve = click.option(
    "--approve",
    type=click.Choice(APPROVALS),
    default=APPROVALS[0],
    show_default=True,
    help="How to handle calls that need approval.",
)
_provider = click.option("-p", "--provider", type=click.Choice(PROVIDERS), help="One provider's wire format.")


@click.group(
    cls=_Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 failed, 2 usage error, 3 stopped by a budget or a reviewer, 130 interrupted.",
)
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
@click.option("--show-completion", metavar="SHELL", help="Print the completion script for bash, zsh or fish.")
@click.option("--install-completion", metavar="SHELL", help="Install completion for a shell; 'auto' detects yours.")
@common_options
@click.pass_context
def app(ctx: click.Context, show_completion: str | None, install_completion: str | None) -> int | None:
    """Run models with tools, and call tools by hand."""
    if show_completion is not None:
        ctx.exit(show(app, find_shell(show_completion), PROGRAM, VARIABLE))
    if install_completion is not None:
        ctx.exit(install(find_shell(install_completion)))
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    return None


@app.command()
@click.argument("question", nargs=-1, required=True)
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    metavar="PATH",
    help="A file or URL to ask about: image, PDF, audio or text; repeatable.",
)
@click.option("--memory-id", help="The id of the conversation or user.")
@partial(_model_options, model_help=_MODEL_OR_AGENT)
@common_options
@click.pass_obj
def ask(options: GlobalOptions, /, question: tuple[str, ...], files: tuple[str, ...], **wanted: Any) -> int:
    """Answer a QUESTION; "-" reads it from standard input.

    The answer is written to standard output, progress to standard error. With an agent as --model, its own model, tools
    and memory are used.
    """
    from toolsemble._cli.ask_command import Setup, ask as do

    return do(question, Setup(**wanted), options.make_screen(), files)


@app.command()
@_model_options
@common_options
@click.pass_obj
def chat(options: GlobalOptions, /, **wanted: Any) -> int:
    """Hold a conversation; Ctrl-C stops an answer, Ctrl-D exits."""
    from toolsemble._cli.ask_command import Setup, chat as do

    return do(Setup(**wanted), options.make_screen())


@app.command()
@click.argument("target", required=False, shell_complete=_complete_target)
@_provider
@click.option(
    "--budget", type=click.IntRange(1), metavar="TOKENS", help="Show each tool's tokens, and what a Catalog would show."
)
@click.option(
    "--all", "everything", is_flag=True, help="With --budget: list all tools, not only the first of each state."
)
@json_option
@common_options
@click.pass_obj
def tools(options: GlobalOptions, /, target: str | None, provider: str | None, **given: Any) -> int:
    """Show the built-in tools, or TARGET's tools.

    TARGET is a built-in name, a module, module:attribute, or a file.py. Naming a module or a file runs its code.
    """
    from toolsemble._cli.tools_command import tools as do

    return do(target, provider, options.make_screen(), **given)


@app.command()
@click.argument("tool", shell_complete=_complete_target)
@click.argument("arguments", nargs=-1)
@_approve
@deps_option
@click.option("--memory-id", help="The id of the call's conversation or user.")
@json_option
@common_options
@click.pass_obj
def call(options: GlobalOptions, /, tool: str, arguments: tuple[str, ...], **wanted: Any) -> int:
    """Call TOOL directly, as a model would.

    ARGUMENTS are JSON text, pairs such as path=notes.txt, "-" for JSON from standard input, or plain text for a tool
    with one text parameter. Put arguments that begin with a dash after "--".
    """
    from toolsemble._cli.call_command import call as do

    return do(tool, arguments, options.make_screen(), **wanted)


@app.command()
@click.argument("tool", shell_complete=_complete_target)
@_provider
@json_option
@common_options
@click.pass_obj
def explain(options: GlobalOptions, tool: str, provider: str | None, *, as_json: bool) -> int:
    """Show how models see TOOL.

    A tool's schema can express more than a provider's format; this lists what is moved, rewritten or dropped.
    """
    from toolsemble._cli.tools_command import explain as do

    return do(tool, provider, options.make_screen(), as_json=as_json)


@app.group(invoke_without_command=True)
@json_option
@common_options
@click.pass_context
def models(ctx: click.Context, *, as_json: bool) -> int | None:
    """Show which models are available on this machine, and why others are not."""
    if ctx.invoked_subcommand is not None:
        return None
    from toolsemble._cli.models_command import offers

    return offers(ctx.ensure_object(GlobalOptions).make_screen(), as_json=as_json)


@models.command()
@click.argument("name", required=False)
@common_options
@click.pass_obj
def pull(options: GlobalOptions, name: str | None) -> int:
    """Download the embedded model NAME if it is missing."""
    from toolsemble._cli.models_command import pull as do

    return do(name, options.make_screen())


@models.command()
@click.argument("name", required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="The port.")
@click.option("--api-key", envvar="TOOLSEMBLE_API_KEY", help="The key that clients must send.")
@common_options
@click.pass_obj
def serve(options: GlobalOptions, name: str | None, host: str, port: int, api_key: str | None) -> int:
    """Serve the embedded model NAME through OpenAI's API."""
    from toolsemble._cli.models_command import serve as do

    return do(name, host, port, api_key, options.make_screen())


@app.command("serve")
@click.argument("targets", nargs=-1, shell_complete=_complete_target)
@click.option("--http", metavar="HOST:PORT", help="Listen on this address; default: standard input and output.")
@click.option("--gate", "gates", multiple=True, metavar="PATTERN", help="Tools that need the user's approval.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="A host name under which clients reach it.")
@click.option("--lock", metavar="FILE", help="Serve only tools that match their pins in this lock file.")
@click.option("--deps", metavar="MODULE:NAME", help="The tools' deps: an object, such as shop.py:shop.")
@click.option("--config", metavar="FILE", help="The configuration file of a gateway, such as toolsemble.toml.")
@common_options
@click.pass_obj
def serve_tools(options: GlobalOptions, /, targets: tuple[str, ...], **wanted: Any) -> int:
    """Serve the tools of TARGETS to other programs over MCP.

    A target is a built-in name, a module, module:attribute, a file.py, or a server: mcp:URL, mcp:FILE.json or
    mcp:"command line"; an attribute may be a toolbox or an agent.
    """
    from toolsemble._runtime.extras import import_extra

    import_extra("mcp", extra="mcp", user="toolsemble serve")
    from toolsemble._cli.serve_command import ServeOptions, serve_targets

    return serve_targets(targets, ServeOptions(**wanted), options.make_screen())


@app.command()
@click.argument("targets", nargs=-1, metavar="TARGET...", shell_complete=_complete_target)
@click.option("--check", is_flag=True, help="Show what has changed without writing; exit with 1 if anything has.")
@click.option("--file", type=click.Path(dir_okay=False), help="The lock file; default: toolsemble.lock.")
@click.option("--config", metavar="FILE", help="Pin all tools of a gateway, such as toolsemble.toml.")
@json_option
@common_options
@click.pass_obj
def lock(options: GlobalOptions, /, targets: tuple[str, ...], **wanted: Any) -> int:
    """Pin the tool definitions of each TARGET that models see.

    TARGET is a built-in name, a module, module:attribute, a file.py, or a server: mcp:URL, mcp:FILE.json or
    mcp:"command line". Other targets in the file stay unchanged.
    """
    from toolsemble._cli.lock_command import lock_targets

    return lock_targets(targets, wanted.pop("file"), wanted.pop("config"), options.make_screen(), **wanted)


@app.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--run", "run_id", metavar="ID", help="Show only this run.")
@click.option("--full", is_flag=True, help="Do not truncate texts.")
@common_options
@click.pass_obj
def trace(options: GlobalOptions, file: str, run_id: str | None, *, full: bool) -> int:
    """Print the runs in FILE, written by a TraceFile."""
    from toolsemble._cli.trace_command import trace as do

    return do(file, run_id, options.make_screen(), full=full)


@app.command()
@common_options
def version() -> int:
    """Show the version."""
    import platform

    click.echo(f"{PROGRAM} {__version__} (Python {platform.python_version()}, {platform.system()})")
    return Exit.DONE


app.add_command(approvals)
app.add_command(ledger)
app.add_command(ui)
app.add_command(runs)
app.add_command(work)
