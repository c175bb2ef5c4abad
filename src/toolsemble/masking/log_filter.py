"""What a tool itself writes to its log, without the secrets of its call."""

from __future__ import annotations

import logging

from toolsemble.masking.secrets import mask_error, mask_text, secrets


class Redaction(logging.Filter):
    """Hides in lines of a log what is known to be secret where they are written; lets every line pass.

    >>> from toolsemble.masking.secrets import add_secrets, start_masking, stop_masking
    >>> record = logging.makeLogRecord({"msg": "signed in with %s", "args": ("hunter2",)})
    >>> token = start_masking()
    >>> add_secrets(["hunter2"])
    >>> Redaction().filter(record), record.getMessage()
    (True, 'signed in with **********')
    >>> stop_masking(token)
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the line, its traceback and its stack, where one of them has a secret."""
        if secrets():
            record.msg, record.args = mask_text(_written(record)), ()
            if record.exc_info and (error := mask_error(record.exc_info[1])) is not None:
                record.exc_info = type(error), error, error.__traceback__
            record.stack_info = record.stack_info and mask_text(record.stack_info)
        return True


REDACTION = Redaction()
"""The one for the loggers of all tools."""


def _written(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a line that is written wrongly fails no call, and is shown without its secrets
        return f"{record.msg} {record.args!r}"
