"""What the CLI knows of pulsed and the SDK without asking: copies, held in step with the originals."""

from __future__ import annotations

from typing import get_args

import click

import pulse
from pulse import messages
from pulse.jobs import submissions
from pulse.topic_settings import ENTRIES
from pulse_cli import tuning
from pulse_cli.jobs.views import status_cell
from pulse_cli.schedules.commands import CATCH_UPS, preview
from pulse_server.access import users
from pulse_server.base import bounds
from pulse_text.jobs import STATUSES


def test_limits_are_those_of_pulsed() -> None:
    assert tuning.LARGEST_PAGE == bounds.MAX_PAGE_SIZE
    assert tuning.LARGEST_WATCH == bounds.MAX_WATCHED
    assert submissions.MOST_ATTEMPTS == bounds.MAX_ATTEMPTS
    ENTRIES["max_attempts"].kind.check(bounds.MAX_ATTEMPTS)
    ENTRIES["attempt_timeout"].kind.check(messages.LONGEST)
    assert tuning.PASSWORD_BYTES == users.MAX_PASSWORD_BYTES


def test_as_many_fires_can_be_previewed_as_pulsed_allows() -> None:
    (count,) = (param.type for param in preview.params if param.name == "count")
    assert isinstance(count, click.IntRange)
    assert count.max == bounds.MAX_PREVIEW


def test_every_status_has_a_color() -> None:
    assert all(status_cell(name).style for name in STATUSES)


def test_every_catch_up_can_be_chosen() -> None:
    assert set(CATCH_UPS) == set(get_args(pulse.CatchUp))
