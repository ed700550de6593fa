"""What may come in: the edges pass, one step beyond is refused with a sentence that names the field."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulse_server.base import bounds
from pulse_server.base.errors import InvalidArgument
from tests.rows import each_row

Check = Callable[..., Any]

REFUSED: list[tuple[Check, Any, str]] = [
    (bounds.check_topic, "", "topic"),
    (bounds.check_topic, "a" * 256, "topic"),
    (bounds.check_topic, "-starts-with-a-dash", "topic"),
    (bounds.check_topic, ".hidden", "topic"),
    (bounds.check_topic, "two words", "topic"),
    (bounds.check_topic, "line\n", "topic"),
    (bounds.check_topic, "nul\0", "topic"),
    (bounds.check_topic, "größe", "topic"),
    (bounds.check_topic, "a;b", "topic"),
    (bounds.check_payload, b"x" * (bounds.MAX_PAYLOAD_BYTES + 1), "payload"),
    (bounds.check_key, "k" * 256, "idempotency_key"),
    (bounds.check_key, "nul\0", "idempotency_key"),
    (bounds.check_worker_id, "", "worker_id"),
    (bounds.check_worker_id, "w" * 256, "worker_id"),
    (bounds.check_worker_id, "nul\0", "worker_id"),
    (bounds.check_metadata, {str(number): "" for number in range(65)}, "metadata"),
    (bounds.check_metadata, {"key": "x" * bounds.MAX_METADATA_BYTES}, "metadata"),
    (bounds.check_metadata, {"key": "ü" * (bounds.MAX_METADATA_BYTES // 2)}, "metadata"),
    (bounds.check_metadata, {"key": "nul\0"}, "metadata"),
    (bounds.check_metadata, {"nul\0": "value"}, "metadata"),
    (bounds.check_max_attempts, 0, "max_attempts"),
    (bounds.check_max_attempts, -1, "max_attempts"),
    (bounds.check_max_attempts, bounds.MAX_ATTEMPTS + 1, "max_attempts"),
    (bounds.check_delay, timedelta(microseconds=-1), "delay"),
    (bounds.check_delay, bounds.MAX_DELAY + timedelta(microseconds=1), "delay"),
    (bounds.check_run_at, datetime(1969, 12, 31, tzinfo=UTC), "run_at"),
    (bounds.check_run_at, datetime(2200, 1, 2, tzinfo=UTC), "run_at"),
    (bounds.check_capacity, -1, "capacity"),
    (bounds.check_capacity, bounds.MAX_CAPACITY + 1, "capacity"),
    (bounds.check_offset, -1, "offset"),
    (bounds.check_offset, bounds.MAX_OFFSET + 1, "offset"),
]

ACCEPTED: list[tuple[Check, Any]] = [
    (bounds.check_topic, "a"),
    (bounds.check_topic, "7"),
    (bounds.check_topic, "a" * 255),
    (bounds.check_topic, "Team/mail:out_v2.retry-1"),
    (bounds.check_payload, b""),
    (bounds.check_payload, b"x" * bounds.MAX_PAYLOAD_BYTES),
    (bounds.check_key, "any text: ü 1"),
    (bounds.check_key, "k" * 255),
    (bounds.check_worker_id, "w" * 255),
    (bounds.check_metadata, {str(number): "" for number in range(64)}),
    (bounds.check_metadata, {"key": "x" * (bounds.MAX_METADATA_BYTES - 3)}),
    (bounds.check_max_attempts, 1),
    (bounds.check_max_attempts, bounds.MAX_ATTEMPTS),
    (bounds.check_delay, timedelta(0)),
    (bounds.check_delay, bounds.MAX_DELAY),
    (bounds.check_run_at, datetime(1970, 1, 1, tzinfo=UTC)),
    (bounds.check_run_at, datetime(2200, 1, 1, tzinfo=UTC)),
    (bounds.check_capacity, 0),
    (bounds.check_capacity, bounds.MAX_CAPACITY),
    (bounds.check_offset, 0),
    (bounds.check_offset, bounds.MAX_OFFSET),
]


def shown(value: object) -> str:
    return value.__name__ if callable(value) else repr(value)[:30]


@each_row("check, value, field", REFUSED)
def test_value_beyond_the_bound_is_refused_by_the_name_of_its_field(
    check: Check, value: Any, field: str
) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        check(value)

    assert refusal.value.field == field
    assert str(refusal.value).startswith(f"{field} ")
    assert str(refusal.value).endswith(".")
    assert len(str(refusal.value)) < 500


@each_row("check, value", ACCEPTED)
def test_value_at_the_bound_passes_unchanged(check: Check, value: Any) -> None:
    assert check(value) == value


@each_row("check", [bounds.check_topic, bounds.check_max_attempts, bounds.check_delay])
def test_caller_may_rename_the_field(check: Check) -> None:
    bad = {
        bounds.check_topic: "",
        bounds.check_max_attempts: 0,
        bounds.check_delay: timedelta(seconds=-1),
    }[check]
    with pytest.raises(InvalidArgument, match=r"^jobs\[3\] "):
        check(bad, "jobs[3]")


def test_absent_key_and_metadata_are_none() -> None:
    assert bounds.check_key("") is None
    assert bounds.check_metadata({}) is None


@each_row("limit, size", [(0, 50), (1, 1), (1000, 1000), (1001, 1000), (2**31 - 1, 1000)])
def test_page_size_has_a_default_and_a_cap(limit: int, size: int) -> None:
    assert bounds.check_page_size(limit, default=50) == size


def test_negative_page_size_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"^limit "):
        bounds.check_page_size(-1, default=50)


@settings(max_examples=40)
@given(st.text(max_size=20), st.integers(min_value=1, max_value=1000))
def test_cleaned_error_fits_has_no_nul_and_is_the_head_of_the_text(text: str, times: int) -> None:
    error = text.encode(errors="ignore").decode() * times

    cleaned = bounds.clean_error(error)

    assert len(cleaned.encode()) <= bounds.MAX_ERROR_BYTES
    assert "\0" not in cleaned
    assert error.replace("\0", "").startswith(cleaned)


def test_short_error_is_kept_as_it_is() -> None:
    assert bounds.clean_error("Traceback: ü") == "Traceback: ü"


def test_long_error_is_cut_at_a_character_and_no_earlier() -> None:
    assert bounds.clean_error("€" * 3000) == "€" * (bounds.MAX_ERROR_BYTES // 3)
