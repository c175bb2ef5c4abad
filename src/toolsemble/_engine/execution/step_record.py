"""The record of one step of a pipeline."""

from __future__ import annotations

from typing import Any, NamedTuple

from toolsemble._vocabulary.result import ToolResult


class StepRecord(NamedTuple):
    """The record of one step of a pipeline.

    >>> StepRecord("search", "rome", ToolResult.success("3 hits"), 0.25).result.output
    '3 hits'
    """

    name: str
    """The name of the step's tool."""
    input: Any
    """The input of its body, or the handoff if that did not fit; None if it is not known."""
    result: ToolResult
    """Its result."""
    duration: float
    """The seconds that the work took, without the time of a reviewer."""
