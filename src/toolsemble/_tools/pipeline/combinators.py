"""Tools that run other tools: in parallel, once per list item, or one of two."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, TypeAlias, Unpack, final

from toolsemble._engine.definition import ToolDefinition, check_description, string_definition, typed_definition
from toolsemble._runtime.checks import check_count
from toolsemble._schema.argument_problems import MismatchError, Problem
from toolsemble._schema.decode import Arguments
from toolsemble._schema.display import to_display
from toolsemble._schema.json_schema import SchemaArguments, hide_values
from toolsemble._schema.provider_schema import make_portable
from toolsemble._tools.base import Tool
from toolsemble._tools.pipeline.flows import Branch, Choice, FanOut, ForEach
from toolsemble._tools.pipeline.handoff import as_handoff, pass_through, read_items, unwrap_input
from toolsemble._tools.pipeline.step import ErrorStrategy, check_strategy, get_definition, shorten_name
from toolsemble._tools.settings import BareSettings, ToolSettings
from toolsemble._vocabulary.errors import ToolDefinitionError, ToolExecutionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble._vocabulary.specification import check_name


class LazyArguments(ABC):
    """Arguments whose JSON Schema is built on first use; inside a pipeline it is never needed."""

    ignored: frozenset[str] = frozenset()
    init_only = ""

    def __init__(self, owner: str) -> None:
        self.owner = owner

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the arguments."""
        return self._arguments.schema

    def validate(self, text: str) -> Any:
        """Return the values of a JSON text, or raise :class:`MismatchError`."""
        return self._arguments.validate(text)

    def holds(self, _: Any) -> bool:
        """Return False: a schema has no Python type."""
        return False

    def take(self, value: Any) -> Any:
        """Return the validated values of a Python object, or raise :class:`MismatchError`."""
        return self._arguments.take(value)

    def wrong_keys(self, mismatch: MismatchError) -> None:
        """Return None: the error does not identify wrong keys."""
        return self._arguments.wrong_keys(mismatch)

    def is_settled(self, mismatch: MismatchError) -> bool:
        """Return False: the errors are not known."""
        return self._arguments.is_settled(mismatch)

    def problems(self, text: str, value: Any, mismatch: MismatchError) -> tuple[list[Problem], int]:
        """Return a value's problems, and the number of omitted ones."""
        return self._arguments.problems(text, value, mismatch)

    @property
    @abstractmethod
    def secret_keys(self) -> frozenset[str]:
        """The parameters that are secrets or contain secrets."""

    def present(self, value: Any, *, reveal: bool = False, best_effort: bool = False) -> Any:
        """Return the input as new JSON values, whether it comes from a model or from the previous step."""
        # No tool has parsed the input yet, so secrets are still plain text.
        return hide_values(display_input(value, reveal=reveal), frozenset() if reveal else self.secret_keys)

    @cached_property
    def _arguments(self) -> SchemaArguments:
        return SchemaArguments(self.owner, self._build_schema())

    @abstractmethod
    def _build_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""


class CombinedArguments(LazyArguments):
    """The parameters of all branches; required if every possible run needs them."""

    def __init__(self, owner: str, branches: Sequence[ToolDefinition], *, all_run: bool) -> None:
        super().__init__(owner)
        self._branches = branches
        self._all_run = all_run

    @property
    def secret_keys(self) -> frozenset[str]:
        """The parameters that are secrets in at least one branch."""
        return frozenset(key for each in self._branches for key in secret_parameters(each))

    def _build_schema(self) -> dict[str, Any]:
        schemas = [make_portable(each.schema())[0] for each in self._branches]
        properties: dict[str, Any] = {}
        for schema in schemas:
            for name, each in schema.get("properties", {}).items():
                known = properties.setdefault(name, each)
                # Each branch validates its own input; the model only needs to know the parameters.
                properties[name] = known if known == each else {"anyOf": [known, each]}
        required = [set(schema.get("required", ())) for schema in schemas]
        needed = set.union(*required) if self._all_run else set.intersection(*required)
        closed = all(schema.get("additionalProperties") is False for schema in schemas)
        made: dict[str, Any] = {"type": "object", "properties": properties}
        made["required"] = [name for name in properties if name in needed]
        return {**made, "additionalProperties": False} if closed else made


class ListArguments(LazyArguments):
    """A list of the arguments of one tool, named ``items``."""

    def __init__(self, owner: str, item: ToolDefinition) -> None:
        super().__init__(owner)
        self._item = item

    @property
    def secret_keys(self) -> frozenset[str]:
        """``items`` if the items contain secrets."""
        return frozenset({"items"} if secret_parameters(self._item) else ())

    def present(self, value: Any, *, reveal: bool = False, best_effort: bool = False) -> Any:
        """Return the list as a model would send it, so that a reviewer can edit it; any other value as JSON values."""
        try:
            hidden = frozenset() if reveal else secret_parameters(self._item)
            return {
                "items": [
                    hide_values(to_display(each, reveal=reveal), hidden) for each in read_items(as_handoff(value))
                ]
            }
        except ToolExecutionError:
            return display_input(value, reveal=reveal)

    def _build_schema(self) -> dict[str, Any]:
        item = {"type": "string"} if self._item.arguments is None else make_portable(self._item.schema())[0]
        items = {"type": "array", "items": item, "description": "The items, in order"}
        return {"type": "object", "properties": {"items": items}, "required": ["items"], "additionalProperties": False}


