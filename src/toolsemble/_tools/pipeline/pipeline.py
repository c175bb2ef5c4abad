"""The pipeline: several tools as one tool, where each step's output is the input of the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Unpack, final

from toolsemble._engine.definition.build import check_description, string_definition, typed_definition
from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._tools.base import Tool
from toolsemble._tools.pipeline.plan import Plan, describe_plan, require_plan_approval
from toolsemble._tools.pipeline.sequence import StepSequence
from toolsemble._tools.pipeline.step import Step, build_part, get_definition, shorten_name
from toolsemble._tools.pipeline.strategy import ErrorStrategy, check_strategy
from toolsemble._tools.pipeline.type_check import check_fit
from toolsemble._tools.settings import ToolSettings
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.specification import check_name
from toolsemble.review._gate import build_gate


class ToolPipeline(Tool):
    """A tool that runs several tools in order: the model makes one call, and each step's result goes to the next.

    The model sees the first step's schema. A step with named parameters gets the values of the same names from the
    structured output of the previous step, or its text as the only required parameter; if the values are untrusted, use
    an adapter to select them. Every step takes the same path as any other call: it is validated, gated, counted and
    logged on its own. ``result.attributes["steps"]`` has a record of each.

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

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.run is not ToolPipeline.run:
            raise TypeError(
                f"{cls.__name__} overrides run, which a pipeline never calls; add a step, or derive from Tool instead"
            )

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
        """Check the steps, and that the declared types of consecutive steps fit.

        :param name: the tool's name for the model
        :param description: the tool's description for the model
        :param steps: tools of any kind, or :class:`Step` objects, in order
        :param error_strategy: what to do when a step fails that has no ``on_error``
        :param approve_plan: whether a reviewer is asked once, before the first step, for all steps that need approval,
            instead of at each. The approval is for this call only and covers the steps of the plan, whatever their
            inputs turn out to be; an edit changes the pipeline's own input. A step that requires another role than the
            plan still asks on its own, and so do gates that a toolbox adds to a step.
        :param settings: the settings of any tool, see :class:`Tool`
        """
        self.name = check_name(name)
        self.description = check_description(self.name, description)
        self.approve_plan = approve_plan
        self._apply(settings)
        owner = f"Pipeline '{self.name}'"
        self._error_strategy = check_strategy(owner, error_strategy)
        self._steps = _check_steps(owner, steps)
        self._sequence = self._build_sequence()
        self._generated: tuple[str, str] | None = None
        for giver, taker in pairwise(self._sequence.steps):
            if giver.adapter is None:
                check_fit(giver.definition, taker.definition)
        self._define()  # raises if a setting is wrong

    @classmethod
    def of(cls, first: object, *rest: object, name: str | None = None, description: str | None = None) -> ToolPipeline:
        """Return the pipeline of some steps, named and described after them; ``first | second`` does the same.

        A pipeline that was made in this way, and has no name or settings of its own, is replaced by its steps.

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
        steps = [step for each in (first, *rest) for step in _flatten(each)]
        names = [get_definition(f"Step {number}", _get_tool(each)).name for number, each in enumerate(steps, 1)]
        made = cls(
            shorten_name("_then_".join(names)) if name is None else name,
            f"Pipeline: {' -> '.join(names)}" if description is None else description,
            steps,
        )
        made._generated = (made.name, made.description) if name is None and description is None else None
        return made

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, in order."""
        return tuple(each if isinstance(each, Step) else Step(each) for each in self._steps)

    @property
    def error_strategy(self) -> ErrorStrategy:
        """What to do when a step fails that has no ``on_error``."""
        return self._error_strategy

    def __repr__(self) -> str:
        steps = " -> ".join(part.definition.name for part in self._sequence.steps)
        return f"{type(self).__name__}({self.name!r}: {steps})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_sequence"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._sequence = self._build_sequence()

    def _build_sequence(self) -> StepSequence:
        place, strategy = f"of '{self.name}'", self._error_strategy
        parts = [build_part(f"Step {number} {place}", each, strategy) for number, each in enumerate(self._steps, 1)]
        return StepSequence(tuple(parts))

    def describe(self) -> Plan:
        """Return the plan as Markdown: a numbered list of the steps, and a Mermaid graph.

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
        2. save: takes the output of 'search'; requires approval
        """
        return describe_plan(self._build_definition())

    @final
    def run(self, input: Any) -> Any:
        """Return the result for one input, as :meth:`~toolsemble.Tool.execute` does."""
        return self.execute(input)

    def _define(self) -> ToolDefinition:
        made = self._build_definition()
        if not self.approve_plan:
            return made
        wait, silence, role = self.approval_timeout, self.approval_on_timeout, self.approval_role
        terms = build_gate(
            f"Pipeline '{self.name}'", requires_approval=True, timeout=wait, on_timeout=silence, role=role
        )
        return require_plan_approval(made, terms)

    def _build_definition(self) -> ToolDefinition:
        """Return the definition in which each step asks for approval on its own."""
        first, last = self._sequence.steps[0].definition, self._sequence.steps[-1].definition
        shared: dict[str, Any] = {"returns": last.returns, "hand": first.hand, "present": first.present}
        shared |= self._declared() | {"flow": self._sequence}
        if first.arguments is None:
            return string_definition(self.name, self.description, self.run, **shared)
        return typed_definition(self.name, self.description, self.run, first.arguments, **shared)


def _flatten(source: object) -> tuple[object, ...]:
    """Return the steps that an operand stands for: those of a pipeline without own name and settings, or itself."""
    if (
        type(source) is not ToolPipeline
        or source.approve_plan
        or vars(source).keys() & ToolSettings.__annotations__.keys()
    ):
        return (source,)
    unnamed = source._generated == (source.name, source.description)  # noqa: SLF001 - private to this module
    return source._steps if unnamed else (source,)  # noqa: SLF001 - private to this module


def _get_tool(source: object) -> object:
    return source.tool if isinstance(source, Step) else source


def _check_steps(owner: str, steps: Any) -> tuple[object, ...]:
    if isinstance(steps, (str, bytes, Mapping)) or not isinstance(steps, Iterable):
        raise ToolDefinitionError(f"{owner} takes a list of steps, not {type(steps).__name__}")
    listed = tuple(steps)
    if not listed:
        raise ToolDefinitionError(f"{owner} has no steps; pass at least one tool")
    return listed
