"""StreamSubmits and StreamReports: many calls over one stream."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from pulse_server.base import bounds
from pulse_server.jobs.new_jobs import NewJob
from pulse_server.work.submissions import Submissions
from tests.eventually import PROMPT_SECONDS
from tests.transport.authorized import PASSWORD, USERS, caller
from tests.transport.pulse_server_under_test import SECOND, ServerUnderTest, server_under_test

INVALID = grpc.StatusCode.INVALID_ARGUMENT
AN_ID = "0190f3a0-0000-7000-8000-000000000001"
ANOTHER_ID = "0190f3a0-0000-7000-8000-000000000002"


class Line:
    """A line made of plain reads and writes."""

    def __init__(self, call: Any, message: Any) -> None:
        self.call = call
        self._message = message

    async def send(self, number: int, request: Any) -> None:
        await self.call.write(self._message(number=number, request=request))

    async def read(self) -> Any:
        async with asyncio.timeout(PROMPT_SECONDS):
            return await self.call.read()

    async def ask(self, number: int, request: Any) -> Any:
        await self.send(number, request)
        answer = await self.read()
        assert answer.number == number
        return answer

    async def end(self) -> grpc.StatusCode:
        """Read to the end. Returns the status of the line."""
        try:
            while await self.read() is not grpc.aio.EOF:
                pass
        except grpc.aio.AioRpcError as error:
            return error.code()
        code: grpc.StatusCode = await self.call.code()
        return code


@asynccontextmanager
async def submit_line(stub: Any) -> AsyncIterator[Line]:
    call = stub.StreamSubmits()
    yield Line(call, pb.StreamSubmitsRequest)
    call.cancel()


class HeldSubmits:
    """Delays the answer of every submit until the test releases it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.may_go = asyncio.Event()
        self._arrived = asyncio.Condition()
        submit = Submissions.submit

        async def held(submissions: Submissions, jobs: Sequence[NewJob]) -> Any:
            async with self._arrived:
                self.count += 1
                self._arrived.notify_all()
            await self.may_go.wait()
            return await submit(submissions, jobs)

        monkeypatch.setattr(Submissions, "submit", held)

    async def arrived(self, count: int) -> None:
        async with asyncio.timeout(PROMPT_SECONDS), self._arrived:
            await self._arrived.wait_for(lambda: self.count >= count)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> HeldSubmits:
    return HeldSubmits(monkeypatch)


def submits(*job_ids: str, **fields: Any) -> pb.SubmitJobsRequest:
    jobs = [pb.SubmitJobRequest(topic="mail", job_id=job_id) for job_id in job_ids]
    return pb.SubmitJobsRequest(jobs=jobs, **fields)


async def test_every_message_is_answered_as_the_call_would_be(server: ServerUnderTest) -> None:
    async with submit_line(server.stub) as line:
        for number, job_id in enumerate((AN_ID, ANOTHER_ID), 7):
            answer = await line.ask(number, submits(job_id))
            moment = (await server.get(job_id)).submitted_at
            result = pb.SubmitResult(job_id=job_id, submitted_at=moment)
            assert answer.response == pb.SubmitJobsResponse(results=[result])
        await line.call.done_writing()
        assert await line.end() is grpc.StatusCode.OK
    assert await server.table.count() == 2


async def test_results_are_reported_over_a_line(server: ServerUnderTest) -> None:
    call = server.stub.StreamReports()
    line = Line(call, pb.StreamReportsRequest)
    async with server.worker("w1") as worker:
        job_id = await server.submit()
        job = await worker.take_one()
        result = pb.Result(job_id=job_id, attempt=job.attempt, run=job.run, success=True)
        report = pb.ReportResultsRequest(worker_id="w1", results=[result])
        assert (await line.ask(1, report)).response == pb.ReportResultsResponse()
        assert (await server.get(job_id)).status == "COMPLETED"
    call.cancel()


async def test_refused_message_gets_the_words_of_the_call_and_the_line_goes_on(
    server: ServerUnderTest,
) -> None:
    bad = pb.SubmitJobsRequest(jobs=[pb.SubmitJobRequest(topic="mail")] * (bounds.MAX_JOBS_PER_SUBMIT + 1))
    with pytest.raises(grpc.aio.AioRpcError) as alone:
        await server.stub.SubmitJobs(bad)
    async with submit_line(server.stub) as line:
        refusal = (await line.ask(1, bad)).refusal
        assert (refusal.code, refusal.message) == (INVALID.value[0], alone.value.details())
        assert (await line.ask(2, submits(AN_ID))).response.results[0].job_id == AN_ID


