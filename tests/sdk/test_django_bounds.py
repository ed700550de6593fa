"""`pulse.django` refuses before the commit the jobs that the server would refuse after it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import pulse
from pulse.django.clients import check_bounds
from pulse.jobs.handles import JobHandle
from pulse.jobs.submissions import make_submission
from pulse_server.base.errors import InvalidArgument
from pulse_server.jobs.messages import new_job
from tests.rows import each_row

ID_OF_A_FIRE = "0191d5c0-0000-5000-8000-000000000000"


def submitted(topic: str = "t", payload: bytes = b"{}", **options: Any) -> Any:
    request = make_submission(topic, b"", JobHandle, options).request  # type: ignore[arg-type]
    request.payload = payload  # it refuses a large one
    return request


def accept_at_server(request: Any) -> None:
    new_job(request, lambda topic, default=None: default or 25)


@each_row(
    "job",
    [
        {"topic": ""},
        {"topic": "t" * 256},
        {"topic": "a topic"},
        {"payload": b"x" * (1024 * 1024 + 1)},
        {"key": "k" * 256},
        {"key": "a\0b"},
        {"lane": "l" * 256},
        {"lane": "a\0b"},
        {"unique": pulse.Unique("a\0b")},
        {"metadata": {str(number): "" for number in range(65)}},
        {"metadata": {"a": "é" * (8 * 1024)}},
        {"metadata": {"a": "a\0b"}},
        {"metadata": {"a\0b": "a"}},
        {"delay": timedelta(seconds=-1)},
        {"run_at": datetime(1969, 12, 31, tzinfo=UTC)},
        {"run_at": datetime(2200, 1, 2, tzinfo=UTC)},
        {"job_id": "7"},
        {"job_id": ID_OF_A_FIRE},
    ],
)
def test_sdk_refuses_as_the_server_does(job: dict[str, Any]) -> None:
    request = submitted(**job)
    with pytest.raises(InvalidArgument) as at_server:
        accept_at_server(request)
    with pytest.raises(pulse.InvalidArgument) as at_once:
        check_bounds(request)
    # The SDK has another name for one field.
    assert at_once.value.message == str(at_server.value).replace("an idempotency_key", "a key").replace(
        "idempotency_key", "key"
    )


@each_row(
    "job",
    [
        {"topic": "t" * 255},
        {"payload": b"x" * 1024 * 1024},
        {"key": "é" * 255, "lane": "é" * 255, "unique": pulse.Unique("k" * 255)},
        {"metadata": {str(number): "" for number in range(64)}},
        {"metadata": {"a": "b" * (16 * 1024 - 1)}},
        {"delay": timedelta(0)},
        {"run_at": datetime(1970, 1, 1, tzinfo=UTC)},
        {"run_at": datetime(2200, 1, 1, tzinfo=UTC)},
        {"job_id": "0191d5c0000070008000000000000000"},
    ],
)
def test_sdk_accepts_up_to_the_bounds_of_the_server(job: dict[str, Any]) -> None:
    request = submitted(**job)
    accept_at_server(request)
    check_bounds(request)
