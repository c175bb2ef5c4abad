"""A tool of this library, and functions that frameworks make tools of.

Their annotations are types, for some frameworks read no text.
"""

from toolsemble import tool


@tool
def order(item: str, count: int = 1) -> str:
    """Order something."""
    if item == "rum":
        raise ValueError("not for sale")
    return f"{count} {item}"


def write_functions(log):
    """Return two functions that append their arguments to a log; the second one raises ``ValueError``."""

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        log.append((a, b))
        return a + b

    def fail(city: str) -> str:
        """Look for a city."""
        log.append(city)
        raise ValueError("no such city")

    return [add, fail]
