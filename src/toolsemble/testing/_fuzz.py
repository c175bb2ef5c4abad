"""A fuzzer that calls a tool with generated arguments to find crashes."""

from __future__ import annotations

import json
import logging
import math
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from toolsemble._engine.definition import ToolDefinition, map_definition
from toolsemble._engine.execution.call import missing_deps
from toolsemble._schema.argument_problems import find_ref_target
from toolsemble._tools.collection import collect_tools
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.review import ReviewHandler
from toolsemble.review._automatic import AutoApprove
from toolsemble.testing._probe import Crash, Finding, Probe
from toolsemble.testing._samples import FORMATS, HOSTILE, INTEGERS, NUMBERS, ODD, PATTERNED, PIECES, WORDS

_MAX_DEPTH = 5  # maximum depth of values of recursive schemas
_MAX_LENGTH = 20_000
_TRIES = 30
_EDGE_DEPTH = 3  # maximum depth of edge cases
_MAX_EDGES = 10
_SHORT = ("", " ", "\x00", "é", "a")
_GIVEN = 0.2  # probability of a value that the schema has as an example or a default
_HALF = 0.5
_EDGE = 0.7  # probability that an integer is at a limit
_ORIGINS = (2, 2, 1)  # weights of words, hostile texts and random characters


class Values:
    """A generator of values for a schema; the same random numbers yield the same values.

    >>> schema = {"type": "integer", "minimum": 1, "maximum": 9}
    >>> Values(schema, random.Random(7)).edges(schema, 0)
    [1, 9, 1]
    """

    def __init__(self, schema: Mapping[str, Any], rng: random.Random) -> None:
        self._schema = schema  # the whole schema, for references
        self._rng = rng

    def generate(self, schema: Any, depth: int = 0, *, optional: float = 0.5) -> Any:
        """Return a valid value of a schema."""
        schema = self._resolve(schema)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._rng.choice(list(schema["enum"]))
        given = [*schema.get("examples", ()), *([schema["default"]] if "default" in schema else ())]
        if given and self._rng.random() < _GIVEN:
            return self._rng.choice(given)
        for keyword in ("anyOf", "oneOf"):
            if branches := schema.get(keyword):
                rest = {key: each for key, each in schema.items() if key != keyword}
                branch = _merge(rest, self._resolve(self._rng.choice(branches)))
                return self.generate(branch, depth, optional=optional)
        generators: dict[str, Callable[[], Any]] = {
            "string": lambda: self._generate_text(schema),
            "integer": lambda: self._generate_integer(schema),
            "number": lambda: self._generate_number(schema),
            "boolean": lambda: self._rng.random() < _HALF,
            "null": lambda: None,
            "array": lambda: self._generate_list(schema, depth),
            "object": lambda: self._generate_object(schema, depth, optional),
        }
        return generators.get(self._choose_type(schema), lambda: self._rng.choice(ODD))()

    def edges(self, schema: Any, depth: int) -> list[Any]:
        """Return the smallest, the largest and unusual valid values of a schema, also of nested ones."""
        schema = self._resolve(schema)
        if depth > _EDGE_DEPTH or "const" in schema:
            return []
        if "enum" in schema:
            return list(schema["enum"])[:_MAX_EDGES]
        if branches := [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
            return [edge for each in branches for edge in self.edges(each, depth)]
        kind = self._choose_type(schema)
        if kind == "object":
            names = schema.get("properties", {}).items()
            found = [(name, edge) for name, each in names for edge in self.edges(each, depth + 1)]
            return [{**self._generate_object(schema, _MAX_DEPTH, 0), name: edge} for name, edge in found]
        if kind == "array":
            least = schema.get("minItems", 0)
            wide = [[edge] * max(1, least) for edge in self.edges(schema.get("items", {}), depth + 1)]
            return wide if least else [[], *wide]
        low, high = _read_bounds(schema)
        longest = schema.get("maxLength", _MAX_LENGTH)
        edges: dict[str, list[Any]] = {
            "string": [each for each in _SHORT if schema.get("minLength", 0) <= len(each) <= longest],
            "integer": [each for each in (low, high, 0, 1, -1) if math.isfinite(each) and low <= each <= high],
            "number": [each for each in (low, high, 0.0, -0.5) if math.isfinite(each) and low <= each <= high],
            "boolean": [True, False],
            "null": [None],
        }
        return edges.get(kind, [])

    def _resolve(self, schema: Any) -> dict[str, Any]:
        """Return a schema with ``$ref`` and ``allOf`` resolved at its top level."""
        found = dict(schema) if isinstance(schema, Mapping) else {}
        for _ in range(_TRIES):
            if "$ref" in found:
                found = _merge(found, find_ref_target(self._schema, found.pop("$ref")))
            elif "allOf" in found:
                parts = found.pop("allOf")
                for part in parts:
                    found = _merge(found, part if isinstance(part, Mapping) else {})
            else:
                break
        return found

    def _choose_type(self, schema: Mapping[str, Any]) -> str:
        said = schema.get("type")
        if isinstance(said, (list, tuple)):
            return str(self._rng.choice(said))
        if said is None and ("properties" in schema or "required" in schema):
            return "object"
        return str(said)

    def _generate_text(self, schema: Mapping[str, Any]) -> str:
        if schema.get("format") in FORMATS:
            return self._rng.choice(FORMATS[schema["format"]])
        least, most = schema.get("minLength", 0), min(schema.get("maxLength", _MAX_LENGTH), _MAX_LENGTH)
        text = self.generate_text()
        text = (text + "x" * least)[: max(most, 0)] if len(text) < least or len(text) > most else text
        pattern = schema.get("pattern")
        return text if pattern is None else self._match_pattern(pattern, text, least, most)

    def generate_text(self) -> str:
        """Return a text without constraints."""
        texts = self._rng.choices((WORDS, HOSTILE, ()), _ORIGINS)[0]
        if texts:
            return self._rng.choice(texts)
        signs = (self._rng.choice((0x20, 0x400, 0x1F600)) + self._rng.randrange(0x50) for _ in range(12))
        return "".join(map(chr, signs))[: self._rng.randint(1, 12)]

    def _match_pattern(self, pattern: str, text: str, least: int, most: int) -> str:
        """Return a sample text that matches a pattern, or the given one if there is none."""
        try:
            fits = [each for each in (*PATTERNED, *WORDS) if re.search(pattern, each) and least <= len(each) <= most]
        except re.error:  # another regex dialect
            fits = []
        return self._rng.choice(fits) if fits else text

    def _generate_integer(self, schema: Mapping[str, Any]) -> int:
        low, high = _read_bounds(schema)
        step = schema.get("multipleOf", 1)
        edges = [each for each in (low, high, *INTEGERS) if math.isfinite(each) and low <= each <= high]
        picked = self._rng.choice(edges) if edges else 0
        near = int(picked) if self._rng.random() < _EDGE else self._random_between(low, high)
        if not isinstance(step, int) or not near % step:
            return near
        return near - near % step + (step if near - near % step < low else 0)

    def _random_between(self, low: float, high: float) -> int:
        least = int(low) if math.isfinite(low) else (int(high) - 100 if math.isfinite(high) else -100)
        most = int(high) if math.isfinite(high) else least + 200
        return self._rng.randint(least, max(least, most))

    def _generate_number(self, schema: Mapping[str, Any]) -> float:
        low, high = _read_bounds(schema)
        edges = [each for each in (low, high, *NUMBERS, *INTEGERS) if math.isfinite(each) and low <= each <= high]
        return self._rng.choice(edges) if edges else (low + high) / 2

    def _generate_list(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        least = schema.get("minItems", 0)
        most = least if depth >= _MAX_DEPTH else min(schema.get("maxItems", least + 3), least + 3)
        first = [self.generate(each, depth + 1) for each in schema.get("prefixItems", ())]
        items = schema.get("items", {})
        if items is False:
            return first
        more = max(0, self._rng.randint(least, max(least, most)) - len(first))
        found = [*first, *(self.generate(items, depth + 1) for _ in range(more))]
        if schema.get("uniqueItems"):
            return list({json.dumps(each, sort_keys=True): each for each in found}.values())
        return found

    def _generate_object(self, schema: Mapping[str, Any], depth: int, optional: float) -> dict[str, Any]:
        required = schema.get("required", ())
        found = {}
        for name, each in schema.get("properties", {}).items():
            if name in required or (depth < _MAX_DEPTH and self._rng.random() < optional):
                found[name] = self.generate(each, depth + 1, optional=optional)
        others = schema.get("additionalProperties")
        if isinstance(others, Mapping) and depth < _MAX_DEPTH:
            for _ in range(self._rng.randint(0, 2)):
                found[self.generate_text()] = self.generate(others, depth + 1)
        return found


def _merge(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = {**one, **other}
    if "properties" in one and "properties" in other:
        both["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        both["required"] = [*one["required"], *other["required"]]
    return both


def _read_bounds(schema: Mapping[str, Any]) -> tuple[float, float]:
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    whole = schema.get("type") == "integer"
    if (above := schema.get("exclusiveMinimum")) is not None:
        low = max(low, above + 1 if whole else math.nextafter(above, math.inf))
    if (below := schema.get("exclusiveMaximum")) is not None:
        high = min(high, below - 1 if whole else math.nextafter(below, -math.inf))
    return low, high


_NESTING = 60
_DEEPER = 0.7  # probability that a part is changed instead of the whole
_KINDS = (50, 35, 15)  # weights of valid arguments, almost valid ones, and broken JSON
_EXAMPLE = 0.3  # probability of an example: they reach code that random values do not
_OPTIONAL = (0.1, 0.5, 0.9)  # probabilities that an optional parameter is included


class Arguments:
    """A generator of arguments; the same random numbers yield the same arguments.

    >>> schema = {"type": "object", "properties": {"days": {"type": "integer", "minimum": 1}}, "required": ["days"]}
    >>> Arguments(schema, random.Random(7)).generate_valid()["days"] >= 1
    True
    """

    def __init__(self, schema: Mapping[str, Any], rng: random.Random, examples: Sequence[Any] = ()) -> None:
        self._schema = schema
        self._rng = rng
        self._values = Values(schema, rng)
        self._examples = examples

    def edge_cases(self, most: int) -> list[Any]:
        """Return fixed cases: empty, not an object, all parameters, and edge values of each parameter."""
        generated = [self._values.generate(self._schema, optional=share) for share in (0, 1)]
        edges = self._values.edges(self._schema, 0)
        chosen = edges if len(edges) <= most else self._rng.sample(edges, most)
        return [{}, *generated, *self._examples, "", "null", "[]", '"text"', "7", *chosen]

    def generate(self) -> Any:
        """Return valid or almost valid arguments as a dict, or a text that is not a JSON object."""
        return self._rng.choices((self.generate_valid, self.generate_invalid, self.generate_broken_json), _KINDS)[0]()

    def generate_valid(self) -> Any:
        """Return arguments that are valid, as far as that is cheap to ensure; sometimes an example."""
        if self._examples and self._rng.random() < _EXAMPLE:
            return json.loads(json.dumps(self._rng.choice(self._examples)))
        return self._values.generate(self._schema, optional=self._rng.choice(_OPTIONAL))

    def generate_invalid(self) -> Any:
        """Return arguments that are almost valid: changed in one to three places."""
        value = self.generate_valid()
        for _ in range(self._rng.randint(1, 3)):
            value = self._change(value)
        return value

    def generate_broken_json(self) -> str:
        """Return a text that is almost the JSON of valid arguments."""
        text = json.dumps(self.generate_valid(), ensure_ascii=self._rng.random() < _HALF)
        at = self._rng.randint(0, len(text))
        piece = self._rng.choice(PIECES)
        return self._rng.choice(
            (
                text[:at],
                text[:at] + piece + text[at:],
                text[:at] + piece + text[at + len(piece) :],
                f"Here it is:\n```json\n{text}\n```",
                text.replace('"', "'"),
                text[:-1] + ",}",
                "[" * self._rng.choice((3, 500)) + text,
                json.dumps(text),
                text + text,
            )
        )

    def _change(self, value: Any) -> Any:
        """Return a copy that is changed in one place."""
        keys: list[Any] = list(
            value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        )
        if keys and self._rng.random() < _DEEPER:
            key, changed = self._rng.choice(keys), value.copy()
            changed[key] = self._change(value[key])
            return changed
        if isinstance(value, dict) and self._rng.random() < _HALF:
            return self._change_keys(value)
        other = self._rng.choice((self._rng.choice(ODD), self._values.generate_text(), [value], _nest(value)))
        return self._rng.choice((other, other, json.dumps(value), self._exaggerate(value), self._exaggerate(value)))

    def _change_keys(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return an object with a key removed, renamed or added."""
        name = self._rng.choice([*value, ""])
        rest = {key: each for key, each in value.items() if key != name}
        extra = self._rng.choice(("extra", "", "__class__", "input", "$ref", "\u202e"))
        others = (name.upper(), f"{name}s", name[:-1], f" {name}")
        renamed = {**rest, self._rng.choice(others): value.get(name)}
        return self._rng.choice((rest, renamed, {**value, extra: self._rng.choice(ODD)}))

    def _exaggerate(self, old: Any) -> Any:
        if isinstance(old, str):
            return self._rng.choice((old * 50, old[: len(old) // 2], self._splice(old), self._splice(old)))
        if isinstance(old, (int, float)):
            return self._rng.choice((-old, old + 1, old - 1, *INTEGERS, *NUMBERS))
        return old * 30 if isinstance(old, list) else self._rng.choice(ODD)

    def _splice(self, text: str) -> str:
        """Return the text with a part replaced: by a part of itself, a symbol, or another text."""
        start, end = sorted(self._rng.randint(0, len(text)) for _ in range(2))
        new = self._rng.choice((text[start:end] * 2, self._rng.choice("+-*/(){}[]^$.,:;@#%&|!?<>=~ 0"), ""))
        return text[:start] + (new or self._rng.choice(HOSTILE)) + text[end:]


def _nest(value: Any) -> Any:
    for _ in range(_NESTING):
        value = [value]
    return value


_MAX_HANGS = 3  # each one waits for the full timeout and leaves a thread running
_SHOWN = 500


@dataclass(frozen=True, slots=True)
class FuzzReport:
    """The result of a fuzz run.

    >>> FuzzReport("weather", 7, {"success": 200}).ok
    True
    """

    tool_name: str
    """The name of the tool."""
    seed: int
    """The seed that reproduces the calls."""
    outcomes: Mapping[str, int]
    """The number of calls by outcome: ``success``, ``failure`` (reported to the model) and ``crash``."""
    crashes: tuple[Crash, ...] = ()
    """The distinct crashes."""

    @property
    def ok(self) -> bool:
        """Whether there are no crashes."""
        return not self.crashes

    def assert_ok(self) -> None:
        """Raise an ``AssertionError`` that lists the crashes, if there are any."""
        if not self.ok:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        counted = ", ".join(f"{count} {name}" for name, count in self.outcomes.items())
        lines = [f"fuzz of '{self.tool_name}' with seed={self.seed}: {counted}"]
        for number, crash in enumerate(self.crashes, 1):
            lines.append(f"{number}. {crash.error} ({crash.count}x, {crash.kind})\n   {crash.call!r:.{_SHOWN}}")
            lines += [f"   {line}" for line in crash.traceback.splitlines()[-3:]]
        return "\n".join(lines)


def fuzz(
    tool: object,
    *,
    count: int = 200,
    seed: int | None = None,
    examples: Iterable[Mapping[str, Any] | str] = (),
    timeout: float = 5.0,
    declared: tuple[type[BaseException], ...] = (),
    review: ReviewHandler | None = None,
    deps: Any = None,
) -> FuzzReport:
    """Call a tool many times with valid and almost valid arguments; return the crashes.

    The tool really runs, so run it where it can do no harm. A crash is an exception that is not meant for the model, an
    exception that escapes the call path, a result that is not JSON, or a call that hangs. A failed result is not a
    crash.

    :param tool: a tool of any kind that a toolbox accepts
    :param count: the number of calls, without those that simplify a crash
    :param seed: reproduces the same calls; None: a random one, which is in the report
    :param examples: valid arguments, for tools whose schema says little; inputs for a string tool
    :param timeout: seconds after which a call counts as a hang; its thread keeps running
    :param declared: more exceptions that are meant for the model
    :param review: the reviewer of calls; None: approve all
    :param deps: an object that the tool gets as ``ToolContext.deps`` in all calls; a tool that needs deps and gets none
        raises :class:`~toolsemble.ToolConfigurationError`

    >>> from toolsemble import tool
    >>> @tool
    ... def initial(name: str) -> str:
    ...     return name[0]
    >>> report = fuzz(initial, seed=1)
    >>> [(crash.error, crash.call.arguments) for crash in report.crashes]
    [('IndexError: string index out of range', {'name': ''})]
    """
    target, definition = _find_tool(tool)
    if (need := definition.deps_need) is not None and deps is None:
        raise missing_deps(need)
    seed = int.from_bytes(os.urandom(4)) if seed is None else seed
    probe = Probe(target, definition.name, timeout, declared, AutoApprove() if review is None else review, deps)
    generator = Arguments(definition.schema(), random.Random(seed), _check_examples(examples))  # noqa: S311 - not for cryptography
    edge_cases = generator.edge_cases(count // 2)
    outcomes: Counter[str] = Counter()
    found: dict[tuple[str, ...], list[tuple[Finding, Any]]] = {}
    hangs = 0
    with _suppress_logs(definition, probe.mark):
        for number in range(count):
            given = edge_cases[number] if number < len(edge_cases) else generator.generate()
            outcome = probe.run(given)
            outcomes[outcome if isinstance(outcome, str) else "crash"] += 1
            if isinstance(outcome, Finding):
                found.setdefault(outcome.key, []).append((outcome, given))
                hangs += outcome.kind == "hang"
            if hangs >= _MAX_HANGS:
                break
        crashes = tuple(map(probe.minimize, found.values()))
    return FuzzReport(definition.name, seed, dict(outcomes), crashes)


@contextmanager
def _suppress_logs(definition: ToolDefinition, mark: str) -> Iterator[None]:
    """Keep a probe's calls out of the log, because the report has the results."""
    loggers: list[logging.Logger] = []

    def collect(part: ToolDefinition) -> ToolDefinition:
        loggers.append(part.logger)
        return part

    def is_passed(record: logging.LogRecord) -> bool:
        return not str(getattr(record, "call_id", "")).startswith(mark)

    map_definition(definition, collect)
    for logger in loggers:
        logger.addFilter(is_passed)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_passed)


def _find_tool(tool: object) -> tuple[object, ToolDefinition]:
    found = collect_tools(tool)
    if len(found) != 1:
        names = ", ".join(definition.name for _, definition in found) or "none"
        raise ToolDefinitionError(f"fuzz takes one tool; {type(tool).__name__} has {len(found)}: {names}")
    return found[0]


def _check_examples(examples: Iterable[Mapping[str, Any] | str]) -> list[dict[str, Any]]:
    if isinstance(examples, (str, Mapping)):
        raise TypeError(f"fuzz examples must be a list of arguments, not {type(examples).__name__}")
    return [{"input": each} if isinstance(each, str) else dict(each) for each in examples]
