"""DBOS: steps of a workflow, in SQLite."""

from dbos import DBOS
from steps import answer


def make(path: str | None):
    """Return a function that makes a workflow of some steps; without a file, calls of the bare function."""

    def add(a: int, b: int) -> int:
        return a + b

    if path is None:

        def run(count: int) -> None:
            for number in range(count):
                add(number, 2)

        return run
    DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{path}", "run_admin_server": False})
    step = DBOS.step(name="add")(add)

    @DBOS.workflow(name="work")
    def work(count: int) -> None:
        for number in range(count):
            step(number, 2)

    DBOS.launch()
    return work


if __name__ == "__main__":
    answer("dbos", "a step", make)
