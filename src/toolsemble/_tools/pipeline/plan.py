"""The plan of a pipeline: as text, as a Mermaid graph, as data, and as one approval request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._engine.definition.variants import map_definition
from toolsemble._runtime.text import preview
from toolsemble._tools.pipeline.flows import ForEach
from toolsemble._tools.pipeline.sequence import StepSequence
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.review._gate import Gate
from toolsemble.review._terms import OnTimeout

_SHOWN = 100


PlanKind: TypeAlias = Literal["tool", "sequence", "parallel", "each", "choice"]
"""How the parts of a tool are run; a "tool" has none."""


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A tool of a plan, with the tools that it consists of.

    >>> PlanNode("search", "tool", "Search the web").parts
    ()
    """

    name: str
    """The name of the tool."""
    kind: PlanKind
    """How its parts are run."""
    description: str = ""
    """What it does."""
    parts: tuple[PlanNode, ...] = ()
    """The tools that it consists of, in order."""
    approval: Literal["", "always", "sometimes"] = ""
    """Whether a reviewer is asked; "sometimes" if a condition decides."""
    role: str = ""
    """The required role of the reviewer; empty: any."""
    is_adapted: bool = False
    """Whether a function adapts its output for the next step."""
    undo: str = ""
    """How it is undone if a later step fails: the name of a tool, or "a function"; empty: it is not."""


class Plan(str):
    """A plan as Markdown: the steps as text, followed by a Mermaid graph.

    >>> plan = Plan.build("1. search", "flowchart LR", PlanNode("search", "tool"))
    >>> plan.text, plan.mermaid, plan.graph.name
    ('1. search', 'flowchart LR', 'search')
    """

    __slots__ = ("graph", "mermaid", "text")

    text: str
    """The steps, one on each line."""
    mermaid: str
    """The graph, in Mermaid's language."""
    graph: PlanNode
    """The steps as data."""

    @classmethod
    def build(cls, text: str, mermaid: str, graph: PlanNode) -> Plan:
        """Return the plan of a text and a graph."""
        plan = cls(f"{text}\n\n```mermaid\n{mermaid}\n```\n")
        plan.text, plan.mermaid, plan.graph = text, mermaid, graph
        return plan


def build_graph(definition: ToolDefinition) -> PlanNode:
    """Return a tool and the tools that it consists of, as data."""
    flow, gate = definition.flow, definition.gate
    parts = () if flow is None else flow.parts()
    return PlanNode(
        definition.name,
        "tool" if flow is None else flow.kind,
        definition.description,
        tuple(_add_step(build_graph(part), flow, index) for index, part in enumerate(parts)),
        approval="" if gate is None else "sometimes" if gate.predicates else "always",
        role="" if gate is None else gate.role or "",
    )


def _add_step(node: PlanNode, flow: object, index: int) -> PlanNode:
    """Return a part of a pipeline with what its step adds to it."""
    if not isinstance(flow, StepSequence):
        return node
    step = flow.steps[index]
    undo = step.compensation
    name = "" if undo is None else "a function" if undo.tool is None else undo.tool.name
    return replace(node, is_adapted=step.adapter is not None, undo=name)


def describe_plan(definition: ToolDefinition) -> Plan:
    """Return the plan of a tool that runs other tools."""
    graph = _Graph()
    graph.draw(definition)
    heading = f"{definition.name}: {definition.description}"
    return Plan.build("\n".join((heading, *_lines(definition))), "\n".join(graph.lines), build_graph(definition))


