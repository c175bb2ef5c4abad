"""JSONPath as RFC 9535 has it, within limits: whoever writes a query may be hostile."""

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

from toolsemble.errors import ToolExecutionError
from toolsemble.runtime.concurrency import ThreadPerJob
from toolsemble.runtime.text import preview

_LONGEST = 5000
_MOST_STEPS = 1_000_000
_MOST_SELECTED = 10_000_000
_DEEPEST = 500
_MOST_REPEATED = 10_000  # the matcher writes repetitions out, those inside each other too
_ATOM = re.compile(r"\\[pP]\{[A-Za-z]*\}|\\.|\[(?:\\.|[^\]\\])*\]|\{([0-9]+)(?:,([0-9]*))?\}|.", re.DOTALL)
_MOST_DIGITS = 10
_QUICK = 0.05  # seconds of processor time for a match in this thread
_THREADS = ThreadPerJob(daemon=True)
_SHOWN = 60
_EXACT = re.compile(r"-?[0-9]+")
_written = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class QueryError(ValueError):
    """A query is none, or takes too much; the message says what is wrong.

    >>> str(QueryError("unexpected token"))
    'unexpected token'
    """


def found(query: str, document: Any, timeout: float) -> list[Any]:
    """Give the values that a query selects, in the order of the standard; raise :class:`QueryError`.

    >>> found("$..price", {"book": {"price": 8}, "pen": {"price": 2}}, timeout=5)
    [8, 2]
    """
    if len(query) > _LONGEST:
        raise QueryError(f"it has more than {_LONGEST} characters")
    environment = _Environment(timeout)
    try:
        return _within_bounds(environment.counted(environment.compile(query).finditer(document)))
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


def _within_bounds(nodes: Iterable[JSONPathNode]) -> list[Any]:
    """Give the values of nodes; refuse them when they are too much text, as one value can be selected many times."""
    values, size = [], 0
    for node in nodes:
        size += len(_written(node.value))
        if size > _MOST_SELECTED:
            raise ToolExecutionError(
                f"The query selects more than {_MOST_SELECTED:,} characters; write a more exact one"
            )
        values.append(node.value)
    return values


class _Environment(JSONPathEnvironment):
    """What one query may use; filters inside it share it."""

    def __init__(self, timeout: float) -> None:
        self.parser_class = _Parser
        self.ends = time.monotonic() + timeout
        self._steps = _MOST_STEPS
        super().__init__()

    def setup_function_extensions(self) -> None:
        """Take the standard's functions, with a limit to the time that a pattern takes."""
        super().setup_function_extensions()
        self.function_extensions |= {"match": _Pattern(self, "fullmatch"), "search": _Pattern(self, "search")}

    def counted(self, nodes: Iterable[JSONPathNode]) -> Iterator[JSONPathNode]:
        """Pass nodes on until the query has used up what it may."""
        for node in nodes:
            self.count()
            yield node

    def count(self) -> None:
        """Take one step; raise :class:`TimeoutError` when the query has used up what it may."""
        self._steps -= 1
        if self._steps < 0 or time.monotonic() > self.ends:
            raise TimeoutError


class _Pattern(FilterFunction):
    """Whether a text matches an I-Regexp, as a whole or somewhere."""

    arg_types = [ExpressionType.VALUE, ExpressionType.VALUE]  # noqa: RUF012 - so the library declares it
    return_type = ExpressionType.LOGICAL

    def __init__(self, env: _Environment, method: Literal["fullmatch", "search"]) -> None:
        self._env = env
        self._matches = getattr(regex, method)

    def __call__(self, text: object, pattern: object) -> bool:
        """Tell whether it matches; what is no text or no pattern does not."""
        if not isinstance(text, str) or not isinstance(pattern, str) or not _is_pattern(pattern):
            return False
        expression = _translated(pattern)
        try:
            return self._matches(expression, text, timeout=_QUICK) is not None
        except regex.error:
            return False  # it has the form of a pattern, but no meaning, such as a range from b to a
        except TimeoutError:
            return self._matches_slowly(expression, text)

    def _matches_slowly(self, expression: str, text: str) -> bool:
        """Match in a thread, so that the limit holds by the clock: the matcher itself counts processor time only.

        The thread ends when the processor time is used up, which can be later where other programs use the processor.
        """
        left = max(self._env.ends - time.monotonic(), 0.001)
        matching = _THREADS.submit(self._matches, expression, text, timeout=left, concurrent=True)
        return matching.result(left) is not None


