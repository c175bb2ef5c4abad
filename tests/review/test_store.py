"""Stores: a request is answered once, by what the person saw, and the answer is used once, for what was asked."""

import logging
import os
import pickle
import sqlite3
import subprocess
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest

from helpers.sample_tools import Reviewer
from toolsemble import Toolbox, ToolCall, tool
from toolsemble._vocabulary.errors import ReviewRefusedError, ToolConfigurationError, ToolDefinitionError
from toolsemble.review import (
    Continue,
    Edit,
    ExitEarly,
    MemoryStore,
    Receipt,
    ReviewEvent,
    ReviewRequest,
    ReviewStore,
    ReviewTiming,
)

pytestmark = pytest.mark.slow

NOW = 1_700_000_000.0


class Clock:
    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["memory", "file", "postgres"])
def store(request, tmp_path, clock):
    if request.param == "memory":
        made = MemoryStore(secret=b"secret", clock=clock)
    else:
        place = tmp_path / "reviews.db" if request.param == "file" else request.getfixturevalue("postgres_url")
        made = ReviewStore(place, secret=b"secret", clock=clock)
    with made:
        yield made


@pytest.fixture
def file(tmp_path, clock):
    with ReviewStore(tmp_path / "reviews.db", clock=clock) as made:
        yield made


def make_request(arguments="old.log", **given):
    values = {"call_id": "c1", "run_id": "r1", "asked_at": NOW, "timeout": 60, "schema_digest": "abc", **given}
    return ReviewRequest("Deletes a file", "delete", arguments, **values)


def tamper(path, statement, *values):
    with closing(sqlite3.connect(path / "reviews.db", isolation_level=None)) as connection:
        connection.execute(statement, values)


def audit_kinds(store, request_id=None):
    return [event.kind for event in store.audit(request_id)]


@pytest.mark.parametrize("decision", [Continue(), Continue("tool"), Edit("older.log"), ExitEarly("no")])
def test_answer_can_be_taken_once(store, decision):
    request = make_request()
    (stored,) = store.ask([request])
    assert store.take({stored: request}) == {}
    (seen,) = store.pending()
    assert seen == request
    receipt = store.answer(seen, decision, person="ada", role="admin")
    assert (receipt.decision, receipt.person, receipt.role) == (decision, "ada", "admin")
    assert (receipt.issued_at, receipt.expires_at, store.pending()) == (NOW, NOW + 3600, [])
    assert store.take({stored: request}) == {stored: decision}
    assert store.take({stored: request}) == {stored: ExitEarly("the approval was already used")}


def test_audit_log_records_everything(store, clock):
    request = make_request({"path": "old\nlog"})
    (stored,) = store.ask([request])
    clock.now += 1
    store.answer(store.find(stored), Edit("x"), person="ada", role="admin")
    clock.now += 1
    store.take({stored: request})
    (other,) = store.ask([make_request("other")])
    assert store.audit(stored) == [
        ReviewEvent("asked", stored, "delete", NOW, detail='{"path": "old\\nlog"}'),
        ReviewEvent("answered", stored, "delete", NOW + 1, "ada", "admin", "edit x"),
        ReviewEvent("used", stored, "delete", NOW + 2, "ada", "admin", "edit"),
    ]
    assert audit_kinds(store) == ["asked", "answered", "used", "asked"]
    assert audit_kinds(store, other) == ["asked"]
    assert store.audit("unknown \ud800") == []


def test_audit_log_cannot_be_changed(file, tmp_path):
    file.ask([make_request()])
    for statement in ("DELETE FROM events", "UPDATE events SET person = 'eve'"):
        with pytest.raises(sqlite3.IntegrityError, match="events are never"):
            tamper(tmp_path, statement)


def test_pending_requests_are_in_order(store):
    requests = [make_request(f"{number}", call_id=f"c{number}") for number in range(20)]
    assert store.ask(requests) == [request.id for request in requests]
    assert store.pending() == requests
    assert store.find(requests[3].id) == requests[3]
    assert store.find("unknown \ud800") is None


@pytest.mark.parametrize(
    ("changed", "given", "reason"),
    [
        ({"id": "unknown"}, {}, "the request is unknown"),
        ({"id": "\ud800"}, {}, "the request is unknown"),
        ({"tool_name": "write"}, {}, "the person saw another tool than the request has"),
        ({"schema_digest": "abd"}, {}, "the person saw another schema than the request has"),
        ({"description": "Reads"}, {}, "the person saw another description than the request has"),
        ({"arguments": "old.lo"}, {}, "the person saw other arguments than the request has"),
        ({}, {"arguments_digest": ""}, "the person saw other arguments than the request has"),
        ({"required_role": None}, {}, "it requires the role 'admin', not ''"),
        ({"required_role": "guest"}, {"role": "guest\n"}, "it requires the role 'admin', not 'guest\\n'"),
        ({}, {"role": "Admin"}, "it requires the role 'admin', not 'Admin'"),
        ({}, {"person": None, "role": "admin"}, "the person and the role must be strings"),
        ({}, {"role": 5}, "the person and the role must be strings"),
    ],
)
def test_rejects_mismatched_answer(store, caplog, changed, given, reason):
    request = make_request(required_role="admin")
    store.ask([request])
    with caplog.at_level(logging.INFO, "toolsemble.review"), pytest.raises(ReviewRefusedError) as refusal:
        store.answer(replace(request, **changed), Continue(), **given)
    assert str(refusal.value) == reason
    assert (store.audit()[-1].kind, store.audit()[-1].detail) == ("refused", reason)
    assert [record.getMessage().endswith(reason) for record in caplog.records] == [True]
    assert store.pending() == [request]
    assert store.take({request.id: request}) == {}
    store.answer(request, Continue(), role="admin")


