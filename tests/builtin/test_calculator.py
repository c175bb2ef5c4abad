"""Tests of the calculator: exact results, limits and error messages."""

from __future__ import annotations

import decimal
import json
import math
import operator
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings, strategies as st

from toolsemble import Toolbox, ToolCall
from toolsemble.builtin import CalculatorTool

pytestmark = pytest.mark.slow

CALCULATOR = CalculatorTool()
TOO_LARGE = "The result is too large: more than 4,000 digits"
TOO_SMALL = "The result is too small: it begins after more than 4,000 zeros"
TOO_MUCH = "The expression takes too much work; use fewer or smaller numbers"


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("10 - 4 - 3", "3"),
        ("100 / 10 / 2", "5"),
        ("2 * 3 % 4", "2"),
        ("-2^2", "-4"),
        ("-2**2", "-4"),
        ("(-2)^2", "4"),
        ("2^3^2", "512"),
        ("2**3**2", "512"),
        ("2^-3", "0.125"),
        ("2^-3^2", "0.001953125"),
        ("2 * -3", "-6"),
        ("1 - -1", "2"),
        ("1 - + - 1", "2"),
        ("--1", "1"),
        ("+5", "5"),
        ("2*2^3", "16"),
        ("-7 // 2", "-4"),
        ("7 // 2", "3"),
        ("7.5 // 2", "3"),
        ("0.1 + 0.2", "0.3"),
        ("20 / 4", "5"),
        ("10 / 3", "3.33333333333333"),
        ("2 / 3", "0.666666666666667"),
        ("1 / 3 * 3", "1"),
        ("100 * 1.1", "110"),
        ("1.10 + 2.20", "3.3"),
        ("0.1 * 3 - 0.3", "0"),
        ("-0", "0"),
        ("0 * -5", "0"),
        ("1.50", "1.5"),
        ("123456789012345.678", "123456789012346"),
        ("12345678901234567.5", "12345678901234568"),
        ("123456789 * 987654321 * 1000000007", "121932631966163686788446883"),
        ("0.000001", "0.000001"),
        ("0.0000001", "1e-7"),
        ("2^-30", "9.31322574615479e-10"),
        ("-1 / 10^8", "-1e-8"),
        ("0^0", "1"),
        ("0^5", "0"),
        ("sin(0)^sin(0)", "1"),
        ("sin(pi)^0.5", "0"),
        ("(-1)^(10^20)", "1"),
        ("(-1)^(10^20 + 1)", "-1"),
        ("1^(10^50)", "1"),
        ("0^(10^50)", "0"),
        ("1.0001^100000", "22015.4560485522"),
        ("(-0.9999)^100001", "-0.0000453726962355653"),
        ("2^0.5", "1.4142135623731"),
        ("2^(1/2) - sqrt(2)", "0"),
        ("8^(1/3)", "2"),
        ("(2/3)^-2", "2.25"),
        ("sqrt(2)^-2", "0.5"),
        ("0^0.5", "0"),
    ],
)
def test_arithmetic_is_exact_and_keeps_precedence(expression, result):
    assert CALCULATOR.execute(expression).text == result


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("5 % 3", "2"),
        ("5%3", "2"),
        ("5% 3", "2"),
        ("-7 % 3", "-1"),
        ("7 % -3", "1"),
        ("7%-3", "1"),
        ("7 % - 3", "1"),
        ("7 % +3", "1"),
        ("-7 % -3", "-1"),
        ("7.5 % 2", "1.5"),
        ("0.3 % 0.1", "0"),
        ("7 % (2 + 1)", "1"),
        ("7 % pi", "0.716814692820414"),
        ("sqrt(8) % sqrt(2)", "0"),
        ("tau % pi", "0"),
        ("-tau % 4", "-2.28318530717959"),
        ("exp(200) % 1", "0"),
    ],
)
def test_modulo_keeps_the_sign_of_the_dividend(expression, result):
    assert CALCULATOR.execute(expression).text == result


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("15% of 840", "126"),
        ("15 % of 840", "126"),
        ("7.5% of 1,200", "90"),
        ("(5 + 10)% of 840", "126"),
        ("(5% + 10%) of 840", "126"),
        ("10% of 50% of 200", "10"),
        ("10% of -50", "-5"),
        ("-10% of 50", "-5"),
        ("10% of 2^2", "0.4"),
        ("20 + 15% of 840", "146"),
        ("100 / 10% of 50", "20"),
        ("50%", "0.5"),
        ("-50%", "-0.5"),
        ("10% * 200", "20"),
        ("200 * 10%", "20"),
        ("200 / 10%", "2000"),
        ("200 + 10%", "220"),
        ("200 - 10%", "180"),
        ("200 + (10%)", "220"),
        ("200 + -10%", "180"),
        ("200+10%", "220"),
        ("100 + 5% + 3%", "108.15"),
        ("5% + 3% + 2%", "0.1"),
        ("5% - 3%", "0.02"),
        ("10% + 5", "5.1"),
        ("10%+5", "5.1"),
        ("10% - 3", "-2.9"),
        ("(10%) - 3", "-2.9"),
        ("10% (-3)", "1"),
        ("10%^2", "0.01"),
        ("4^50%", "2"),
        ("10% % 3", "0.1"),
        ("max(5%, 3%)", "0.05"),
    ],
)
def test_trailing_percent_sign_means_hundredths(expression, result):
    assert CALCULATOR.execute(expression).text == result


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("1,000", "1000"),
        ("1,234,567.89 + 0.11", "1234568"),
        ("1,000e3", "1000000"),
        ("(1,000)", "1000"),
        ("max((1,000), 5)", "1000"),
        ("min(1,2)", "1"),
        ("min(100,200)", "100"),
        ("max(1, 000)", "1"),
        ("1_000_000", "1000000"),
        ("1e3", "1000"),
        ("1.5E-3", "0.0015"),
        ("2e+2", "200"),
        ("5.", "5"),
        (".5", "0.5"),
        ("007", "7"),
        ("6 × 7", "42"),  # noqa: RUF001 - the sign that people write
        ("6 · 7", "42"),
        ("84 ÷ 2", "42"),
        ("50 − 8", "42"),  # noqa: RUF001 - the sign that word processors write
        ("50 – 8", "42"),  # noqa: RUF001 - the dash that people write
        ("６＊（３＋４）", "42"),  # noqa: RUF001 - full-width forms are the test
        ("１，０００", "1000"),  # noqa: RUF001 - full-width forms are the test
        ("2\u00a0*\n\t3", "6"),
        ("π", "3.14159265358979"),
        ("τ / π", "2"),
        ("PI + Sqrt(4)", "5.14159265358979"),
    ],
)
def test_common_number_and_operator_notations_are_accepted(expression, result):
    assert CALCULATOR.execute(expression).text == result


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("pi", "3.14159265358979"),
        ("e", "2.71828182845905"),
        ("tau", "6.28318530717959"),
        ("sqrt(16)", "4"),
        ("sqrt(2)", "1.4142135623731"),
        ("sqrt(2)^2", "2"),
        ("sqrt(2) * sqrt(2) - 2", "0"),
        ("sqrt(0.0625)", "0.25"),
        ("sqrt(0)", "0"),
        ("sqrt(sqrt(2)) - 2^0.25", "0"),
        ("abs(-5)", "5"),
        ("abs(5)", "5"),
        ("round(2.5)", "3"),
        ("round(-2.5)", "-3"),
        ("round(2.4)", "2"),
        ("round(-0.2)", "0"),
        ("round(3.14159, 2)", "3.14"),
        ("round(2.675, 2)", "2.68"),
        ("round(1250, -2)", "1300"),
        ("round(pi, 4)", "3.1416"),
        ("round(sqrt(2)^2 * 1.25, 1)", "2.5"),
        ("round(exp(200))", "7.22597376812575e+86"),
        ("floor(-1.5)", "-2"),
        ("floor(1.5)", "1"),
        ("floor(sqrt(2)^2)", "2"),
        ("floor(ln(e^3))", "3"),
        ("floor(exp(200))", "7.22597376812575e+86"),
        ("ceil(1.2)", "2"),
        ("ceil(-1.2)", "-1"),
        ("ceil(log(8) / log(2))", "3"),
        ("min(3, 1, 2)", "1"),
        ("max(3, 1, 2)", "3"),
        ("max(pi, 3, 22/7)", "3.14285714285714"),
        ("min(5)", "5"),
        ("sum(1, 2, 3.5)", "6.5"),
        ("sum(0.1, 0.1, 0.1)", "0.3"),
        ("sum([34, 41, 29]) / 3", "34.6666666666667"),
        ("sum([1,200, 3])", "204"),
        ("max([2 * 3, (4 + 5)])", "9"),
        ("sqrt([16])", "4"),
        ("mean(1, 2, 6)", "3"),
        ("average([0.1, 0.2])", "0.15"),
        ("avg(7)", "7"),
        ("log(1000)", "3"),
        ("log(0.01)", "-2"),
        ("log10(2)", "0.301029995663981"),
        ("log(8, 2)", "3"),
        ("log(8, 10)", "0.903089986991944"),
        ("ln(e)", "1"),
        ("ln(2)", "0.693147180559945"),
        ("exp(0)", "1"),
        ("exp(1) - e", "0"),
        ("exp(100)", "2.68811714181614e+43"),
        ("sin(pi)", "0"),
        ("sin(pi / 6)", "0.5"),
        ("sin(-pi / 2)", "-1"),
        ("sin(0)", "0"),
        ("sin(10^22)", "-0.852200849767189"),
        ("sin(1e-3000)", "1e-3000"),
        ("sin(3.14159265358979)", "3.23846264338328e-15"),
        ("cos(pi)", "-1"),
        ("cos(pi / 2)", "0"),
        ("cos(0)", "1"),
        ("cos(1)", "0.54030230586814"),
        ("tan(pi / 4)", "1"),
        ("tan(3 * pi / 4)", "-1"),
        ("tan(pi)", "0"),
        ("sin(1)^2 + cos(1)^2", "1"),
        ("factorial(0)", "1"),
        ("factorial(5)", "120"),
        ("factorial(25)", "15511210043330985984000000"),
        ("factorial(log(1000))", "6"),
        ("gcd(12, 18)", "6"),
        ("gcd(12, 18, 27)", "3"),
        ("gcd(-4, 6)", "2"),
        ("gcd(0, 0)", "0"),
        ("max(min(1, 2), sum(1, 1, 1)) ^ 2", "9"),
        ("(-2)^log(1000)", "-8"),
    ],
)
def test_functions_return_expected_values(expression, result):
    assert CALCULATOR.execute(expression).text == result


