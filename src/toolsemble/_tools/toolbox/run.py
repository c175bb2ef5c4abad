"""The context fields that the calls of a run share."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, TypeAlias

from toolsemble._engine.context import InvocationParameters, ToolContext, current_context
from toolsemble._vocabulary.call import GeneratedRunId, new_id, new_run_id

Run: TypeAlias = dict[str, Any]
"""The context fields that the calls of a turn share."""


class UnnamedRunId(GeneratedRunId):
    """The id of a run of a toolbox for which the program did not set one.

    >>> new_unnamed_run() == new_unnamed_run()
    False
    """

    __slots__ = ()


def new_unnamed_run() -> UnnamedRunId:
    """Return a new run id whose type shows that the program did not set it."""
    return UnnamedRunId(new_id())


def choose_new_run(*, reviews: bool, pages: bool) -> Callable[[], str]:
    """Return the function that generates run ids; most toolboxes need no more than a str, which is the fastest."""
    if pages:
        return new_unnamed_run
    return new_run_id if reviews else new_id


def run_of(
    own: ToolContext,
    memory_id: str | None,
    parameters: MutableMapping[str, Any] | None,
    deps: object,
    run_id: str | None,
    new_run: Callable[[], str],
) -> Run:
    """Return the context fields that the calls of a turn share; inside another call they join its run.

    :param own: the context of the toolbox
    :param new_run: returns a run id, if the program did not set one

    >>> sorted(run_of(ToolContext(), "ada", None, None, "run_1", new_id))
    ['memory_id', 'parameters', 'run_id']
    """
    outer = current_context()
    if outer is None and parameters is None and memory_id is None and run_id is None and deps is None:
        return {"parameters": InvocationParameters(), "run_id": new_run()}
    if run_id is not None and not isinstance(run_id, str):
        raise _wrong_type("run_id", "a str", run_id)
    if outer is not None and parameters is None:
        parameters = outer.parameters
    elif not isinstance(parameters, InvocationParameters):
        if parameters is not None and not isinstance(parameters, MutableMapping):
            raise _wrong_type("parameters", "a mutable mapping such as {'user': 'ada'}", parameters)
        parameters = InvocationParameters(parameters)
    run: Run = {"parameters": parameters}
    if outer is not None:
        run |= _inherit_run(own, outer)
    if memory_id is not None:
        if not isinstance(memory_id, str):
            raise _wrong_type("memory_id", "a str", memory_id)
        run["memory_id"] = memory_id
    if deps is not None:
        run["deps"] = deps
    if run_id is not None or outer is None:
        run["run_id"] = run_id or new_run()
    return run


def _wrong_type(name: str, expected: str, given: object) -> TypeError:
    return TypeError(f"The {name} of a call must be {expected}, not {given!r:.80}")


def _inherit_run(own: ToolContext, outer: ToolContext) -> Run:
    """Return the fields that a call inherits from the call around it, unless the toolbox sets them."""
    run: Run = {"run_id": outer.run_id, "deadline": outer.deadline, "parent_id": outer.call_id}
    if outer.place is not None and outer.place.is_scope:
        run["place"] = outer.place  # of the turn, in a journaled run
    if outer.expose_errors == "declared":
        run["expose_errors"] = "declared"  # the outer call hides errors from the model
    if outer.deps is not None:
        run["deps"] = outer.deps
    if outer.user_message is not None:
        run["user_message"] = outer.user_message
    if own.memory_id == _DEFAULTS.memory_id:
        run["memory_id"] = outer.memory_id
    if own.agent_role == _DEFAULTS.agent_role:
        run["agent_role"] = outer.agent_role
    if own.review is None:
        run["review"] = outer.review
    if own.gates or outer.gates:
        from toolsemble.review._inherited_gates import extend_gates

        run["gates"] = extend_gates(outer.gates, own.gates, run.get("review", own.review))
    return run


_DEFAULTS = ToolContext()
