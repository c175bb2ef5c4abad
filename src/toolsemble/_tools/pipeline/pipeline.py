"""The pipeline: several tools as one, checked for compatible types, and shown as a plan."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias, Unpack, final, get_args

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import (
    ToolDefinition,
    always_gated_in,
    check_description,
    dry_result,
    map_definition,
    string_definition,
    to_dry_run,
    typed_definition,
)
from toolsemble._engine.execution.approval import check_reviewer
from toolsemble._engine.execution.call import CallPath, CallSettings, SubCallReport
from toolsemble._engine.execution.call_path import start_sub_call
from toolsemble._engine.execution.failure import find_fatal_error, to_logged_failure
from toolsemble._engine.execution.journaled_call import StepRecord
from toolsemble._engine.work.body import Apply, Work
from toolsemble._runtime.text import preview
from toolsemble._schema.argument_problems import resolve_schema
from toolsemble._schema.decode import Arguments, Read
from toolsemble._schema.members import Field
from toolsemble._schema.result_shape import is_opaque
from toolsemble._schema.typed_arguments import TypedArguments
from toolsemble._tools.base import Tool
from toolsemble._tools.pipeline.flows import ForEach
from toolsemble._tools.pipeline.handoff import Handoff, ParameterReader, describe_failures, pass_through, unwrap_input
from toolsemble._tools.pipeline.step import (
    Adapter,
    ErrorStrategy,
    Part,
    Step,
    build_part,
    check_strategy,
    get_definition,
    shorten_name,
)
from toolsemble._tools.pipeline.undo import Undo, add_undone, fail_if_late, must_undo, run_undos
from toolsemble._tools.settings import ToolSettings
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble._vocabulary.specification import check_name
from toolsemble.review._gate import Gate, build_gate
from toolsemble.review._terms import OnTimeout


@dataclass(frozen=True, slots=True)
class StepSequence:
    """Steps that run in order, each on the previous step's output."""

    how: ClassVar[str] = "one after the other"
    """How the steps are run, for the description of a plan."""
    kind: ClassVar[Literal["sequence"]] = "sequence"
    """How the parts are run, for programs."""
    steps: tuple[Part, ...]
    dry: bool = False
    """Whether this is a dry run: only the first step's input is known."""
    always_gated: tuple[ToolDefinition, ...] = field(init=False)
    """The steps, at every depth, that always ask a reviewer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "always_gated", always_gated_in(self.parts()))

    def __call__(
        self, value: Any, context: ToolContext, settings: CallSettings, report: SubCallReport | None
    ) -> CallPath:
        """Run the steps; return the last or failed step's result, with all records."""
        check_reviewer(self.always_gated, context)
        progress = _Progress()
        records, undos = progress.records, progress.undos
        try:
            result = yield from self._run_steps(value, context, settings, progress)
        except BaseException as error:
            if must_undo(error):
                undone = yield from run_undos(undos, settings)
                if report is not None:
                    report.undone = (*progress.report.undone, *undone)
            raise
        if self.dry and (result.error_message is None or self.steps[0].strategy is not ErrorStrategy.FAIL_FAST):
            result = self._record_unknown(context, records)
        result = fail_if_late(result, context)
        parts = (result.output, result.error_message, result.structured_output, result.contents)
        result = ToolResult(*parts, MappingProxyType({**result.attributes, "steps": tuple(records)}), result.error_kind)
        if undos and result.error_message is not None:
            return add_undone(result, (yield from run_undos(undos, settings)))
        if undos and report is not None:
            report.undos = tuple(undos)
        return result

    def _run_steps(self, value: Any, context: ToolContext, settings: CallSettings, progress: _Progress) -> CallPath:
        read: Read = pass_through  # the pipeline has parsed its input with the first step's schema
        last = 1 if self.dry else len(self.steps)
        for number, step in enumerate(self.steps[:last], 1):
            report = progress.report = SubCallReport()
            report.is_intermediate = number < last
            name = step.definition.name
            result = yield from start_sub_call(settings, step.definition, read, value, context, report, number)
            given = report.given if type(report.given) is str else unwrap_input(report.given)
            progress.undos += report.undos
            if report.raised_by:
                result = _add_step_name(report.raised_by, result)
            elif result.error_message is None:
                if step.compensation is not None:
                    progress.undos.append(Undo(name, step.compensation, given, result, context))
                if number < last:
                    if step.adapter is None:
                        result = value = _fail_with_parts(name, result, result.structured_output)
                    else:
                        result, value = yield from _adapt(name, step.adapter, result, context)
            progress.records.append(StepRecord(name, given, result, report.duration))
            if result.error_message is not None:
                if step.strategy is ErrorStrategy.FAIL_FAST:
                    break
                value = Handoff(result.error_message)
            if number < last:
                read = self.steps[number].read
        return result

    def _record_unknown(self, context: ToolContext, records: list[StepRecord]) -> ToolResult:
        """Add records for the steps after the first, whose inputs are unknown in a dry run; return the result."""
        names = [step.definition.name for step in self.steps[1:]]
        records += [StepRecord(name, None, dry_result(name), 0.0) for name in names]
        return dry_result(context.tool_name)

    def to_dry_run(self) -> StepSequence:
        """Return a copy for a dry run."""
        return replace(self.map(to_dry_run), dry=True)

    def map(self, change: Callable[[ToolDefinition], ToolDefinition]) -> StepSequence:
        """Return a copy with each tool replaced by ``change(tool)``."""
        return replace(self, steps=tuple(step.map_definition(change) for step in self.steps))

    def parts(self) -> tuple[ToolDefinition, ...]:
        """Return the steps' tools."""
        return tuple(step.definition for step in self.steps)

    def tools(self) -> tuple[ToolDefinition, ...]:
        """Return the steps' tools, and the tools that undo steps."""
        undos = [step.compensation.tool for step in self.steps if step.compensation is not None]
        return (*self.parts(), *(undo for undo in undos if undo is not None))