@pytest.mark.parametrize("expression", ["2^1000", "factorial(1000)", "9^4000", "-(3^2000)"])
def test_integers_keep_all_digits(expression):
    result = CALCULATOR.execute(expression)
    assert result.output == str(result.structured_output)
    assert (
        result.structured_output
        == {
            "2^1000": 2**1000,
            "factorial(1000)": math.factorial(1000),
            "9^4000": 9**4000,
            "-(3^2000)": -(3**2000),
        }[expression]
    )


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("1 / 0", "Division by zero"),
        ("1 // 0", "Division by zero"),
        ("1 / (0.1 + 0.2 - 0.3)", "Division by zero"),
        ("1 / sin(pi)", "Division by zero"),
        ("0^-1", "Division by zero"),
        ("5 % 0", "Modulo by zero"),
        ("5 % (1 - 1)", "Modulo by zero"),
        ("sqrt(-1)", "The square root of a negative number is not real"),
        ("(-8)^(1/3)", "A negative number has no real power with a fractional exponent"),
        ("log(0)", "log needs a number above 0, not 0"),
        ("log(-1)", "log needs a number above 0, not -1"),
        ("ln(0)", "ln needs a number above 0, not 0"),
        ("log(8, -2)", "log needs a number above 0, not -2"),
        ("log(8, 1)", "Division by zero"),
        ("tan(pi / 2)", "tan is not defined at 1.5707963267949"),
        ("sin(10^31)", "sin needs an angle between -10^30 and 10^30, not 10000000000000000000000000000000"),
        ("factorial(-1)", "factorial needs a number >= 0, not -1"),
        ("factorial(2.5)", "factorial needs an integer, not 2.5"),
        ("gcd(1.5, 3)", "gcd needs an integer, not 1.5"),
        ("round(1, 0.5)", "round needs an integer, not 0.5"),
        ("round(1, 5000)", "round takes at most 4,000 decimal places, not 5000"),
    ],
)
def test_undefined_value_is_an_error(expression, message):
    assert CALCULATOR.execute(expression).error_message == message


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "a number is missing before the end at position 0"),
        ("   ", "a number is missing before the end at position 3"),
        ("1 +", "a number is missing before the end at position 3"),
        ("2 + * 3", "a number is missing before '*' at position 4"),
        ("()", "a number is missing before ')' at position 1"),
        ("max()", "a number is missing before ')' at position 4"),
        ("max(1,)", "a number is missing before ')' at position 6"),
        ("max(,1)", "a number is missing before ',' at position 4"),
        ("1 2", "an operator is missing before '2' at position 2"),
        ("2pi", "an operator is missing before 'pi' at position 1"),
        ("2(3)", "an operator is missing before '(' at position 1"),
        ("(1)(2)", "an operator is missing before '(' at position 3"),
        ("1e", "an operator is missing before 'e' at position 1"),
        ("1.2.3", "an operator is missing before '.3' at position 3"),
        ("3,14", "an operator is missing before ',' at position 1"),
        ("1000,000", "an operator is missing before ',' at position 4"),
        ("1,0000", "an operator is missing before ',' at position 1"),
        ("1,000,00", "an operator is missing before ',' at position 1"),
        ("(1 2)", "an operator or ')' is missing before '2' at position 3"),
        ("max(1 2)", "an operator or ')' is missing before '2' at position 6"),
        ("(1, 2)", "an operator or ')' is missing before ',' at position 2"),
        ("1)", "there is no parenthesis to close before ')' at position 1"),
        ("(1 + 2", "this parenthesis is never closed at position 0"),
        ("3 * max(1, 2", "this parenthesis is never closed at position 7"),
        ("sqrt 4", "sqrt needs its arguments in parentheses at position 5"),
        ("sqrt", "sqrt needs its arguments in parentheses at position 4"),
        ("sqrt(1, 2)", "sqrt takes one argument, not 2, at position 0"),
        ("round(1, 2, 3)", "round takes one or two arguments, not 3, at position 0"),
        ("1 + sqr(4)", "unknown name 'sqr' (did you mean sqrt?) at position 4"),
        ("15 of 840", "'of' needs a percentage before it, such as 15% of 840, at position 3"),
        ("of", None),
        ("10% -3", "'% -' can be a percentage or a modulo; write (10%) - 3 or 10 % (-3) at position 2"),
        ("10%- 3", "'% -' can be a percentage or a modulo; write (10%) - 3 or 10 % (-3) at position 2"),
        ("10% - ", "a number is missing before the end at position 6"),
        ("sum(1,000, 2,000)", "'1,000' can be one number or two; write 1000 or 1, 000 at position 4"),
        ("5!", "unexpected '!'; write factorial(5) for 5!, at position 1"),
        ("2 + #", "unexpected '#' at position 4"),
        ("3 * $20", "unexpected '$'; write numbers without a currency, at position 4"),
        ("20 €", "unexpected '€'; write numbers without a currency, at position 3"),
        ("40 g * 3", "write 40 * 3, without units: 'g' is not an operator at position 3"),
        ("(1.5kg + 2 kg) * 3", "write (1.5 + 2) * 3, without units: 'kg' is not an operator at position 4"),
        ("12 eggs", "write 12, without units: 'eggs' is not an operator at position 3"),
        ("1" + "0" * 80 + " m", f"write 1{'0' * 59}..., without units: 'm' is not an operator at position 82"),
        ("sum(total)", "unknown name 'total' (write the number itself, or several as in sum(1, 2, 3)) at position 4"),
        (
            "quux(3)",
            (
                "unknown name 'quux' (functions are sqrt, abs, round, floor, ceil, min, max, sum, mean, average, avg, "
                "log, ln, log10, exp, sin, cos, tan, factorial, gcd) at position 0"
            ),
        ),
        ("[1, 2]", "a number is missing before '[' at position 0"),
        ("sum([])", "a number is missing before ']' at position 5"),
        ("sum([1, 2", "this bracket is never closed at position 4"),
        ("sum([1, 2]", "this parenthesis is never closed at position 3"),
        ("sum([1, 2)", "an operator or ']' is missing before ')' at position 9"),
        ("sum([1, 2], 3)", "an operator or ')' is missing before ',' at position 10"),
        ("sqrt([4, 9])", "sqrt takes one argument, not 2, at position 0"),
        ("1]", "an operator is missing before ']' at position 1"),
        ("1 = 1", "unexpected '=' at position 2"),
        (".", "unexpected '.' at position 0"),
        ("__import__('os').system('id')", "unexpected '_' at position 0"),
        ("1\x00", "unexpected '\\\\x00' at position 1"),
        ("x + 1", None),
    ],
)
def test_invalid_expression_is_reported_with_its_position(expression, message):
    known = "write the number itself, or several as in sum(1, 2, 3)"
    message = message or f"unknown name {expression.split()[0]!r} ({known}) at position 0"
    assert CALCULATOR.execute(expression).error_message == f"Invalid expression: {message}"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("9^9^9", TOO_LARGE),
        ("9^9^9^9^9^9", TOO_LARGE),
        ("-9^9^9", TOO_LARGE),
        ("9.5^9^9", TOO_LARGE),
        ("9^-9^9", TOO_SMALL),
        ("10^4000", TOO_LARGE),
        ("1e4000", TOO_LARGE),
        ("1e-4001", TOO_SMALL),
        ("1e999999999999999999999999", TOO_LARGE),
        ("1e-999999999999999999999999", TOO_SMALL),
        ("9" * 4_001, TOO_LARGE),
        ("10^3999 * 10", TOO_LARGE),
        ("10^-3999 / 100", TOO_SMALL),
        ("0.5^100000", TOO_SMALL),
        ("factorial(10^9)", TOO_LARGE),
        ("factorial(1500)", TOO_LARGE),
        ("exp(10^9)", TOO_LARGE),
        ("exp(-10^9)", TOO_SMALL),
        ("exp(9000) * exp(9000)", TOO_LARGE),
        ("(" * 10_000, "Invalid expression: more than 100 nested levels at position 100"),
        ("(" * 5_000 + ")" * 5_000, "Invalid expression: more than 100 nested levels at position 100"),
        ("-" * 10_000, "Invalid expression: more than 100 nested levels at position 100"),
        ("2^" * 4_000 + "2", "Invalid expression: more than 100 nested levels at position 200"),
        ("(" * 10_000 + "1" + ")" * 10_000, "The expression is too long: 20,001 characters, at most 10,000"),
        ("+".join(["e^e^e"] * 1600), TOO_MUCH),
        ("+".join(["3^.1"] * 2000), TOO_MUCH),
        ("+".join(["e^pi"] * 2000), TOO_MUCH),
        ("+".join(["ln(3)"] * 1600), TOO_MUCH),
        ("+".join(["log(3, 2)"] * 900), TOO_MUCH),
        ("+".join(["tan(1)"] * 1400), TOO_MUCH),
        ("+".join(["9^4000 % 7"] * 700), TOO_MUCH),
        ("+".join(["9^4000 / 7^4000"] * 500), TOO_MUCH),
        (f"sum({'1/3^4000,' * 900}1)", TOO_MUCH),
    ],
)
def test_expensive_expressions_are_rejected(expression, message):
    assert CALCULATOR.execute(expression).error_message == message


