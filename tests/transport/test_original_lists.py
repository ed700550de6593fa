"""Lists of the first contract, which has neither limit nor pages: the whole list, or a refusal."""

from typing import Any

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from tests.transport.original_contract import OriginalClient
from tests.transport.pulse_server_under_test import ServerUnderTest

MANY = 2500
SCHEDULE = "00000000-0000-4000-8000-000000000001"
LISTS = {"ListSchedules": "schedules", "ListScheduleJobs": "jobs", "ListScheduleFires": "fires"}


@pytest.fixture
def client(server: ServerUnderTest) -> OriginalClient:
    return OriginalClient(server.channel)


async def fill(server: ServerUnderTest, *, count: int = MANY, metadata: str | None = None) -> None:
    """Store schedules, and jobs of one of them."""
    await server.table.connection.execute(
        """
        INSERT INTO pulse.schedules
            (id, next_run_at, interval_ms, max_attempts, kind, topic, payload, metadata)
        SELECT gen_random_uuid(), now() + interval '1 day', 60000, 5, 'interval', 'mail', '', $2::text::jsonb
        FROM generate_series(1, $1)
        """,
        count,
        metadata,
    )
    await server.table.connection.execute(
        """
        INSERT INTO pulse.jobs
            (id, topic, payload, max_attempts, schedule_id, submitted_at, next_run_at, queued, status,
             metadata)
        SELECT gen_random_uuid(), 'mail', '', 5, $2::uuid, now(), now(), true, 'PENDING', $3::text::jsonb
        FROM generate_series(1, $1)
        """,
        count,
        SCHEDULE,
        metadata,
    )


def asked(method: str) -> dict[str, Any]:
    return {} if method == "ListSchedules" else {"schedule_id": SCHEDULE}


async def test_old_caller_gets_the_whole_list(server: ServerUnderTest, client: OriginalClient) -> None:
    await fill(server)

    for method, field in LISTS.items():
        entries = getattr(await client.call(method, **asked(method)), field)
        ids = {entry.schedule_id if method == "ListSchedules" else entry.job_id for entry in entries}
        assert len(entries) == len(ids) == MANY, method


async def test_list_that_no_client_could_receive_is_refused_in_a_sentence(
    server: ServerUnderTest, client: OriginalClient
) -> None:
    """The caller would take a part for the whole."""
    await fill(server, count=400, metadata=f'{{"k": "{"x" * 12_000}"}}')

    for method in ("ListSchedules", "ListScheduleJobs"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.call(method, **asked(method))
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert caught.value.details() == (
            "The list is longer than one answer can carry (4 MiB). Set limit, and follow next_page_token."
        )
    fires = (await client.call("ListScheduleFires", schedule_id=SCHEDULE)).fires
    assert len(fires) == 400, "an entry of it is small"


async def test_caller_that_names_a_limit_gets_pages(server: ServerUnderTest) -> None:
    await fill(server, count=5)

    page = await server.stub.ListSchedules(pb.ListSchedulesRequest(limit=2))

    assert len(page.schedules) == 2
    assert page.next_page_token
