"""What became of leases that heartbeats were to extend."""

from __future__ import annotations

from typing import NamedTuple

from pulse_server.domain.jobs import Claim
from pulse_server.domain.progress import Progress, ProgressReport


class ProgressBeat(NamedTuple):
    """A heartbeat of a job whose handler has reported progress."""

    claim: Claim
    progress: ProgressReport


class BoundedLeases(NamedTuple):
    """The claims that hold: those whose leases were extended, and those whose time limit has passed."""

    extended: set[Claim]
    over: set[Claim]


class ExtendedWithProgress(NamedTuple):
    """The same, and the progress that was stored, without cursors."""

    extended: set[Claim]
    over: set[Claim]
    stored: list[StoredProgress]


class StoredProgress(NamedTuple):
    claim: Claim
    topic: str
    progress: Progress


class BeatAnswer(NamedTuple):
    """The claims whose leases were not extended.

    `lost`: the claim no longer holds. `unknown`: it still does, but another session of the database has its
    row, and the lease could not be extended.
    """

    lost: list[Claim]
    unknown: list[Claim]
