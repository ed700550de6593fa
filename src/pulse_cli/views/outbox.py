"""The outbox as tables and shapes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from pulse_cli.output import Shape, View, fields_shape
from pulse_cli.terminal import QUIET, Cell, Column, Row, ago, now
from pulse_text import printable
from pulse_text.times import format_duration

_COLUMNS = (
    Column("ID"),
    Column("TOPIC", shortest=16),
    Column("REFUSED", drop=1),
    Column("REASON", shortest=20),
)
_FIELDS = ("id", "topic", "stored_at", "refused_at", "refusal")


@dataclass(frozen=True, slots=True)
class Status:
    """How many jobs an outbox has, and how long the oldest has been waiting for a relay."""

    waiting: int
    refused: int
    oldest_at: datetime | None
    lag: timedelta | None


@dataclass(frozen=True, slots=True)
class RefusedJob:
    """A job that pulsed refused for good."""

    id: str
    topic: str
    key: str | None
    stored_at: datetime
    refused_at: datetime
    refusal: str


def status_shape(status: Status) -> Shape:
    """How many jobs are in the outbox."""
    return fields_shape(status, "waiting oldest_at lag refused")


def status_words(status: Status) -> str:
    """Return the counts in a sentence."""
    lag = "" if status.lag is None else f", the oldest for {format_duration(status.lag)}"
    return f"Waiting for a relay: {status.waiting:,}{lag}. Refused: {status.refused:,}."


def refused_view() -> View[RefusedJob]:
    """Return the view of a list of refused jobs."""
    present = now()

    def row(job: RefusedJob) -> Row:
        return [
            Cell(job.id),
            Cell(printable.one_line(job.topic)),
            Cell(ago(job.refused_at, present), QUIET),
            Cell(printable.one_line(job.refusal)),
        ]

    return View(_COLUMNS, row, refused_shape, _FIELDS)


def refused_shape(job: RefusedJob) -> Shape:
    """A job that pulsed refused."""
    return fields_shape(job, "id topic key stored_at refused_at refusal")