def secret_parameters(definition: ToolDefinition) -> frozenset[str]:
    """Return the parameters of a tool that are secrets or contain secrets.

    >>> from toolsemble._engine.definition import string_definition
    >>> secret_parameters(string_definition("shout", "Says it louder", str.upper))
    frozenset()
    """
    return frozenset() if definition.arguments is None else definition.arguments.secret_keys


def display_text(value: Any, **_: bool) -> str:
    """Return the input of text tools as text, so that a reviewer can edit it.

    >>> from toolsemble._tools.pipeline.handoff import Handoff
    >>> display_text(Handoff("3 hits", {"hits": (1, 2, 3)}))
    '3 hits'
    """
    return as_handoff(value).as_text


def display_input(value: Any, *, reveal: bool = False) -> Any:
    """Return an input as new JSON values; secrets are masked unless ``reveal`` is true.

    >>> from toolsemble._tools.pipeline.handoff import Handoff
    >>> display_input(Handoff("3 hits", {"hits": (1, 2, 3)}))
    {'hits': [1, 2, 3]}
    """
    return to_display(unwrap_input(value), reveal=reveal)


Merge: TypeAlias = Callable[[dict[str, ToolResult]], Any]
"""Merges the results of all branches into one; may be async."""

_AT_ONCE = 16


class EachSettings(BareSettings, total=False):
    """The settings of a tool that is mapped over a list; its ``max_concurrency`` counts items, not calls."""

    timeout: float | None
    max_output: int | None


class CompositeTool(Tool):
    """A tool that runs other tools; created by :func:`fan_out`, :func:`map_over` and :func:`choose`."""

    def __init__(
        self,
        name: str,
        description: str,
        flow: FanOut | ForEach | Choice,
        arguments: Callable[[str], Arguments] | None,
        settings: BareSettings,
        recipe: Callable[[], Tool],
    ) -> None:
        self.name = check_name(name)
        self.description = check_description(self.name, description)
        self._flow = flow
        self._arguments = None if arguments is None else arguments(self.name)
        self._recipe = recipe
        self._apply(settings)

    def __reduce__(self) -> tuple[Any, ...]:
        built = {"_flow", "_arguments", "_recipe"}
        return self._recipe, (), {name: value for name, value in vars(self).items() if name not in built}

    @final
    def run(self, input: Any) -> Any:
        """Return the result for one input, as :meth:`execute` does."""
        return self.execute(input)

    def _define(self) -> ToolDefinition:
        shared: dict[str, Any] = {
            **self._declared(),
            "flow": self._flow,
            "hand": pass_through,
            "returns": self._flow.returns,
        }
        if self._arguments is None:
            return string_definition(self.name, self.description, self.run, present=display_text, **shared)
        return typed_definition(self.name, self.description, self.run, self._arguments, **shared)


def fan_out(
    *tools: object,
    merge: Merge | None = None,
    error_strategy: ErrorStrategy = ErrorStrategy.CONTINUE_ON_FAILURE,
    name: str | None = None,
    description: str | None = None,
    **settings: Unpack[ToolSettings],
) -> Tool:
    """Return a tool that runs several tools in parallel on the same input.

    Its structured output is a dict from each tool's name to its result; its text is the same as JSON. It fails when all
    branches fail. With ``FAIL_FAST`` it fails when one does: the others are cancelled, and the failed branch's result
    is returned. A failed branch is never passed to a next step: without ``merge``, the pipeline fails. Branches share
    the input: if one changes an object, it changes for all. Gated, cached, idempotent or retried branches get a copy,
    and so do all branches of an approved plan.

    :param tools: the branches; the model sees all their parameters combined
    :param merge: a function from the dict of results to one result; its return value is treated like a tool's
    :param error_strategy: whether the other branches continue when one fails
    :param name: the tool's name for the model; by default ``a_and_b``
    :param description: the tool's description for the model
    :param settings: the settings of any tool, see :class:`Tool`

    >>> from toolsemble import tool
    >>> @tool
    ... def upper(text: str) -> str:
    ...     return text.upper()
    >>> @tool
    ... def count(text: str) -> int:
    ...     return len(text)
    >>> fan_out(upper, count).execute('{"text": "rome"}').output
    '{"upper":"ROME","count":4}'
    """
    parts = tuple(get_definition(f"Branch {number} of fan_out", each) for number, each in enumerate(tools, 1))
    if not parts:
        raise ToolDefinitionError("fan_out has no branches; pass at least one tool")
    names = [part.name for part in parts]
    for each in names:
        if names.count(each) > 1:
            raise ToolDefinitionError(f"Duplicate branch name: '{each}'")
    if merge is not None and not callable(merge):
        raise ToolDefinitionError(f"fan_out: merge must be a function of the results, not {merge!r:.80}")
    fail_fast = check_strategy("fan_out", error_strategy) is ErrorStrategy.FAIL_FAST
    text = f"Side by side: {', '.join(names)}" if description is None else description
    flow = FanOut(tuple(map(Branch.of, parts)), merge, fail_fast=fail_fast)
    recipe = partial(fan_out, *tools, merge=merge, error_strategy=error_strategy, name=name)
    arguments = _combine_arguments(parts, all_run=True)
    return CompositeTool(name or shorten_name("_and_".join(names)), text, flow, arguments, settings, recipe)


