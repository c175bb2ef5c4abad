"""The command ``ledger``: list and settle the effects of unknown outcome."""

from __future__ import annotations

import time
from pathlib import Path

from toolsemble._cli.exit_codes import Exit
from toolsemble._cli.json_output import json_line
from toolsemble._cli.screen import Screen
from toolsemble._cli.table import Column, shorten_ids, show_list
from toolsemble._engine.limits.effect_ledger import Effect, EffectLedger
from toolsemble._runtime.text import escape_line
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolsembleError

_COLUMNS = (
    Column("key"),
    Column("tool", is_cut=True),
    Column("arguments", is_cut=True),
    Column("run", is_optional=True),
    Column("state"),
    Column("began", is_optional=True),
)
_MAX_ARGUMENTS = 200


def open_ledger(file: str) -> EffectLedger:
    """Return the ledger of a file or a URL; raise ToolConfigurationError if a file has no key."""
    if "://" not in file and not Path(f"{file}.key").exists():
        raise ToolConfigurationError(f"The effect ledger '{file}' has no file '{file}.key'; restore it")
    return EffectLedger(file)


def list_effects(ledger: EffectLedger, screen: Screen, *, everything: bool, as_json: bool) -> Exit:
    """Write the entries of unknown outcome, or all of them, oldest first."""
    entries = ledger.entries() if everything else ledger.unknown()
    if as_json:
        for effect in entries:
            screen.write(json_line(_to_fields(effect)))
    elif entries:
        keys = shorten_ids(screen, [effect.key for effect in entries])
        show_list(screen, _COLUMNS, [(keys[effect.key], *_to_row(effect)) for effect in entries])
    else:
        screen.report("The ledger is empty." if everything else "No call has an unknown outcome.")
    return Exit.DONE


def resolve(ledger: EffectLedger, key: str, screen: Screen, *, happened: bool, result: str) -> Exit:
    """Settle an entry of unknown outcome; raise ToolsembleError if there is none."""
    found = [effect for effect in ledger.unknown() if effect.key.startswith(key)]
    if len(found) != 1:
        what = "no call" if not found else f"{len(found)} calls"
        raise ToolsembleError(f"{what} of unknown outcome with the key {key!r:.80}; see the list")
    (effect,) = found
    ledger.resolve(effect.key, happened=happened, result=result)
    outcome = "done" if happened else "not done; the call may be repeated"
    screen.answer(f"{outcome}: {escape_line(effect.tool_name)} {escape_line(effect.arguments, _MAX_ARGUMENTS)}")
    return Exit.DONE


def _to_fields(effect: Effect) -> dict[str, object]:
    names = ("key", "tool_name", "run_id", "call_id", "arguments", "state", "began", "ended")
    result = None if effect.result is None else effect.result.text
    return {**{name: getattr(effect, name) for name in names}, "result": result}


def _to_row(effect: Effect) -> tuple[str, ...]:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(effect.began))
    return effect.tool_name, effect.arguments, effect.run_id, effect.state, began