@dataclass(slots=True)
class _Progress:
    """The progress of a run through the steps."""

    records: list[StepRecord] = field(default_factory=list)
    """The records of the steps so far."""
    undos: list[Undo] = field(default_factory=list)
    """The undos of completed steps, oldest first."""
    report: SubCallReport = field(default_factory=SubCallReport)
    """The report of the current step."""


def _adapt(
    name: str, adapter: Adapter, result: ToolResult, context: ToolContext
) -> Generator[Work, Any, tuple[ToolResult, Handoff | None]]:
    """Return the step's result and the next step's input; if the adapter raises, the result is a failure."""
    try:
        made = yield Apply(adapter, context, result)
        return _fail_with_parts(name, result, made), Handoff.from_value(made, exact=True)
    except Exception as error:  # logged with the failure
        if (through := find_fatal_error(error)) is not None:
            raise through from (None if through is error else error)
        return _add_step_name(name, to_logged_failure(error, context, f"The adapter of step '{name}'")), None


def _fail_with_parts(name: str, result: ToolResult, handed: Any) -> ToolResult:
    """Return a step's result, or a failure if it passes on failed items or branches."""
    if type(handed) is str or handed is None or not (failures := describe_failures(handed)):
        return result
    return replace(result, output="", error_message=f"'{name}' failed for {failures}")


def _add_step_name(name: str, result: ToolResult) -> ToolResult:
    return replace(result, error_message=f"Step '{name}' raised: {result.error_message}")


_SHOWN = 100


PlanKind: TypeAlias = Literal["tool", "sequence", "parallel", "each", "choice"]
"""How the parts of a tool are run; a "tool" has none."""


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A tool in a plan, with its parts.

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
    """Its parts, in order."""
    approval: Literal["", "always", "sometimes"] = ""
    """Whether approval is required; "sometimes" if a predicate decides."""
    role: str = ""
    """The required role of the reviewer; empty: any."""
    is_adapted: bool = False
    """Whether a function adapts its output for the next step."""
    undo: str = ""
    """How it is undone if a later step fails: a tool's name, or "a function"; empty: not undone."""


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
    """Return a tool and its parts as data."""
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
    """Return a pipeline's part with its step's settings."""
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
    """Return a definition that asks once for all gated parts that one approval can cover.

    A part that requires a different role than the plan's reviewer still asks separately.
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
    """Return a line for each part, with its input's source; nested parts are indented."""
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


_MAX_DEPTH = 5
_NUMBERS = {"integer", "number"}


