"""JSONPath queries (RFC 9535) with limits on time, memory and depth, because queries may be hostile.

Steps are counted in place. A worker process would import the main module of the program again, so a script without
``if __name__ == "__main__"`` would run twice; and a small query would take ten times as long.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from typing import Any, Literal, cast

import regex  # type: ignore[import-untyped]  # it comes without types
from iregexp_check import check
from jsonpath_rfc9535 import (
    JSONPathEnvironment,
    JSONPathError,
    JSONPathNode,
    JSONPathNodeList,
    Parser,
)
from jsonpath_rfc9535.filter_expressions import (
    ComparisonExpression,
    Expression,
    FilterContext,
    FilterExpression,
    IntegerLiteral,
)
from jsonpath_rfc9535.function_extensions import ExpressionType, FilterFunction
from jsonpath_rfc9535.segments import JSONPathChildSegment, JSONPathRecursiveDescentSegment, JSONPathSegment
from jsonpath_rfc9535.selectors import FilterSelector
from jsonpath_rfc9535.tokens import TokenStream

from toolsemble._runtime.text import preview
from toolsemble._runtime.threads import ThreadPerJob
from toolsemble._vocabulary.errors import ToolExecutionError

_MAX_LENGTH = 5000
_MAX_STEPS = 1_000_000
_MAX_SELECTED = 10_000_000
_MAX_DEPTH = 500
_MAX_EXPANDED = 10_000  # the regex module expands repetitions, nested ones too
_ATOM = re.compile(r"\\[pP]\{[A-Za-z]*\}|\\.|\[(?:\\.|[^\]\\])*\]|\{([0-9]+)(?:,([0-9]*))?\}|.", re.DOTALL)
_MAX_COUNT_DIGITS = 10
_QUICK_SECONDS = 0.05  # seconds of processor time for a match in the calling thread
_THREADS = ThreadPerJob(daemon=True)
_SHOWN = 60
_INTEGER = re.compile(r"-?[0-9]+")
_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class QueryError(ValueError):
    """A query is not valid, or exceeds a limit; the message says why.

    >>> str(QueryError("unexpected token"))
    'unexpected token'
    """


def select(query: str, document: Any, timeout: float) -> list[Any]:
    """Return the values that a query selects, in the order of RFC 9535; raise :class:`QueryError`.

    >>> select("$..price", {"book": {"price": 8}, "pen": {"price": 2}}, timeout=5)
    [8, 2]
    """
    if len(query) > _MAX_LENGTH:
        raise QueryError(f"it has more than {_MAX_LENGTH} characters")
    environment = _Environment(timeout)
    try:
        return _collect_values(environment.count_nodes(environment.compile(query).finditer(document)))
    except JSONPathError as problem:
        raise QueryError(str(problem)) from None
    except RecursionError:
        raise QueryError("the query or the document is nested too deeply") from None
    except TimeoutError:
        raise QueryError("it takes too long; write a more exact query") from None
    except QueryError:
        raise
    except (ValueError, ArithmeticError) as problem:
        raise QueryError(f"a number is out of range: {problem}") from None


def _collect_values(nodes: Iterable[JSONPathNode]) -> list[Any]:
    """Return the values of nodes; raise if their text is too long: one value can be selected many times."""
    values, size = [], 0
    for node in nodes:
        size += len(_dump(node.value))
        if size > _MAX_SELECTED:
            raise ToolExecutionError(
                f"The query selects more than {_MAX_SELECTED:,} characters; write a more exact one"
            )
        values.append(node.value)
    return values


class _Environment(JSONPathEnvironment):
    """The environment of one query, with its limits; filters in the query share them."""

    def __init__(self, timeout: float) -> None:
        self.parser_class = _Parser
        self.deadline = time.monotonic() + timeout
        self._steps = _MAX_STEPS
        super().__init__()

    def setup_function_extensions(self) -> None:
        """Register the standard functions, with a time limit for patterns."""
        super().setup_function_extensions()
        self.function_extensions |= {"match": _Pattern(self, "fullmatch"), "search": _Pattern(self, "search")}

    def count_nodes(self, nodes: Iterable[JSONPathNode]) -> Iterator[JSONPathNode]:
        """Yield nodes, counting each as a step."""
        for node in nodes:
            self.count_step()
            yield node

    def count_step(self) -> None:
        """Count one step; raise :class:`TimeoutError` when a limit of the query is exceeded."""
        self._steps -= 1
        if self._steps < 0 or time.monotonic() > self.deadline:
            raise TimeoutError


class _Pattern(FilterFunction):
    """The function ``match`` or ``search``: whether a text matches an I-Regexp (RFC 9485)."""

    arg_types = [ExpressionType.VALUE, ExpressionType.VALUE]  # noqa: RUF012 - the library declares it so
    return_type = ExpressionType.LOGICAL

    def __init__(self, env: _Environment, method: Literal["fullmatch", "search"]) -> None:
        self._env = env
        self._matches = getattr(regex, method)

    def __call__(self, text: object, pattern: object) -> bool:
        """Return whether it matches; False if either is not a string, or the pattern is not valid."""
        if not isinstance(text, str) or not isinstance(pattern, str) or not _is_pattern(pattern):
            return False
        expression = _to_regex(pattern)
        try:
            return self._matches(expression, text, timeout=_QUICK_SECONDS) is not None
        except regex.error:
            return False  # valid syntax without meaning, such as a range from b to a
        except TimeoutError:
            return self._matches_slowly(expression, text)

    def _matches_slowly(self, expression: str, text: str) -> bool:
        """Match in a thread to enforce wall-clock time: the regex module limits processor time only.

        The thread ends when its processor time is used up, which can be later on a busy machine.
        """
        left = max(self._env.deadline - time.monotonic(), 0.001)
        matching = _THREADS.submit(self._matches, expression, text, timeout=left, concurrent=True)
        return matching.result(left) is not None


def _is_pattern(pattern: str) -> bool:
    """Return whether it is an I-Regexp; raise if it would take too much memory."""
    if len(pattern) > _MAX_LENGTH:
        raise QueryError(f"a pattern has more than {_MAX_LENGTH} characters")
    # The checker supports counts of one digit only; the count does not matter for the syntax.
    if not check(_ATOM.sub(lambda atom: re.sub("[0-9]+", "1", atom[0]) if atom[1] else atom[0], pattern)):
        return False
    if _expanded_length(pattern) > _MAX_EXPANDED:
        raise QueryError(f"the pattern {preview(pattern, _SHOWN)!r} repeats more than {_MAX_EXPANDED:,} characters")
    return True


def _expanded_length(pattern: str) -> int:
    """Return the number of atoms of a pattern with all counted repetitions expanded."""
    groups, last = [0], 0
    for atom in _ATOM.finditer(pattern):
        if atom[1]:
            most = max(int(count[:_MAX_COUNT_DIGITS]) for count in (atom[1], atom[2] or "1"))
            groups[-1] += last * (most - 1)
            continue
        if atom[0] == "(":
            groups.append(0)
            continue
        last = groups.pop() if atom[0] == ")" else 1
        groups[-1] += last
    return groups[0]


def _to_regex(pattern: str) -> str:
    # Outside a class, a dot matches any character except the two line endings.
    return _ATOM.sub(lambda atom: r"[^\n\r]" if atom[0] == "." else atom[0], pattern)


class _Parser(Parser):
    """A parser whose segments and filters count steps, with exact integers and strict comparison of booleans."""

    env: _Environment

    def parse_query(self, stream: TokenStream, *, in_filter: bool = False) -> Iterable[JSONPathSegment]:
        for segment in super().parse_query(stream, in_filter=in_filter):
            kind = _Descendants if isinstance(segment, JSONPathRecursiveDescentSegment) else _Children
            yield kind(env=self.env, token=segment.token, selectors=segment.selectors)

    def parse_filter_selector(self, stream: TokenStream) -> FilterSelector:
        made = super().parse_filter_selector(stream)
        made.expression = _Filter(made.expression.token, made.expression.expression)
        return made

    def parse_integer_literal(self, stream: TokenStream) -> Expression:
        token = stream.current
        # The library converts through float; it still rejects malformed integers itself.
        if _INTEGER.fullmatch(token.value) and not (token.value.startswith("0") and len(token.value) > 1):
            return IntegerLiteral(token, int(token.value))
        return super().parse_integer_literal(stream)

    def parse_infix_expression(self, stream: TokenStream, left: Expression) -> Expression:
        made = super().parse_infix_expression(stream, left)
        if not isinstance(made, ComparisonExpression):
            return made
        return _Comparison(made.token, made.left, made.operator, made.right)


class _Children(JSONPathChildSegment):
    __slots__ = ()
    env: _Environment

    def resolve(self, nodes: Iterable[JSONPathNode]) -> Iterable[JSONPathNode]:
        return self.env.count_nodes(super().resolve(self.env.count_nodes(nodes)))


class _Descendants(JSONPathRecursiveDescentSegment):
    __slots__ = ()
    env: _Environment

    def resolve(self, nodes: Iterable[JSONPathNode]) -> Iterable[JSONPathNode]:
        return self.env.count_nodes(super().resolve(self.env.count_nodes(nodes)))

    def _visit(self, node: JSONPathNode, depth: int = 1) -> Iterable[JSONPathNode]:
        """Yield a node and all its descendants, parents first, without recursion."""
        levels = [iter([node])]
        while levels:
            below = next(levels[-1], None)
            if below is None:
                levels.pop()
                continue
            if len(levels) > _MAX_DEPTH:
                raise ToolExecutionError(f"The document is nested too deeply for '..': more than {_MAX_DEPTH} levels")
            yield below
            levels.append(_child_containers(below))


def _child_containers(node: JSONPathNode) -> Iterator[JSONPathNode]:
    """Return the arrays and objects that are direct children of a node."""
    value = node.value
    members = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    return (node.new_child(part, key, node) for key, part in members if isinstance(part, (dict, list)))


class _Filter(FilterExpression):
    __slots__ = ()

    def evaluate(self, context: FilterContext) -> bool:
        cast("_Environment", context.env).count_step()  # nodes that do not match are not counted elsewhere
        return super().evaluate(context)


class _Comparison(ComparisonExpression):
    __slots__ = ()

    def evaluate(self, context: FilterContext) -> bool:
        left, right = (_unwrap(side.evaluate(context)) for side in (self.left, self.right))
        if isinstance(left, (list, dict)) and isinstance(right, (list, dict)) and "=" in self.operator:
            return _is_equal(left, right) is (self.operator != "!=")
        return super().evaluate(context)


def _unwrap(value: object) -> object:
    one = isinstance(value, JSONPathNodeList) and len(value) == 1
    return cast("JSONPathNodeList", value)[0].value if one else value


def _is_equal(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal; unlike in Python, true is not 1."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_is_equal(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_is_equal, left, right))
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)