@pytest.mark.parametrize("part", ["3^.1", "sin(1)", "ln(3)"])
def test_many_irrational_numbers_are_computed(part):
    assert CALCULATOR.execute("+".join([part] * 300)).is_success


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("ln(1 + 1e-3000)", "1e-3000"),
        ("ln(1 - 1e-3000)", "-1e-3000"),
        ("ln(1 + 1e-3000/3)", "3.33333333333333e-3001"),
        ("ln(1 + 1e-3999)", "1e-3999"),
        ("ln(1 + 1e-16) * 1e16", "1"),
        ("ln(1 + 1e-7) * 1e7", "0.999999950000003"),
        ("(ln(1 + 1e-16) - 1e-16) * 1e32", "-0.5"),
        ("log(1 + 1e-3000) * ln(10)", "1e-3000"),
        ("log(1 + 3e-50) * ln(10)", "3e-50"),
        ("log(1 + 2e-3000, 1 + 1e-3000)", "2"),
        ("ln(1)", "0"),
        ("log(1)", "0"),
        ("(1 + 1e-70)^(10^70)", "2.71828182845905"),
        ("(1 + 1e-3000)^0.5 - 1", "0"),
        ("(1 + 1e-3000)^1e-3000", "1"),
        ("(1 + 1e-20)^10^30", TOO_LARGE),
        ("(1 - 1e-20)^10^30", TOO_SMALL),
    ],
)
def test_numbers_close_to_one_keep_their_digits(expression, result):
    assert CALCULATOR.execute(expression).text.removeprefix("Error: ") == result


