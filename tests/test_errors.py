import pytest

import toolsemble
from toolsemble import (
    ExitEarlyError,
    ToolArgumentsError,
    ToolConfigurationError,
    ToolDefinitionError,
    ToolExecutionError,
    ToolsembleError,
)


@pytest.mark.parametrize("name", [name for name in toolsemble.__all__ if name.endswith("Error")])
def test_every_error_has_one_root(name):
    assert issubclass(getattr(toolsemble, name), ToolsembleError)


def test_a_definition_error_is_a_value_error():
    assert issubclass(ToolDefinitionError, ValueError)


@pytest.mark.parametrize("kind", [ToolArgumentsError, ToolExecutionError])
def test_errors_of_a_call_may_carry_a_code(kind):
    assert kind("no").error_code is None
    error = kind("no", error_code=404)
    assert (str(error), error.error_code) == ("no", 404)


def test_an_early_exit_says_whether_time_ran_out():
    assert not ExitEarlyError().timed_out
    assert ExitEarlyError("late", timed_out=True).timed_out


@pytest.mark.parametrize("error", [ExitEarlyError(), ToolConfigurationError()])
def test_errors_that_pass_through_have_room_for_the_replies_of_siblings(error):
    assert list(error.replies) == []
