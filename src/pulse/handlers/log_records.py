"""The running job on every log record: its id, topic and attempt, whatever the logger.

The names have the prefix `pulse_`: logging refuses a record whose `extra` has a name that the record has
already, and applications use `job_id` and `topic` themselves.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from pulse.error_text import in_a_line
from pulse.handlers.context import Context, make_current, running_context

# The server bounds a topic. This is shorter, because a formatter prints it with each line.
_TOPIC_CHARACTERS = 100


def add_job_to_log_records() -> None:
    """Add the running job to every log record from now on. Call it once for each process.

    A record factory of the application still makes the records. A factory that is set later
    replaces this one, unless it calls the previous factory, as the documentation of logging shows.
    """
    factory = logging.getLogRecordFactory()
    if not isinstance(factory, _RecordFactory):
        logging.setLogRecordFactory(_RecordFactory(factory))


@contextlib.contextmanager
def records_of(context: Context) -> Iterator[None]:
    """Have the records of a block carry this job, although the block is not part of its handler."""
    token = make_current(context)
    try:
        yield
    finally:
        token.var.reset(token)


class _RecordFactory:
    """Makes records with another factory, and adds `pulse_job_id`, `pulse_topic` and `pulse_attempt`."""

    def __init__(self, factory: Any) -> None:
        self._factory = factory

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record: logging.LogRecord = self._factory(*args, **kwargs)
        # Outside of a handler too, with empty values: a format string may name them.
        context = running_context()
        if context is None:
            record.pulse_job_id, record.pulse_topic, record.pulse_attempt = "", "", 0
            record.pulse_job = ""
        else:
            topic = in_a_line(context.topic, _TOPIC_CHARACTERS)
            record.pulse_job_id, record.pulse_topic = context.job_id, topic
            record.pulse_attempt = context.attempt
            record.pulse_job = f" [{topic} {context.job_id}, attempt {context.attempt}]"
        return record
