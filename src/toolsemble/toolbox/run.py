"""What the calls of one run have in common, where a toolbox makes them."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, TypeAlias

from toolsemble.call import new_id
from toolsemble.context import InvocationParameters, ToolContext, current_context
from toolsemble.review.inherited import extended

Run: TypeAlias = dict[str, Any]
"""The fields of a context that the calls of one turn share."""


class UnnamedRunId(str):
    """The id of a run that nobody named.

    >>> new_unnamed_run() == new_unnamed_run()
    False
    """

    __slots__ = ()


def new_unnamed_run() -> UnnamedRunId:
    """Give the id of a new run that can be told from one which a program named."""
    return UnnamedRunId(new_id())


def run_of(
    own: ToolContext,
    memory_id: str | None,
    parameters: MutableMapping[str, Any] | None,
    run_id: str | None,
    new_run: Callable[[], str],
) -> Run:
    """Give what the contexts of one turn's calls share; inside another call they belong to its run.

    :param own: what the toolbox says for all its calls
    :param new_run: gives the id of a run that nobody named

    >>> sorted(run_of(ToolContext(), "ada", None, "run_1", new_id))
    ['memory_id', 'parameters', 'run_id']
    """
    outer = current_context()
    if outer is None and parameters is None and memory_id is None and run_id is None:
        return {"parameters": InvocationParameters(), "run_id": new_run()}
    if run_id is not None and not isinstance(run_id, str):
        raise _misfit("run_id", "a text", run_id)
    if outer is not None and parameters is None:
        parameters = outer.parameters
    elif not isinstance(parameters, InvocationParameters):
        if parameters is not None and not isinstance(parameters, MutableMapping):
            raise _misfit("parameters", "a mapping that can be changed, such as {'user': 'ada'}", parameters)
        parameters = InvocationParameters(parameters)
    run: Run = {"parameters": parameters}
    if outer is not None:
        run |= _inherited(own, outer)
    if memory_id is not None:
        if not isinstance(memory_id, str):
            raise _misfit("memory_id", "a text", memory_id)
        run["memory_id"] = memory_id
    if run_id is not None or outer is None:
        run["run_id"] = run_id or new_run()
    return run


def _misfit(name: str, expected: str, given: object) -> TypeError:
    return TypeError(f"The {name} of a call must be {expected}, not {given!r:.80}")


def _inherited(own: ToolContext, outer: ToolContext) -> Run:
    """Give what a call inside another call takes over from it, where the box says nothing of its own."""
    run: Run = {"run_id": outer.run_id, "deadline": outer.deadline, "parent_id": outer.call_id}
    if outer.expose_errors == "declared":
        run["expose_errors"] = "declared"  # what is hidden around it stays hidden
    if own.memory_id == _DEFAULTS.memory_id:
        run["memory_id"] = outer.memory_id
    if own.agent_role == _DEFAULTS.agent_role:
        run["agent_role"] = outer.agent_role
    if own.review is None:
        run["review"] = outer.review
    if own.gates or outer.gates:
        run["gates"] = extended(outer.gates, own.gates, run.get("review", own.review))
    return run


_DEFAULTS = ToolContext()
