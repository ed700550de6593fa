"""The statuses of a job: their groups, names and marks.

Strings, not the SDK's JobStatus: importing the SDK would slow the start of every command. A JobStatus equals
its string, so both may be looked up here.
"""

from __future__ import annotations

from collections.abc import Mapping

STATUSES = ("PENDING", "RUNNING", "RETRYING", "COMPLETED", "DEAD_LETTERED", "CANCELED")
WAITING = ("PENDING", "RETRYING")
LIVE = ("PENDING", "RUNNING", "RETRYING")
RETRYABLE = ("DEAD_LETTERED", "CANCELED")
TERMINAL = ("COMPLETED", "DEAD_LETTERED", "CANCELED")

NAMES: Mapping[str, str] = {
    "PENDING": "Pending",
    "RUNNING": "Running",
    "RETRYING": "Retrying",
    "COMPLETED": "Completed",
    "DEAD_LETTERED": "Dead",
    "CANCELED": "Canceled",
}
IN_SENTENCES: Mapping[str, str] = {
    **{status: name.lower() for status, name in NAMES.items()},
    # "Dead jobs" would leave open whether they can be retried.
    "DEAD_LETTERED": "dead-lettered",
}
MARKS: Mapping[str, str] = {
    "PENDING": "○",
    "RUNNING": "▶",
    "RETRYING": "↻",
    "COMPLETED": "✓",
    "DEAD_LETTERED": "✕",
    "CANCELED": "–",
}
"""Shown beside the name: color alone never carries a status."""
