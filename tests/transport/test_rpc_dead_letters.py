"""Dead letters in groups, over real gRPC and Postgres."""

from pulse.v1 import pulse_pb2 as pb
from tests.eventually import eventually
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.test_rpc_many_jobs import add_dead_letters, retry_all


async def fail_all(server: ServerUnderTest, *errors: str, topic: str = "mail") -> None:
    """Dead-letter one job with each of the errors, in order."""
    await server.submit_many(len(errors), topic, max_attempts=1)
    async with server.worker(topics=[topic], capacity=len(errors)) as worker:
        jobs = await worker.take(len(errors))
        for job, error in zip(jobs, errors, strict=True):
            await server.stub.ReportResult(
                pb.ReportResultRequest(job_id=job.job_id, error=error, worker_id="w1", attempt=1)
            )
    # Else the hub might still lease to it what is brought back.
    await eventually(
        lambda: not server.app.dispatch.roster.census().workers, "the server sees the worker leave"
    )


async def groups(server: ServerUnderTest, **request: object) -> list[pb.DeadLetterGroup]:
    asked = pb.ListDeadLetterGroupsRequest(**request)  # type: ignore[arg-type]  # whatever the test gives
    return list((await server.stub.ListDeadLetterGroups(asked)).groups)


async def test_dead_letters_with_the_same_error_are_one_group(server: ServerUnderTest) -> None:
    await fail_all(server, "KeyError: 'a'", "OSError: no route", "KeyError: 'b'\n\n  File 'x', line 3")

    newest, other = await groups(server)

    assert (newest.topic, newest.count, other.count) == ("mail", 2, 1)
    assert newest.first_at.ToDatetime() < other.last_at.ToDatetime() < newest.last_at.ToDatetime()
    sample = newest.sample
    assert (sample.status, sample.error_group, sample.payload) == ("DEAD_LETTERED", newest.error_group, b"")
    assert sample.last_error.startswith("KeyError: 'b'")


async def test_group_is_listed_counted_retried_and_deleted_by_its_id(server: ServerUnderTest) -> None:
    await fail_all(server, "KeyError: 'a'", "OSError: 1", "OSError: 2", "KeyError: 'b'")
    keys, system = await groups(server, topic="mail")
    wanted = pb.JobFilter(topic="mail", error_group=keys.error_group)

    listed = await server.stub.ListJobs(pb.ListJobsRequest(error_group=keys.error_group))
    assert {job.error_group for job in listed.jobs} == {keys.error_group}
    assert len(listed.jobs) == 2
    assert (await server.stub.CountJobs(pb.CountJobsRequest(filter=wanted))).count == 2
    assert await retry_all(server, filter=wanted) == [2]
    gone = pb.DeleteJobsRequest(filter=pb.JobFilter(error_group=system.error_group))
    assert (await server.stub.DeleteJobs(gone)).deleted == 2
    assert await server.table.count("status = 'PENDING' AND error_group = ''") == await server.table.count()


async def test_dead_letters_from_before_there_were_groups_are_listed_and_retried(
    server: ServerUnderTest,
) -> None:
    await add_dead_letters(server, 3)
    await fail_all(server, "OSError")

    _, without = await groups(server)

    assert (without.error_group, without.count, without.sample.error_group) == ("none", 3, "none")
    assert await retry_all(server, filter=pb.JobFilter(error_group=without.error_group)) == [3]
    assert await server.table.count("status = 'DEAD_LETTERED'") == 1


async def test_groups_past_the_limit_are_counted(server: ServerUnderTest) -> None:
    await fail_all(server, "AError", "BError", "CError")
    response = await server.stub.ListDeadLetterGroups(pb.ListDeadLetterGroupsRequest(limit=1))

    assert [group.sample.last_error for group in response.groups] == ["CError"]
    assert response.groups_left_out == 2
    assert response.HasField("counted_at")


async def test_only_dead_letters_have_a_group(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    assert (await server.get(job_id)).error_group == ""

    await fail_all(server, "OSError", topic="sms")
    (group,) = await groups(server)
    await retry_all(server, filter=pb.JobFilter(error_group=group.error_group))
    assert (await server.get(group.sample.job_id)).error_group == ""


async def test_jobs_are_found_by_their_metadata(server: ServerUnderTest) -> None:
    ours = await server.submit_many(2, metadata={"customer": "7", "plan": "gold"})
    await server.submit_many(3, metadata={"customer": "8", "plan": "gold"})

    async def listed(**metadata: str) -> set[str]:
        return {
            job.job_id for job in (await server.stub.ListJobs(pb.ListJobsRequest(metadata=metadata))).jobs
        }

    assert await listed(customer="7") == set(ours)
    assert len(await listed(plan="gold")) == 5
    assert await listed(customer="7", plan="silver") == set()
    answer = await server.stub.CancelJobs(
        pb.CancelJobsRequest(filter=pb.JobFilter(metadata={"customer": "8"}))
    )
    assert answer.canceled == 3
