"""One HTTP port for several processes: the supervisor reads each and answers for all."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pulse.v1 import pulse_pb2 as pb
from pulse_server.access.users import parse_users
from pulse_server.base.exposition import Exposition
from pulse_server.base.metrics import Metrics
from pulse_server.doors.http import (
    Check,
    GatheredPages,
    HttpAnswer,
    HttpServer,
    Request,
    metrics_answer,
    readiness_answer,
)
from pulse_server.doors.ports import PortInUse
from pulse_server.supervisor import http_port
from tests.server.http_caller import Reply, get
from tests.server.pulsed_process import caller_of, pulsed
from tests.server.test_http_doors import basic, trusting
from tests.transport.pulse_server_under_test import SECOND, settings_of_test
from tests.transport.tls_files import make_authority


class Child:
    """A process's pages without the process."""

    def __init__(self, completed: int = 0, *checks: Check) -> None:
        self._checks = checks or (Check("database", True),)
        self._metrics = Metrics()
        self._metrics.completed.add("mail", by=completed)
        self.is_stuck = False

    @property
    def pages(self) -> dict[str, Any]:
        return {"/readyz": self._ready, "/metrics": self._write}

    async def _ready(self, _request: Request) -> HttpAnswer:
        await self._hang()
        return readiness_answer(self._checks)

    async def _write(self, _request: Request) -> HttpAnswer:
        await self._hang()
        return metrics_answer(Exposition(self._metrics).snapshot().render("", ""))

    async def _hang(self) -> None:
        if self.is_stuck:
            await asyncio.Event().wait()


@asynccontextmanager
async def gathering(directory: Path, *children: Child | None) -> AsyncIterator[str]:
    """A port that gathers from these; one that is None has no socket at all."""
    async with AsyncExitStack() as stack:
        sockets = {}
        for number, child in enumerate(children, start=1):
            sockets[str(number)] = path = directory / f"child-{number}.sock"
            if child is not None:
                server = HttpServer(child.pages)
                await server.start(f"unix:{path}")
                stack.push_async_callback(server.stop)
        front = HttpServer(GatheredPages(sockets).pages)
        stack.push_async_callback(front.stop)
        yield await front.start("127.0.0.1:0")


def samples(answer: Reply, name: str) -> dict[str, float]:
    """The values of one metric by process."""
    return {
        sample.labels["process"]: sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.name == name
    }


async def test_metrics_of_all_processes_are_merged(tmp_path: Path) -> None:
    async with gathering(tmp_path, Child(3), Child(4)) as address:
        answer = await get(address, "/metrics")

    assert answer.status == 200
    assert samples(answer, "pulse_jobs_completed_total") == {"1": 3, "2": 4}
    assert samples(answer, "pulse_process_up") == {"1": 1, "2": 1}


async def test_ready_means_that_all_processes_are(tmp_path: Path) -> None:
    async with gathering(tmp_path, Child(), Child()) as address:
        answer = await get(address, "/readyz")

    assert answer.status == 200
    assert answer.document == {
        "ready": True,
        "checks": {"process 1": {"ok": True}, "process 2": {"ok": True}},
    }


async def test_process_that_is_not_ready_is_named_with_its_reason(tmp_path: Path) -> None:
    away = Child(0, Check("database", False, "The database did not answer."), Check("gate", True))
    async with gathering(tmp_path, Child(), away) as address:
        answer = await get(address, "/readyz")

    assert answer.status == 503
    assert answer.document["checks"] == {
        "process 1": {"ok": True},
        "process 2": {"ok": False, "why": "The database did not answer."},
    }


async def test_process_that_is_gone_is_left_out_and_named(tmp_path: Path) -> None:
    async with gathering(tmp_path, Child(3), None) as address:
        metrics, ready, health = [await get(address, path) for path in ("/metrics", "/readyz", "/healthz")]

    assert samples(metrics, "pulse_jobs_completed_total") == {"1": 3}
    assert samples(metrics, "pulse_process_up") == {"1": 1, "2": 0}
    assert ready.status == 503
    assert ready.document["checks"]["process 2"] == {"ok": False, "why": "The process does not answer."}
    assert health.status == 200


