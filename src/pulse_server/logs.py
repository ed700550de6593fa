"""Structured logs: one JSON object per line, on standard error."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime

_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a record as JSON. The message is the event's name, and `extra` holds its fields.

    With several processes behind one port, each line has the number of its process.
    """

    def __init__(self, process: int | None = None) -> None:
        super().__init__()
        self._process = {} if process is None else {"process": process}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
            **self._process,
        }
        line.update((key, value) for key, value in vars(record).items() if key not in _STANDARD_FIELDS)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def silence_grpc_core() -> None:
    """Keep grpc's core from writing lines that are no JSON. Works only before grpc is first imported."""
    # A parent process that uses the SDK sets ERROR. An operator who wants more sets another value.
    if os.environ.get("GRPC_VERBOSITY", "ERROR") == "ERROR":
        os.environ["GRPC_VERBOSITY"] = "NONE"


class _WholeLines(logging.Handler):
    """Writes each line with one system call: a buffer would cut a long one where a sibling may write."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            rest = f"{self.format(record)}\n".encode(errors="backslashreplace")
            while rest:
                rest = rest[os.write(2, rest) :]
        except OSError:  # standard error is closed
            pass
        except Exception:
            self.handleError(record)


def configure_logging(level: str = "info", process: int | None = None) -> None:
    """Log from this level on. `process` is the number of this one among several that share standard error."""
    handler = logging.StreamHandler(sys.stderr) if process is None else _WholeLines()
    handler.setFormatter(JsonFormatter(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # grpc's own logger repeats, at error level, errors that a boundary has already handled.
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
