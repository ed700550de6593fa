"""What may come in: the edges pass, one step beyond is refused with a sentence that names the field."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulse_server.domain import limits
from pulse_server.domain.errors import InvalidArgument
from tests.rows import each_row

Check = Callable[..., Any]

REFUSED: list[tuple[Check, Any, str]] = [
    (limits.check_topic, "", "topic"),
    (limits.check_topic, "a" * 256, "topic"),
    (limits.check_topic, "-starts-with-a-dash", "topic"),
    (limits.check_topic, ".hidden", "topic"),
    (limits.check_topic, "two words", "topic"),
    (limits.check_topic, "line\n", "topic"),
    (limits.check_topic, "nul\0", "topic"),
    (limits.check_topic, "größe", "topic"),
    (limits.check_topic, "a;b", "topic"),
    (limits.check_payload, b"x" * (limits.MAX_PAYLOAD_BYTES + 1), "payload"),
    (limits.check_key, "k" * 256, "idempotency_key"),
    (limits.check_key, "nul\0", "idempotency_key"),
    (limits.check_worker_id, "", "worker_id"),
    (limits.check_worker_id, "w" * 256, "worker_id"),
    (limits.check_worker_id, "nul\0", "worker_id"),
    (limits.check_metadata, {str(number): "" for number in range(65)}, "metadata"),
    (limits.check_metadata, {"key": "x" * limits.MAX_METADATA_BYTES}, "metadata"),
    (limits.check_metadata, {"key": "ü" * (limits.MAX_METADATA_BYTES // 2)}, "metadata"),
    (limits.check_metadata, {"key": "nul\0"}, "metadata"),
    (limits.check_metadata, {"nul\0": "value"}, "metadata"),
    (limits.check_max_attempts, 0, "max_attempts"),
    (limits.check_max_attempts, -1, "max_attempts"),
    (limits.check_max_attempts, limits.MAX_ATTEMPTS + 1, "max_attempts"),
    (limits.check_delay, timedelta(microseconds=-1), "delay"),
    (limits.check_delay, limits.MAX_DELAY + timedelta(microseconds=1), "delay"),
    (limits.check_run_at, datetime(1969, 12, 31, tzinfo=UTC), "run_at"),
    (limits.check_run_at, datetime(2200, 1, 2, tzinfo=UTC), "run_at"),
    (limits.check_capacity, -1, "capacity"),
    (limits.check_capacity, limits.MAX_CAPACITY + 1, "capacity"),
    (limits.check_offset, -1, "offset"),
    (limits.check_offset, limits.MAX_OFFSET + 1, "offset"),
]

ACCEPTED: list[tuple[Check, Any]] = [
    (limits.check_topic, "a"),
    (limits.check_topic, "7"),
    (limits.check_topic, "a" * 255),
    (limits.check_topic, "Team/mail:out_v2.retry-1"),
    (limits.check_payload, b""),
    (limits.check_payload, b"x" * limits.MAX_PAYLOAD_BYTES),
    (limits.check_key, "any text: ü 1"),
    (limits.check_key, "k" * 255),
    (limits.check_worker_id, "w" * 255),
    (limits.check_metadata, {str(number): "" for number in range(64)}),
    (limits.check_metadata, {"key": "x" * (limits.MAX_METADATA_BYTES - 3)}),
    (limits.check_max_attempts, 1),
    (limits.check_max_attempts, limits.MAX_ATTEMPTS),
    (limits.check_delay, timedelta(0)),
    (limits.check_delay, limits.MAX_DELAY),
    (limits.check_run_at, datetime(1970, 1, 1, tzinfo=UTC)),
    (limits.check_run_at, datetime(2200, 1, 1, tzinfo=UTC)),
    (limits.check_capacity, 0),
    (limits.check_capacity, limits.MAX_CAPACITY),
    (limits.check_offset, 0),
    (limits.check_offset, limits.MAX_OFFSET),
]


def shown(value: object) -> str:
    return value.__name__ if callable(value) else repr(value)[:30]


@each_row("check, value, field", REFUSED)
def test_value_beyond_the_limit_is_refused_by_the_name_of_its_field(
    check: Check, value: Any, field: str
) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        check(value)

    assert refusal.value.field == field
    assert str(refusal.value).startswith(f"{field} ")
    assert str(refusal.value).endswith(".")
    assert len(str(refusal.value)) < 500


@each_row("check, value", ACCEPTED)
def test_value_at_the_limit_passes_unchanged(check: Check, value: Any) -> None:
    assert check(value) == value


@each_row("check", [limits.check_topic, limits.check_max_attempts, limits.check_delay])
def test_caller_may_rename_the_field(check: Check) -> None:
    bad = {
        limits.check_topic: "",
        limits.check_max_attempts: 0,
        limits.check_delay: timedelta(seconds=-1),
    }[check]
    with pytest.raises(InvalidArgument, match=r"^jobs\[3\] "):
        check(bad, "jobs[3]")


def test_absent_key_and_metadata_are_none() -> None:
    assert limits.check_key("") is None
    assert limits.check_metadata({}) is None


@each_row("limit, size", [(0, 50), (1, 1), (1000, 1000), (1001, 1000), (2**31 - 1, 1000)])
def test_page_size_has_a_default_and_a_cap(limit: int, size: int) -> None:
    assert limits.check_page_size(limit, default=50) == size


def test_negative_page_size_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"^limit "):
        limits.check_page_size(-1, default=50)


@settings(max_examples=40)
@given(st.text(max_size=20), st.integers(min_value=1, max_value=1000))
def test_cleaned_error_fits_has_no_nul_and_is_the_head_of_the_text(text: str, times: int) -> None:
    error = text.encode(errors="ignore").decode() * times

    cleaned = limits.clean_error(error)

    assert len(cleaned.encode()) <= limits.MAX_ERROR_BYTES
    assert "\0" not in cleaned
    assert error.replace("\0", "").startswith(cleaned)


def test_short_error_is_kept_as_it_is() -> None:
    assert limits.clean_error("Traceback: ü") == "Traceback: ü"


def test_long_error_is_cut_at_a_character_and_no_earlier() -> None:
    assert limits.clean_error("€" * 3000) == "€" * (limits.MAX_ERROR_BYTES // 3)