def test_rejects_answer_to_an_unknown_request(store):
    with pytest.raises(ReviewRefusedError, match=r"^the request is unknown: find\(\) returned None for its id; "):
        store.answer(store.find("unknown"), Continue())


@pytest.mark.parametrize("request_", ["4f1c", 5, {}])
def test_rejects_answer_to_something_else(store, request_):
    with pytest.raises(TypeError, match=r"^answer takes a ReviewRequest from pending\(\) or find\(\), not "):
        store.answer(request_, Continue())


@pytest.mark.parametrize("request_id", [None, 5, b"4f1c"])
def test_find_rejects_an_id_that_is_not_a_str(store, request_id):
    with pytest.raises(TypeError, match=r"^find takes the id of a request, a str, not "):
        store.find(request_id)


@pytest.mark.parametrize("answer", [None, True, "continue", Continue, Edit(5), ExitEarly(5), Continue("for ever")])
def test_rejects_invalid_decision(store, answer):
    store.ask([request := make_request()])
    with pytest.raises(ReviewRefusedError, match=r"^the answer is not a decision"):
        store.answer(request, answer)
    assert audit_kinds(store) == ["asked", "refused"]


@pytest.mark.parametrize(
    ("person", "reason"), [("ada", "it was already answered by 'ada'"), ("", "it was already answered")]
)
def test_rejects_second_answer(store, person, reason):
    store.ask([request := make_request()])
    store.answer(request, ExitEarly("no"), person=person)
    with pytest.raises(ReviewRefusedError, match=f"^{reason}$"):
        store.answer(request, Continue(), person="eve")
    assert store.take({request.id: request}) == {request.id: ExitEarly("no")}
    with pytest.raises(ReviewRefusedError, match=f"^{reason}, and the answer was used$"):
        store.answer(request, Continue())


def test_one_of_many_concurrent_answers_is_accepted(store):
    store.ask([request := make_request()])

    def answer(number):
        try:
            return store.answer(request, Continue(), person=f"{number}").person
        except ReviewRefusedError:
            return None

    with ThreadPoolExecutor(8) as threads:
        answered = [person for person in threads.map(answer, range(40)) if person]
    assert (len(answered), audit_kinds(store).count("answered"), audit_kinds(store).count("refused")) == (1, 1, 39)


def test_rejects_answer_after_the_deadline(store, clock):
    store.ask([request := make_request()])
    clock.now += 59.9
    assert store.pending() == [request]
    clock.now += 0.1
    with pytest.raises(ReviewRefusedError, match=r"^its deadline has passed$"):
        store.answer(request, Continue())
    assert audit_kinds(store) == ["asked", "expired", "refused"]
    assert store.take({request.id: request}) == {request.id: ExitEarly("no answer in time", timed_out=True)}


@pytest.mark.parametrize("timeout", [None, 0])
def test_request_without_a_deadline_never_expires(store, clock, timeout):
    store.ask([request := make_request(timeout=timeout)])
    clock.now += 1e9
    assert store.take({request.id: request}) == {}
    store.answer(request, Continue())
    assert store.take({request.id: request}) == {request.id: Continue()}


@pytest.mark.parametrize("notice", ["take", "pending", "withdraw"])
def test_expiry_is_recorded_and_survives_a_clock_going_back(store, clock, notice):
    store.ask([request := make_request()])
    clock.now += 61
    if notice == "pending":
        assert store.pending() == []
    elif notice == "take":
        assert store.take({request.id: request})[request.id].timed_out
    else:
        store.withdraw([request.id])
    assert audit_kinds(store) == ["asked", "expired"]
    clock.now = NOW
    assert store.pending() == []
    with pytest.raises(ReviewRefusedError, match=r"^its deadline has passed$"):
        store.answer(request, Continue())


@pytest.mark.parametrize(("later", "reason"), [(3600, "it has expired"), (-301, "it was given in the future")])
def test_approval_expires(store, clock, later, reason):
    store.ask([request := make_request()])
    store.answer(request, Continue())
    clock.now += later
    (decision,) = store.take({request.id: request}).values()
    assert decision.reason.startswith(f"the approval is not valid: {reason}")
    assert audit_kinds(store) == ["asked", "answered", "refused"]
    clock.now = NOW
    assert store.take({request.id: request}) == {request.id: ExitEarly("the approval was already used")}


