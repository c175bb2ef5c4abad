"""The commands ``approvals`` and ``ledger``: what waits for a person, in the files of programs that run elsewhere."""

from __future__ import annotations

from typing import Any

import click

from toolsemble._cli.options import STORE, GlobalOptions, common_options, json_option, secret_option

REVIEW_ACTIONS = ("list", "show", "approve", "reject", "edit")
"""The actions of ``approvals``."""
LEDGER_ACTIONS = ("list", "resolve")
"""The actions of ``ledger``."""


@click.command()
@click.argument("action", type=click.Choice(REVIEW_ACTIONS), default="list")
@click.argument("request_id", metavar="[ID]", required=False)
@click.argument("revised", metavar="[JSON]", required=False)
@click.option("--store", "file", type=STORE, required=True, metavar="URL", help="The file or postgresql:// URL.")
@click.option("--reason", help="Why the call is rejected; the model sees it.")
@click.option("--person", help="Who answers; your user name by default.")
@click.option("--role", default="", help="The role in which you answer, if the call requires one.")
@click.option(
    "--always",
    type=click.Choice(["tool", "arguments"]),
    help="Approve for the rest of the run: the tool, or the tool with these arguments.",
)
@click.option("--all", "everything", is_flag=True, help="List the latest requests in any state, with who answered.")
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
    """Show which calls wait for approval, and answer them.

    Without an action, the calls that wait are listed.

    \b
    toolsemble approvals --store reviews.db
    toolsemble approvals list --all --store reviews.db
    toolsemble approvals show ID --store reviews.db
    toolsemble approvals approve ID --store reviews.db
    toolsemble approvals reject ID --reason "not today" --store reviews.db
    toolsemble approvals edit ID '{"boxes": 5}' --store reviews.db

    An edit must have all arguments of the call. The run that waits checks them, and asks again if they do not fit.
    The start of an ID is enough if it is unique. Exit code 1 means that the answer was refused, and the
    message says why.
    """  # noqa: D301 - click reads the backspace
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
    """Raise for a combination of arguments that means nothing."""
    if action != "list" and not request_id:
        raise click.UsageError(f"'{action}' needs the ID of a request; the list shows them.")
    if action == "list" and request_id:
        raise click.UsageError("'list' takes no ID; use 'show'.")
    if (action == "edit") != (revised is not None):
        needs = "needs the new arguments, as JSON" if action == "edit" else "takes no arguments of the call"
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
@click.option("--happened/--not-happened", default=None, help="Whether the effect is there; find out first.")
@click.option("--result", default=None, help="The answer to repeated calls, if it happened.")
@click.option("--all", "everything", is_flag=True, help="List every entry, not only those of unknown outcome.")
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
    """Show the calls of unknown outcome, and settle them.

    The outcome of a call is unknown if its process died before it was recorded;
    the call is not made again until somebody has found out whether it took effect.

    \b
    toolsemble ledger --store effects.db
    toolsemble ledger resolve KEY --happened --result "paid 17" --store effects.db
    toolsemble ledger resolve KEY --not-happened --store effects.db

    The start of a KEY is enough if it is unique.
    """  # noqa: D301 - click reads the backspace
    _check_ledger(action, key, result, happened)
    from toolsemble._cli.approvals_command import list_effects, open_ledger, resolve

    screen = options.make_screen()
    with open_ledger(file) as found:
        if action == "list":
            return list_effects(found, screen, everything=everything, as_json=as_json)
        return resolve(found, f"{key}", screen, happened=bool(happened), result=result or "")


def _check_ledger(action: str, key: str | None, result: str | None, happened: bool | None) -> None:  # noqa: FBT001 - a flag with three values
    """Raise for a combination of arguments that means nothing."""
    if action == "list" and (key or result is not None or happened is not None):
        raise click.UsageError("'list' takes no KEY, result or outcome; use 'resolve'.")
    if action == "resolve" and (not key or happened is None):
        raise click.UsageError("'resolve' needs a KEY, and --happened or --not-happened.")
    if result is not None and not happened:
        raise click.UsageError("--result goes with --happened.")