async def test_bug_is_refused_without_its_details(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(Submissions, "submit", fail)
    async with submit_line(server.stub) as line:
        refusal = (await line.ask(1, submits(AN_ID))).refusal
    assert refusal.code == grpc.StatusCode.INTERNAL.value[0]
    assert "secret" not in refusal.message
    assert [vars(record)["method"] for record in caplog.records if record.message == "call_failed"] == [
        "SubmitJobs"
    ]


async def test_message_that_cannot_be_read_ends_the_line(server: ServerUnderTest) -> None:
    call = server.channel.stream_stream("/pulse.v1.PulseService/StreamSubmits")()
    await call.write(b"\xff\xff")
    with pytest.raises(grpc.aio.AioRpcError, match="not a valid StreamSubmitsRequest") as caught:
        await call.read()
    assert caught.value.code() is INVALID


async def test_slow_message_does_not_hold_up_the_next(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go = asyncio.Event()
    submit = Submissions.submit

    async def slow_if_two(submissions: Submissions, jobs: Sequence[NewJob]) -> Any:
        if len(jobs) == 2:
            await may_go.wait()
        return await submit(submissions, jobs)

    monkeypatch.setattr(Submissions, "submit", slow_if_two)
    async with submit_line(server.stub) as line:
        await line.send(1, submits(AN_ID, ANOTHER_ID))
        await line.send(2, submits())
        assert (await line.read()).number == 2
        may_go.set()
        assert (await line.read()).number == 1


async def test_line_reads_no_more_than_it_may_have_under_way(
    server: ServerUnderTest, held: HeldSubmits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.doors.lines.LINE_MESSAGES", 3)
    async with submit_line(server.stub) as line:
        for number in range(8):
            await line.send(number, submits())
        await held.arrived(3)
        await server.stub.GetDispatchStatus(pb.GetDispatchStatusRequest())  # it came later, and is answered
        assert held.count == 3
        held.may_go.set()
        assert {(await line.read()).number for _ in range(8)} == set(range(8))


async def test_caller_that_leaves_takes_what_is_under_way_along(
    server: ServerUnderTest, held: HeldSubmits, caplog: pytest.LogCaptureFixture
) -> None:
    async with submit_line(server.stub) as line:
        await line.send(1, submits(AN_ID))
        await held.arrived(1)
    async with submit_line(server.stub) as line:
        await line.send(1, submits())
        await held.arrived(2)
        held.may_go.set()
        assert (await line.read()).number == 1
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


# ---------------------------------------------------------------- draining


async def test_drain_answers_what_was_read_and_ends_the_line(
    server: ServerUnderTest, held: HeldSubmits
) -> None:
    async with submit_line(server.stub) as line, submit_line(server.stub) as idle:
        await line.send(1, submits(AN_ID))
        await idle.send(1, submits(ANOTHER_ID))
        await held.arrived(2)
        server.app.doors.lines.end()
        held.may_go.set()
        assert (await line.read()).response.results[0].job_id == AN_ID
        assert await line.end() is grpc.StatusCode.OK
        assert await idle.end() is grpc.StatusCode.OK
    async with submit_line(server.stub) as late:
        assert await late.end() is grpc.StatusCode.OK


async def test_server_that_stops_does_not_wait_for_open_lines(database_dsn: str) -> None:
    async with asyncio.timeout(PROMPT_SECONDS):
        async with server_under_test(database_dsn, drain_timeout=60 * SECOND) as server:
            channel = grpc.aio.insecure_channel(server.address)
            line = Line(PulseServiceStub(channel).StreamSubmits(), pb.StreamSubmitsRequest)
            await line.ask(1, submits(AN_ID))
        assert await line.end() is grpc.StatusCode.OK
    await channel.close()


# ---------------------------------------------------------------- who may


@pytest.mark.parametrize(("user", "method"), [("viewer", "StreamSubmits"), ("producer", "StreamReports")])
async def test_line_opens_only_for_who_may_make_the_call(database_dsn: str, user: str, method: str) -> None:
    async with server_under_test(database_dsn, users=USERS) as server:
        call = getattr(caller(server.channel, user), method)()
        with pytest.raises(grpc.aio.AioRpcError, match=f"may not call {method}") as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_user_who_is_no_longer_let_in_loses_the_line(database_dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"ann:{PASSWORD}:producer\n")
    async with (
        server_under_test(database_dsn, users_file=file) as server,
        submit_line(caller(server.channel, "ann")) as line,
    ):
        await line.ask(1, submits(AN_ID))
        file.write_text(f"bob:{PASSWORD}:producer\n")
        assert server.app.doors.access is not None
        server.app.doors.access.read_again()
        assert await line.end() is grpc.StatusCode.UNAUTHENTICATED


# ---------------------------------------------------------------- counted, and brief


async def test_message_counts_as_the_call_that_it_stands_for(server: ServerUnderTest) -> None:
    rpcs, times = server.app.metrics.rpcs, server.app.metrics.rpc_time
    async with submit_line(server.stub) as line:
        await line.ask(1, submits(AN_ID))
        await line.ask(2, submits(ANOTHER_ID))
        await line.call.done_writing()
        await line.end()
    assert rpcs.values[("SubmitJobs", "OK")] == 2
    assert rpcs.values[("StreamSubmits", "OK")] == 1
    assert sum(times.values[("SubmitJobs",)].counts) == 2
    assert ("StreamSubmits",) not in times.values