def test_approval_before_the_deadline_is_valid_after_it(store, clock):
    store.ask([request := make_request()])
    store.answer(request, Continue())
    clock.now += 100
    assert store.take({request.id: request}) == {request.id: Continue()}


def test_resetting_a_row_does_not_reuse_an_answer(file, tmp_path):
    request = make_request()
    (stored,) = file.ask([request])
    file.answer(file.pending()[0], Continue(), person="ada")
    assert file.take({stored: request}) == {stored: Continue()}
    tamper(tmp_path, "UPDATE requests SET state = 'answered'")
    refused = ExitEarly("the approval is not valid: it was already used")
    assert file.take({stored: request}) == {stored: refused}
    assert audit_kinds(file, stored) == ["asked", "answered", "used", "refused"]


def test_resetting_a_row_does_not_reuse_an_answer_in_another_process(file, tmp_path, clock):
    (stored,) = file.ask([request := make_request()])
    receipt = file.answer(file.pending()[0], Continue(), person="ada").to_json()
    assert file.take({stored: request}) == {stored: Continue()}
    tamper(tmp_path, "UPDATE requests SET state = 'answered', receipt = ?", receipt)
    with ReviewStore(tmp_path / "reviews.db", clock=clock) as other:
        assert other.take({stored: request}) == {stored: ExitEarly("the approval is not valid: it was already used")}


def test_different_editable_fields_are_different_requests(store):
    (first,) = store.ask([make_request()])
    (second,) = store.ask([make_request(editable="content")])
    assert first != second


@pytest.mark.parametrize("path", [":memory:", ""])
def test_rejects_memory_path(path):
    with pytest.raises(
        ToolDefinitionError, match="needs a file path or a postgresql:// URL; for a store in memory use MemoryStore"
    ):
        ReviewStore(path)


def test_answer_is_not_valid_for_other_arguments(store):
    store.ask([request := make_request()])
    store.answer(request, Continue())
    assert store.take({request.id: replace(request, arguments="everything")}) == {
        request.id: ExitEarly("the approval is not valid: it is for other arguments")
    }
    assert store.take({request.id: request}) == {request.id: ExitEarly("the approval was already used")}


@pytest.mark.parametrize("answered", [True, False])
def test_withdrawn_request_cannot_be_answered_or_taken(store, answered):
    store.ask([request := make_request()])
    if answered:
        store.answer(request, Continue())
    store.withdraw([request.id, "unknown"])
    store.withdraw([request.id])
    with pytest.raises(ReviewRefusedError, match=r"^it was withdrawn: the answer is no longer needed$"):
        store.answer(request, Continue())
    assert store.take({request.id: request}) == {request.id: ExitEarly("the request was withdrawn")}
    assert audit_kinds(store).count("withdrawn") == 1


# A process dies, and another one executes the same call again.


@pytest.mark.parametrize("answered", [True, False])
def test_repeated_call_reuses_the_stored_request(store, clock, answered):
    store.ask([first := make_request()])
    if answered:
        store.answer(first, Continue())
    clock.now += 30
    again = make_request(asked_at=NOW + 30)
    assert store.ask([again]) == [first.id]
    assert store.audit()[-1].detail == "again: old.log"
    if not answered:
        clock.now += 59
        (seen,) = store.pending()
        assert seen == replace(again, id=first.id)
        store.answer(first, Continue())
    assert store.take({first.id: again}) == {first.id: Continue()}


def test_same_call_with_another_id_reuses_the_answer_once(store):
    store.ask([first := make_request(call_id="c1")])
    store.answer(first, Continue())
    assert store.ask([again := make_request(call_id="c2")]) == [first.id]
    assert store.take({first.id: again}) == {first.id: Continue()}
    assert store.ask([third := make_request(call_id="c3")]) == [third.id]


def test_equal_calls_reuse_their_requests_in_order(store):
    first, second = (make_request(call_id=call) for call in ("c1", "c2"))
    store.ask([first, second])
    store.answer(second, Continue())
    again = [make_request(call_id=call) for call in ("c3", "c4", "c5")]
    stored = store.ask(again)
    assert stored == [first.id, second.id, again[2].id]
    assert store.take(dict(zip(stored, again, strict=True))) == {second.id: Continue()}
    assert [request.id for request in store.pending()] == [first.id, again[2].id]


def test_answer_is_reused_until_it_expires(store, clock):
    store.ask([first := make_request()])
    store.answer(first, Continue())
    clock.now += 3599
    assert store.ask([make_request(asked_at=clock.now)]) == [first.id]
    clock.now += 1
    assert store.ask([last := make_request(asked_at=clock.now)]) == [last.id]


@pytest.mark.parametrize(
    "changed",
    [
        {"arguments": "other"},
        {"run_id": "r2"},
        {"memory_id": "eve"},
        {"agent_role": "writer"},
        {"schema_digest": "abd"},
        {"timing": ReviewTiming.DURING_EXECUTION},
        {"required_role": "admin"},
    ],
)
def test_other_call_does_not_reuse_a_request(store, changed):
    store.ask([make_request()])
    assert store.ask([other := make_request(**changed)]) == [other.id]


