"""The commands ``runs`` and ``work``: the runs in a journal, and a worker that does them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from toolsemble._cli.options import STORE, GlobalOptions, common_options, deps_option, json_option, secret_option

STATES = ("queued", "running", "waiting", "done", "failed", "cancelled")
"""The states of runs."""

_Function = TypeVar("_Function", bound=Callable[..., Any])
_state_option = click.option("--state", type=click.Choice(STATES), help="Only the runs in this state.")


def _journal_option(command: _Function) -> _Function:
    return click.option(
        "--journal",
        "url",
        envvar="TOOLSEMBLE_JOURNAL",
        show_envvar=True,
        metavar="URL",
        help="The file of the RunJournal, or its postgresql:// URL.",
    )(command)


@click.group(invoke_without_command=True)
@_state_option
@_journal_option
@json_option
@common_options
@click.pass_context
def runs(ctx: click.Context, url: str | None, state: Any, *, as_json: bool) -> int | None:
    """Show the runs of a journal, continue them, and settle them.

    Without a command, the runs are listed.

    \b
    toolsemble runs --journal runs.db
    toolsemble runs show order-7 --journal runs.db
    toolsemble runs resume order-7 bots.py:clerk --journal runs.db
    toolsemble runs resolve order-7 /3.1 --happened --result "refunded" --journal runs.db
    """  # noqa: D301 - click reads the backspace
    ctx.ensure_object(GlobalOptions)
    ctx.meta["journal"] = url
    if ctx.invoked_subcommand is not None:
        return None
    from toolsemble._cli.runs_command import list_runs, open_journal

    with open_journal(url) as journal:
        return list_runs(journal, state, ctx.obj.make_screen(), as_json=as_json)


def _command(name: str, *, has_json: bool = False, may_create: bool = False) -> Callable[[_Function], _Function]:
    """Return a decorator that makes a function a command of ``runs``: it gets an open journal and a screen."""

    def add(function: Any) -> Any:
        @click.pass_context
        def call(ctx: click.Context, /, url: str | None, **given: Any) -> int:
            from toolsemble._cli.runs_command import open_journal

            with open_journal(url or ctx.meta["journal"], may_create=may_create) as journal:
                return int(function(journal, ctx.obj.make_screen(), **given))

        call.__doc__, call.__click_params__ = function.__doc__, getattr(function, "__click_params__", [])  # type: ignore[attr-defined]  # set by click
        wrapped = common_options(_journal_option(json_option(call) if has_json else call))
        return runs.command(name)(wrapped)

    return add


@_command("list", has_json=True)
@_state_option
def list_command(journal: Any, screen: Any, **given: Any) -> int:
    """List the runs, oldest first."""
    from toolsemble._cli.runs_command import list_runs

    return list_runs(journal, given["state"], screen, as_json=given["as_json"])


@_command("show", has_json=True)
@click.argument("run_id", metavar="ID")
@click.option("--full", is_flag=True, help="Do not shorten texts.")
def show_command(journal: Any, screen: Any, run_id: str, **given: Any) -> int:
    """Show one run: its state, replies and calls."""
    from toolsemble._cli.runs_command import show_run

    return show_run(journal, run_id, screen, **given)


@_command("begin", may_create=True)
@click.argument("run_id", metavar="ID")
@click.argument("agent")
@click.argument("prompt")
@click.option("--memory-id", help="The id of the conversation or user.")
def begin_command(journal: Any, screen: Any, **given: Any) -> int:
    """Record a run of AGENT, to be done by a worker."""
    from toolsemble._cli.runs_command import begin_run

    return begin_run(journal, screen, **given)


@_command("resume")
@click.argument("run_id", metavar="ID")
@click.argument("target")
@deps_option
def resume_command(journal: Any, screen: Any, run_id: str, target: str, deps: str | None) -> int:
    """Continue a run, and print the answer.

    TARGET has the agent of the run, such as bots.py or bots.py:clerk. Exit code 3 means that the run waits for a
    person.
    """
    from toolsemble._cli.runs_command import resume_run

    return resume_run(journal, run_id, target, screen, deps)


@_command("cancel")
@click.argument("run_id", metavar="ID")
@click.option("--store", type=STORE, metavar="URL", help="The review store, to close the questions of the run at once.")
@secret_option
def cancel_command(journal: Any, screen: Any, run_id: str, **given: Any) -> int:
    """Cancel a run: it stops before its next call.

    It is not continued. Its open questions are closed by the next worker that has its agent, or at once with --store.
    """
    from toolsemble._cli.runs_command import cancel_run

    return cancel_run(journal, run_id, screen, **given)


@_command("unknown", has_json=True)
def unknown_command(journal: Any, screen: Any, *, as_json: bool) -> int:
    """List the calls whose outcome is unknown.

    Their process ended while they ran.
    """
    from toolsemble._cli.runs_command import list_unknown

    return list_unknown(journal, screen, as_json=as_json)


@_command("resolve")
@click.argument("run_id", metavar="ID")
@click.argument("place")
@click.option("--happened/--not-happened", default=None, help="Whether the effect is there; find out first.")
@click.option("--result", help="The result of the call, if it happened.")
def resolve_command(journal: Any, screen: Any, run_id: str, place: str, **given: Any) -> int:
    """Settle the call of unknown outcome at PLACE.

    A place is written as /3.1. Find out what happened first. A call that did not happen is made when the run continues.
    """
    if given["happened"] is None:
        raise click.UsageError("'resolve' needs --happened or --not-happened.")
    if given["result"] is not None and not given["happened"]:
        raise click.UsageError("--result goes with --happened.")
    from toolsemble._cli.runs_command import resolve_call

    return resolve_call(journal, run_id, place, screen, **given)


@_command("fork")
@click.argument("run_id", metavar="ID")
@click.argument("after", metavar="TURN")
@click.argument("new_id", metavar="NEW_ID")
def fork_command(journal: Any, screen: Any, **given: str) -> int:
    """Record a new run that begins like another one.

    It begins with everything up to a TURN such as /3.
    """
    from toolsemble._cli.runs_command import fork_run

    return fork_run(journal, screen, **given)


@_command("take-over")
@click.argument("run_id", metavar="ID")
def take_over_command(journal: Any, screen: Any, run_id: str) -> int:
    """Take a run from a process that hangs, and queue it again."""
    from toolsemble._cli.runs_command import take_over_run

    return take_over_run(journal, run_id, screen)


@_command("retry")
@click.argument("run_id", metavar="ID")
def retry_command(journal: Any, screen: Any, run_id: str) -> int:
    """Put a failed run back into the queue.

    Finished calls are kept. A worker continues it.
    """
    from toolsemble._cli.runs_command import retry_run

    return retry_run(journal, run_id, screen)


@_command("forget")
@click.option(
    "--days", type=click.FloatRange(min=0), required=True, help="Delete those that ended more days ago than this."
)
def forget_command(journal: Any, screen: Any, days: float) -> int:
    """Delete runs that ended some days ago.

    Those with calls of unknown outcome stay.
    """
    from toolsemble._cli.runs_command import forget_runs

    return forget_runs(journal, days, screen)


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@_journal_option
@click.option("--at-once", type=click.IntRange(min=1), default=4, show_default=True, help="The most runs at one time.")
@click.option(
    "--park-after",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a run that waits for a person keeps its place; then others have it.",
)
@click.option("--grace", type=click.FloatRange(min=0), metavar="SECONDS",
              help="How long calls may take to end after SIGTERM; by default as long as they need.")  # fmt: skip
@click.option("--poll", type=click.FloatRange(min=0.01), default=0.5, show_default=True, metavar="SECONDS",
              help="How often to look for runs.")  # fmt: skip
@click.option(
    "--on-unknown",
    type=click.Choice(("tell", "ask")),
    default="tell",
    show_default=True,
    help="Tell the model that the outcome of a call is unknown, or wait until somebody has resolved it.",
)
@deps_option
@click.option("--until-idle", is_flag=True, help="End when there is nothing to do.")
@common_options
@click.pass_obj
def work(options: GlobalOptions, /, targets: tuple[str, ...], url: str | None, **given: Any) -> int:
    """Start a worker, which does the runs of a journal.

    It has the agents of each TARGET. A target is an agent, such as bots.py:clerk, a dict of agents by name, or a file
    or module with agents. The worker takes runs that are queued, continues those that a person has answered, and takes
    over those whose process has ended. At SIGTERM and Ctrl-C it takes no more runs, lets calls end, and gives its runs
    back; a second Ctrl-C ends it at once. It does not start if an agent needs deps, and has none.

    \b
    toolsemble work bots.py:clerk --journal runs.db
    """  # noqa: D301 - click reads the backspace
    from toolsemble._cli.runs_command import do_runs

    return do_runs(targets, url, options.make_screen(), **given)