async def test_process_that_hangs_delays_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_server.doors.http.HTTP_GATHER_TIMEOUT", 0.1 * SECOND)
    stuck = Child(4)
    stuck.is_stuck = True
    async with gathering(tmp_path, Child(3), stuck) as address:
        metrics, ready = [await get(address, path) for path in ("/metrics", "/readyz")]

    assert samples(metrics, "pulse_jobs_completed_total") == {"1": 3}
    assert ready.status == 503


async def test_process_that_sends_without_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.doors.http.HTTP_GATHER_BYTES", 1000)
    async with gathering(tmp_path, Child(3)) as address:
        assert samples(await get(address, "/metrics"), "pulse_process_up") == {"1": 0}


async def test_nonsense_from_a_process_is_no_answer(tmp_path: Path) -> None:
    async def mumble(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"good morning")
        writer.close()

    path = tmp_path / "child-1.sock"
    async with await asyncio.start_unix_server(mumble, path), gathering(tmp_path, None) as address:
        assert (await get(address, "/readyz")).status == 503


async def test_reason_of_a_process_that_answers_no_document_is_its_status(tmp_path: Path) -> None:
    async def fail(_request: Request) -> HttpAnswer:
        return HttpAnswer.sentence(HTTPStatus.INTERNAL_SERVER_ERROR, "oh")

    server = HttpServer({"/readyz": fail})
    await server.start(f"unix:{tmp_path / 'child-1.sock'}")
    front = HttpServer(GatheredPages({"1": tmp_path / "child-1.sock"}).pages)
    address = await front.start("127.0.0.1:0")
    try:
        answer = await get(address, "/readyz")
    finally:
        await front.stop()
        await server.stop()

    assert answer.document["checks"]["process 1"]["why"] == "The process answered 500."


def front(sockets: Sequence[Path], **settings: Any) -> AbstractAsyncContextManager[None]:
    """The supervisor's port."""
    return http_port(settings_of_test(**{"http_address": "127.0.0.1:0"} | settings), sockets)


def front_address(caplog: pytest.LogCaptureFixture) -> str:
    (entry,) = [record for record in caplog.records if record.getMessage() == "http_serving"]
    return str(vars(entry)["http_address"])


async def test_supervisor_asks_for_users_and_speaks_tls(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    authority = make_authority(tmp_path / "ours")
    tls = trusting(authority)
    users = parse_users("alice:wonder", "PULSE_AUTH_USERS")
    server = HttpServer(Child(3).pages)
    await server.start(f"unix:{tmp_path / 'child-1.sock'}")
    try:
        sockets = [tmp_path / "child-1.sock"]
        async with front(sockets, users=users, metrics_need_login=True, tls=authority.server()):
            address = front_address(caplog)

            assert (await get(address, "/metrics", tls=tls)).status == 401
            answer = await get(address, "/metrics", tls=tls, headers=basic("alice", "wonder"))
            assert samples(answer, "pulse_jobs_completed_total") == {"1": 3}
            assert (await get(address, "/readyz", tls=tls)).status == 200
    finally:
        await server.stop()


async def test_supervisor_without_http_opens_no_port(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with front([], http_address=None):
        assert not caplog.records


async def test_supervisor_whose_port_is_taken_reports_it(tmp_path: Path) -> None:
    taken = HttpServer({})
    address = await taken.start("127.0.0.1:0")
    try:
        with pytest.raises(PortInUse, match="PULSE_HTTP_ADDR"):
            await front([], http_address=address).__aenter__()
    finally:
        await taken.stop()


async def test_processes_of_a_real_supervisor_are_merged(database_dsn: str) -> None:
    async with pulsed(database_dsn, PULSE_HTTP_ADDR="127.0.0.1:0", PULSE_PROCESSES="2") as server:
        (entry,) = [event for event in server.events if event["event"] == "http_serving"]
        address = entry["http_address"]
        async with caller_of(server) as stub:
            await stub.SubmitJobs(pb.SubmitJobsRequest(jobs=[pb.SubmitJobRequest(topic="mail")] * 7))

        metrics = await get(address, "/metrics")

        assert sum(samples(metrics, "pulse_jobs_submitted_total").values()) == 7
        assert samples(metrics, "pulse_ready") == {"1": 1, "2": 1}
        assert samples(metrics, "pulse_process_up") == {"1": 1, "2": 1}
        assert (await get(address, "/readyz")).status == 200
        assert (await get(address, "/healthz")).status == 200
        server.signal()
        assert await server.ended() == 0
