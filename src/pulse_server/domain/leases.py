"""Heartbeats, and the outcome for the leases that they extend."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from pulse_server.domain.jobs import Claim
from pulse_server.domain.progress import Progress, ProgressReport

# A database whose statements take longer than this, with the wait for the statement before, times out anyway.
_LONGEST_CONFIRMATION = timedelta(seconds=7.5)
# A worker reads its clock, and then calls the handler.
_MARGIN = timedelta(seconds=1)
# A worker starts a job within a second of its claim, or confirms it first.
_START_WITHIN = timedelta(seconds=1)
NO_PROGRESS: Mapping[Claim, ProgressReport] = {}


def longest_confirmation(lease: timedelta) -> timedelta:
    """How long after a confirmation was sent its handler may start, however slow the database is."""
    return min(lease / 4, _LONGEST_CONFIRMATION)


def rest_of_canceled(lease: timedelta) -> timedelta:
    """How long after a cancel a worker may still start the job: no retry is due before.

    docs/figures.md#canceled-jobs-that-are-retried
    """
    return max(_START_WITHIN, longest_confirmation(lease)) + _MARGIN


class Beat(NamedTuple):
    """A heartbeat that reports progress, or confirms a claim right before its handler starts."""

    claim: Claim
    progress: ProgressReport | None = None
    start_by: float | None = None
    """On the lease clock. A confirmation stored later does not count, and starts no handler."""


class StoredProgress(NamedTuple):
    """Progress as it was stored, without its cursor."""

    claim: Claim
    topic: str
    progress: Progress


class ExtendedLeases(NamedTuple):
    """The claims that hold.

    `extended`: for another lease. `over`: not extended, because the time limit of the attempt has passed.
    `late`: extended, but the confirmation came too late. The attempt does not count yet, and must not start.
    `confirmed_until`: the end of the lease for each claim that was confirmed.
    """

    extended: set[Claim]
    over: set[Claim]
    late: set[Claim]
    stored: list[StoredProgress]
    confirmed_until: dict[Claim, datetime]


class BeatAnswer(NamedTuple):
    """The claims whose leases were not extended.

    `lost`: the claim no longer holds. `unknown`: it still does, but another session of the database has its
    row, and the lease could not be extended; or its confirmation came too late.
    """

    lost: list[Claim]
    unknown: list[Claim]
