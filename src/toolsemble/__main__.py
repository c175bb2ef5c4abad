"""Run the command line with ``python -m toolsemble``."""

from __future__ import annotations

from toolsemble._cli import program

program()
