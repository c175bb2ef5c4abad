"""Make many tools in a fresh process, and tell what they took: `python -m own.build <toolsemble|bare> <count>`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from memory import weighed
from peers.task import ARGUMENTS, new_search
from timing import PROCESSOR, Repeated

from own.job import adapter
from own.measure import pairs
from toolsemble import Toolbox, ToolCall, tool


def toolbox(count: int) -> Toolbox:
    """Return a toolbox of that many tools, with their specifications."""
    box = Toolbox([tool(new_search(f"search_{number}")) for number in range(count)])
    _ = box.specifications
    return box


def bare(count: int) -> dict[str, object]:
    """Return pydantic's validators and JSON schemas of that many functions by name."""
    adapters = {f"search_{number}": adapter(new_search(f"search_{number}")) for number in range(count)}
    return {name: (adapter.validator, adapter.json_schema()) for name, adapter in adapters.items()}


MAKERS: dict[str, Callable[[int], object]] = {"toolsemble": toolbox, "bare": bare}


def built(kind: str, count: int) -> dict[str, object]:
    """Return the seconds and bytes of many tools; for a toolbox, also of a successful and a failed lookup."""
    made, facts = weighed(MAKERS[kind], count, PROCESSOR)
    return facts | _searched(made, count) if isinstance(made, Toolbox) else facts


def _searched(box: Toolbox, count: int) -> dict[str, object]:
    known, small = ToolCall(f"search_{count - 1}", ARGUMENTS), toolbox(1)
    first = ToolCall("search_0", ARGUMENTS)
    found = pairs(Repeated(lambda: box.execute(known)), Repeated(lambda: small.execute(first)), 0.3, 5)
    unknown = ToolCall("serch", ARGUMENTS)
    return {"look_up": found, "unknown": Repeated(lambda: box.execute(unknown))()}


if __name__ == "__main__":
    print(json.dumps(built(sys.argv[1], int(sys.argv[2]))))
