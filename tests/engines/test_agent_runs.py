"""What a worker of an engine does with messages that are not what they should be."""

import logging

import pytest

from helpers.engine_runs import EngineRuns
from toolsemble import RunJournal
from toolsemble._vocabulary.errors import RunParkedError
from toolsemble.engines._agent_runs import AgentRuns, write_answer, write_request
from toolsemble.review import Continue, Edit, ReviewStore


@pytest.fixture
def runs(tmp_path):
    with RunJournal(tmp_path / "runs.db", park_after=0) as journal, ReviewStore(tmp_path / "reviews.db") as store:
        yield EngineRuns(journal, store)


async def park(runs, worker, run_id="r1"):
    request = write_request(run_id, "clerk", "Pay order 7", {})
    assert "waiting" in await worker.do(request)
    return request, runs.store.pending()[-1]


async def test_answers_that_do_not_fit_are_refused(runs, caplog):
    worker = AgentRuns("Temporal", runs.agents, runs.journal, runs.store)
    request, asked = await park(runs, worker)
    answer = write_answer(asked, Continue(), "ada", "")
    with caplog.at_level(logging.WARNING, "toolsemble.engines"):
        worker.answer("r1", "{}")
        worker.answer("another run", answer)
        worker.answer("r1", answer.replace(asked.id, "unknown"))
        worker.answer("r1", answer.replace(asked.arguments_digest, "other arguments"))
        AgentRuns("Temporal", runs.agents, runs.journal, None).answer("r1", answer)
    told = [record.getMessage() for record in caplog.records if record.name == "toolsemble.engines"]
    assert [line.partition(" was refused: ")[2] for line in told] == [
        "request_id must be a string",
        "this worker has no such request",
        "this worker has no such request",
        "the person saw other arguments than the request has",
        "this worker takes no answers; pass store=... to the engine",
    ]
    assert [each.id for each in runs.store.pending()] == [asked.id]
    worker.answer("r1", answer)
    assert (await worker.do(request))["text"] == "Done."


async def test_edits_are_answers_as_well(runs):
    worker = AgentRuns("Temporal", runs.agents, runs.journal, runs.store)
    request, asked = await park(runs, worker)
    worker.answer("r1", write_answer(asked, Edit('{"order": 8}'), "ada", ""))
    await worker.do(request)
    assert runs.paid == [8]


async def test_a_run_is_ready_when_somebody_answered_or_settled_it(runs):
    worker = AgentRuns("Temporal", runs.agents, runs.journal, runs.store)
    request, asked = await park(runs, worker)
    waiting = [asked.to_json()]
    assert not worker.is_ready(request, waiting)
    assert not worker.is_ready(request, [])  # it waits for resolve
    runs.store.answer(asked, Continue(), person="ada")
    assert worker.is_ready(request, waiting)
    assert worker.is_ready({**request, "run_id": "unknown"}, waiting)


async def test_a_run_that_waits_for_resolve_asks_nothing(runs):
    class Settled:
        async def run_journaled(self, journal, name, prompt, settings):
            raise RunParkedError("an operator has to settle it", run_id="r1")

    worker = AgentRuns("Temporal", {"clerk": Settled()}, runs.journal, None)
    assert await worker.do(write_request("r1", "clerk", "Pay", {})) == {"waiting": []}


async def test_cancelling_a_run_that_never_began_does_nothing(runs):
    AgentRuns("Temporal", runs.agents, runs.journal, None).cancel("unknown")
    assert runs.journal.list() == []
