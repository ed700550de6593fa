"""A broken promise, as the checker reports it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """A promise that was certainly broken: which one, how, and the subject of its story."""

    invariant: str  # I1 to I32
    rule: str  # the fact that should have held, in a few words; violations are counted by it
    what: str  # what happened instead, in a sentence
    job_id: str | None = None
    schedule_id: str | None = None
    switch: str | None = None  # the topic of a pause switch, "" for everything
    at: int | None = None  # when, by the database's clock in microseconds, if it has a moment
    seq: int | None = None  # the change of the job at which it shows
    others: tuple[str, ...] = ()  # further jobs that belong to the story
