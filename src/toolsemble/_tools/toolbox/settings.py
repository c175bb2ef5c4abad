"""The settings of a toolbox: validation and preparation for its calls.

Rarely used features are loaded on first use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from toolsemble._engine.context import SILENT, Exposure, ToolContext
from toolsemble._engine.definition import ToolDefinition, map_definition
from toolsemble._runtime.checks import check_count
from toolsemble._runtime.metrics import SilentMetrics, accept_tags
from toolsemble._runtime.threads import THREADS
from toolsemble._schema.repair import STEPS
from toolsemble._tools.collection import collect_tools
from toolsemble._tools.toolbox.registry import Defined, Registered, add_gate, register_tool
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.review._terms import TIMEOUT, OnTimeout, check_terms

if TYPE_CHECKING:
    from toolsemble._engine.execution.hooks import Hooks
    from toolsemble._engine.limits.policy import BoxLimits
    from toolsemble._runtime.sinks import Sinks
    from toolsemble._tools.toolbox.pages import PageStore
    from toolsemble.review._gate import OuterGate


def check_counts(**counts: tuple[Any, int]) -> None:
    """Raise if a setting is not an int, or below its minimum; None is accepted.

    >>> check_counts(max_concurrency=(0, 1))
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Toolbox max_concurrency must be an int >= 1, not 0
    """
    for setting, (value, least) in counts.items():
        if value is not None:
            check_count(f"Toolbox {setting}", value, least=least)


def context_of(
    *, metrics: Any, executor: Any, expose_errors: Any, review: Any, memory_id: Any, agent_role: Any
) -> ToolContext:
    """Return the base context of a toolbox's calls; raise if a setting is invalid.

    >>> common = {"metrics": None, "executor": None, "expose_errors": "all", "review": None, "memory_id": "ada"}
    >>> context_of(**common, agent_role="clerk").agent_role
    'clerk'
    """
    for setting, text in (("memory_id", memory_id), ("agent_role", agent_role)):
        if not isinstance(text, str):
            raise ToolDefinitionError(f"Toolbox {setting} must be a str, not {text!r:.80}")
    if review is not None and not _is_reviewer(review):
        hint = f"; pass {review.__name__}()" if isinstance(review, type) else ""
        raise ToolDefinitionError(
            "Toolbox review must be a ReviewHandler: an object with a method review(request), such as "
            f"CallbackReview(function), not {review!r:.80}{hint}"
        )
    _check_methods("executor", executor, "submit")
    _check_methods("metrics", metrics, *(name for name in vars(SilentMetrics) if not name.startswith("_")))
    return ToolContext(
        metrics=SILENT if metrics is None else accept_tags(metrics),
        executor=THREADS if executor is None else executor,
        expose_errors=_check_exposure(expose_errors),
        review=review,
        memory_id=memory_id,
        agent_role=agent_role,
    )


def place_tools(found: list[Defined], executor: Executor) -> list[Defined]:
    """Return tools with bodies for a cluster executor; raise if it cannot run one of them."""
    from toolsemble._engine.work.remote import ClusterExecutor

    if not isinstance(executor, ClusterExecutor):
        return found
    return [(tool, map_definition(definition, executor.place)) for tool, definition in found]


def gate_of(approve: object, timeout: object, on_timeout: object, role: object) -> OuterGate | None:
    """Return a toolbox's gate, None for no gate; raise if a setting is invalid."""
    check_terms("Toolbox: approval_", timeout, on_timeout, role)
    if approve is None:
        return None
    from toolsemble.review._gate import build_outer_gate

    return build_outer_gate(approve, timeout, on_timeout, role)


def limits_of(timeout: Any, retries: Any, rate_limit: Any, cache: Any, ledger: Any) -> BoxLimits | None:
    """Return a toolbox's limits, None for no limits; raise if a setting is invalid."""
    if all(each is None for each in (timeout, rate_limit, cache, ledger)) and type(retries) is int and not retries:
        return None
    from toolsemble._engine.limits.policy import BoxLimits

    return BoxLimits.of(timeout, retries, rate_limit, cache, ledger)


def pass_on_gate(context: ToolContext, gate: OuterGate) -> ToolContext:
    """Return the context of a toolbox with a gate, which also applies to nested calls."""
    from toolsemble.review._gate import InheritedGate

    return context.derive({"gates": (*context.gates, InheritedGate(gate, context.review))})


