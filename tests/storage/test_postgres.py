"""Stores on Postgres: what differs from a file: the URL, locks, clocks, lost connections, and notifications."""

import asyncio
import importlib
import os
import pickle
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import psycopg
import pytest

from helpers.wait import auntil, until
from toolsemble import (
    Agent,
    Cache,
    ConversationMemory,
    EffectLedger,
    RunBusyError,
    RunJournal,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolDefinitionError,
    tool,
)
from toolsemble._runtime.storage.database import PostgresUrl, repeat_if_lost
from toolsemble._runtime.storage.opening import open_database, read_location
from toolsemble._runtime.storage.postgres import connections, connections as driver, database as presence
from toolsemble._runtime.storage.sqlite import Kind
from toolsemble.review import Continue, QueueReview, RememberReview, ReviewRequest, ReviewStore, RulesReview
from toolsemble.testing import FunctionModel, ScriptedModel

pytestmark = pytest.mark.slow

KIND = Kind("list of names", 7, 1, "CREATE TABLE names (number INTEGER PRIMARY KEY, name TEXT, at REAL);", "NORMAL")
STORES = [RunJournal, ReviewStore, EffectLedger, ConversationMemory, lambda url: Cache(store=url).clear()]
IMPORTS = (
    "import sys; from toolsemble.review import ReviewStore; "
    "from toolsemble import Cache, ConversationMemory, EffectLedger, RunJournal, ToolDefinitionError"
)
NAMES = ["RunJournal", "ReviewStore", "EffectLedger", "ConversationMemory", "Cache"]


@pytest.fixture
def opened(postgres_url):
    """Return a function that opens a database, which is closed at the end."""
    made = []

    def open_(busy=5.0, kind=KIND, url=postgres_url):
        made.append(open_database(read_location(url, "It"), kind, busy))
        return made[-1]

    yield open_
    for each in made:
        each.close()


@pytest.fixture
def database(opened):
    return opened()


def names(database):
    with database.reading() as rows:
        return [name for (name,) in rows.execute("SELECT name FROM names ORDER BY number")]


def add(database, name, **settings):
    with database.writing(**settings) as rows:
        rows.execute("INSERT INTO names (name, at) VALUES (?, ?)", (name, database.clock()))


def insert_and(do, rows):
    """Insert a row, do something, and insert another one."""
    rows.execute("INSERT INTO names (name) VALUES (?)", ("ada",))
    do()
    rows.execute("INSERT INTO names (name) VALUES (?)", ("bob",))


def end_sessions(postgres):
    """End all sessions, as an administrator can."""
    with psycopg.connect(postgres.url, autocommit=True) as link:
        link.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'toolsemble'")