@pytest.mark.parametrize(
    ("expression", "number"),
    [
        ("10^15 + 0.5", 10**15),
        ("10^15 + 0.75", 10**15 + 1),
        ("999999999999999.9", 10**15),
        ("1234567890123456.7", 1234567890123457),
        ("-2 / 3 * 10^16", -6666666666666667),
        ("pi * 10^20", 314159265358979323846),
        ("10^20 + 0.5", 10**20),
        ("pi * 10^21", Decimal("3.14159265358979e+21")),
        ("10^21 + 0.5", Decimal("1e+21")),
    ],
)
def test_long_integer_part_is_written_out(expression, number):
    result = CALCULATOR.execute(expression)
    assert (result.output, result.structured_output) == (str(number).lower(), number)


def test_long_sum_is_computed():
    assert CALCULATOR.execute("1+" * 4_999 + "1").text == "5000"


def test_parentheses_are_limited_to_99_levels():
    assert CALCULATOR.execute("(" * 99 + "1" + ")" * 99).text == "1"
    assert not CALCULATOR.execute("(" * 100 + "1" + ")" * 100).is_success


def test_large_fractions_become_decimals():
    expected = Fraction(7**3000, 3**4000) + Fraction(3**4000, 7**4000) * 7**3000
    assert CALCULATOR.execute("7^3000/3^4000 + 3^4000/7^4000 * 7^3000").text == format_fraction(expected)
    assert CALCULATOR.execute(f"0.{'3' * 5_000} * 3").text == "1"


