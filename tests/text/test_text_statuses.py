"""The statuses that the CLI and the dashboard name are those of the SDK and of pulsed."""

from __future__ import annotations

import pulse
from pulse_server.jobs import rules
from pulse_text.jobs import (
    LIVE,
    RETRYABLE,
    STATUS_MARKS,
    STATUS_NAMES,
    STATUS_WORDS,
    STATUSES,
    TERMINAL,
    WAITING,
)


def test_statuses_are_those_of_the_sdk() -> None:
    assert set(STATUSES) == set(pulse.JobStatus)


def test_statuses_are_grouped_as_in_pulsed() -> None:
    assert set(WAITING) == rules.WAITING
    assert set(LIVE) == rules.LIVE
    assert set(RETRYABLE) == rules.REDRIVABLE
    assert set(TERMINAL) == rules.TERMINAL


def test_every_status_has_its_name_and_mark() -> None:
    assert set(STATUS_NAMES) == set(STATUS_MARKS) == set(STATUS_WORDS) == set(pulse.JobStatus)
