"""``calculator``: a tool that evaluates arithmetic expressions exactly, without Python's ``eval``."""

from __future__ import annotations

from decimal import Decimal, Overflow, Subnormal, localcontext
from fractions import Fraction

from toolsemble._tools.base import Tool
from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble.builtin._arithmetic import (
    EXPENSIVE,
    MAX_DIGITS,
    Number,
    Operation,
    Step,
    format_number,
    parse,
    working_context,
)

_MAX_LENGTH = 10_000
_MAX_WORK = 2 * 10**10  # squared bits, the cost of a multiplication; some hundredths of a second
_EXPENSIVE_WORK = 5 * 10**7  # of a power, a logarithm or a sine with 60 digits, in the same unit


class CalculatorTool(Tool):
    """A tool that evaluates an arithmetic expression; the structured output is an ``int`` or a ``Decimal``.

    Integers are returned with all digits, other numbers with 15 significant ones. ``round`` rounds halves
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
        "Operators: + (add) - (subtract) * (multiply) / (divide) // (rounds down) % (modulo, with the sign of the "
        "dividend) ^ or ** (power), parentheses.\n"
        "Percent: 15% of 840 is 126, 50% is 0.5, 200 + 10% is 220, 200 - 10% is 180.\n"
        "Functions: sqrt (square root), abs, round(x) or round(x, places), floor, ceil, min, max, sum, mean (average), "
        "log (base 10), "
        "log(x, base), ln, log10, exp, sin, cos, tan (radians), factorial(5) for 5!, gcd. Constants: pi, e, tau.\n"
        "Write multiplication out (2 * pi). Numbers may be 1,000 or 1.5e-3, but among the arguments of a function a "
        "comma separates: max(1000, 2000). No units, no words, no variables."
    )
    inline = True

    def __init__(self, *, name: str | None = None, description: str | None = None) -> None:
        """Set another name or description for the model, if one is passed."""
        self._set_names(name, description)

    def run(self, input: str) -> ToolResult:
        """Evaluate one expression."""
        if len(input) > _MAX_LENGTH:
            raise ToolExecutionError(f"The expression is too long: {len(input):,} characters, at most {_MAX_LENGTH:,}")
        with localcontext(working_context()):
            try:
                text, number = format_number(_compute(parse(input)))
            except Overflow:
                raise ToolExecutionError(f"The result is too large: more than {MAX_DIGITS:,} digits") from None
            except Subnormal:
                raise ToolExecutionError(
                    f"The result is too small: it begins after more than {MAX_DIGITS:,} zeros"
                ) from None
        return ToolResult.success(text, number)


def _compute(steps: list[Step]) -> Number:
    """Return the result of all steps; raise if they would take too long."""
    values: list[Number] = []
    work = 0
    for step in steps:
        if isinstance(step, Operation):
            operands = values[-step.operands :]
            del values[-step.operands :]
            value = step.body(*operands)
            work += _EXPENSIVE_WORK * (step.body in EXPENSIVE and isinstance(value, Decimal))
        else:
            value = step
        if isinstance(value, Fraction):  # the size of decimals does not matter
            work += (value.numerator.bit_length() + value.denominator.bit_length()) ** 2
        if work > _MAX_WORK:
            raise ToolExecutionError("The expression takes too much work; use fewer or smaller numbers")
        values.append(value)
    return values[0]