def check_fit(source: ToolDefinition, target: ToolDefinition) -> None:
    """Raise :class:`ToolDefinitionError` if no output of a step can fit the next one; unknown types always pass."""
    given = source.returns()
    if (root := _schema_of(given)) is None:
        return
    if (found := _find_mismatch(root, root["properties"]["value"], target)) is not None:
        part, problem = found
        raise ToolDefinitionError(
            f"Step '{source.name}' returns {_type_name(given)}, but step '{part.name}' takes {_signature(part)}: "
            f"{problem}; put an adapter between them: Step({source.name}, adapter=...)"
        )


def _find_mismatch(root: Mapping[str, Any], given: Any, target: ToolDefinition) -> tuple[ToolDefinition, str] | None:
    """Return the part of the target that the declared type cannot fit, and the reason; None if it may fit."""
    flow = target.flow
    if target.hand is None or flow is None:
        problem = None if target.arguments is None else _find_parameter_mismatch(root, given, target, target.arguments)
        return None if problem is None else (target, problem)
    if isinstance(flow, ForEach):
        return _find_list_mismatch(root, given, target, flow.branch.definition)
    parts = flow.parts()[:1] if isinstance(flow, StepSequence) else flow.parts()
    return next((found for part in parts if (found := _find_mismatch(root, given, part)) is not None), None)


def _find_list_mismatch(
    root: Mapping[str, Any], given: Any, target: ToolDefinition, item: ToolDefinition
) -> tuple[ToolDefinition, str] | None:
    kinds = _kinds(root, given)
    if kinds is None or "string" in kinds:
        return None
    whole = resolve_schema(root, given)
    if kinds == {"array"}:
        return _find_mismatch(root, whole.get("items"), item)
    listed = "object" in kinds and ("items" in whole.get("properties", ()) or not _is_closed(whole))
    return None if listed or "array" in kinds else (target, f"it is {_join_kinds(kinds)}, not array")


def _find_parameter_mismatch(
    root: Mapping[str, Any], given: Any, target: ToolDefinition, arguments: Arguments
) -> str | None:
    """Return why the declared type cannot fit a step's parameters; None if it may."""
    schema = arguments.schema
    whole = {"type": "object", **resolve_schema(schema, schema)}
    if not whole.get("properties") and _is_closed(whole):
        return None
    kinds = _kinds(root, given)
    if kinds is None or "string" in kinds:  # any text may be JSON
        return None
    if "null" in kinds and not whole.get("required"):  # nothing is passed, and nothing is required
        return None
    unfit = _compare(root, given, schema, whole, _MAX_DEPTH)
    single = ParameterReader(target, arguments).single
    if unfit is None or not single:
        return unfit
    inner = _compare(root, given, schema, whole["properties"][single], _MAX_DEPTH, single)
    return unfit if inner is not None and "object" in kinds else inner


def _schema_of(kind: Any) -> Mapping[str, Any] | None:
    """Return the JSON Schema of an object whose ``value`` has the type; None if the type is unspecific."""
    if kind is Any or kind is object or is_opaque(kind):
        return None
    try:
        return TypedArguments.of_fields("value", [Field("value", kind)], {}, frozenset()).schema
    except Exception:  # a value that is not JSON-serializable may still be passed as an object
        return None


def _compare(
    given_root: Mapping[str, Any], given: Any, taken_root: Mapping[str, Any], taken: Any, depth: int, place: str = ""
) -> str | None:
    """Return the path where no value of the first schema fits the second; None if one may."""
    kinds, accepted = _kinds(given_root, given), _kinds(taken_root, taken)
    if kinds is None or accepted is None or depth == 0:
        return None
    both = kinds & accepted
    if not both and not (kinds & _NUMBERS and accepted & _NUMBERS):
        return _compare_kinds(given_root, given, taken_root, taken, depth, place)
    if both == {"array"}:
        items = resolve_schema(given_root, given).get("items"), resolve_schema(taken_root, taken).get("items")
        return _compare(given_root, items[0], taken_root, items[1], depth - 1, f"{place}[]")
    if both == {"object"}:
        return _compare_fields(given_root, given, taken_root, taken, depth, place)
    return None


