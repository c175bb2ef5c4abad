"""The functions that frameworks make tools of; their annotations are types, for some frameworks read no text."""


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
