"""What suspended jobs wait for, in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pulse_text.jobs import what_it_waits_for
from tests.rows import each_row

NOW = datetime(2026, 3, 2, tzinfo=UTC)


@each_row(
    "waits_for, due, text",
    [
        ("", NOW + timedelta(hours=2), "sleeps for 2h"),
        ("approved", None, "waits for approved"),
        ("approved\nrejected", None, "waits for approved or rejected"),
        ("approved\nrejected", NOW + timedelta(hours=2), "waits for approved or rejected, 2h at the most"),
    ],
)
def test_text_names_every_signal_that_ends_the_wait(waits_for: str, due: datetime | None, text: str) -> None:
    assert what_it_waits_for(waits_for, due, NOW) == text
