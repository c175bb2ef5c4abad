"""Show what the invariants compare."""

import pytest

pytest.register_assert_rewrite("seams.invariants", "seams.stage", "seams.world")
