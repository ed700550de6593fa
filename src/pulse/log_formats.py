"""The lines of a log: errors of bounded length, and records as JSON.

It imports nothing of pulse: the supervisor of `pulse worker` stays small.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

# Enough for the frames and the message of any ordinary error.
_EXCEPTION_CHARACTERS = 64 * 1024
# Of a record, but not of its line: the rest is what `extra` has added.
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "pulse_job",
}


class BoundedFormatter(logging.Formatter):
    """Shortens long exceptions."""

    def formatException(self, ei: Any) -> str:  # noqa: N802 - a name of logging
        text = super().formatException(ei)
        left_out = len(text) - _EXCEPTION_CHARACTERS
        if left_out <= 0:
            return text
        half = _EXCEPTION_CHARACTERS // 2
        return f"{text[:half]}\n… {left_out:,} characters are left out …\n{text[-half:]}"


class JsonFormatter(BoundedFormatter):
    """Formats a record as one line of JSON, with the keys of pulsed: time, level, event, logger, exception.

    `event` is the message. `extra` and the running job add their fields.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
        }
        if record.processName not in (None, "MainProcess"):
            line["process"] = record.processName
        extra = {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
        if not extra.get("pulse_job_id"):  # not in a handler
            extra = {name: value for name, value in extra.items() if not name.startswith("pulse_")}
        line.update(extra)
        if record.exc_info:
            line["exception"] = record.exc_text or self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        # ASCII: no control character reaches a terminal.
        return json.dumps(line, default=str)
