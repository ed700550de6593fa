"""The statuses that the CLI and the dashboard name are those of the SDK and of pulsed."""

from __future__ import annotations

import pulse
from pulse_server.jobs import rules
from pulse_text import statuses


def test_statuses_are_those_of_the_sdk() -> None:
    assert set(statuses.STATUSES) == set(pulse.JobStatus)


def test_statuses_are_grouped_as_in_pulsed() -> None:
    assert set(statuses.WAITING) == rules.WAITING
    assert set(statuses.LIVE) == rules.LIVE
    assert set(statuses.RETRYABLE) == rules.REDRIVABLE
    assert set(statuses.TERMINAL) == rules.TERMINAL


def test_every_status_has_its_name_and_mark() -> None:
    assert set(statuses.NAMES) == set(statuses.MARKS) == set(statuses.IN_SENTENCES) == set(pulse.JobStatus)