@pytest.mark.parametrize(
    ("expression", "number"),
    [
        ("20 / 4", 5),
        ("0.1 + 0.2", Decimal("0.3")),
        ("sqrt(16)", 4),
        ("log(1000)", 3),
        ("10 / 3", Decimal("3.33333333333333")),
        ("exp(100)", Decimal("2.68811714181614e+43")),
    ],
)
def test_structured_output_equals_text(expression, number):
    result = CALCULATOR.execute(expression)
    assert (type(result.structured_output), result.structured_output) == (type(number), number)
    assert Decimal(result.output) == number


async def test_sync_and_async_calls_agree():
    box = Toolbox([CALCULATOR])
    call = ToolCall("calculator", {"input": "6 * 7"})
    assert box.execute(call).result == (await box.aexecute(call)).result == await CALCULATOR.aexecute("6 * 7")
    assert CALCULATOR.execute("6 * 7").structured_output == 42


def test_examples_in_description_are_correct():
    (specification,) = Toolbox([CalculatorTool()]).specifications
    assert specification.name == "calculator"
    for example in ("15% of 840 is 126", "50% is 0.5", "200 + 10% is 220", "200 - 10% is 180"):
        assert example in specification.description
        expression, _, result = example.partition(" is ")
        assert CALCULATOR.execute(expression).text == result


