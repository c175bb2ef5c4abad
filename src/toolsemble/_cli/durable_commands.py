"""The commands ``approvals``, ``ledger``, ``runs`` and ``work``: stores and journals of other programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from toolsemble._cli.options import STORE, GlobalOptions, common_options, deps_option, json_option, secret_option

REVIEW_ACTIONS = ("list", "show", "approve", "reject", "edit")
"""The actions of ``approvals``."""
LEDGER_ACTIONS = ("list", "resolve")
"""The actions of ``ledger``."""


@click.command()
@click.argument("action", type=click.Choice(REVIEW_ACTIONS), default="list")
@click.argument("request_id", metavar="[ID]", required=False)
@click.argument("revised", metavar="[JSON]", required=False)
@click.option("--store", "file", type=STORE, required=True, metavar="URL", help="The file or postgresql:// URL.")
@click.option("--reason", help="The reason for the rejection; the model sees it.")
@click.option("--person", help="The person who answers; default: your user name.")
@click.option("--role", default="", help="Your role, if the call requires one.")
@click.option(
    "--always",
    type=click.Choice(["tool", "arguments"]),
    help="Approve for the rest of the run: the tool, or the tool with these arguments.",
)
@click.option("--all", "everything", is_flag=True, help="List the latest requests in any state, and who answered.")
@secret_option
@json_option
@common_options
@click.pass_obj
def approvals(
    options: GlobalOptions,
    /,
    file: str,
    action: str,
    secret: str | None,
    *,
    everything: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Show calls pending approval, and answer them.

    Without an action, list the pending calls.

    \b
    toolsemble approvals --store reviews.db
    toolsemble approvals list --all --store reviews.db
    toolsemble approvals show ID --store reviews.db
    toolsemble approvals approve ID --store reviews.db
    toolsemble approvals reject ID --reason "not today" --store reviews.db
    toolsemble approvals edit ID '{"boxes": 5}' --store reviews.db

    An edit must have all arguments. The waiting run validates them, and asks again if they do not fit. A unique prefix
    of an ID is enough. Exit code 1 means that the answer was rejected; the message says why.
    """
    _check_approvals(action, everything=everything, **given)
    from toolsemble._cli.approvals_command import Answer, list_reviews, send_answer, show_review
    from toolsemble._cli.options import open_store

    screen = options.make_screen()
    with open_store(file, secret) as store:
        if action == "list":
            return list_reviews(store, screen, as_json=as_json, everything=everything)
        if action == "show":
            return show_review(store, given["request_id"], screen, as_json=as_json)
        return send_answer(store, Answer(action, **given), screen, as_json=as_json)


def _check_approvals(
    action: str,
    request_id: str | None,
    revised: str | None,
    reason: str | None,
    always: str | None,
    *,
    everything: bool,
    **_: str | None,
) -> None:
    """Raise for an invalid combination of arguments."""
    if action != "list" and not request_id:
        raise click.UsageError(f"'{action}' needs the ID of a request; the list shows them.")
    if action == "list" and request_id:
        raise click.UsageError("'list' takes no ID; use 'show'.")
    if (action == "edit") != (revised is not None):
        needs = "needs the new arguments, as JSON" if action == "edit" else "does not take call arguments"
        raise click.UsageError(f"'{action}' {needs}.")
    if reason is not None and action != "reject":
        raise click.UsageError("--reason goes with 'reject'.")
    if always is not None and action != "approve":
        raise click.UsageError("--always goes with 'approve'.")
    if everything and action != "list":
        raise click.UsageError("--all goes with 'list'.")