@pytest.mark.parametrize("unknown", [{"run_id": ""}, {"chosen_run": False}])
def test_call_without_a_chosen_run_does_not_reuse_a_request(store, unknown):
    store.ask([make_request(**unknown)])
    assert store.ask([other := make_request(**unknown)]) == [other.id]


def test_equal_calls_of_one_turn_are_asked_separately(store):
    twins = [make_request(), make_request()]
    stored = store.ask(twins)
    assert stored == [twin.id for twin in twins]
    assert store.ask([third := make_request()], held=stored) == [third.id]


@pytest.mark.parametrize("end", ["used", "withdrawn", "expired"])
def test_finished_request_is_not_reused(store, clock, end):
    store.ask([request := make_request()])
    if end == "used":
        store.answer(request, Continue())
        store.take({request.id: request})
    elif end == "withdrawn":
        store.withdraw([request.id])
    else:
        clock.now += 60
    assert store.ask([other := make_request(asked_at=clock.now)]) == [other.id]


def test_request_asked_twice_is_stored_twice(store):
    request = make_request(call_id="")
    first, second = store.ask([request, request])
    assert first == request.id != second
    assert [seen.id for seen in store.pending()] == [first, second]


def test_failed_store_leaves_no_request(store):
    with pytest.raises(UnicodeEncodeError):
        store.ask([make_request(), make_request("half \ud800")])
    assert (store.pending(), store.audit()) == ([], [])


# A program without the secret writes to the file.


def test_changed_request_is_not_pending_and_cannot_be_answered(file, tmp_path):
    file.ask([request := make_request("old.log"), other := make_request("other")])
    tamper(tmp_path, "UPDATE requests SET request = replace(request, 'old.log', 'all.log') WHERE id = ?", request.id)
    with pytest.raises(ReviewRefusedError, match=r"^the request was changed in the store$"):
        file.answer(request, Continue())
    assert (file.pending(), file.pending(), file.find(request.id)) == ([other], [other], None)
    assert audit_kinds(file, request.id) == ["asked", "refused", "refused"]
    assert file.take({request.id: request}) == {request.id: ExitEarly("the request was changed in the store")}
    file.withdraw([request.id])
    assert audit_kinds(file, request.id) == ["asked", "refused", "refused"]


@pytest.mark.parametrize("column", ["request", "seal"])
@pytest.mark.parametrize("value", [b"blob", 5, "", "\x00"])
def test_garbage_rows_are_skipped(file, tmp_path, column, value):
    file.ask([make_request()])
    tamper(tmp_path, f"UPDATE requests SET {column} = ?", value)  # noqa: S608 - one of two columns
    assert file.pending() == []


def test_swapped_request_is_rejected(file, tmp_path):
    file.ask([make_request("harmless", id="a"), make_request("harmful", id="b")])
    tamper(tmp_path, "UPDATE requests SET (request, seal) = (SELECT request, seal FROM requests WHERE id = 'a')")
    assert [seen.id for seen in file.pending()] == ["a"]


def test_expiry_of_a_changed_request_is_recorded(file, tmp_path, clock):
    file.ask([request := make_request()])
    tamper(tmp_path, "UPDATE requests SET request = '{}'")
    clock.now += 60
    assert (file.pending(), audit_kinds(file, request.id)) == ([], ["asked", "expired"])


def test_signed_deadline_is_used(file, tmp_path, clock):
    file.ask([request := make_request()])
    tamper(tmp_path, "UPDATE requests SET deadline = NULL")
    clock.now += 60
    with pytest.raises(ReviewRefusedError, match=r"^its deadline has passed$"):
        file.answer(request, Continue())


def test_signed_role_is_used(file, tmp_path):
    file.ask([request := make_request(required_role="admin")])
    tamper(tmp_path, """UPDATE requests SET request = replace(request, '"admin"', 'null')""")
    with pytest.raises(ReviewRefusedError, match=r"^the request was changed in the store$"):
        file.answer(request, Continue())


@pytest.mark.parametrize("forged", ["other", None, b"x", "{}", "secret"])
def test_forged_approval_is_rejected(file, tmp_path, forged):
    file.ask([request := make_request(id="a"), other := make_request("harmless", id="b")])
    receipt = file.answer(other, Continue()).to_json() if forged == "other" else forged
    if forged == "secret":
        mine = {"person": "", "role": "", "expires_at": NOW + 60, "issued_at": NOW, "secret": b"mine"}
        receipt = Receipt.issue(request, Continue(), **mine).to_json()
    tamper(tmp_path, "UPDATE requests SET state = 'answered', receipt = ? WHERE id = 'a'", receipt)
    reason = {"other": "it is for other arguments", "secret": "the signature does not match"}
    assert file.take({"a": request}) == {
        "a": ExitEarly(f"the approval is not valid: {reason.get(forged, 'the receipt cannot be read')}")
    }
    assert audit_kinds(file, "a") == ["asked", "refused"]


