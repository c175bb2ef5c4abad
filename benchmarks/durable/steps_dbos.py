"""DBOS: turns of an agent as a workflow, each with a step for the reply of the model and one for the call."""

from dbos import DBOS
from steps import Run, answer


def make(path: str | None) -> Run:
    """Return a function that makes a workflow of some turns; without a file, calls of the bare functions."""

    def reply(number: int) -> dict:
        return {"text": "", "calls": [{"name": "add", "arguments": {"a": number, "b": 2}}], "usage": [10, 5]}

    def add(a: int, b: int) -> int:
        return a + b

    if path is None:

        def run(count: int) -> None:
            for number in range(count):
                add(**reply(number)["calls"][0]["arguments"])

        return run
    DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{path}", "run_admin_server": False})
    ask, step = DBOS.step(name="reply")(reply), DBOS.step(name="add")(add)

    @DBOS.workflow(name="work")
    def work(count: int) -> None:
        for number in range(count):
            step(**ask(number)["calls"][0]["arguments"])

    DBOS.launch()
    return work


if __name__ == "__main__":
    answer("dbos", 2, "steps", make)
