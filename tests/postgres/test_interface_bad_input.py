"""What the RPC refuses to store, the interface refuses too: one table of bad inputs for both doors."""

from __future__ import annotations

import json
import re
from typing import Any

import asyncpg
import pytest
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.postgres.interface import enqueue
from tests.postgres.sessions import Connection
from tests.rows import each_row
from tests.transport.bad_job_requests import BAD_UNIQUE, bad_job_requests
from tests.transport.bad_requests import Case

# The names of fields that differ.
FIELDS = {"idempotency_key": "key", "job_id": "id"}
# A driver or Postgres refuses these before a function is called: a NUL, a time that no type holds.
REFUSED_BY_DRIVER = (asyncpg.DataError, ValueError, OverflowError)

CASES = [case for case in bad_job_requests() if isinstance(case.request, pb.SubmitJobRequest)]


def arguments(request: pb.SubmitJobRequest) -> dict[str, Any]:
    """The request as the arguments of pulse.enqueue."""
    given: dict[str, Any] = {"topic": request.topic, "payload": request.payload}
    if request.job_id:
        given["id"] = request.job_id
    if request.idempotency_key:
        given["key"] = request.idempotency_key
    if request.metadata:
        given["metadata"] = json.dumps(dict(request.metadata))
    if request.HasField("max_attempts"):
        given["max_attempts"] = request.max_attempts
    if request.HasField("delay"):
        given["delay"] = request.delay.ToTimedelta()
    if request.HasField("run_at"):
        given["run_at"] = request.run_at.ToDatetime()
    return given


def test_the_table_has_bad_submits() -> None:
    assert {case.field for case in CASES} >= {
        "topic",
        "payload",
        "job_id",
        "idempotency_key",
        "delay",
        "metadata",
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_bad_job_is_refused_by_the_interface_too(connection: Connection, case: Case) -> None:
    assert isinstance(case.request, pb.SubmitJobRequest)
    with pytest.raises((asyncpg.InvalidParameterValueError, *REFUSED_BY_DRIVER)) as refused:
        await enqueue(connection, **arguments(case.request))

    if isinstance(refused.value, asyncpg.InvalidParameterValueError):
        assert str(refused.value).startswith(f"{FIELDS.get(case.field, case.field)} ")
    assert await connection.fetchval("SELECT count(*) FROM pulse.jobs") == 0


@each_row("unique, sentence", BAD_UNIQUE)
async def test_bad_unique_is_refused_with_the_same_sentence(
    connection: Connection, unique: dict[str, Any], sentence: str
) -> None:
    given: dict[str, Any] = {"unique_key": "k"}
    for name, value in unique.items():
        named = f"unique_{name}" if name in ("key", "scope") else name
        given[named] = value.ToTimedelta() if isinstance(value, Duration) else value
    with pytest.raises((asyncpg.InvalidParameterValueError, *REFUSED_BY_DRIVER)) as refused:
        await enqueue(connection, topic="mail", payload=b"", **given)

    if isinstance(refused.value, asyncpg.InvalidParameterValueError):
        expected = re.sub(r"unique\.(key|scope)\b", r"unique_\1", sentence).replace("unique.", "")
        assert expected in str(refused.value)
    assert await connection.fetchval("SELECT count(*) FROM pulse.jobs") == 0
