"""Fuzz your own tool: calls like a model's find inputs that you did not think of.

Both tools look correct. One of them crashes on arguments that its schema allows: ``python examples/fuzz_a_tool.py``
"""

import textwrap
from typing import Annotated

from pydantic import Field

from toolsemble import tool
from toolsemble.testing import fuzz


@tool(effects="read")
def shorten(text: str, width: Annotated[int, Field(ge=1, le=200)] = 40) -> str:
    """Shorten a text to a width, at a word boundary."""
    return textwrap.shorten(text, width)


@tool(effects="read", name="shorten")
def shorten_safely(text: str, width: Annotated[int, Field(ge=5, le=200)] = 40) -> str:
    """Shorten a text to a width, at a word boundary."""
    return textwrap.shorten(text, width)


def main() -> None:
    """Fuzz the tool with the bug and the tool without it."""
    for title, tried in {"first version": shorten, "second version": shorten_safely}.items():
        report = fuzz(tried, count=300, seed=1)
        print(f"{title}: {'stands everything' if report.ok else 'crashes'} {dict(report.outcomes)}")
        for crash in report.crashes:
            print(f"  {crash.error}\n  {crash.call}")


if __name__ == "__main__":
    main()
