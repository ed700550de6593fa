"""SearchJobs over real gRPC and Postgres: what matches, and how far a search looks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
import pytest_asyncio

import pulse
from pulse_server.views import records
from tests.postgres_cluster import Databases
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test


@pytest.fixture(scope="module")
def dsn(databases: Databases, template_database: str) -> Iterator[str]:
    with databases.temporary(template_database) as dsn:
        yield dsn


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(dsn: str) -> AsyncIterator[tuple[ServerUnderTest, pulse.Pulse, dict[str, str]]]:
    """A server with jobs that differ in one respect each, by name."""
    async with server_under_test(dsn) as server, pulse.Pulse(server.address, user="", password="") as client:
        ids = {
            "topic": (await client.enqueue("orders/Confirm", {"order_id": 41})).id,
            "lane": (await client.enqueue("mail", {"order_id": "42"}, lane="tenant-é")).id,
            "key": (await client.enqueue("mail", {"customer": {"name": "ada"}}, key="Invoice-7")).id,
            "unique": (await client.enqueue("mail", [1, {"x": None}], unique=pulse.Unique("shop-9"))).id,
            "text": (await client.enqueue("mail", b"{not json")).id,
            "bytes": (await client.enqueue("mail", b"\xff\xfe\x00{}")).id,
            "huge": (await client.enqueue("mail", {"order_id": 77, "fill": "x" * 70_000})).id,
            "deep": (await client.enqueue("mail", b"[" * 20_000 + b"]" * 20_000)).id,
        }
        ids["worker"] = (await client.enqueue("done", {"order_id": 43})).id
        async with server.worker("Worker-7.example", topics=["done"], capacity=1) as worker:
            await worker.complete(await worker.take_one())
        yield server, client, ids


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("confirm", {"topic"}),
        ("TENANT-É", {"lane"}),
        ("voice-7", {"key"}),
        ("shop-9", {"unique"}),
        ("worker-7", {"worker"}),
        ("mail tenant", {"lane"}),
        ("args.order_id=42", {"lane"}),
        ("payload.order_id=43", {"worker"}),
        ("args.customer.name=ada", {"key"}),
        ("args.1.x=null", set()),
        ("args.0=1", {"unique"}),
        ("args.order_id=77", set()),  # larger than 64 KiB
        ("mail args.order_id=41", set()),
        ("%", set()),
        ("order_id=42", set()),  # a word: no key or lane has it
    ],
)
async def test_word_or_field_selects_jobs(
    shop: tuple[ServerUnderTest, pulse.Pulse, dict[str, str]], text: str, found: set[str]
) -> None:
    _, client, ids = shop
    page = await client.search_jobs(text)
    assert {job.id for job in page} == {ids[name] for name in found}
    assert (page.compared, page.compared_to, page.next_cursor) == (len(ids), None, None)


async def test_any_part_of_an_id_is_found(
    shop: tuple[ServerUnderTest, pulse.Pulse, dict[str, str]],
) -> None:
    _, client, ids = shop
    for wanted in (ids["worker"], ids["worker"][-12:].upper(), ids["worker"].replace("-", "")[6:30]):
        assert [job.id for job in await client.search_jobs(wanted)] == [ids["worker"]]


async def test_filter_narrows_the_search(shop: tuple[ServerUnderTest, pulse.Pulse, dict[str, str]]) -> None:
    _, client, ids = shop
    found = await client.search_jobs("o", topic="done", status="COMPLETED")
    assert [job.id for job in found] == [ids["worker"]]
    assert found.compared == 1


async def test_search_goes_on_with_older_jobs(
    shop: tuple[ServerUnderTest, pulse.Pulse, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client, ids = shop
    monkeypatch.setattr(records, "COMPARED", 3)
    seen: list[str] = []
    cursor, calls = None, 0
    while True:
        page = await client.search_jobs("mail", limit=2, cursor=cursor)
        assert page.compared <= 3
        seen += [job.id for job in page]
        cursor, calls = page.next_cursor, calls + 1
        if cursor is None:
            break
    assert sorted(seen) == sorted(job_id for name, job_id in ids.items() if name not in ("topic", "worker"))
    assert calls >= 3


async def test_search_of_a_topic_passes_a_bounded_number_of_other_jobs(
    shop: tuple[ServerUnderTest, pulse.Pulse, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client, ids = shop
    monkeypatch.setattr(records, "SEARCHED_JOBS", 4)
    calls = []
    cursor = None
    while True:
        page = await client.search_jobs("orders", topic="orders/Confirm", cursor=cursor)
        calls.append(([job.id for job in page], page.compared, page.compared_to is None))
        if (cursor := page.next_cursor) is None:
            break
    # It is the oldest of nine jobs.
    assert calls == [([], 0, False), ([], 0, False), ([ids["topic"]], 1, True)]
    waiting = await client.search_jobs("orders", topic="orders/Confirm", status="PENDING")
    assert [job.id for job in waiting] == [ids["topic"]]


async def test_full_page_leads_to_the_next_one(
    shop: tuple[ServerUnderTest, pulse.Pulse, dict[str, str]],
) -> None:
    _, client, ids = shop
    page = await client.search_jobs("mail", limit=4)
    assert (len(page), page.compared, page.compared_to) == (4, len(ids), None)
    rest = await client.search_jobs("mail", limit=4, cursor=page.next_cursor)
    assert {job.id for job in [*page, *rest]} == set(ids.values()) - {ids["topic"], ids["worker"]}
    assert rest.next_cursor is None


async def test_old_job_is_found_by_the_beginning_of_its_id(
    shop: tuple[ServerUnderTest, pulse.Pulse, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client, ids = shop
    monkeypatch.setattr(records, "COMPARED", 1)
    page = await client.search_jobs(ids["topic"][:23])
    assert ids["topic"] in {job.id for job in page}
    assert page.compared_to is not None


async def test_payloads_are_read_up_to_a_size(
    shop: tuple[ServerUnderTest, pulse.Pulse, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client, ids = shop
    monkeypatch.setattr(records, "COMPARED_BYTES", 60_000)
    page = await client.search_jobs("args.order_id=41")
    assert (list(page), page.compared) == ([], 3)
    older = await client.search_jobs("args.order_id=41", cursor=page.next_cursor)
    assert [job.id for job in older] == [ids["topic"]]
    assert older.next_cursor is None


@pytest.mark.parametrize("text", ["", "  ", "x" * 201, "a b c d e f g h i", "args.=1", "args.a..b=1", "\0"])
async def test_bad_text_is_refused(
    shop: tuple[ServerUnderTest, pulse.Pulse, dict[str, str]], text: str
) -> None:
    _, client, _ = shop
    with pytest.raises(pulse.InvalidArgument, match="text"):
        await client.search_jobs(text, timeout=timedelta(seconds=5))


async def test_indexed_field_is_found_without_a_bound(
    shop: tuple[ServerUnderTest, pulse.Pulse, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client, ids = shop
    for table in ("jobs", "completed_jobs"):
        await server.table.connection.execute(
            f"CREATE INDEX ON pulse.{table} (pulse.payload_field_v1(payload, '{{order_id}}')) "
            "WHERE topic = 'mail'"
        )
    monkeypatch.setattr(records, "COMPARED", 1)
    found = await client.search_jobs("args.order_id=42", topic="mail")
    assert [job.id for job in found] == [ids["lane"]]
    assert (found.compared, found.next_cursor) == (0, None)
    other = await client.search_jobs("args.order_id=42", topic="mail", cursor=None, limit=1, lane="nowhere")
    assert list(other) == []