def test_decimal_context_of_caller_is_not_used_or_changed():
    with decimal.localcontext(decimal.Context(prec=3, Emax=9)) as context:
        assert CALCULATOR.execute("10 / 3").text == "3.33333333333333"
        assert CALCULATOR.execute("10^30 + 0.5").text == "1e+30"
        assert (context.prec, context.Emax) == (3, 9)
        assert not any(context.flags.values())


def test_constants_are_exact_to_last_digit():
    from toolsemble.builtin._calculator import CONSTANTS  # the one test that looks inside

    def inverse_tangent(part):  # in units of 10^-120
        total, term, place = 0, 10**120 // part, 1
        while term:
            total += term // place if place % 4 == 1 else -(term // place)
            term //= part * part
            place += 2
        return total

    pi = Decimal(4 * (4 * inverse_tangent(5) - inverse_tangent(239))).scaleb(-120, decimal.Context(prec=130))
    with decimal.localcontext(prec=101):
        assert (CONSTANTS["pi"], CONSTANTS["e"]) == (+pi, Decimal(1).exp())


SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv}
NUMBERS = st.decimals(-10_000, 10_000, places=3)
TREES = st.recursive(
    NUMBERS.map(lambda number: (f"({number})", Fraction(number))),
    lambda inner: st.builds(
        lambda sign, left, right: (f"({left[0]} {sign} {right[0]})", _apply(sign, left[1], right[1])),
        st.sampled_from([*SIGNS, "%"]),
        inner,
        inner,
    ),
    max_leaves=12,
)


