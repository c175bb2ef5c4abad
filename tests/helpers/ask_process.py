"""A process that makes the same calls of the same run whenever it is started, and notes which of them ran."""

import json
import os
import sys

from toolsemble import Toolbox, ToolCall, tool
from toolsemble.review import QueueReview, ReviewStore

ASKED = 100


def ask(path, log):
    """Print the replies to all calls."""

    @tool(requires_approval=True)
    def act(number: int) -> str:
        os.write(log, f"{number}\n".encode())
        return f"ran {number}"

    calls = [ToolCall("act", {"number": number}, id=f"c{number}") for number in range(1, ASKED + 1)]
    with ReviewStore(path) as store:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        replies = Toolbox([act], review=QueueReview(store)).execute_all(calls, run_id="r1")
    sys.stdout.write(json.dumps([reply.text for reply in replies]))


if __name__ == "__main__":
    ask(sys.argv[1], os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND))
