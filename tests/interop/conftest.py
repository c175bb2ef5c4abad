"""Some tests replace a framework by a small fake, and others use the real one in the same process."""

import sys

import pytest

CACHED = ("_tool_class", "_toolset_class", "_workbench_class")


@pytest.fixture(autouse=True)
def _new_classes():
    """Forget the classes that the modules made of a framework, before and after each test."""
    forget_classes()
    yield
    forget_classes()


def forget_classes():
    for name, module in list(sys.modules.items()):
        if name.startswith("toolsemble.interop."):
            for function in (vars(module).get(each) for each in CACHED):
                if function is not None:
                    function.cache_clear()
