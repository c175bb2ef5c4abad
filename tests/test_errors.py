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
def test_all_errors_have_a_common_base(name):
    assert issubclass(getattr(toolsemble, name), ToolsembleError)


def test_definition_error_is_a_value_error():
    assert issubclass(ToolDefinitionError, ValueError)


@pytest.mark.parametrize("kind", [ToolArgumentsError, ToolExecutionError])
def test_call_errors_can_have_a_code(kind):
    assert kind("no").error_code is None
    error = kind("no", error_code=404)
    assert (str(error), error.error_code) == ("no", 404)


def test_exit_early_has_timed_out():
    assert not ExitEarlyError().timed_out
    assert ExitEarlyError("late", timed_out=True).timed_out


@pytest.mark.parametrize("error", [ExitEarlyError(), ToolConfigurationError()])
def test_raised_errors_have_replies(error):
    assert list(error.replies) == []