def test_unknown_state_approves_nothing(file, tmp_path):
    file.ask([request := make_request()])
    tamper(tmp_path, "UPDATE requests SET state = 'approved'")
    with pytest.raises(ReviewRefusedError, match=r"^the request was changed in the store$"):
        file.answer(request, Continue())
    assert file.take({request.id: request}) == {request.id: ExitEarly("the request was changed in the store")}


def test_answered_state_without_a_receipt_is_rejected(file, tmp_path):
    file.ask([request := make_request()])
    tamper(tmp_path, "UPDATE requests SET state = 'answered'")
    with pytest.raises(ReviewRefusedError, match=r"^the request was changed in the store$"):
        file.answer(request, Continue())


def test_deleted_request_is_rejected(file, tmp_path):
    file.ask([request := make_request(), other := make_request("other")])
    tamper(tmp_path, "DELETE FROM requests WHERE id = ?", request.id)
    assert file.take({request.id: request, other.id: other}) == {
        request.id: ExitEarly("the request is no longer in the store")
    }


@pytest.mark.parametrize("column", ["request", "bound", "expires"])
def test_changed_request_is_not_reused(file, tmp_path, column):
    file.ask([request := make_request("harmless")])
    file.answer(request, Continue())
    harmful = make_request("harmful")
    file.ask([harmful])
    if column == "bound":
        tamper(tmp_path, "UPDATE requests SET bound = (SELECT bound FROM requests WHERE id = ?)", harmful.id)
        assert file.ask([twin := make_request("harmful")], held=[harmful.id]) == [twin.id]
    elif column == "expires":
        tamper(tmp_path, "UPDATE requests SET expires = NULL")
        assert file.ask([twin := make_request("harmless")]) == [twin.id]
    else:
        tamper(tmp_path, "UPDATE requests SET request = '{}' WHERE id = ?", request.id)
        assert file.ask([twin := make_request("harmless")]) == [twin.id]


# Files, processes and threads.


def test_two_stores_share_one_file(file, tmp_path, clock):
    file.ask([request := make_request()])
    with ReviewStore(str(tmp_path / "reviews.db"), clock=clock) as other:
        other.answer(other.pending()[0], Edit("x"))
    assert file.take({request.id: request}) == {request.id: Edit("x")}


def test_files_are_readable_only_by_their_owner(tmp_path):
    before = os.umask(0)
    try:
        with ReviewStore(tmp_path / "reviews.db") as store:
            store.ask([make_request()])
            modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(
        ["reviews.db", "reviews.db-shm", "reviews.db-wal", "reviews.db.key"],
        "0o600",
    )


def test_passed_secret_is_not_stored(tmp_path):
    with ReviewStore(tmp_path / "reviews.db", "a long secret") as store:
        store.ask([make_request()])
    assert [path.name for path in tmp_path.iterdir()] == ["reviews.db"]
    assert b"a long secret" not in (tmp_path / "reviews.db").read_bytes()


def test_store_opens_only_with_its_secret(tmp_path):
    ReviewStore(tmp_path / "reviews.db", "mine").close()
    with pytest.raises(
        ToolConfigurationError, match=r"^The review store was created with another secret; pass the same"
    ):
        ReviewStore(tmp_path / "reviews.db", "yours")
    ReviewStore(tmp_path / "reviews.db", b"mine").close()


def test_processes_starting_at_once_share_file_and_key(tmp_path):
    script = (
        "import sys; from toolsemble.review import ReviewStore, ReviewRequest\n"
        "sys.stdin.read()\n"
        "with ReviewStore(sys.argv[1]) as store:\n"
        "    store.ask([ReviewRequest('', 'tool', sys.argv[2])])\n"
    )
    path = tmp_path / "reviews.db"
    command = [sys.executable, "-c", script, path]
    processes = [subprocess.Popen([*command, f"{number}"], stdin=subprocess.PIPE) for number in range(4)]
    for process in processes:
        process.stdin.close()
    assert [process.wait(60) for process in processes] == [0] * 4
    with ReviewStore(path) as store:
        assert sorted(request.arguments for request in store.pending()) == ["0", "1", "2", "3"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["reviews.db", "reviews.db.key"]


def test_store_is_pickled_by_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ReviewStore("reviews.db", valid_for=5) as store:
        pickled = pickle.dumps(store)
        monkeypatch.chdir("/")
        store.ask([make_request(timeout=None)])
        with pickle.loads(pickled) as other:
            (request,) = other.pending()
            receipt = other.answer(request, Continue())
    assert receipt.expires_at - receipt.issued_at == 5


def test_memory_store_cannot_be_pickled():
    with MemoryStore() as store, pytest.raises(TypeError, match=r"^A MemoryStore cannot be pickled"):
        pickle.dumps(store)


def run_in_fork(function):
    child = os.fork()
    if child == 0:
        try:
            function()
        except BaseException:  # nothing of the test runner may go on in the child
            traceback.print_exc(file=sys.__stderr__)
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


forking = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # forking with threads is what is tested


@forking
def test_fork_and_parent_use_the_file(file):
    file.ask([first := make_request("first", timeout=None)])

    def in_child():
        file.answer(first, Edit("by the child"))
        file.ask([make_request("second", timeout=None)])

    assert run_in_fork(in_child) == 0
    assert file.take({first.id: first}) == {first.id: Edit("by the child")}
    assert [request.arguments for request in file.pending()] == ["second"]


@forking
def test_fork_does_not_use_approvals_in_memory():
    with MemoryStore() as store:
        store.ask([request := make_request(timeout=None)])
        store.answer(request, Continue())

        def in_child():
            lost = ExitEarly("the request is no longer in the store")
            assert store.take({request.id: request}) == {request.id: lost}
            store.ask([request])
            assert store.pending() == [request]

        assert run_in_fork(in_child) == 0
        assert store.take({request.id: request}) == {request.id: Continue()}


@forking
def test_fork_waits_for_a_transaction_of_another_thread(file, clock):
    inside, go_on = threading.Event(), threading.Event()

    def slow():
        inside.set()
        go_on.wait(60)
        return NOW

    file._clock = slow
    with ThreadPoolExecutor(2) as threads:
        asked = threads.submit(file.ask, [make_request()])
        assert inside.wait(60)
        forked = threads.submit(run_in_fork, lambda: None)
        go_on.set()
        asked.result(60)
        assert forked.result(60) == 0
    assert len(file.pending()) == 1


def test_threads_share_a_store(store):
    requests = [make_request(f"{number}", call_id=f"c{number}") for number in range(50)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda request: store.ask([request]), requests))
        list(threads.map(lambda request: store.answer(request, Edit(request.arguments)), requests))
    taken = store.take({request.id: request for request in requests})
    assert taken == {request.id: Edit(request.arguments) for request in requests}


