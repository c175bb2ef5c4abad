"""What can be said about a tool beside its name and description, by keyword or as an attribute of its class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolsemble.definition.definition import ReturnBehavior
from toolsemble.errors import ToolDefinitionError
from toolsemble.limits.declared import LimitSettings, limits_within
from toolsemble.limits.retries import Retries
from toolsemble.review import OnTimeout
from toolsemble.review.gate import Predicate


class BareSettings(LimitSettings, total=False):
    """What can be said about any tool, also about one that has keywords of its own for the rest.

    :class:`~toolsemble.Tool` tells what each word means.
    """

    requires_approval: bool | Predicate
    approval_timeout: float | None
    approval_on_timeout: OnTimeout
    approval_role: str | None
    approval_description: str
    editable: str
    inline: bool
    return_behavior: ReturnBehavior
    metadata: Mapping[str, Any] | None
    strict: bool | None


class ToolSettings(BareSettings, total=False):
    """What can be said about a tool beside its name and description, by keyword or as an attribute of its class.

    :class:`~toolsemble.Tool` tells what each word means.
    """

    timeout: float | None
    max_memory: int | None
    retries: int | Retries
    max_concurrency: int | None
    max_output: int | None


def definition_fields(owner: str, source: Any) -> dict[str, Any]:
    """Give what a tool says about its results, its threads and its provider, as fields of a definition.

    What is unclear is refused: it would be accepted, and do nothing.

    >>> from types import SimpleNamespace
    >>> said = SimpleNamespace(inline=1, strict=None, return_behavior=ReturnBehavior.TO_LLM, metadata=None)
    >>> definition_fields("Tool 'weather'", said)
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Tool 'weather': inline must be True or False, not 1
    """
    inline, strict, behavior, metadata = source.inline, source.strict, source.return_behavior, source.metadata
    if not isinstance(inline, bool):
        raise _misfit(owner, "inline", "True or False", inline)
    if strict is not None and not isinstance(strict, bool):
        raise _misfit(owner, "strict", "True, False or None", strict)
    if not isinstance(behavior, ReturnBehavior):
        raise _misfit(owner, "return_behavior", "a ReturnBehavior, such as ReturnBehavior.IMMEDIATE", behavior)
    if metadata is not None and not isinstance(metadata, Mapping):
        raise _misfit(owner, "metadata", "a mapping or None", metadata)
    return {"inline": inline, "strict": strict, "return_behavior": behavior, "metadata": dict(metadata or {})}


def _misfit(owner: str, name: str, expected: str, given: object) -> ToolDefinitionError:
    return ToolDefinitionError(f"{owner}: {name} must be {expected}, not {given!r:.80}")


def read_settings(source: object) -> ToolSettings:
    """Give the settings that an object which is no :class:`Tool` has among its attributes.

    Only those about review and threads, and limits that are clearly meant: it may use the names for something else.
    """
    said: Any = {name: getattr(source, name) for name in _OF_ANYBODY if hasattr(source, name)}
    return said | limits_within(source)  # type: ignore[no-any-return]  # chosen by name


_OF_ANYBODY = (
    "requires_approval",
    "approval_timeout",
    "approval_on_timeout",
    "approval_role",
    "approval_description",
    "editable",
    "inline",
)
