"""The arguments of a call that did not run, with secrets masked."""

from __future__ import annotations

from typing import Any

from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._engine.execution.call import ArgumentsReport
from toolsemble._schema.masking.secrets import read_with_secrets, start_masking, stop_masking
from toolsemble._schema.repair import STEPS


def mask_arguments(definition: ToolDefinition, text: str) -> dict[str, Any]:
    """Return the arguments in a text as JSON values, with the secrets of the tool masked; {} if they cannot be read.

    :param definition: a tool that takes secrets
    """
    report, masking = ArgumentsReport(), start_masking()
    report.definition = definition
    try:
        report.begin(read_with_secrets(definition, definition.decode, text, STEPS)[0])
    except Exception:  # a validator may raise anything; nobody knows which argument is a secret
        return {}
    finally:
        stop_masking(masking)
    return report.arguments or {}
