"""Several tools as one tool: what each step gives goes to the next, without a model in between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Unpack, final

from toolsemble.definition.definition import (
    ToolDefinition,
    check_description,
    check_name,
    string_definition,
    typed_definition,
)
from toolsemble.errors import ToolDefinitionError
from toolsemble.pipeline.plan import Plan, planned, told
from toolsemble.pipeline.sequence import Line
from toolsemble.pipeline.step import Part, Step, definition_of, part_of
from toolsemble.pipeline.strategy import ErrorStrategy, checked_strategy
from toolsemble.pipeline.type_check import check_fit
from toolsemble.review.gate import gate_of
from toolsemble.tools.base import Tool
from toolsemble.tools.settings import ToolSettings


class ToolPipeline(Tool):
    """Several tools as one: a model makes one call, and the steps hand their results on.

    What the model sees is the first step's own schema. A step that takes named parameters gets values of the same names
    out of the structured output before it, or the text as its one required parameter; where the values come from
    outside, an adapter says which of them may pass. Every step goes the way of any call: it is validated, gated,
    counted and logged on its own. ``result.attributes["steps"]`` tells what became of each.

    >>> from toolsemble import tool
    >>> @tool
    ... def search(query: str) -> list[str]:
    ...     return [f"{query} {number}" for number in range(3)]
    >>> @tool
    ... def count(hits: list[str]) -> str:
    ...     return f"{len(hits)} hits"
    >>> (search | count).execute('{"query": "rome"}').output
    '3 hits'
    """

    def __init__(
        self,
        name: str,
        description: str,
        steps: Iterable[object],
        error_strategy: ErrorStrategy = ErrorStrategy.FAIL_FAST,
        *,
        approve_plan: bool = False,
        **settings: Unpack[ToolSettings],
    ) -> None:
        """Check the steps, and what they hand to each other as far as it is declared.

        :param name: what the model calls it
        :param description: what it does, for the model to choose by
        :param steps: tools of any kind, or :class:`Step` objects, in order
        :param error_strategy: what becomes of it when a step fails that says nothing itself
        :param approve_plan: whether a reviewer is asked once, before the first step, for all steps that need approval,
            instead of at each. The approval is for this call only and covers the steps of the plan, whatever their
            inputs turn out to be; an edit changes the pipeline's own input. A step that asks for another role than the
            plan does still asks for itself, and so does what a toolbox puts before a step.
        :param settings: what any tool can say of itself, see :class:`Tool`
        """
        self.name = check_name(name)
        self.description = check_description(self.name, description)
        self.approve_plan = approve_plan
        self._apply(settings)
        owner = f"Pipeline '{self.name}'"
        self._error_strategy = checked_strategy(owner, error_strategy)
        self._steps = _listed(owner, steps)
        self._line = self._lined()
        self._joined: tuple[str, str] | None = None
        _check_handoffs(self._line.steps)
        self._define()  # what is wrong with the settings is told here, too

    @classmethod
    def of(cls, first: object, *rest: object, name: str | None = None, description: str | None = None) -> ToolPipeline:
        """Give the pipeline of some steps, named and described after them; ``first | second`` does the same.

        A pipeline that was made in this way, and was not given a name or settings of its own, counts as its steps.

        >>> from toolsemble import tool
        >>> @tool
        ... def search(query: str) -> str:
        ...     return query
        >>> @tool
        ... def save(text: str) -> str:
        ...     return "saved"
        >>> pipeline = ToolPipeline.of(search, save)
        >>> pipeline.name, pipeline.description
        ('search_then_save', 'Pipeline: search -> save')
        """
        steps = [step for each in (first, *rest) for step in _flat(each)]
        names = [definition_of(f"Step {number}", _tool(each)).name for number, each in enumerate(steps, 1)]
        made = cls(
            _checked("_then_".join(names)) if name is None else name,
            f"Pipeline: {' -> '.join(names)}" if description is None else description,
            steps,
        )
        made._joined = (made.name, made.description) if name is None and description is None else None
        return made

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, in order."""
        return tuple(each if isinstance(each, Step) else Step(each) for each in self._steps)

    @property
    def error_strategy(self) -> ErrorStrategy:
        """What becomes of it when a step fails that says nothing itself."""
        return self._error_strategy

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_line"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._line = self._lined()

    def _lined(self) -> Line:
        place, strategy = f"of '{self.name}'", self._error_strategy
        parts = [part_of(f"Step {number} {place}", each, strategy) for number, each in enumerate(self._steps, 1)]
        return Line(tuple(parts))

    def describe(self) -> Plan:
        """Give the plan as Markdown: a numbered list of the steps, and a Mermaid graph.

        >>> from toolsemble import tool
        >>> @tool
        ... def search(query: str) -> str:
        ...     return query
        >>> @tool(requires_approval=True)
        ... def save(text: str) -> str:
        ...     return "saved"
        >>> print((search | save).describe().text)
        search_then_save: Pipeline: search -> save
        1. search: takes the pipeline's input
        2. save: takes what 'search' gives; requires approval
        """
        return told(self._made())

    @final
    def run(self, input: Any) -> Any:
        """Give the result for one input, as :meth:`~toolsemble.Tool.execute` does."""
        return self.execute(input)

    def _define(self) -> ToolDefinition:
        made = self._made()
        if not self.approve_plan:
            return made
        wait, silence, role = self.approval_timeout, self.approval_on_timeout, self.approval_role
        terms = gate_of(f"Pipeline '{self.name}'", requires_approval=True, timeout=wait, on_timeout=silence, role=role)
        assert terms is not None  # noqa: S101 - it is asked for
        return planned(made, terms)

    def _made(self) -> ToolDefinition:
        """Give the definition in which each step asks for itself."""
        first, last = self._line.steps[0].definition, self._line.steps[-1].definition
        shared: dict[str, Any] = {"returns": last.returns, "hand": first.hand, "present": first.present}
        shared |= self._declared() | {"flow": self._line}
        if first.arguments is None:
            return string_definition(self.name, self.description, self.run, **shared)
        return typed_definition(self.name, self.description, self.run, first.arguments, **shared)


def _flat(source: object) -> tuple[object, ...]:
    """Give the steps that an operand stands for: those of a pipeline that has nothing of its own, or itself."""
    if (
        type(source) is not ToolPipeline
        or source.approve_plan
        or vars(source).keys() & ToolSettings.__annotations__.keys()
    ):
        return (source,)
    unnamed = source._joined == (source.name, source.description)  # noqa: SLF001 - this module's own
    return source._steps if unnamed else (source,)  # noqa: SLF001 - as above


def _tool(source: object) -> object:
    return source.tool if isinstance(source, Step) else source


def _checked(name: str) -> str:
    try:
        return check_name(name)
    except ToolDefinitionError as problem:
        raise ToolDefinitionError(
            f"{problem}; give the pipeline a name of its own: ToolPipeline.of(..., name=...)"
        ) from None


def _listed(owner: str, steps: Any) -> tuple[object, ...]:
    if isinstance(steps, (str, bytes, Mapping)) or not isinstance(steps, Iterable):
        raise ToolDefinitionError(f"{owner} takes a list of steps, not {type(steps).__name__}")
    listed = tuple(steps)
    if not listed:
        raise ToolDefinitionError(f"{owner} has no steps; give it at least one tool")
    return listed


def _check_handoffs(steps: tuple[Part, ...]) -> None:
    for giver, taker in pairwise(steps):
        if giver.adapter is None:
            check_fit(giver.definition, taker.definition)
