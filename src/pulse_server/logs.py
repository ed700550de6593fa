"""Structured logs: one JSON object per line, on standard error."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime

_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """The message is the event's name; what was passed as `extra` are its fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
        }
        line.update((key, value) for key, value in vars(record).items() if key not in _STANDARD_FIELDS)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def silence_grpc_core() -> None:
    """Keep grpc's core from writing lines that are no JSON. Works only before grpc is first imported."""
    # ERROR is what a parent process that uses the SDK leaves in the environment; more was asked for by hand.
    if os.environ.get("GRPC_VERBOSITY", "ERROR") == "ERROR":
        os.environ["GRPC_VERBOSITY"] = "NONE"


def configure_logging(level: str = "info") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # grpc's own logger repeats at error level what every boundary here has logged or answered already.
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
