"""Durations in words."""

_MINUTE, _HOUR, _DAY = 60, 3600, 24 * 3600


def format_seconds(seconds: float) -> str:
    """Return a duration in its largest unit.

    >>> [format_seconds(each) for each in (-1, 59, 3599, 7200, 200_000)]
    ['0 s', '59 s', '59 min', '2 h', '2 d']
    """
    whole = max(int(seconds), 0)
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if whole >= size:
            return f"{whole // size} {unit}"
    return f"{whole} s"
