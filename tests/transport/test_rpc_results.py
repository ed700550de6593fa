"""Results over gRPC: reported with the success, kept as long as the job, and bounded."""

from typing import Any

import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base.errors import Unavailable
from pulse_server.jobs.store import PostgresJobRepo
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.streaming_worker import StreamingWorker


async def report(
    server: ServerUnderTest, worker: StreamingWorker, job: pb.JobAssignment, result: bytes
) -> pb.ReportResultsResponse:
    success = pb.Result(job_id=job.job_id, attempt=job.attempt, run=job.run, success=True)
    request = pb.ReportResultsRequest(worker_id=worker.worker_id, results=[success], returned={0: result})
    response: pb.ReportResultsResponse = await server.stub.ReportResults(request)
    return response


async def test_result_is_returned_with_the_job(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker() as worker:
        assert not (await report(server, worker, await worker.take_one(), b"[1]")).refused
    view = await server.get(job_id)
    assert (view.status, view.result) == ("COMPLETED", b"[1]")
    (listed,) = (await server.stub.ListJobs(pb.ListJobsRequest())).jobs
    assert not listed.HasField("result")


async def test_job_without_a_result_has_no_such_field(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker() as worker:
        await worker.complete(await worker.take_one())
    assert not (await server.get(job_id)).HasField("result")


async def test_result_may_come_with_the_original_report(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker() as worker:
        await worker.take_one()
        await server.stub.ReportResult(pb.ReportResultRequest(job_id=job_id, success=True, result=b""))
    view = await server.get(job_id)
    assert (view.status, view.HasField("result"), view.result) == ("COMPLETED", True, b"")


async def test_repeated_report_with_a_result_counts_and_changes_nothing(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        for _ in range(2):
            assert not (await report(server, worker, job, b"1")).refused
        assert not (await report(server, worker, job, b"2")).refused
    assert (await server.get(job_id)).result == b"1"


async def test_report_whose_answer_was_lost_is_repeated_with_its_result(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = PostgresJobRepo.complete_jobs

    async def lose_answer(repo: PostgresJobRepo, *args: Any) -> Any:
        await stored(repo, *args)
        monkeypatch.undo()
        raise Unavailable("The answer was lost.")

    job_id = await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        monkeypatch.setattr(PostgresJobRepo, "complete_jobs", lose_answer)
        with pytest.raises(Exception, match="lost"):
            await report(server, worker, job, b"1")
        assert not (await report(server, worker, job, b"1")).refused
    assert (await server.get(job_id)).result == b"1"


async def test_stale_attempt_is_refused_with_its_result(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        job.attempt = 7
        (refused,) = (await report(server, worker, job, b"1")).refused
        assert "attempt 7 came too late" in refused.refusal.message
    assert (await server.get(job_id)).status == "RUNNING"


async def test_result_that_is_too_large_dead_letters_the_job_with_a_sentence(database_dsn: str) -> None:
    async with server_under_test(database_dsn, max_result_bytes=10) as server:
        fits, large = await server.submit_many(2, max_attempts=9)
        async with server.worker() as worker:
            jobs = {job.job_id: job for job in await worker.take(2)}
            assert not (await report(server, worker, jobs[fits], b"1234567890")).refused
            for _ in range(2):  # a repeat counts as well
                answer = await report(server, worker, jobs[large], b"12345678901")
                assert not answer.refused
        assert (await server.get(fits)).result == b"1234567890"
        view = await server.get(large)
        assert (view.status, view.HasField("result")) == ("DEAD_LETTERED", False)
        assert view.last_error.startswith(
            "The handler returned a result of 11 bytes; 10 are allowed at the most."
        )


async def test_welcome_names_the_bound_of_results(database_dsn: str) -> None:
    async with server_under_test(database_dsn, max_result_bytes=10) as server:
        stream = server.stub.StreamJobs(pb.StreamJobsRequest(topics=["a"], worker_id="w", capacity=1))
        assert (await stream.read()).welcome.max_result_bytes == 10
        stream.cancel()


async def test_results_successes_and_failures_of_one_report_all_count(server: ServerUnderTest) -> None:
    plain, with_result, failed = await server.submit_many(3, max_attempts=1)
    async with server.worker() as worker:
        jobs = {job.job_id: job for job in await worker.take(3)}
        results = [
            pb.Result(job_id="unreadable", attempt=1, success=True),
            pb.Result(job_id=failed, attempt=1, error="no"),
            pb.Result(job_id=with_result, attempt=jobs[with_result].attempt, success=True),
            pb.Result(job_id=plain, attempt=1, success=True),
        ]
        returned = {0: b"of an unreadable one", 1: b"of a failure", 2: b"1", 9: b"of none"}
        request = pb.ReportResultsRequest(worker_id=worker.worker_id, results=results, returned=returned)
        assert [one.index for one in (await server.stub.ReportResults(request)).refused] == [0]
    assert [(await server.get(one)).status for one in (plain, with_result, failed)] == [
        "COMPLETED",
        "COMPLETED",
        "DEAD_LETTERED",
    ]
    views = [await server.get(one) for one in (plain, with_result, failed)]
    assert [view.result if view.HasField("result") else None for view in views] == [None, b"1", None]


async def test_export_has_the_results(server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    await server.submit()
    async with server.worker() as worker:
        await report(server, worker, await worker.take_one(), b"[1]")
    await server.table.connection.execute(
        "UPDATE pulse.completed_jobs SET submitted_at = submitted_at - interval '1 minute', "
        "finished_at = finished_at - interval '1 minute'"
    )
    exported = [job async for page in server.stub.ExportJobs(pb.ExportJobsRequest()) for job in page.jobs]
    assert [job.result for job in exported] == [b"[1]"]
