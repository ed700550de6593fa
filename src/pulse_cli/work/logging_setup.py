"""The log of `pulse worker`, unless the application configures its own."""

from __future__ import annotations

import logging
from typing import Any

from pulse_text import printable

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# One log for all processes: the name has the number of the process.
_FORMAT_OF_SEVERAL = "%(asctime)s %(processName)s %(levelname)s %(name)s: %(message)s"
# Enough for the frames and the message of any ordinary error.
_EXCEPTION_CHARACTERS = 64 * 1024
# Sentences of the worker name their job themselves.
_WORKER = "pulse.worker"


def configure_logging(*, several: bool = False) -> None:
    """Log to standard error. An application that logs has configured it when it was imported."""
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JobFormatter(_FORMAT_OF_SEVERAL if several else _FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class JobFormatter(logging.Formatter):
    """Adds the job to what is logged in a handler. Bounds errors, and escapes what a terminal would obey."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - a name of logging
        line = super().formatMessage(record)
        return line if record.name == _WORKER else line + getattr(record, "pulse_job", "")

    def formatException(self, ei: Any) -> str:  # noqa: N802 - a name of logging
        text = super().formatException(ei)
        left_out = len(text) - _EXCEPTION_CHARACTERS
        if left_out <= 0:
            return text
        half = _EXCEPTION_CHARACTERS // 2
        return f"{text[:half]}\n… {left_out:,} characters are left out …\n{text[-half:]}"

    def format(self, record: logging.LogRecord) -> str:
        return printable.lines(super().format(record))
