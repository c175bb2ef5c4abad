"""What a toolbox is given for its calls, checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from toolsemble.context import SILENT, Exposure, ToolContext
from toolsemble.errors import ToolDefinitionError
from toolsemble.metrics import SilentMetrics
from toolsemble.runtime.checks import check_count
from toolsemble.runtime.concurrency import THREADS
from toolsemble.schema.repair import STEPS


def check_counts(**counts: tuple[Any, int]) -> None:
    """Refuse a number of something that is no whole number, or less than the least that makes sense.

    >>> check_counts(max_concurrency=(0, 1))
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Toolbox max_concurrency must be a whole number from 1 on, not 0
    """
    for setting, (value, least) in counts.items():
        if value is not None:
            check_count(f"Toolbox {setting}", value, least=least)


def context_of(
    *, metrics: Any, executor: Any, expose_errors: Any, review: Any, memory_id: Any, agent_role: Any
) -> ToolContext:
    """Give what the contexts of all calls have in common; refuse what cannot do its work.

    >>> common = {"metrics": None, "executor": None, "expose_errors": "all", "review": None, "memory_id": "ada"}
    >>> context_of(**common, agent_role="clerk").agent_role
    'clerk'
    """
    for setting, text in (("memory_id", memory_id), ("agent_role", agent_role)):
        if not isinstance(text, str):
            raise ToolDefinitionError(f"Toolbox {setting} must be a text, not {text!r:.80}")
    if review is not None and (isinstance(review, type) or not callable(getattr(review, "review", None))):
        raise ToolDefinitionError(
            f"Toolbox review must be a ReviewHandler: an object with a method review(request), not {review!r:.80}"
        )
    _check_methods("executor", executor, "submit")
    _check_methods("metrics", metrics, *(name for name in vars(SilentMetrics) if not name.startswith("_")))
    return ToolContext(
        metrics=SILENT if metrics is None else metrics,
        executor=THREADS if executor is None else executor,
        expose_errors=_checked_exposure(expose_errors),
        review=review,
        memory_id=memory_id,
        agent_role=agent_role,
    )


def repair_steps(said: Any) -> frozenset[str]:
    """Give the steps of repair that are allowed; refuse one that is not known.

    >>> sorted(repair_steps(["text", "null"]))
    ['null', 'text']
    """
    if isinstance(said, bool):
        return STEPS if said else frozenset()
    given = [said] if isinstance(said, str) else list(said) if isinstance(said, Iterable) else [None]
    if not all(isinstance(each, str) for each in given):
        raise ToolDefinitionError(f"Toolbox repair must be True, False or names of steps, not {said!r:.80}")
    steps = frozenset(given)
    if unknown := sorted(steps - STEPS):
        raise ToolDefinitionError(f"Toolbox repair: unknown step {unknown[0]!r}; known are {', '.join(sorted(STEPS))}")
    return steps


def _check_methods(setting: str, value: object, *methods: str) -> None:
    missing = [name for name in methods if not callable(getattr(value, name, None))]
    if value is not None and missing:
        raise ToolDefinitionError(f"Toolbox {setting} has no method {missing[0]!r}: {value!r:.80}")


def _checked_exposure(said: Any) -> Exposure:
    if said not in get_args(Exposure):
        raise ToolDefinitionError(f"Toolbox expose_errors must be 'all' or 'declared', not {said!r:.80}")
    exposure: Exposure = said
    return exposure
