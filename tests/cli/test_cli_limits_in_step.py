"""What the CLI knows of pulsed and the SDK without asking: copies, held in step with the originals."""

from __future__ import annotations

from typing import get_args

import click

import pulse
from pulse_cli import tuning
from pulse_cli.commands.schedule_actions import CATCH_UPS
from pulse_cli.commands.schedules import preview
from pulse_cli.inputs.statuses import LIVE, REDRIVABLE, STATUSES, TERMINAL
from pulse_cli.views.jobs import status_cell
from pulse_server.access import users
from pulse_server.domain import limits, status


def test_limits_are_those_of_pulsed() -> None:
    assert tuning.LARGEST_PAGE == limits.MAX_PAGE_SIZE
    assert tuning.LARGEST_WATCH == limits.MAX_WATCHED
    assert tuning.PASSWORD_BYTES == users.MAX_PASSWORD_BYTES


def test_as_many_fires_can_be_previewed_as_pulsed_tells() -> None:
    (count,) = (param.type for param in preview.params if param.name == "count")
    assert isinstance(count, click.IntRange)
    assert count.max == limits.MAX_PREVIEW


def test_statuses_are_those_of_the_sdk() -> None:
    assert set(STATUSES) == set(pulse.JobStatus)


def test_actions_take_the_jobs_that_pulsed_does_them_to() -> None:
    assert set(LIVE) == status.LIVE
    assert set(REDRIVABLE) == status.REDRIVABLE
    assert set(TERMINAL) == status.TERMINAL


def test_every_status_has_a_colour() -> None:
    assert all(status_cell(name).style for name in STATUSES)


def test_every_catch_up_can_be_chosen() -> None:
    assert set(CATCH_UPS) == set(get_args(pulse.CatchUp))
