"""A logging filter that masks the secrets of a call in what its tool logs."""

from __future__ import annotations

import logging

from toolsemble._schema.masking.secrets import mask_error, mask_text, secrets


class Redaction(logging.Filter):
    """A filter that masks the known secrets of the current context in log records; it drops no record.

    >>> from toolsemble._schema.masking.secrets import add_secrets, start_masking, stop_masking
    >>> record = logging.makeLogRecord({"msg": "signed in with %s", "args": ("hunter2",)})
    >>> token = start_masking()
    >>> add_secrets(["hunter2"])
    >>> Redaction().filter(record), record.getMessage()
    (True, 'signed in with **********')
    >>> stop_masking(token)
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask the message, the traceback and the stack of a record, if a secret is known; always return True."""
        if secrets():
            record.msg, record.args = mask_text(_format_message(record)), ()
            if record.exc_info and (error := mask_error(record.exc_info[1])) is not None:
                record.exc_info = type(error), error, error.__traceback__
            record.stack_info = record.stack_info and mask_text(record.stack_info)
        return True


REDACTION = Redaction()
"""The filter of the loggers of all tools."""


def _format_message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # wrong format arguments must not fail a call
        return f"{record.msg} {record.args!r}"