@click.command()
@click.argument("action", type=click.Choice(LEDGER_ACTIONS), default="list")
@click.argument("key", required=False)
@click.option("--store", "file", type=STORE, required=True, metavar="URL", help="The file or postgresql:// URL.")
@click.option("--happened/--not-happened", default=None, help="Whether the call took effect; find out first.")
@click.option("--result", default=None, help="The result for duplicate calls, if it took effect.")
@click.option("--all", "everything", is_flag=True, help="List every entry, not only unknown outcomes.")
@json_option
@common_options
@click.pass_obj
def ledger(
    options: GlobalOptions,
    file: str,
    action: str,
    key: str | None,
    result: str | None,
    *,
    happened: bool | None,
    everything: bool,
    as_json: bool,
) -> int:
    """Show calls with unknown outcome, and settle them.

    A call's outcome is unknown if its process died before it was recorded; the call is not repeated until it is known
    whether it took effect.

    \b
    toolsemble ledger --store effects.db
    toolsemble ledger resolve KEY --happened --result "paid 17" --store effects.db
    toolsemble ledger resolve KEY --not-happened --store effects.db

    A unique prefix of a KEY is enough.
    """
    _check_ledger(action, key, result, happened=happened)
    from toolsemble._cli.approvals_command import list_effects, open_ledger, resolve

    screen = options.make_screen()
    with open_ledger(file) as found:
        if action == "list":
            return list_effects(found, screen, everything=everything, as_json=as_json)
        return resolve(found, f"{key}", screen, happened=bool(happened), result=result or "")


def _check_ledger(action: str, key: str | None, result: str | None, *, happened: bool | None) -> None:
    """Raise for an invalid combination of arguments."""
    if action == "list" and (key or result is not None or happened is not None):
        raise click.UsageError("'list' takes no KEY, result or outcome; use 'resolve'.")
    if action == "resolve" and (not key or happened is None):
        raise click.UsageError("'resolve' needs a KEY, and --happened or --not-happened.")
    if result is not None and not happened:
        raise click.UsageError("--result goes with --happened.")


STATES = ("queued", "running", "waiting", "done", "failed", "cancelled")
"""The states of runs."""

_Function = TypeVar("_Function", bound=Callable[..., Any])
_state_option = click.option("--state", type=click.Choice(STATES), help="List only runs in this state.")


def _journal_option(command: _Function) -> _Function:
    return click.option(
        "--journal",
        "url",
        envvar="TOOLSEMBLE_JOURNAL",
        show_envvar=True,
        metavar="URL",
        help="The RunJournal's file or postgresql:// URL.",
    )(command)


@click.group(invoke_without_command=True)
@_state_option
@_journal_option
@json_option
@common_options
@click.pass_context
def runs(ctx: click.Context, url: str | None, state: Any, *, as_json: bool) -> int | None:
    """Show, resume and settle the runs of a journal.

    Without a command, list the runs.

    \b
    toolsemble runs --journal runs.db
    toolsemble runs show order-7 --journal runs.db
    toolsemble runs resume order-7 bots.py:clerk --journal runs.db
    toolsemble runs resolve order-7 /3.1 --happened --result "refunded" --journal runs.db
    """
    ctx.ensure_object(GlobalOptions)
    ctx.meta["journal"] = url
    if ctx.invoked_subcommand is not None:
        return None
    from toolsemble._cli.runs_command import list_runs, open_journal

    with open_journal(url) as journal:
        return list_runs(journal, state, ctx.obj.make_screen(), as_json=as_json)


def _command(name: str, *, has_json: bool = False, may_create: bool = False) -> Callable[[_Function], _Function]:
    """Return a decorator that turns a function into a ``runs`` command with an open journal and a screen."""

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
@click.option("--full", is_flag=True, help="Do not truncate texts.")
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
    """Queue a run of AGENT for a worker."""
    from toolsemble._cli.runs_command import begin_run

    return begin_run(journal, screen, **given)


@_command("resume")
@click.argument("run_id", metavar="ID")
@click.argument("target")
@deps_option
def resume_command(journal: Any, screen: Any, run_id: str, target: str, deps: str | None) -> int:
    """Resume a run, and print the answer.

    TARGET has the run's agent, such as bots.py or bots.py:clerk. Exit code 3 means that the run waits for approval.
    """
    from toolsemble._cli.runs_command import resume_run

    return resume_run(journal, run_id, target, screen, deps)


