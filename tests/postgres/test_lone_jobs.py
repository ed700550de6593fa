"""A lone job is stored by a statement of its own, with values in place of arrays, as it is in a batch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulse_server.jobs.new_jobs import Submitted
from tests.fakes.store import Store, a_job
from tests.postgres.sessions import Connection

# Of each session of the server, the last one.
_STATEMENTS = (
    "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pulsed'"
)
_ROW = """
SELECT to_jsonb(job) - '{id,submitted_at,next_run_at,idempotency_key}'::text[],
       date_trunc('minute', job.next_run_at - job.submitted_at)
FROM pulse.jobs AS job WHERE job.id = $1
"""


@pytest.mark.parametrize(("count", "section"), [(1, "insert_one"), (2, "insert_jobs")])
async def test_lone_job_is_sent_as_values(
    store: Store, connection: Connection, count: int, section: str
) -> None:
    await store.submit(*(a_job() for _ in range(count)))

    (statement,) = [row["query"] for row in await connection.fetch(_STATEMENTS)]
    assert statement.startswith(f"/* pulse:{section} */")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"priority": 7, "max_attempts": 2, "metadata": {"tenant": "a"}},
        {"delay": timedelta(hours=1)},
        {"run_at": datetime(2001, 1, 1, tzinfo=UTC)},
    ],
    ids=["plain", "with all its values", "delayed", "due long ago"],
)
async def test_lone_job_is_stored_as_in_a_batch(
    store: Store, connection: Connection, fields: dict[str, Any]
) -> None:
    alone, one, other = (a_job(idempotency_key=key, **fields) for key in ("a", "b", "c"))

    await store.submit(alone)
    await store.submit(one, other)

    rows = [tuple(await connection.fetchrow(_ROW, job.id) or ()) for job in (alone, one, other)]
    assert rows[0] == rows[1] == rows[2]


async def test_lone_repeat_returns_the_first_job(store: Store) -> None:
    job = a_job(idempotency_key="order-1")
    await store.submit(job)

    assert await store.repo.insert_jobs([job]) == [Submitted(job.id, True)]
    again = a_job(idempotency_key="order-1")
    assert await store.repo.insert_jobs([again]) == [Submitted(job.id, True)]
