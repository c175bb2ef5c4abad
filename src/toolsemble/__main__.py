"""The command line, for those who start it with ``python -m toolsemble``."""

from __future__ import annotations

from toolsemble.cli import program

program()