def _compare_kinds(
    given_root: Mapping[str, Any], given: Any, taken_root: Mapping[str, Any], taken: Any, depth: int, place: str
) -> str | None:
    """Return how the types of two schemas differ; None if an argument repair may convert one into the other."""
    kinds, accepted = _kinds(given_root, given) or set(), _kinds(taken_root, taken) or set()
    if "string" in kinds or ("string" in accepted and kinds != {"null"}):
        return None
    if accepted == {"array"} and kinds != {"null"}:  # a repair makes a list of a single value
        items = resolve_schema(taken_root, taken).get("items")
        return _compare(given_root, given, taken_root, items, depth - 1, f"{place}[]")
    return f"{place or 'it'} is {_join_kinds(kinds)}, not {_join_kinds(accepted)}"


def _compare_fields(
    given_root: Mapping[str, Any], given: Any, taken_root: Mapping[str, Any], taken: Any, depth: int, place: str
) -> str | None:
    given, taken = resolve_schema(given_root, given), resolve_schema(taken_root, taken)
    fields, wanted = given.get("properties", {}), taken.get("properties", {})
    for name in taken.get("required", ()):
        inner = f"{place}.{name}" if place else name
        if name not in fields:
            if _is_closed(given):
                return f"{inner} is missing"
        elif (found := _compare(given_root, fields[name], taken_root, wanted.get(name), depth - 1, inner)) is not None:
            return found
    return None


def _kinds(root: Mapping[str, Any], schema: Any) -> set[str] | None:
    """Return the JSON types that a schema allows; None if it does not declare them directly."""
    if not isinstance(schema, Mapping):
        return None
    schema = resolve_schema(root, schema)
    if options := schema.get("anyOf") or schema.get("oneOf"):
        each = [_kinds(root, option) for option in options]
        return None if any(kinds is None for kinds in each) else set().union(*each)  # type: ignore[arg-type]  # no None here
    kind = schema.get("type")
    if isinstance(kind, list):
        return set(kind)
    return {kind} if isinstance(kind, str) else None


def _is_closed(schema: Mapping[str, Any]) -> bool:
    return schema.get("additionalProperties") is False


def _join_kinds(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds))


def _type_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind).replace("typing.", "")


def _signature(target: ToolDefinition) -> str:
    """Return the parameters of a step with their types, as text."""
    assert target.arguments is not None  # noqa: S101 - only a step with parameters can mismatch
    root = target.arguments.schema
    properties = resolve_schema(root, root).get("properties", {})
    kinds = {name: _kinds(root, each) for name, each in properties.items()}
    written = ", ".join(f"{name}: {_join_kinds(each) if each else 'any'}" for name, each in kinds.items())
    return f"{target.arguments.owner}({written})"


class ToolPipeline(Tool):
    """A tool that runs several tools in order: the model makes one call, and each step's result is passed to the next.

    The model sees the first step's schema. A step with named parameters gets the values with the same names from the
    previous step's structured output, or its text as the only required parameter; if the values are untrusted, use an
    adapter to select them. Every step takes the same path as any other call: it is validated, gated, counted and logged
    separately. ``result.attributes["steps"]`` has a record of each.

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
        :param error_strategy: what to do when a step without ``on_error`` fails
        :param approve_plan: whether a reviewer is asked once, before the first step, for all steps that need approval,
            instead of at each. The approval is for this call only and covers the plan's steps, whatever their inputs;
            an edit changes the pipeline's own input. A step that requires a different role still asks separately, and
            so do gates that a toolbox adds to a step.
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

        A pipeline created this way, without its own name or settings, is replaced by its steps.

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
        """What to do when a step without ``on_error`` fails."""
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
        """Return the definition in which each step asks for approval separately."""
        first, last = self._sequence.steps[0].definition, self._sequence.steps[-1].definition
        shared: dict[str, Any] = {"returns": last.returns, "hand": first.hand, "present": first.present}
        shared |= self._declared() | {"flow": self._sequence}
        if first.arguments is None:
            return string_definition(self.name, self.description, self.run, **shared)
        return typed_definition(self.name, self.description, self.run, first.arguments, **shared)


def _flatten(source: object) -> tuple[object, ...]:
    """Return an operand's steps: the steps of a pipeline without its own name and settings, or the operand itself."""
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