def test_closed_store_raises(store):
    store.close()
    store.close()
    with pytest.raises(ToolConfigurationError, match=r"^The review store is closed; make a new one$"):
        store.pending()


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
def test_locked_file_raises(file, tmp_path, monkeypatch, statement):
    monkeypatch.setattr(file._database, "busy", 0.05)
    with closing(sqlite3.connect(tmp_path / "reviews.db", isolation_level=None)) as other:
        other.execute(statement)
        with pytest.raises(sqlite3.OperationalError, match=r"^database is locked$"):
            file.ask([make_request()])
        assert file.pending() == []
    assert len(file.ask([make_request()])) == 1


def test_unwritable_file_raises(file, tmp_path):
    with file._database.reading() as connection:
        connection.execute("PRAGMA query_only = 1")
    with pytest.raises(sqlite3.OperationalError, match=r"^attempt to write a readonly database$"):
        file.ask([make_request()])


def test_full_disk_leaves_no_partial_writes(file):
    file.ask([first := make_request("first")])
    with file._database.reading() as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(sqlite3.OperationalError, match=r"^database or disk is full$"):
        file.ask([make_request("x" * 1000) for _ in range(100)])
    assert (file.pending(), audit_kinds(file)) == ([first], ["asked"])
    file.answer(first, Continue())
    assert file.take({first.id: first}) == {first.id: Continue()}


@pytest.mark.parametrize("valid_for", [0, -1, float("nan")])
def test_rejects_invalid_valid_for(valid_for):
    with pytest.raises(ToolDefinitionError, match=r"^valid_for must be a number of seconds > 0, not "):
        MemoryStore(valid_for=valid_for)


def make_folder(path):
    path.mkdir()


def make_text(path):
    path.write_text("a diary, not a database, and long enough to be looked at" * 20)


def make_foreign(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE other (x)")
    connection.close()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (make_folder, "unable to open database file"),
        (make_text, "file is not a database"),
        (make_foreign, "it is not a review store of this version; name a file that does not exist yet"),
    ],
)
def test_rejects_path_that_is_not_a_store(tmp_path, make, reason):
    path = tmp_path / "reviews.db"
    make(path)
    with pytest.raises(ToolConfigurationError) as refusal:
        ReviewStore(path)
    assert str(refusal.value) == f"The review store '{path}' cannot be used: {reason}"
    assert list(tmp_path.iterdir()) == [path]


def test_an_empty_file_is_a_new_store(tmp_path):
    path = tmp_path / "reviews.db"
    path.touch(0o644)
    with ReviewStore(path) as store, ReviewStore(path) as same:
        store.ask([make_request(timeout=None)])
        assert len(same.pending()) == 1
        with pytest.raises(sqlite3.DatabaseError, match="events are never deleted"), store._database.writing() as rows:
            rows.execute("DELETE FROM events")
    assert path.stat().st_mode & 0o077 == 0


def test_a_store_that_was_emptied_is_refused(tmp_path):
    path = tmp_path / "reviews.db"
    ReviewStore(path).close()
    path.write_bytes(b"")
    with pytest.raises(ToolConfigurationError, match=r"it is empty, but 'reviews\.db\.key' shows that it was in use"):
        ReviewStore(path)


def test_of_several_processes_one_fills_an_empty_file(tmp_path):
    path = tmp_path / "reviews.db"
    for _ in range(5):
        path.touch()
        with ThreadPoolExecutor(8) as threads:
            stores = list(threads.map(lambda _: ReviewStore(path, "secret"), range(8)))
        stores[0].ask([make_request(timeout=None)])
        assert [len(store.pending()) for store in stores] == [1] * 8
        for store in stores:
            store.close()
        path.unlink()