def map_over(
    tool: object,
    max_concurrency: int | None = None,
    *,
    error_strategy: ErrorStrategy = ErrorStrategy.CONTINUE_ON_FAILURE,
    name: str | None = None,
    description: str | None = None,
    **settings: Unpack[EachSettings],
) -> Tool:
    """Return a tool that applies a tool to each item of a list, several items in parallel.

    Its structured output is the list of results in the order of the items; its text is the same as JSON. It fails when
    all items fail; with ``FAIL_FAST``, when one does. A failed item is never passed to a next step: the pipeline fails
    with its index and error. In a pipeline the list is the structured output of the previous step, or its text read as
    JSON; a model passes it as ``items``.

    :param tool: the tool to apply
    :param max_concurrency: the maximum number of items processed concurrently, an int >= 1; default: 16
    :param error_strategy: whether the other items continue when one fails
    :param name: the tool's name for the model; by default ``each_`` and the name of the inner tool
    :param description: the tool's description for the model
    :param settings: the settings of any tool, see :class:`Tool`

    >>> from toolsemble import tool
    >>> @tool
    ... def upper(text: str) -> str:
    ...     return text.upper()
    >>> map_over(upper).execute('{"items": [{"text": "rome"}, {"text": "bonn"}]}').output
    '["ROME","BONN"]'
    """
    part = get_definition("The tool of map_over", tool)
    limit = _AT_ONCE if max_concurrency is None else max_concurrency
    check_count("map_over: max_concurrency", limit, least=1)
    fail_fast = check_strategy("map_over", error_strategy) is ErrorStrategy.FAIL_FAST
    text = f"For each item: {part.description}" if description is None else description
    flow = ForEach(Branch.of(part), limit, fail_fast=fail_fast)
    recipe = partial(map_over, tool, max_concurrency, error_strategy=error_strategy, name=name)
    arguments = partial(ListArguments, item=part)
    return CompositeTool(name or shorten_name(f"each_{part.name}"), text, flow, arguments, settings, recipe)


def choose(
    predicate: Callable[[Any], Any],
    then: object,
    otherwise: object,
    *,
    name: str | None = None,
    description: str | None = None,
    **settings: Unpack[ToolSettings],
) -> Tool:
    """Return a tool that runs one of two tools, selected by a predicate of the input.

    :param predicate: a function of the input, which is the text if both tools take a text; else the values, or the
        text if there are no values. It may be async
    :param then: the tool to run when the predicate returns true
    :param otherwise: the tool to run when it returns false
    :param name: the tool's name for the model; by default ``a_or_b``
    :param description: the tool's description for the model
    :param settings: the settings of any tool, see :class:`Tool`

    >>> from toolsemble import Tool
    >>> class Upper(Tool):
    ...     name, description = "upper", "Says it louder"
    ...     def run(self, input: str) -> str:
    ...         return input.upper()
    >>> class Same(Tool):
    ...     name, description = "same", "Says it again"
    ...     def run(self, input: str) -> str:
    ...         return input
    >>> choose(lambda text: len(text) > 3, Upper(), Same()).execute("rome").output
    'ROME'
    """
    if not callable(predicate):
        raise ToolDefinitionError(f"choose: the predicate must be a function of the input, not {predicate!r:.80}")
    parts = get_definition("The first branch of choose", then), get_definition("The second branch of choose", otherwise)
    names = [part.name for part in parts]
    text = f"One of: {', '.join(names)}" if description is None else description
    flow = Choice(predicate, *map(Branch.of, parts))
    recipe = partial(choose, predicate, then, otherwise, name=name)
    arguments = _combine_arguments(parts, all_run=False)
    return CompositeTool(name or shorten_name("_or_".join(names)), text, flow, arguments, settings, recipe)


def _combine_arguments(parts: tuple[ToolDefinition, ...], *, all_run: bool) -> Callable[[str], Arguments] | None:
    """Return the factory of the combined arguments; None if all parts take a text."""
    if all(part.arguments is None for part in parts):
        return None
    return partial(CombinedArguments, branches=parts, all_run=all_run)
