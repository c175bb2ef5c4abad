"""The settings of a tool, as keywords or class attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from toolsemble._engine.definition import ReturnBehavior
from toolsemble._engine.limits.settings import LimitSettings, find_limits
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.specification import read_metadata
from toolsemble.review._terms import OnTimeout

if TYPE_CHECKING:
    from toolsemble._engine.limits.retries import Retries
    from toolsemble.review._gate import Predicate


class ReviewSettings(TypedDict, total=False):
    """The review settings of any tool."""

    requires_approval: bool | Predicate
    approval_timeout: float | None
    approval_on_timeout: OnTimeout
    approval_role: str | None
    approval_description: str
    editable: str


class BareSettings(LimitSettings, ReviewSettings, total=False):
    """The settings of every tool, including tools that define other settings as their own parameters.

    Each is described at :class:`~toolsemble.Tool`.
    """

    inline: bool
    return_behavior: ReturnBehavior
    metadata: Mapping[str, Any] | str | None
    strict: bool | None


class ToolSettings(BareSettings, total=False):
    """The settings of a tool, as keywords or class attributes.

    Each is described at :class:`~toolsemble.Tool`.
    """

    timeout: float | None
    max_memory: int | None
    retries: int | Retries
    max_concurrency: int | None
    max_output: int | None


def definition_fields(owner: str, source: Any) -> dict[str, Any]:
    """Return ``inline``, ``strict``, ``return_behavior`` and ``metadata`` of a tool as fields of a definition.

    Raise if one has a wrong type: it would be ignored silently.
    """
    inline, strict, behavior, metadata = source.inline, source.strict, source.return_behavior, source.metadata
    if not isinstance(inline, bool):
        raise _wrong_type(owner, "inline", "True or False", inline)
    if strict is not None and not isinstance(strict, bool):
        raise _wrong_type(owner, "strict", "True, False or None", strict)
    if not isinstance(behavior, ReturnBehavior):
        raise _wrong_type(owner, "return_behavior", "a ReturnBehavior, such as ReturnBehavior.IMMEDIATE", behavior)
    known = read_metadata(owner, metadata)
    return {"inline": inline, "strict": strict, "return_behavior": behavior, "metadata": known}


def _wrong_type(owner: str, name: str, expected: str, given: object) -> ToolDefinitionError:
    return ToolDefinitionError(f"{owner}: {name} must be {expected}, not {given!r:.80}")


def read_settings(source: object) -> ToolSettings:
    """Return the settings among the attributes of an object that is not a :class:`Tool`.

    Only review settings, ``inline``, and limits of the right type: it may use other names for other purposes.
    """
    names = (*ReviewSettings.__annotations__, "inline")
    settings: Any = {name: getattr(source, name) for name in names if hasattr(source, name)}
    return settings | find_limits(source)  # type: ignore[no-any-return]  # only known names
