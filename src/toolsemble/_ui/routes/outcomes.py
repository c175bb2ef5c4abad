"""Endpoints of calls of unknown outcome, in the ledger and in the journal."""

from __future__ import annotations

from typing import Any

from toolsemble._ui.endpoint import Asked, RefusedError, changes, reads
from toolsemble._ui.interface import Interface


def list_unknown(interface: Interface, _: Asked) -> dict[str, Any]:
    """Return the calls that nobody knows the outcome of, with where they are recorded."""
    ledger, journal = interface.folder.ledger(), interface.folder.journal()
    effects = [] if ledger is None else ledger.unknown()
    calls = [] if journal is None else journal.unknown()
    rows: list[dict[str, Any]] = [
        {"kind": "effect", "key": each.key, "tool": each.tool_name, "run_id": each.run_id, "arguments": each.arguments,
         "began": each.began}
        for each in effects
    ]  # fmt: skip
    rows += [
        {"kind": "step", "key": each.place, "tool": each.tool, "run_id": each.run_id, "arguments": each.arguments,
         "began": None}
        for each in calls
    ]  # fmt: skip
    return {"unknown": rows, "exists": ledger is not None or journal is not None}


def settle(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Settle a call: it happened, with a result, or it did not."""
    kind, key = asked.take("kind", str, ""), asked.take("key", str, "")
    happened, result = asked.take("happened", bool), asked.take("result", str, "")
    if happened is None:
        raise RefusedError(400, "'happened' must be true or false")
    ledger, journal = interface.folder.ledger(), interface.folder.journal()
    if kind == "effect" and ledger is not None:
        ledger.resolve(key, happened=happened, result=result)
    elif kind == "step" and journal is not None:
        journal.resolve(asked.take("run_id", str, ""), key, happened=happened, result=result if happened else None)
    else:
        raise RefusedError(404, f"There is no {kind:.20} to settle in the data folder")
    return list_unknown(interface, asked)


ROUTES = [reads("/api/unknown", list_unknown), changes("/api/unknown", settle, operator=True)]
