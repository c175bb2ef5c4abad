"""The review store of a command."""

from __future__ import annotations

from pathlib import Path

from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.review._store import SQLiteStore


def open_store(file: str, secret: str | None) -> SQLiteStore:
    """Return the store of a file or a URL; raise ToolConfigurationError if its secret is not known."""
    if secret is None and "://" not in file and not Path(f"{file}.key").exists():
        raise ToolConfigurationError(
            f"The review store '{file}' has no file '{file}.key'; set TOOLSEMBLE_REVIEW_SECRET to its secret"
        )
    return SQLiteStore(file, secret)