def _is_pattern(pattern: str) -> bool:
    """Whether it is an I-Regexp; one that would take too much memory is refused."""
    if len(pattern) > _LONGEST:
        raise QueryError(f"a pattern has more than {_LONGEST} characters")
    # The check knows counts of one digit only, and how often something is repeated does not change its form.
    if not check(_ATOM.sub(lambda atom: re.sub("[0-9]+", "1", atom[0]) if atom[1] else atom[0], pattern)):
        return False
    if _length_written_out(pattern) > _MOST_REPEATED:
        raise QueryError(f"the pattern {preview(pattern, _SHOWN)!r} repeats more than {_MOST_REPEATED:,} characters")
    return True


def _length_written_out(pattern: str) -> int:
    """Give how many atoms a pattern has when those with a count are written so many times."""
    groups, last = [0], 0
    for atom in _ATOM.finditer(pattern):
        if atom[1]:
            most = max(int(count[:_MOST_DIGITS]) for count in (atom[1], atom[2] or "1"))
            groups[-1] += last * (most - 1)
            continue
        if atom[0] == "(":
            groups.append(0)
            continue
        last = groups.pop() if atom[0] == ")" else 1
        groups[-1] += last
    return groups[0]


def _translated(pattern: str) -> str:
    # A dot is any character but the two that end lines; in a class it is a dot.
    return _ATOM.sub(lambda atom: r"[^\n\r]" if atom[0] == "." else atom[0], pattern)


class _Parser(Parser):
    """Makes segments and filters that count, exact integers, and comparisons that tell true from 1 at any depth."""

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
        # The library goes by way of floats; what it refuses for its form is left to it.
        if _EXACT.fullmatch(token.value) and not (token.value.startswith("0") and len(token.value) > 1):
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
        return self.env.counted(super().resolve(self.env.counted(nodes)))


class _Descendants(JSONPathRecursiveDescentSegment):
    __slots__ = ()
    env: _Environment

    def resolve(self, nodes: Iterable[JSONPathNode]) -> Iterable[JSONPathNode]:
        return self.env.counted(super().resolve(self.env.counted(nodes)))

    def _visit(self, node: JSONPathNode, depth: int = 1) -> Iterable[JSONPathNode]:  # noqa: ARG002 - the library's own
        """Give a node and all below it, parents first, without a call inside a call for each level."""
        levels = [iter([node])]
        while levels:
            below = next(levels[-1], None)
            if below is None:
                levels.pop()
                continue
            if len(levels) > _DEEPEST:
                raise ToolExecutionError(f"The document is nested too deeply for '..': more than {_DEEPEST} levels")
            yield below
            levels.append(_children(below))


def _children(node: JSONPathNode) -> Iterator[JSONPathNode]:
    """Give the arrays and objects right below a node."""
    value = node.value
    members = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    return (node.new_child(part, key, node) for key, part in members if isinstance(part, (dict, list)))


class _Filter(FilterExpression):
    __slots__ = ()

    def evaluate(self, context: FilterContext) -> bool:
        cast("_Environment", context.env).count()  # what it refuses is not counted elsewhere
        return super().evaluate(context)


class _Comparison(ComparisonExpression):
    __slots__ = ()

    def evaluate(self, context: FilterContext) -> bool:
        left, right = (_only(side.evaluate(context)) for side in (self.left, self.right))
        if isinstance(left, (list, dict)) and isinstance(right, (list, dict)) and "=" in self.operator:
            return _same(left, right) is (self.operator != "!=")
        return super().evaluate(context)


def _only(value: object) -> object:
    one = isinstance(value, JSONPathNodeList) and len(value) == 1
    return cast("JSONPathNodeList", value)[0].value if one else value


def _same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal; unlike in Python, true is not 1."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)