@pytest.mark.parametrize("secret", [None, "secret"])
def test_missing_folder_error_names_it(tmp_path, secret):
    with pytest.raises(ToolConfigurationError) as refusal:
        ReviewStore(tmp_path / "missing" / "reviews.db", secret)
    assert str(refusal.value) == (
        f"The review store '{tmp_path}/missing/reviews.db' cannot be used: no file can be created in the folder "
        f"'{tmp_path}/missing': No such file or directory"
    )


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        ("00" * 31, 0o600, "it does not hold a key of 32 bytes"),
        ("", 0o600, "it does not hold a key of 32 bytes"),
        ("no hex", 0o600, "non-hexadecimal number found in fromhex.. arg at position 0"),
        ("00" * 32, 0o640, "other users can read it; chmod it to 600, or pass a secret"),
    ],
)
def test_rejects_invalid_key_file(tmp_path, text, mode, reason):
    key = tmp_path / "reviews.db.key"
    key.write_text(text)
    key.chmod(mode)
    with pytest.raises(ToolConfigurationError, match=f"^The review key '{key}' cannot be used: {reason}$"):
        ReviewStore(tmp_path / "reviews.db")


@pytest.mark.parametrize("secret", ["", b"", 5])
def test_rejects_invalid_secret(tmp_path, secret):
    for make in (lambda: MemoryStore(secret=secret), lambda: ReviewStore(tmp_path / "reviews.db", secret)):
        with pytest.raises(ToolDefinitionError, match=r"^A review secret must be"):
            make()


# A program that can write the file can remove the triggers that protect the record.
FORGET = "DROP TRIGGER IF EXISTS events_last; DELETE FROM events WHERE kind IN ('used', 'withdrawn')"


def delete_audit_log(path, statement=""):
    for each in (*FORGET.split(";"), statement):
        tamper(path, each)


@pytest.mark.parametrize("end", ["used", "withdrawn"])
def test_deleting_the_audit_log_does_not_reuse_an_answer(file, tmp_path, clock, end):
    (stored,) = file.ask([request := make_request()])
    file.answer(file.pending()[0], Continue(), person="ada")
    if end == "used":
        assert file.take({stored: request}) == {stored: Continue()}
    else:
        file.withdraw([stored])
    delete_audit_log(tmp_path, "UPDATE requests SET state = 'answered'")
    with ReviewStore(tmp_path / "reviews.db", clock=clock) as other:  # a process that knows nothing of it
        assert other.take({stored: request}) == {stored: ExitEarly("the approval is not valid: it is no longer valid")}


def test_restoring_an_old_file_does_not_reuse_an_answer(file, tmp_path, clock):
    (stored,) = file.ask([request := make_request()])
    receipt = file.answer(file.pending()[0], Continue(), person="ada").to_json()
    assert file.take({stored: request}) == {stored: Continue()}
    delete_audit_log(tmp_path)
    tamper(tmp_path, "UPDATE requests SET state = 'answered', receipt = ?", receipt)
    assert file.take({stored: request}) == {stored: ExitEarly("the approval is not valid: it was already used")}


def test_expired_used_answers_are_forgotten(clock):
    with MemoryStore(clock=clock, valid_for=60) as store:
        for _ in range(3):
            (stored,) = store.ask([request := make_request(timeout=None)])
            store.answer(store.pending()[0], Continue())
            store.take({stored: request})
            clock.now += 50
        assert len(store._spent) == 2


def test_used_receipt_is_stored_with_another_signature(file, tmp_path):
    (stored,) = file.ask([request := make_request()])
    given = file.answer(file.pending()[0], Continue(), person="ada")
    file.take({stored: request})
    with closing(sqlite3.connect(tmp_path / "reviews.db")) as connection:
        ((text,),) = connection.execute("SELECT receipt FROM requests").fetchall()
    kept = Receipt.from_json(text)
    assert replace(kept, signature="") == replace(given, signature="")
    assert kept.signature != given.signature


@pytest.mark.parametrize("end", ["used", "withdrawn"])
def test_edited_secret_is_not_stored(store, end):
    (stored,) = store.ask([request := make_request({"pw": "**********"}, hidden_digest="1f")])
    store.answer(store.pending()[0], Edit('{"pw": "hunter2"}'), person="ada")
    if end == "used":
        assert store.take({stored: request}) == {stored: Edit('{"pw": "hunter2"}')}
    else:
        store.withdraw([stored])
    assert [event.detail for event in store.audit() if event.kind == "answered"] == ["edit **********"]
    with store._database.reading() as connection:
        rows = [row for table in ("requests", "events") for row in connection.execute(f"SELECT * FROM {table}")]  # noqa: S608 - a constant
    assert "ada" in f"{rows}"
    assert "hunter2" not in f"{rows}"