def add_approval(
    entries: Mapping[str, Registered], context: ToolContext, approve: object
) -> tuple[dict[str, Registered], ToolContext]:
    """Return a toolbox's tools and context with an additional gate with default settings.

    :param approve: names, patterns or a predicate
    """
    from toolsemble.review._gate import build_outer_gate

    gate = build_outer_gate(approve, TIMEOUT, OnTimeout.EXIT_EARLY, None)
    own = {name: entry for name, entry in entries.items() if not entry.fixed}
    gated = dict(zip(own, add_gate([entry.definition for entry in own.values()], gate), strict=True))
    context = pass_on_gate(context, gate)
    around = {"gates": context.gates}
    found = {
        name: replace(entry, definition=gated.get(name, entry.definition), context=entry.context.derive(around))
        for name, entry in entries.items()
    }
    return found, context


def add_gates_around(definition: ToolDefinition, own: ToolContext, context: ToolContext) -> ToolDefinition:
    """Return a tool's definition with an enclosing call's gates.

    :param own: the toolbox's context, whose own gates the definition already has
    :param context: the call's context
    """
    known = {id(each.outer) for each in own.gates}
    around = [each for each in context.gates if id(each.outer) not in known]
    if not around:
        return definition
    from toolsemble.review._gate import combine_gates

    return map_definition(
        definition,
        lambda part: replace(part, gate=combine_gates(around, part.names, part.gate, context.review)),
    )


def pages_of(
    setting: object, entries: dict[str, Registered], context: ToolContext, *, truncates: bool
) -> PageStore | None:
    """Add the paging tool to a toolbox's tools, and return its page store; None for no paging.

    :param truncates: whether the toolbox truncates results; raise if not, or if the setting is invalid
    """
    if setting is False:
        return None
    from toolsemble._tools.toolbox.pages import Pages, PageStore

    pages = Pages.of(setting)
    if not truncates:
        raise ToolDefinitionError("Toolbox pages needs max_output: only truncated results have further pages")
    if pages.name in entries:
        raise ToolDefinitionError(
            f"Toolbox pages: a tool '{pages.name}' already exists; choose another name with pages=Pages(name=...)"
        )
    store = PageStore(pages)
    ((tool, definition),) = collect_tools(store.tool())
    entries[pages.name] = replace(register_tool(tool, definition, context, None), fixed=True)
    return store


def hooks_of(before: object, after: object) -> Hooks | None:
    """Return a toolbox's hooks, None for no hooks; raise if one is invalid."""
    if before is None and after is None:
        return None
    from toolsemble._engine.execution.hooks import make_hooks

    return make_hooks(before, after)


def sinks_of(sinks: object) -> Sinks | None:
    """Return a toolbox's sinks, None for no sinks; raise if one is invalid."""
    if sinks == ():
        return None
    from toolsemble._runtime.sinks import build_sinks

    return build_sinks("Toolbox", sinks)


def repair_steps(setting: Any) -> frozenset[str]:
    """Return the enabled repair steps; raise if one is unknown.

    >>> sorted(repair_steps(["text", "null"]))
    ['null', 'text']
    """
    if isinstance(setting, bool):
        return STEPS if setting else frozenset()
    names = [setting] if isinstance(setting, str) else list(setting) if isinstance(setting, Iterable) else [None]
    if not all(isinstance(each, str) for each in names):
        raise ToolDefinitionError(f"Toolbox repair must be True, False or names of steps, not {setting!r:.80}")
    steps = frozenset(names)
    if unknown := sorted(steps - STEPS):
        raise ToolDefinitionError(f"Toolbox repair: unknown step {unknown[0]!r}; known are {', '.join(sorted(STEPS))}")
    return steps


def _is_reviewer(value: object) -> bool:
    from toolsemble.review._request import is_reviewer  # most toolboxes have no reviewer

    return is_reviewer(value)


def _check_methods(setting: str, value: object, *methods: str) -> None:
    missing = [name for name in methods if not callable(getattr(value, name, None))]
    if value is not None and missing:
        raise ToolDefinitionError(f"Toolbox {setting} has no method {missing[0]!r}: {value!r:.80}")


def _check_exposure(value: Any) -> Exposure:
    if value not in get_args(Exposure):
        raise ToolDefinitionError(f"Toolbox expose_errors must be 'all' or 'declared', not {value!r:.80}")
    exposure: Exposure = value
    return exposure