@_command("cancel")
@click.argument("run_id", metavar="ID")
@click.option(
    "--store", type=STORE, metavar="URL", help="The review store, to close the run's pending requests at once."
)
@secret_option
def cancel_command(journal: Any, screen: Any, run_id: str, **given: Any) -> int:
    """Cancel a run: it stops before its next call.

    It cannot be resumed. Its pending requests are closed by the next worker that has its agent, or at once with
    --store.
    """
    from toolsemble._cli.runs_command import cancel_run

    return cancel_run(journal, run_id, screen, **given)


@_command("unknown", has_json=True)
def unknown_command(journal: Any, screen: Any, *, as_json: bool) -> int:
    """List calls with unknown outcome.

    Their process died while they were in flight.
    """
    from toolsemble._cli.runs_command import list_unknown

    return list_unknown(journal, screen, as_json=as_json)


@_command("resolve")
@click.argument("run_id", metavar="ID")
@click.argument("place")
@click.option("--happened/--not-happened", default=None, help="Whether the call took effect; find out first.")
@click.option("--result", help="The call's result, if it took effect.")
def resolve_command(journal: Any, screen: Any, run_id: str, place: str, **given: Any) -> int:
    """Settle the call with unknown outcome at PLACE.

    A place is written as /3.1. Find out what happened first. A call that did not happen is made when the run resumes.
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
    """Queue a copy of a run.

    It starts with everything up to and including a TURN such as /3.
    """
    from toolsemble._cli.runs_command import fork_run

    return fork_run(journal, screen, **given)


@_command("take-over")
@click.argument("run_id", metavar="ID")
def take_over_command(journal: Any, screen: Any, run_id: str) -> int:
    """Take a run from a hung process, and queue it again."""
    from toolsemble._cli.runs_command import take_over_run

    return take_over_run(journal, run_id, screen)


@_command("retry")
@click.argument("run_id", metavar="ID")
def retry_command(journal: Any, screen: Any, run_id: str) -> int:
    """Queue a failed run again.

    Finished calls are kept. A worker resumes it.
    """
    from toolsemble._cli.runs_command import retry_run

    return retry_run(journal, run_id, screen)


@_command("forget")
@click.option(
    "--days", type=click.FloatRange(min=0), required=True, help="Delete runs that ended more than N days ago."
)
def forget_command(journal: Any, screen: Any, days: float) -> int:
    """Delete old runs.

    Runs with unresolved calls are kept.
    """
    from toolsemble._cli.runs_command import forget_runs

    return forget_runs(journal, days, screen)


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@_journal_option
@click.option("--at-once", type=click.IntRange(min=1), default=4, show_default=True, help="Maximum concurrent runs.")
@click.option(
    "--park-after",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a run that waits for approval keeps its slot.",
)
@click.option("--grace", type=click.FloatRange(min=0), metavar="SECONDS",
              help="How long calls in flight may take after SIGTERM; default: no limit.")  # fmt: skip
@click.option("--poll", type=click.FloatRange(min=0.01), default=0.5, show_default=True, metavar="SECONDS",
              help="How often to poll for runs.")  # fmt: skip
@click.option(
    "--on-unknown",
    type=click.Choice(("tell", "ask")),
    default="tell",
    show_default=True,
    help="Tell the model that a call's outcome is unknown, or wait until it is resolved.",
)
@deps_option
@click.option("--until-idle", is_flag=True, help="Exit when idle.")
@common_options
@click.pass_obj
def work(options: GlobalOptions, /, targets: tuple[str, ...], url: str | None, **given: Any) -> int:
    """Start a worker that executes a journal's runs.

    A TARGET is an agent, such as bots.py:clerk, a dict of agents by name, or a file or module with agents. The worker
    picks up queued runs, resumes runs whose requests were answered, and takes over runs whose process died. On SIGTERM
    and Ctrl-C it drains: it finishes the calls in flight and releases its runs; a second Ctrl-C exits immediately. It
    does not start if an agent needs deps and has none.

    \b
    toolsemble work bots.py:clerk --journal runs.db
    """
    from toolsemble._cli.runs_command import do_runs

    return do_runs(targets, url, options.make_screen(), **given)
