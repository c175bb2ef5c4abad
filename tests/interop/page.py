"""The examples of docs/interop.md, for frameworks that only their own environment has."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "interop.md"
EXAMPLE = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\s*^```text\n(?P<output>.*?)^```)?", re.DOTALL | re.MULTILINE)


def run_examples(module: str) -> None:
    """Run the examples of one module, and compare what they print."""
    text = PAGE.read_text(encoding="utf-8")
    found = [each for each in EXAMPLE.finditer(text) if f"from toolsemble.interop import {module}\n" in each["code"]]
    assert found, f"docs/interop.md has no example for {module}"
    for each in found:
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(each["code"], f"docs/interop.md, {module}", "exec"), {"__name__": "__main__"})  # noqa: S102 - of our own page
        assert each["output"] in (None, printed.getvalue())
