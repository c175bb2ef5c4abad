"""Problems of values that fit none of several variants, and schemas with variants that are no objects."""

from toolsemble._schema.argument_problems import Problem, describe_variants
from toolsemble._schema.secret_values import unnamed_secret


def test_variants_with_the_same_problems_are_described_once():
    problem = Problem(("value", "size"), "expected an integer")
    assert describe_variants(("value",), [[problem], [problem]]) == [problem]


def test_schema_that_allows_everything_has_no_secrets():
    assert unnamed_secret({"allOf": [True]}) is None