class TestUrl:
    @pytest.mark.parametrize("store", STORES, ids=NAMES)
    @pytest.mark.parametrize(
        ("url", "message"),
        [
            ("mysql://ada:hunter2@db/app", "takes a file path or a postgresql:// URL, not a mysql:// URL"),
            ("postgresql://ada:hunter%zz@db/app", "cannot be read; it has the form postgresql://user:password@host"),
            ("postgresql://ada:hunter2@db/app?colour=red", "cannot be read; it has the form postgresql://"),
            ("postgresql://ada:hun@ter2@db/app", "must be percent-encoded, such as '@' as %40"),
            ("postgresql://ada:hun/ter2@db/app", "must be percent-encoded"),
            ("postgresql://ada:hun?ter2@db/app", "must be percent-encoded"),
            ("postgresql://ada:hunter2@db/app?schema=Shop-1", "schema in a postgresql:// URL must be at most 30"),
        ],
    )
    def test_a_url_that_cannot_be_read_is_refused_without_its_password(self, store, url, message):
        with pytest.raises(ToolDefinitionError) as refused:
            store(url)
        assert message in str(refused.value)
        assert "ter2" not in str(refused.value)
        assert refused.value.__cause__ is None

    def test_parameters_reach_the_driver_as_they_are(self):
        url = PostgresUrl.read("postgresql://ada@db/app?options=-c%20lock_timeout%3D1&schema=shop&password=a+b")
        given = driver.read_parameters(url, "cache")
        assert (given["options"], given["password"], url.prefix) == ("-c lock_timeout=1", "a+b", "shop")
        assert "a+b" not in f"{url!r}{url}"

    def test_a_path_is_not_a_url(self):
        with pytest.raises(ToolDefinitionError, match="as a str: a Path drops one of its slashes"):
            RunJournal(Path("postgresql://db/app"))

    @pytest.mark.parametrize("store", STORES, ids=NAMES)
    def test_a_server_that_is_not_there_is_named_without_the_password(self, store):
        with pytest.raises(ToolConfigurationError) as refused:
            store("postgresql://ada:hunter2@127.0.0.1:1/app?connect_timeout=2")
        assert "'postgresql://ada@127.0.0.1:1/app' cannot be reached: " in str(refused.value)
        assert str(refused.value).endswith("; check the URL and the server")
        assert "hunter2" not in str(refused.value)

    def test_a_wrong_password_is_not_shown(self, postgres):
        with pytest.raises(ToolConfigurationError, match="password authentication failed") as refused:
            RunJournal(f"postgresql://postgres:hunter2@127.0.0.1:{postgres.port}/postgres")
        assert "hunter2" not in str(refused.value)

    def test_a_database_that_does_not_exist_is_refused(self, postgres):
        with pytest.raises(ToolConfigurationError, match='database "nowhere" does not exist'):
            RunJournal(postgres.url.replace("/postgres?", "/nowhere?"))

    def test_without_the_extra_the_install_command_is_told(self):
        code = (
            f"{IMPORTS}; sys.modules['psycopg'] = None\n"
            "for store in (RunJournal, ReviewStore, EffectLedger, ConversationMemory, lambda url: Cache(store=url)):\n"
            "    try: store('postgresql://db/app')\n"
            "    except ToolDefinitionError as error: print(error)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        first, *others = done.stdout.splitlines()
        assert first.startswith("A postgresql:// URL needs the package 'psycopg': pip install ")
        assert "[postgres]" in first
        assert others == [first] * 4

    def test_a_file_does_not_load_psycopg(self, tmp_path):
        code = (
            f"{IMPORTS}\n"
            "RunJournal('a.db'), ReviewStore('b.db'), EffectLedger('c.db'), ConversationMemory('d.db')\n"
            "Cache(store='e.db').clear()\n"
            "print([name for name in sys.modules if 'psycopg' in name or 'postgres' in name])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path
        )
        assert done.stdout == "[]\n"

    def test_stores_with_a_url_can_be_pickled(self, postgres_url):
        with EffectLedger(postgres_url) as ledger, pickle.loads(pickle.dumps(ledger)) as copied:
            assert copied.digest([1]) == ledger.digest([1])
        with ReviewStore(postgres_url) as store, pickle.loads(pickle.dumps(store)) as other:
            store.ask([ReviewRequest("Deletes", "delete", "x")])
            assert len(other.pending()) == 1
        cache = Cache(60, store=postgres_url)
        assert pickle.loads(pickle.dumps(cache)).results.digest([1]) == cache.results.digest([1])
        cache.close()


class TestTables:
    def test_schemas_of_one_database_are_apart(self, postgres, opened):
        one, other = opened(), opened(url=postgres.new_url())
        add(one, "ada")
        assert (names(one), names(other), names(opened())) == (["ada"], [], ["ada"])

    def test_tables_of_a_newer_version_are_refused(self, opened):
        opened(kind=Kind("list of names", 7, 2, KIND.tables))
        with pytest.raises(ToolConfigurationError, match=r"a newer toolsemble wrote it .*; update toolsemble"):
            opened()

    def test_tables_of_an_earlier_version_are_upgraded_once(self, opened):
        add(opened(), "ada")
        newer = Kind(
            "list of names",
            7,
            2,
            KIND.tables,
            upgrades={1: lambda rows: rows.execute("UPDATE names SET name = name || ?", ("!",))},
        )
        assert names(opened(kind=newer)) == names(opened(kind=newer)) == ["ada!"]

    def test_tables_of_an_earlier_version_without_an_upgrade_are_refused(self, opened):
        opened()
        with pytest.raises(ToolConfigurationError, match="of version 1, which this toolsemble can no longer read"):
            opened(kind=Kind("list of names", 7, 2, KIND.tables))

    def test_a_schema_of_something_else_is_refused(self, opened):
        opened()
        with pytest.raises(ToolConfigurationError, match=r"belongs to something else; choose another one"):
            opened(kind=Kind("list of names", 8, 1, KIND.tables))

    def test_a_user_who_may_not_create_a_schema_is_told_so(self, postgres):
        with psycopg.connect(postgres.url, autocommit=True) as link:
            link.execute("DROP ROLE IF EXISTS guest")
            link.execute("CREATE ROLE guest LOGIN")
        with pytest.raises(ToolConfigurationError, match=r"permission denied .*; its user needs CREATE"):
            RunJournal(postgres.new_url().replace("postgres@", "guest@"))

    def test_many_processes_can_create_the_tables_at_once(self, opened):
        ready = threading.Barrier(4)
        made = []

        def start():
            ready.wait(30)
            made.append(opened())

        threads = [threading.Thread(target=start) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert [names(each) for each in made] == [[], [], [], []]

    def test_events_of_reviews_are_never_changed(self, postgres_url):
        with ReviewStore(postgres_url) as store:
            store.ask([ReviewRequest("Deletes", "delete", "x")])
            for statement in ("UPDATE events SET kind = 'used'", "DELETE FROM events"):
                with (
                    pytest.raises(ToolConfigurationError, match="events are never changed or deleted"),
                    store._database.writing() as rows,
                ):
                    rows.execute(statement)
            assert [event.kind for event in store.audit()] == ["asked"]

    def test_a_nul_character_is_replaced(self, database):
        add(database, "a\0b")
        assert names(database) == ["a\ufffdb"]

    def test_a_closed_database_says_so(self, database):
        database.close()
        with pytest.raises(ToolConfigurationError, match="The list of names is closed; make a new one"):
            names(database)


class TestTransactions:
    def test_an_exception_rolls_back(self, database):
        with pytest.raises(ZeroDivisionError), database.writing() as rows:
            insert_and(partial(int.__floordiv__, 1, 0), rows)
        assert names(database) == []

    @pytest.mark.parametrize(("held", "wanted"), [("a", "a"), (None, "a"), ("a", None), (None, None)])
    def test_a_writer_waits_for_the_writers_of_its_key_until_its_timeout(self, opened, held, wanted):
        one, other = opened(), opened()
        with one.writing(key=held):
            with pytest.raises(TimeoutError, match=r"The list of names 'postgresql://.*' is busy"):
                add(other, "late", patience=0.05, key=wanted)
            assert names(other) == []
        add(other, "now", key=wanted)
        assert names(one) == ["now"]

    def test_writers_of_other_keys_do_not_wait(self, opened):
        one, other = opened(), opened()
        with one.writing(key="a"):
            add(other, "ada", key="b", patience=0.05)
        assert names(one) == ["ada"]

    def test_threads_beyond_the_connections_wait_for_one(self, opened):
        database = opened(busy=0.05)
        held = [database.writing(key=f"{number}") for number in range(connections.MOST)]
        for each in held:
            each.__enter__()
        with pytest.raises(TimeoutError, match=f"No free connection after 0.05 s; all {connections.MOST} of"):
            names(database)
        for each in held:
            each.__exit__(None, None, None)
        assert names(database) == []

    def test_many_rows_are_written_in_one_transaction(self, database):
        with database.writing() as rows:
            rows.executemany("INSERT INTO names (name) VALUES (?)", [("ada",), ("bob",)])
        assert names(database) == ["ada", "bob"]

    def test_a_forked_process_has_connections_of_its_own(self, database):
        add(database, "parent")
        database.presence.announce("parent")
        pid = os.fork()
        if not pid:
            try:
                add(database, "child")
                present = database.presence.is_present("parent")
                database.presence.announce("child")
                os._exit(0 if present and names(database) == ["parent", "child"] else 1)
            except BaseException:  # reported by the status
                os._exit(2)
        assert os.waitpid(pid, 0)[1] == 0
        add(database, "parent")
        assert names(database) == ["parent", "child", "parent"]
        assert database.presence.is_present("child")


class TestLostConnections:
    def test_a_connection_that_was_lost_between_two_transactions_is_replaced(self, postgres, database):
        add(database, "ada")
        end_sessions(postgres)
        assert names(database) == ["ada"]
        end_sessions(postgres)
        add(database, "bob")
        assert names(database) == ["ada", "bob"]

    def test_a_connection_that_is_lost_in_a_transaction_raises_and_nothing_is_written(self, postgres, database):
        with (
            pytest.raises(ConnectionError, match=r"The list of names 'postgresql://.*' cannot be reached: "),
            database.writing() as rows,
        ):
            insert_and(partial(end_sessions, postgres), rows)
        assert names(database) == []

    def test_what_may_be_done_twice_is_done_again(self, postgres, database):
        attempts = []

        def write():
            attempts.append(1)
            with database.writing() as rows:
                rows.execute("INSERT INTO names (name) VALUES (?)", ("ada",))
                if len(attempts) == 1:
                    end_sessions(postgres)

        repeat_if_lost(write)
        assert (len(attempts), names(database)) == (2, ["ada"])

    def test_a_server_that_is_restarted_is_waited_for(self, postgres, opened):
        database = opened(busy=30)
        add(database, "ada")
        postgres.stop()
        starting = threading.Thread(target=postgres.start)
        starting.start()
        add(database, "bob")
        starting.join(60)
        assert names(database) == ["ada", "bob"]

    def test_a_server_that_stays_away_raises(self, postgres, opened):
        database = opened(busy=0.3)
        postgres.stop()
        try:
            with pytest.raises(ConnectionError, match="cannot be reached"):
                names(database)
        finally:
            postgres.start()
        assert names(database) == []

    def test_a_run_survives_a_server_that_is_killed_and_started_again(self, postgres, postgres_url):
        calls = []

        @tool(effects="irreversible")
        def pay(order: int) -> str:
            """Pay an order."""
            calls.append(order)
            if len(calls) == 1:
                postgres.stop("immediate")
                postgres.start()
            return "paid"

        with RunJournal(postgres_url) as runs:
            model = ScriptedModel([ToolCall("pay", {"order": 7}), ToolCall("pay", {"order": 8}), "Done."])
            result = Agent(model, [pay], journal=runs, name="clerk").run_sync("Pay", run_id="r1")
            assert (result.text, runs.find("r1").state, calls) == ("Done.", "done", [7, 8])

    def test_an_effect_is_reserved_once_although_the_answer_of_the_server_is_lost(self, postgres, postgres_url):
        with EffectLedger(postgres_url) as ledger:
            write, lost = ledger._database.writing, []

            def lose(*arguments, **settings):
                if not lost:
                    lost.append(ledger._reserve)
                    with write(*arguments, **settings):
                        pass
                    raise ConnectionError
                return write(*arguments, **settings)

            ledger._database.writing = lose
            box = Toolbox([make_pay()], ledger=ledger)
            assert box.execute(ToolCall("pay", {"order": 1}), run_id="r").result.output == "paid 1"
            assert [entry.state for entry in ledger.entries()] == ["done"]


def make_pay(**settings):
    @tool(effects="write", idempotency=True, **settings)
    def pay(order: int) -> str:
        """Pay an order."""
        return f"paid {order}"

    return pay


class TestClocks:
    @pytest.mark.parametrize("hours", [-1, 1])
    def test_the_clock_of_a_machine_does_not_count(self, postgres_url, monkeypatch, hours):
        real = time.time
        with RunJournal(postgres_url) as before, ReviewStore(postgres_url) as asking:
            before.begin("r1", "clerk", "Pay")
            asking.ask([ReviewRequest("Pays", "pay", "7", timeout=60.0)])
            monkeypatch.setattr(time, "time", lambda: real() + hours * 3600)
            with RunJournal(postgres_url) as runs, ReviewStore(postgres_url) as answering:
                runs.begin("r2", "clerk", "Pay")
                assert abs(runs.find("r1").created - runs.find("r2").created) < 60
                assert runs.forget(30) == 0
                (request,) = answering.pending()
                receipt = answering.answer(request, Continue(), person="ada")
                assert abs(receipt.issued_at - real()) < 60
                answering.ask([ReviewRequest("Pays", "pay", "8", timeout=60.0, asked_at=time.time())])
            (second,) = asking.pending()
            assert abs(second.deadline - real() - 60) < 30

    @pytest.mark.parametrize("hours", [-1, 1])
    def test_cached_results_are_valid_for_machines_with_another_clock(self, postgres_url, monkeypatch, hours):
        calls = []

        def make():
            @tool(effects="read", cache=Cache(60, store=postgres_url))
            def look(order: int) -> str:
                """Look up an order."""
                calls.append(order)
                return "found"

            return look

        make().execute({"order": 7})
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + hours * 3600)
        assert make().execute({"order": 7}).attributes["cached"]
        assert calls == [7]

    def test_a_run_is_not_taken_over_because_of_the_clock_of_a_machine(self, postgres_url, monkeypatch):
        with RunJournal(postgres_url) as runs, RunJournal(postgres_url) as other:
            driver = runs.claim("r1", "clerk", [])
            real = time.time
            monkeypatch.setattr(time, "time", lambda: real() + 3600)
            monkeypatch.setattr("toolsemble._runtime.storage.database._place", lambda: "another machine")
            with pytest.raises(RunBusyError, match="is driven by process"):
                other.claim("r1", "clerk", [])
            assert other.find_work() == []
            driver.close()


class TestLeases:
    def test_a_driver_on_another_machine_counts_until_its_lease_is_over(self, postgres_url, monkeypatch):
        with RunJournal(postgres_url, lease=1.2) as runs, RunJournal(postgres_url, lease=1.2) as other:
            driver = runs.claim("r1", "clerk", [])
            monkeypatch.setattr("toolsemble._runtime.storage.database._place", lambda: "another machine")
            for _ in range(3):  # its heartbeats
                updated = other.find("r1").updated
                until(lambda updated=updated: other.find("r1").updated > updated)
                assert other.find_work() == []
            runs._storage.forget(driver)  # as if it were killed
            until(other.find_work)
            taken = other.claim("r1", "clerk", [])
            assert taken.row.fence == driver.row.fence + 1
            with pytest.raises(RunBusyError, match="was taken over by process"):
                driver.record_reply("/1", {})
            assert other.steps("r1") == []
            taken.close()

    def test_effects_of_another_machine_are_running_while_it_says_so(self, postgres_url, monkeypatch):
        monkeypatch.setattr(presence, "LEASE", 1.2)
        with EffectLedger(postgres_url) as here, EffectLedger(postgres_url) as there:
            entered, free = threading.Event(), threading.Event()

            @tool(effects="write", idempotency=True)
            def pay(order: int) -> str:
                """Pay an order."""
                entered.set()
                free.wait(60)
                return "paid"

            call = partial(Toolbox([pay], ledger=here).execute, ToolCall("pay", {"order": 1}), run_id="r")
            paying = threading.Thread(target=call)
            paying.start()
            entered.wait(60)
            monkeypatch.setattr("toolsemble._runtime.storage.database._place", lambda: "another machine")
            assert [entry.state for entry in there.entries()] == ["running"]
            here._database.presence.close()  # as if it were killed
            until(lambda: [entry.state for entry in there.entries()] == ["unknown"])
            monkeypatch.undo()
            free.set()
            paying.join(60)
            assert [entry.state for entry in there.entries()] == ["done"]

    def test_questions_of_another_machine_are_open_while_it_says_so(self, postgres_url, monkeypatch):
        monkeypatch.setattr(presence, "LEASE", 1.2)
        with ReviewStore(postgres_url) as asking, ReviewStore(postgres_url) as looking:
            request = ReviewRequest("Pays", "pay", "7", run_id="generated", chosen_run=False, timeout=None)
            asking.ask([request])
            resumable = ReviewRequest("Pays", "pay", "8", run_id="r1", timeout=None)
            (first,) = asking.ask([resumable])
            monkeypatch.setattr("toolsemble._runtime.storage.database._place", lambda: "another machine")
            assert [each.arguments for each in looking.pending()] == ["7", "8"]
            assert looking.ask([resumable]) != [first]  # another process waits for it
            asking._database.presence.close()  # as if it were killed
            until(lambda: "7" not in [each.arguments for each in looking.pending()])
            assert looking.ask([resumable]) == [first]

    def test_a_presence_that_cannot_be_said_is_said_later(self, postgres, database, monkeypatch):
        monkeypatch.setattr(presence, "LEASE", 0.6)
        for owner in ("ada", "ada", "eve"):
            database.presence.announce(owner)
        end_sessions(postgres)
        postgres.stop("immediate")
        postgres.start()
        until(lambda: database.presence.is_present("ada"))
        assert not database.presence.is_present("bob")

    def test_an_owner_that_cannot_say_that_it_lives_is_told_so(self, postgres, opened):
        database = opened(busy=0.1)
        postgres.stop()
        try:
            with pytest.raises(ConnectionError, match=r"The list of names 'postgresql://.*' cannot be reached"):
                database.presence.announce("ada")
        finally:
            postgres.start()

    def test_nothing_is_said_after_the_end(self, database, monkeypatch):
        class Closed:
            def wait(self, seconds):
                return False

            def is_set(self):
                return True

        monkeypatch.setattr(database.presence, "_closed", Closed())
        database.presence._beat()
        assert database.presence._link is None


class TestNotifications:
    async def test_an_answer_wakes_the_call_that_waits(self, postgres_url, monkeypatch):
        monkeypatch.setattr("toolsemble.review._store.queue._TOLD_POLL", 1000.0)
        with ReviewStore(postgres_url) as asking, ReviewStore(postgres_url) as answering:
            review = QueueReview(asking)
            asked = asyncio.create_task(review.review(ReviewRequest("Pays", "pay", "7")))
            await auntil(answering.pending)
            answering.answer(answering.pending()[0], Continue(), person="ada")
            assert await asyncio.wait_for(asked, 60) == Continue()

    async def test_a_run_that_is_begun_wakes_a_worker(self, postgres_url):
        with RunJournal(postgres_url) as runs, RunJournal(postgres_url) as other:
            agent = Agent(FunctionModel(lambda _: "Done."))
            working = asyncio.create_task(runs.work({"clerk": agent}, poll=1000))
            await auntil(lambda: runs._storage._database._listener._thread is not None)
            other.begin("r1", "clerk", "Pay")
            while other.find("r1").state != "done":
                await asyncio.sleep(0.01)
            working.cancel()
            await asyncio.wait([working])

    @pytest.mark.parametrize("wrap", [lambda review: review, RememberReview, lambda review: RulesReview([], review)])
    async def test_an_answer_wakes_the_worker_of_a_parked_run(self, postgres_url, wrap):
        @tool(effects="irreversible", requires_approval=True, approval_timeout=None)
        def pay(order: int) -> str:
            """Pay an order."""
            return "paid"

        with RunJournal(postgres_url, park_after=0) as runs, ReviewStore(postgres_url) as store:
            model = FunctionModel(
                lambda request: "Done." if len(request.messages) > 1 else ToolCall("pay", {"order": 7})
            )
            agent = Agent(model, [pay], review=wrap(QueueReview(store)))
            working = asyncio.create_task(runs.work({"clerk": agent}, poll=1000))
            runs.begin("r1", "clerk", "Pay")
            while runs.find("r1").state != "waiting":
                await asyncio.sleep(0.01)
            store.answer(store.pending()[0], Continue(), person="ada")
            while runs.find("r1").state != "done":
                await asyncio.sleep(0.01)
            working.cancel()
            await asyncio.wait([working])

    async def test_a_worker_survives_a_server_that_is_restarted(self, postgres, postgres_url, caplog):
        with RunJournal(postgres_url) as runs:
            runs._storage._database._connections._patience = 0.1
            agent = Agent(FunctionModel(lambda _: "Done."))
            working = asyncio.create_task(runs.work({"clerk": agent}, poll=0.05))
            await asyncio.to_thread(postgres.stop)
            while "the worker polls again in 0.05 s" not in caplog.text:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(postgres.start)
            runs.begin("r1", "clerk", "Pay")
            while runs.find("r1").state != "done":
                await asyncio.sleep(0.01)
            working.cancel()
            await asyncio.wait([working])

    async def test_a_question_survives_a_server_that_is_restarted(self, postgres, postgres_url, caplog):
        with ReviewStore(postgres_url) as store:
            asked = asyncio.create_task(QueueReview(store).review(ReviewRequest("Pays", "pay", "7")))
            await auntil(store.pending)
            store._database._connections._patience = 0.1
            await asyncio.to_thread(postgres.stop)
            while "polling for answers again" not in caplog.text:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(postgres.start)
            store._database._connections._patience = 30
            store.answer(store.pending()[0], Continue(), person="ada")
            assert await asyncio.wait_for(asked, 60) == Continue()

    def test_who_watches_is_told_until_it_ends(self, opened):
        one, other = opened(), opened()
        heard, also = threading.Event(), threading.Event()
        end, keep = one.watch(heard.set), one.watch(also.set)
        assert heard.wait(60)  # it begins to listen
        heard.clear()
        add(other, "ada")
        add(other, "bob", notify=True)
        assert heard.wait(60)
        end()
        heard.clear()
        also.clear()
        add(other, "eve", notify=True)
        assert also.wait(60)
        assert not heard.is_set()
        keep()
        until(lambda: one._listener._thread is None)
        one.watch(heard.set)
        assert heard.wait(60)  # with a new thread


class TestErrors:
    def test_a_full_disk_may_pass(self):
        error = driver.translate(psycopg.errors.DiskFull("no space left"), PostgresUrl("", "postgresql://db"), "cache")
        assert (type(error), str(error)) == (OSError, "The cache 'postgresql://db' cannot be used now: no space left")

    def test_damaged_rows_name_the_store(self, postgres_url):
        with EffectLedger(postgres_url) as ledger:
            Toolbox([make_pay()], ledger=ledger).execute(ToolCall("pay", {"order": 1}), run_id="r")
            with ledger._database.writing() as rows:
                rows.execute("UPDATE effects SET result = '{'")
            with pytest.raises(ToolConfigurationError, match=r"The effect ledger 'postgresql://.*' cannot be used: "):
                ledger.entries()

    def test_without_psycopg_the_driver_cannot_be_imported(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "psycopg", None)
        monkeypatch.delitem(sys.modules, "toolsemble._runtime.storage.postgres.connections")
        with pytest.raises(ToolDefinitionError, match=r"needs the package 'psycopg': pip install .*\[postgres\]"):
            importlib.import_module("toolsemble._runtime.storage.postgres.connections")

    def test_a_transaction_that_is_lost_again_and_again_raises(self):
        attempts = []

        def lose():
            attempts.append(1)
            raise ConnectionError

        with pytest.raises(ConnectionError):
            repeat_if_lost(lose)
        assert len(attempts) == 3

    def test_another_process_leaves_what_it_inherits_alone(self, database):
        add(database, "ada")
        database.presence.announce("ada")
        ended = threading.Event()
        database.watch(ended.set)
        assert ended.wait(60)
        inherited = [*database._connections._idle, database.presence._link]
        for each in (database._connections, database.presence, database._listener):
            each._process = -1  # as in a forked process
        database.watch(ended.set)
        assert (names(database), database.presence.is_present("ada")) == (["ada"], True)
        assert [link.closed for link in inherited] == [False, False]
        for link in inherited:
            link.close()

    def test_connections_of_another_process_are_not_closed_with_the_pool(self, database):
        add(database, "ada")
        (link,) = database._connections._idle
        database._connections._process = -1
        database._connections.__del__()
        assert not link.closed
        link.close()
