"""A process that answers whatever waits in a store, until there is a file that says stop."""

import random
import sys
from pathlib import Path

from toolsemble._vocabulary.errors import ReviewRefusedError
from toolsemble.review import Continue, Edit, ExitEarly, ReviewStore


def decide(number):
    """Return the decision about one call, and what its reply must be."""
    if number % 3 == 0:
        return Continue(), f"ran {number}"
    if number % 3 == 1:
        return Edit(f'{{"number": {-number}}}'), f"ran {-number}"
    return ExitEarly(f"not {number}"), f"Error: Rejected by reviewer: not {number}"


def answer_all(path, stop, person):
    """Answer in any order; if another process was faster, the answer is refused."""
    with ReviewStore(path) as store:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while not stop.exists():
            waiting = store.pending()
            random.shuffle(waiting)
            for request in waiting:
                try:
                    store.answer(request, decide(request.arguments["number"])[0], person=person)
                except ReviewRefusedError:
                    continue


if __name__ == "__main__":
    answer_all(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