def test_edit_without_secrets_is_recorded(store):
    store.ask([make_request({"path": "a"})])
    store.answer(store.pending()[0], Edit('{"path": "b"}'), person="ada")
    assert store.audit()[-1].detail == 'edit {"path": "b"}'


def ask(store, *tools, **facts):
    """Store a request for each tool; return their ids."""
    return [store.ask([ReviewRequest("Pays", name, {}, asked_at=NOW, **facts)])[0] for name in tools]


def test_requests_in_any_state_are_listed_in_pages(store, clock):
    ask(store, "a", "b", "c", "d")
    first, second, third, _ = store.pending()
    store.answer(first, ExitEarly("no"), person="ada", role="admin")
    store.answer(second, Continue(), person="bob")
    store.take({second.id: second})
    store.withdraw([third.id])
    page = store.requests(limit=3)
    assert [(each.request.tool_name, each.state) for each in page] == [
        ("d", "open"),
        ("c", "withdrawn"),
        ("b", "used"),
    ]
    (last,) = store.requests(before=page[-1].number)
    assert (last.state, last.receipt.person, last.receipt.role, last.receipt.text) == ("answered", "ada", "admin", "no")
    assert (page[2].receipt.person, page[2].receipt.kind, page[0].receipt) == ("bob", "continue", None)
    assert [each.request.tool_name for each in store.requests(state="open")] == ["d"]
    clock.now += 1000
    assert store.requests(state="open") == []
    assert [each.request.tool_name for each in store.requests(state="expired")] == ["d"]


def test_requests_and_answers_that_were_tampered_with_are_not_listed(file, tmp_path):
    ask(file, "a", "b", "c")
    first, second, third = file.pending()
    for request in (first, second):
        file.answer(request, Continue(), person="ada")
    with closing(sqlite3.connect(tmp_path / "reviews.db")) as connection, connection:
        connection.execute("UPDATE requests SET request = '{}' WHERE id = ?", (third.id,))
        connection.execute("UPDATE requests SET receipt = replace(receipt, 'ada', 'eve') WHERE id = ?", (second.id,))
        copied = "UPDATE requests SET receipt = (SELECT receipt FROM requests WHERE id = ?) WHERE id = ?"
        connection.execute(copied, (second.id, first.id))
    assert [(each.request.tool_name, each.receipt) for each in file.requests()] == [("b", None), ("a", None)]


def test_audit_log_is_listed_in_pages(store):
    ask(store, "a", "b", "c")
    store.answer(store.pending()[0], Continue(), person="ada")
    page = store.audit(limit=2)
    assert [(each.kind, each.tool_name) for each in page] == [("answered", "a"), ("asked", "c")]
    assert [each.tool_name for each in store.audit(before=page[-1].number, limit=9)] == ["b", "a"]
    assert [each.number for each in store.audit()] == [1, 2, 3, 4]
    assert [each.kind for each in store.audit(page[0].request_id, before=page[0].number)] == ["asked"]


def test_schema_is_kept_beside_the_request(store):
    schema = {"properties": {"order": {"type": "integer", "title": "\ud800"}}}
    for known in (schema, {"another": "schema"}, None):
        ask(store, "pay", schema=known, schema_digest="d1")
    assert store.schema("d1") == schema
    assert store.schema("d2") is None
    assert store.schema("\ud800") is None
    assert store.pending()[0].schema is None  # it is not a part of the request


def test_schema_that_was_tampered_with_is_unknown(file, tmp_path):
    ask(file, "pay", schema={"properties": {}}, schema_digest="d1")
    with closing(sqlite3.connect(tmp_path / "reviews.db")) as connection, connection:
        connection.execute("UPDATE schemas SET schema = '{}'")
    assert file.schema("d1") is None


def test_request_of_a_call_has_the_schema_of_its_tool(store):
    @tool(requires_approval=True)
    def pay(order: int) -> str:
        return f"paid {order}"

    reviewer = Reviewer(Continue())
    Toolbox([pay], review=reviewer).execute(ToolCall("pay", {"order": 7}))
    (request,) = reviewer.requests
    assert request.schema["properties"]["order"]["type"] == "integer"
    assert 'schema"' not in request.to_json()
    store.ask([request])
    assert store.schema(request.schema_digest) == request.schema


def test_file_of_the_second_version_gets_schemas(tmp_path):
    path = tmp_path / "reviews.db"
    with ReviewStore(path) as store:
        ask(store, "pay", timeout=None)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE schemas")
        connection.execute("PRAGMA user_version = 2")
    with ReviewStore(path) as store:
        assert store.schema("d1") is None
        assert len(store.pending()) == 1


def test_the_audit_keeps_lines_and_writes_arguments_on_one(store):
    request = ReviewRequest("Deletes a file", "delete", {"path": "a", "why": ["b"]}, timeout=None)
    store.ask([request])
    store.answer(request, ExitEarly("No.\n\x1b[2JNever."), person="ada\nbob")
    asked, answered = store.audit()
    assert asked.detail == '{"path": "a", "why": ["b"]}'
    assert (answered.detail, answered.person) == ("exit_early No.\n\\x1b[2JNever.", "ada\\nbob")