def _apply(sign, left, right):
    """Return what Python's fractions make of it; None when something was divided by zero."""
    if left is None or right is None or (sign in {"/", "//", "%"} and not right):
        return None
    if sign == "%":
        return left - right * math.trunc(left / right)
    return Fraction(SIGNS[sign](left, right))


def format_fraction(value):
    """Return a fraction as the calculator should show it."""
    if value.denominator == 1:
        return str(value.numerator)
    number = decimal.Context(prec=15).divide(Decimal(value.numerator), Decimal(value.denominator)).normalize()
    if 15 <= number.adjusted() < 21:
        return str(round(value))
    plain = -7 < number.adjusted() < 15
    return f"{number:f}" if plain else f"{number:e}"


@given(TREES)
@settings(max_examples=200, deadline=None)
def test_it_agrees_with_fractions(tree):
    expression, value = tree
    result = CALCULATOR.execute(expression)
    if value is None:
        assert result.error_message in {"Division by zero", "Modulo by zero"}
    else:
        assert result.text == format_fraction(value)


@given(st.lists(st.integers(1, 50), min_size=2, max_size=8), st.data())
@settings(max_examples=200, deadline=None)
def test_precedence_agrees_with_python(numbers, data):
    signs = [data.draw(st.sampled_from(["+", "-", "*", "//", " - -", " * -"])) for _ in numbers[1:]]
    expression = (
        "-" + str(numbers[0]) + "".join(f"{sign}{number}" for sign, number in zip(signs, numbers[1:], strict=True))
    )
    assert CALCULATOR.execute(expression).structured_output == eval(expression)  # noqa: S307 - made of digits and signs here


@given(st.integers(-30, 30), st.integers(-30, 30))
@settings(max_examples=200, deadline=None)
def test_powers_agree_with_fractions(base, exponent):
    result = CALCULATOR.execute(f"({base})^{exponent}").text
    assert result == (
        "Error: Division by zero" if base == 0 > exponent else format_fraction(Fraction(base) ** exponent)
    )


@given(st.floats(-1e6, 1e6), st.sampled_from(["sin", "cos", "tan", "exp", "ln", "sqrt", "log"]))
@settings(max_examples=300, deadline=None)
def test_functions_agree_with_floats(number, name):
    argument = min(number, 500.0) if name == "exp" else number
    argument = abs(argument) + 1e-3 if name in {"ln", "sqrt", "log"} else argument
    argument = max(argument, -500.0) if name == "exp" else argument
    expected = {"ln": math.log, "log": math.log10}.get(name) or getattr(math, name)
    result = CALCULATOR.execute(f"{name}({Decimal(argument)})")
    assert float(result.structured_output) == pytest.approx(expected(argument), rel=1e-12, abs=1e-12)


SIGNS_AND_NUMBERS = [*"0123579.,+-*/%^()eEπ_! \x00", "**", "//", "of", "1,000", "1e9", "9^9", "1e-3999", "1e3999"]
NAMES = ["sqrt", "sum", "max", "sin", "tan", "ln", "exp", "round", "factorial", "gcd", "log", "floor"]
PIECES = st.sampled_from([*SIGNS_AND_NUMBERS, "pi", "tau", *(f"{name}(" for name in NAMES)])


@given(st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=40))
@settings(max_examples=300, deadline=None)
def test_no_input_raises_or_crashes(text):
    result = CALCULATOR.execute(text)
    if result.is_success:
        assert Decimal(result.output) == result.structured_output
        digits, _, _ = result.output.partition("e")
        assert "." not in digits or not digits.endswith(("0", "."))
    else:
        json.dumps(result.error_message)
        assert not result.error_message.endswith("Error")
