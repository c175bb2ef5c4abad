"""Disks that are full, for the tests of stores."""

import os
import subprocess
import sys
import textwrap

import pytest

SMALL_FILES = """
import pathlib, resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def fill(folder):
    most = max(file.stat().st_size for file in pathlib.Path(folder).iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
"""
SMALL_DISK = """
import pathlib
def fill(folder):
    with open(pathlib.Path(folder) / "filler", "wb", 0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            pass
"""


def run_in_process(code, *arguments, prefix=(), **settings):
    """Run a program; give what it printed, line by line."""
    command = [*prefix, sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    given = {"capture_output": True, "text": True, "timeout": 60, **settings}
    run = subprocess.run(command, check=False, **given)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout.splitlines()


def run_on_full_disk(kind, code, folder):
    """Run a program that has ``fill(folder)``, which leaves no room there; skip where a disk cannot be made full."""
    if kind == "limit":
        if os.name != "posix":
            pytest.skip("the size of files can be limited on POSIX systems only")
        return run_in_process(SMALL_FILES + textwrap.dedent(code), folder)
    mount = ["unshare", "--mount", "--map-root-user", "sh", "-c", 'mount -t tmpfs -o size=256k tmpfs "$0" && exec "$@"']
    try:
        subprocess.run([*mount, folder, "true"], check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as problem:
        pytest.skip(f"a small disk cannot be mounted here: {problem}")
    return run_in_process(SMALL_DISK + textwrap.dedent(code), folder, prefix=[*mount, folder])
