"""Requests for approval that a tool makes while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Unpack

from toolsemble._schema.masking.secrets import mask_object
from toolsemble._vocabulary.call import GeneratedRunId
from toolsemble.review._decision import Continue, ReviewDecision
from toolsemble.review._question import Question
from toolsemble.review._request import ReviewRequest, digest
from toolsemble.review._terms import TIMEOUT, OnTimeout, ReviewTerms, ReviewTiming, check_terms, fit_to_deadline


def ask_during_call(context: Any, description: str, **terms: Unpack[ReviewTerms]) -> ReviewDecision:
    """Ask the reviewer of a :class:`~toolsemble.ToolContext`, and wait in this thread; without one, continue."""
    return Continue() if context.review is None else _question(context, description, **terms).do()


async def aask_during_call(context: Any, description: str, **terms: Unpack[ReviewTerms]) -> ReviewDecision:
    """Ask the reviewer of a :class:`~toolsemble.ToolContext` without blocking the event loop; without one, continue."""
    return Continue() if context.review is None else await _question(context, description, **terms).ado()


def _question(
    context: Any,
    description: str,
    *,
    arguments: Any = MappingProxyType({}),
    timeout: float | None = TIMEOUT,
    on_timeout: OnTimeout = OnTimeout.EXIT_EARLY,
    required_role: str | None = None,
) -> Question:
    check_terms(f"Tool '{context.tool_name}': the ", timeout, on_timeout, required_role)
    exact = [description, dict(arguments) if isinstance(arguments, Mapping) else arguments]
    shown = [mask_object(each) for each in exact]
    request = ReviewRequest(
        shown[0],
        context.tool_name,
        shown[1],
        ReviewTiming.DURING_EXECUTION,
        required_role=required_role,
        call_id=context.call_id,
        run_id=context.run_id,
        agent_role=context.agent_role,
        memory_id=context.memory_id,
        chosen_run=not isinstance(context.run_id, GeneratedRunId),
        hidden_digest="" if shown == exact else digest([context.run_id, *exact]),
        **fit_to_deadline(context.deadline, timeout, on_timeout),
    )
    return Question(context.review, request)
