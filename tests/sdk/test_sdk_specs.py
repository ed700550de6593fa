"""When a schedule fires, as a value: what needs no server."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

import pulse
from pulse.schedule_definitions import spec_fields
from tests.rows import each_row

NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_specs_are_plain_values() -> None:
    assert pulse.At(NOON) == pulse.At(NOON.astimezone(timezone(timedelta(hours=5))))
    assert pulse.Cron("@daily") == pulse.Cron("@daily", tz="UTC") != pulse.Cron("@daily", "Europe/Paris")
    for spec in (pulse.At(NOON), pulse.After(MINUTE), pulse.Every(MINUTE), pulse.Cron("@daily")):
        assert pickle.loads(pickle.dumps(spec)) == spec
        assert len({spec, spec}) == 1


def test_specs_read_well() -> None:
    assert repr(pulse.At(NOON)) == "At(2030-01-02T12:00:00+00:00)"
    assert repr(pulse.After(MINUTE)) == "After(0:01:00)"
    assert repr(pulse.Every(timedelta(days=1))) == "Every(1 day, 0:00:00)"
    assert repr(pulse.Cron("0 9 * * 1-5", "Europe/Paris")) == "Cron('0 9 * * 1-5', tz='Europe/Paris')"


def test_zone_may_be_a_name_or_a_zone() -> None:
    assert pulse.Cron("@daily", ZoneInfo("Europe/Paris")).tz == "Europe/Paris"
    assert pulse.Cron("@daily", tz="Asia/Tokyo").tz == "Asia/Tokyo"


def test_expression_may_name_its_zone_itself() -> None:
    paris = pulse.Cron("TZ=Europe/Paris 0 9 * * *")

    assert (paris.expression, paris.tz) == ("TZ=Europe/Paris 0 9 * * *", "Europe/Paris")
    assert pulse.Cron("CRON_TZ=Asia/Tokyo @daily").tz == "Asia/Tokyo"
    assert pulse.Cron("TZ=Europe/Paris 0 9 * * *", tz="Asia/Tokyo").tz == "Asia/Tokyo", (
        "the server refuses that"
    )


def test_after_counts_from_when_it_is_sent() -> None:
    before = datetime.now(UTC)
    at = spec_fields(pulse.After(MINUTE))["at"]
    assert before + MINUTE <= at <= datetime.now(UTC) + MINUTE


@each_row(
    "make, sentence",
    [
        (lambda: pulse.At(datetime(2030, 1, 1)), "has no time zone"),
        (lambda: pulse.At("tomorrow"), "At takes a datetime"),  # type: ignore[arg-type]
        (lambda: pulse.After(60), "After takes a timedelta"),  # type: ignore[arg-type]
        (lambda: pulse.After(-MINUTE), "lies in the past"),
        (lambda: pulse.Every(60), "Every takes a timedelta"),  # type: ignore[arg-type]
        (lambda: pulse.Cron(5), "Cron takes an expression"),  # type: ignore[arg-type]
        (lambda: pulse.Cron("@daily", tz=""), "name a time zone"),
        (lambda: pulse.Cron("@daily", tz=UTC), "name a time zone"),  # type: ignore[arg-type]
        (lambda: spec_fields(MINUTE), r"needs At\(…\), After"),  # type: ignore[arg-type]
    ],
)
def test_spec_that_cannot_be_meant_is_refused_at_once(make: object, sentence: str) -> None:
    with pytest.raises(pulse.InvalidArgument, match=sentence):
        make()  # type: ignore[operator]
