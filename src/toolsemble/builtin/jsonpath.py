"""JSONPath as RFC 9535 has it, within limits: whoever writes a query may be hostile."""

from __future__ import annotations

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
from jsonpath_rfc9535.filter_expressions import ComparisonExpression, Expression, FilterContext
from jsonpath_rfc9535.function_extensions import ExpressionType, FilterFunction
from jsonpath_rfc9535.segments import JSONPathChildSegment, JSONPathRecursiveDescentSegment, JSONPathSegment
from jsonpath_rfc9535.tokens import TokenStream

_LONGEST = 5000
_MOST_STEPS = 1_000_000
_ATOM = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\.", re.DOTALL)


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
    try:
        return [node.value for node in _Environment(timeout).finditer(query, document)]
    except JSONPathError as problem:
        raise QueryError(str(problem)) from None
    except RecursionError:
        raise QueryError("it is nested too deeply") from None
    except TimeoutError:
        raise QueryError("it takes too long; write a more exact query") from None
    except (ValueError, ArithmeticError) as problem:
        raise QueryError(f"a number is out of range: {problem}") from None


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
            self._steps -= 1
            if self._steps < 0 or time.monotonic() > self.ends:
                raise TimeoutError
            yield node


class _Pattern(FilterFunction):
    """Whether a text matches an I-Regexp, as a whole or somewhere."""

    arg_types = [ExpressionType.VALUE, ExpressionType.VALUE]  # noqa: RUF012 - so the library declares it
    return_type = ExpressionType.LOGICAL

    def __init__(self, env: _Environment, method: Literal["fullmatch", "search"]) -> None:
        self._env = env
        self._matches = getattr(regex, method)

    def __call__(self, text: object, pattern: object) -> bool:
        """Tell whether it matches; what is no text or no pattern does not."""
        if not isinstance(text, str) or not isinstance(pattern, str) or not check(pattern):
            return False
        left = max(self._env.ends - time.monotonic(), 0.001)
        try:
            return self._matches(_translated(pattern), text, timeout=left) is not None
        except regex.error:
            return False  # it has the form of a pattern, but no meaning, such as a range from b to a


def _translated(pattern: str) -> str:
    # A dot is any character but the two that end lines; in a class it is a dot.
    return _ATOM.sub(lambda atom: r"[^\n\r]" if atom[0] == "." else atom[0], pattern)


class _Parser(Parser):
    """Makes segments that count, and comparisons that tell true from 1 also inside arrays and objects."""

    env: _Environment

    def parse_query(self, stream: TokenStream, *, in_filter: bool = False) -> Iterable[JSONPathSegment]:
        for segment in super().parse_query(stream, in_filter=in_filter):
            kind = _Descendants if isinstance(segment, JSONPathRecursiveDescentSegment) else _Children
            yield kind(env=self.env, token=segment.token, selectors=segment.selectors)

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
