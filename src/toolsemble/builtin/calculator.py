"""A tool that computes: exact, bounded, and never by way of Python's own evaluation."""

from __future__ import annotations

from decimal import Decimal, Overflow, Subnormal, localcontext
from fractions import Fraction

from toolsemble.builtin.arithmetic.function import ENDLESS
from toolsemble.builtin.arithmetic.number import TOO_LARGE, TOO_SMALL, Number, presented, working_context
from toolsemble.builtin.arithmetic.parser import Operation, Step, program
from toolsemble.errors import ToolExecutionError
from toolsemble.result import ToolResult
from toolsemble.tools.base import Tool

_LONGEST = 10_000
_MOST_WORK = 2 * 10**10  # squares of bits, as multiplication goes; some hundredths of a second
_WORK_OF_ENDLESS = 5 * 10**7  # what sixty digits of a power, a logarithm or a sine take, in the same measure


class CalculatorTool(Tool):
    """Computes an expression with exact decimals; the structured output is the number, an ``int`` or a ``Decimal``.

    Whole numbers are ints and come with all their digits, others with fifteen significant ones. ``round`` takes halves
    away from zero, ``%`` has the sign of the dividend, ``//`` rounds down, angles are radians.

    >>> CalculatorTool().execute("0.1 + 0.2")
    ToolResult.success('0.3', structured_output=Decimal('0.3'))
    >>> CalculatorTool().execute("15% of 840").structured_output
    126
    >>> CalculatorTool().execute("1 / 0").error_message
    'Division by zero'
    """

    name = "calculator"
    description = (
        "Computes an arithmetic expression exactly, such as (3 + 4.5) * 2, 15% of 80 or factorial(5). Input: only the "
        "expression.\n"
        "Operators: + - * / // (rounds down) % (modulo, with the sign of the dividend) ^ or ** (power), parentheses.\n"
        "Percent: 15% of 840 is 126, 50% is 0.5, 200 + 10% is 220, 200 - 10% is 180.\n"
        "Functions: sqrt, abs, round(x) or round(x, places), floor, ceil, min, max, sum, mean, log (base 10), "
        "log(x, base), ln, log10, exp, sin, cos, tan (radians), factorial(5) for 5!, gcd. Constants: pi, e, tau.\n"
        "Write multiplication out (2 * pi). Numbers may be 1,000 or 1.5e-3, but among the arguments of a function a "
        "comma separates: max(1000, 2000). No units, no words, no variables."
    )
    inline = True

    def run(self, input: str) -> ToolResult:
        """Compute one expression."""
        if len(input) > _LONGEST:
            raise ToolExecutionError(f"The expression is too long: {len(input):,} characters, at most {_LONGEST:,}")
        with localcontext(working_context()):
            try:
                text, number = presented(_computed(program(input)))
            except Overflow:
                raise ToolExecutionError(TOO_LARGE) from None
            except Subnormal:
                raise ToolExecutionError(TOO_SMALL) from None
        return ToolResult.success(text, number)


def _computed(steps: list[Step]) -> Number:
    """Give the number that is left after all steps; refuse steps that would take too long together."""
    values: list[Number] = []
    work = 0
    for step in steps:
        value = _applied(step, values) if isinstance(step, Operation) else step
        work += _size(value) ** 2 + _WORK_OF_ENDLESS * _is_endless(step, value)
        if work > _MOST_WORK:
            raise ToolExecutionError("The expression takes too much work; use fewer or smaller numbers")
        values.append(value)
    return values[0]


def _applied(operation: Operation, values: list[Number]) -> Number:
    """Take the operands from the values, and give what comes of them."""
    operands = values[-operation.takes :]
    del values[-operation.takes :]
    return operation.body(*operands)


def _is_endless(step: Step, value: Number) -> bool:
    return isinstance(step, Operation) and step.body in ENDLESS and isinstance(value, Decimal)


def _size(value: Number) -> int:
    """Give how many bits a number takes; those of decimals are few."""
    return value.numerator.bit_length() + value.denominator.bit_length() if isinstance(value, Fraction) else 0