def require_plan_approval(definition: ToolDefinition, terms: Gate) -> ToolDefinition:
    """Return a definition that asks once for all gated parts that an approval on these terms can cover.

    A part that requires another role than the reviewer of the plan still asks on its own.
    """
    gates = {part.name: part.gate for part in _iterate_parts(definition) if part.gate is not None}
    roles = {gate.role for gate in gates.values()} - {None}
    role = terms.role or (roles.pop() if len(roles) == 1 else None)
    covered = {name: gate for name, gate in gates.items() if gate.role in (None, role)}
    if not covered:
        return definition
    for name, gate in covered.items():
        if terms.on_timeout is OnTimeout.CONTINUE and gate.on_timeout is not OnTimeout.CONTINUE:
            raise ToolDefinitionError(
                f"Pipeline '{definition.name}': approval_on_timeout is CONTINUE, so a timeout would approve "
                f"'{name}', which has {gate.on_timeout.name}; use the same for both"
            )

    def drop_gate(part: ToolDefinition) -> ToolDefinition:
        return replace(part, gate=None) if part.gate is not None and part.gate.role in (None, role) else part

    assert definition.flow is not None  # noqa: S101 - it is a pipeline
    flow = definition.flow.map(lambda part: map_definition(part, drop_gate))
    question = "\n".join((definition.reviewed_as or definition.description, *_lines(definition)))
    return replace(definition, gate=replace(terms, role=role), reviewed_as=question, flow=flow)


def _iterate_parts(definition: ToolDefinition) -> Iterator[ToolDefinition]:
    for part in () if definition.flow is None else definition.flow.tools():
        yield part
        yield from _iterate_parts(part)


def _lines(definition: ToolDefinition, indent: str = "", source: str = "the pipeline's input") -> Iterator[str]:
    """Return a line for each part, with the source of its input; the parts of a part are indented below it."""
    flow = definition.flow
    if flow is None:
        return
    if isinstance(flow, ForEach):
        source = f"each item of {source}"
    for number, part in enumerate(flow.parts(), 1):
        mark = f"{number}." if isinstance(flow, StepSequence) else "-"
        yield f"{indent}{mark} {part.name}: takes {source}{_remarks(part)}{_undo_remark(flow, number - 1)}"
        yield from _lines(part, f"{indent}   ", source)
        if isinstance(flow, StepSequence):
            output = "adapted output" if flow.steps[number - 1].adapter else "output"
            source = f"the {output} of '{part.name}'"


def _remarks(part: ToolDefinition) -> str:
    inner = "" if part.flow is None else f"; {part.flow.how}:"
    if part.gate is None:
        return inner
    asks = "may require approval" if part.gate.predicates else "requires approval"
    role = f" by {part.gate.role}" if part.gate.role else ""
    does = preview(part.reviewed_as or part.description, _SHOWN)
    return f"; {asks}{role}{f' ({does})' if does else ''}{inner}"


def _undo_remark(flow: object, index: int) -> str:
    undo = flow.steps[index].compensation if isinstance(flow, StepSequence) else None
    if undo is None:
        return ""
    return "; can be undone" if undo.tool is None else f"; can be undone by {undo.tool.name}{_remarks(undo.tool)}"


@dataclass(slots=True)
class _Graph:
    """A Mermaid graph under construction."""

    lines: list[str] = field(default_factory=lambda: ["flowchart LR"])
    count: int = 0  # of its nodes

    def draw(self, definition: ToolDefinition) -> tuple[str, list[str]]:
        """Draw a tool and its parts; return its first node and its last nodes."""
        flow = definition.flow
        if flow is None:
            node = self._node(definition)
            return node, [node]
        if isinstance(flow, StepSequence):
            return self._chain(flow.parts())
        fork = self._node(definition)
        ends: list[str] = []
        for part in flow.parts():
            first, last = self.draw(part)
            self.lines.append(f"    {fork} --> {first}")
            ends += last
        return fork, ends

    def _chain(self, parts: tuple[ToolDefinition, ...]) -> tuple[str, list[str]]:
        begin, ends = self.draw(parts[0])
        for part in parts[1:]:
            first, last = self.draw(part)
            self.lines += [f"    {end} --> {first}" for end in ends]
            ends = last
        return begin, ends

    def _node(self, definition: ToolDefinition) -> str:
        node, self.count = f"s{self.count}", self.count + 1
        label = f"{definition.name} (approval)" if definition.gate is not None else definition.name
        left, right = ("{{", "}}") if definition.flow is not None else ("[", "]")
        self.lines.append(f'    {node}{left}"{label}"{right}')
        return node
