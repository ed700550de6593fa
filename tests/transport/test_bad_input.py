"""Bad input to every call: a named status, a sentence that names the field, nothing changed, server alive."""

from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import timedelta
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.postgres_cluster import Databases
from tests.rows import each_row
from tests.transport.bad_job_requests import bad_job_requests, submits
from tests.transport.bad_overview_requests import bad_overview_requests
from tests.transport.bad_requests import INVALID, Case
from tests.transport.bad_schedule_requests import bad_schedule_requests
from tests.transport.bad_step_requests import bad_step_requests
from tests.transport.bad_work_requests import bad_work_requests
from tests.transport.bad_workflow_requests import bad_workflow_requests
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.refusals import refusal_of

# One server for the module: a refused call must change nothing, so the cases cannot affect each other.
pytestmark = pytest.mark.asyncio(loop_scope="module")

METHODS = pb.DESCRIPTOR.services_by_name["PulseService"].methods
REFUSED = grpc.StatusCode.FAILED_PRECONDITION

CASES = [
    *bad_job_requests(),
    *bad_work_requests(),
    *bad_step_requests(),
    *bad_workflow_requests(),
    *(Case(*case) for case in bad_schedule_requests()),
    *(Case(*case) for case in bad_overview_requests()),
]


@pytest.fixture(scope="module")
def module_dsn(databases: Databases, template_database: str) -> Iterator[str]:
    with databases.temporary(template_database) as dsn:
        yield dsn


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(module_dsn: str) -> AsyncIterator[ServerUnderTest]:
    async with server_under_test(module_dsn) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def jobs(server: ServerUnderTest) -> dict[str, pb.JobAssignment]:
    """One job in each status. The running one is held by w1, whose stream has ended."""
    await server.submit_many(5)
    async with server.worker(capacity=5) as worker:
        assignments = await worker.take(5)
        done, retrying, dead, canceled, _ = assignments
        await worker.complete(done)
        await worker.fail(retrying, after=timedelta(hours=1))
        await worker.fail(dead, discard=True)
    await server.stub.CancelJob(pb.CancelJobRequest(job_id=canceled.job_id))
    waiting = await server.submit(delay=Duration(seconds=3600))
    assignments.append(pb.JobAssignment(job_id=waiting, attempt=1))
    in_order = ("COMPLETED", "RETRYING", "DEAD_LETTERED", "CANCELED", "RUNNING", "PENDING")
    for status, job in zip(in_order, assignments, strict=True):
        assert (await server.get(job.job_id)).status == status
    return dict(zip(in_order, assignments, strict=True))


@each_row("case", CASES)
async def test_bad_request_is_refused_by_name_and_changes_nothing(
    server: ServerUnderTest, jobs: dict[str, pb.JobAssignment], case: Case
) -> None:
    before = await server.table.everything()
    error = await refusal_of(getattr(server.stub, case.method)(case.request))
    assert error.code() is case.status
    details = str(error.details())
    assert case.field in details
    assert details.endswith((".", "…"))
    assert len(details) < 1000
    assert await server.table.everything() == before


async def test_every_call_of_the_contract_that_takes_something_has_bad_input_here() -> None:
    # What goes over a line is a request of a unary call: test_rpc_lines shows that it is refused alike.
    # A request of nothing but switches cannot be wrong.
    calls = {
        method.name
        for method in METHODS
        if any(field.type != field.TYPE_BOOL for field in method.input_type.fields)
        and not method.client_streaming
    }
    assert {case.method for case in CASES} == calls


@each_row("status", ["PENDING", "RETRYING", "COMPLETED", "DEAD_LETTERED", "CANCELED"])
@each_row("success", [True, False])
async def test_report_for_a_job_that_does_not_run_is_refused(
    server: ServerUnderTest, jobs: dict[str, pb.JobAssignment], status: str, success: bool
) -> None:
    before = await server.table.everything()
    request = pb.ReportResultRequest(
        job_id=jobs[status].job_id, success=success, error="x", worker_id="w2", attempt=1
    )
    error = await refusal_of(server.stub.ReportResult(request))
    assert error.code() is REFUSED
    assert f"is {status}, not RUNNING" in str(error.details())
    batch = pb.ReportResultsRequest(
        worker_id="w2", results=[pb.Result(job_id=request.job_id, attempt=1, success=success)]
    )
    (refused,) = (await server.stub.ReportResults(batch)).refused
    assert (refused.index, refused.refusal.code) == (0, REFUSED.value[0])
    assert status in refused.refusal.message
    assert await server.table.everything() == before


@each_row("claim", [("w2", 1), ("w1", 2), ("w1", 2**31 - 1)])
async def test_claim_of_another_worker_cannot_change_a_running_job(
    server: ServerUnderTest, jobs: dict[str, pb.JobAssignment], claim: tuple[str, int]
) -> None:
    worker_id, attempt = claim
    job_id = jobs["RUNNING"].job_id
    before = await server.table.everything()
    for success in (True, False):
        request = pb.ReportResultRequest(job_id=job_id, worker_id=worker_id, attempt=attempt, success=success)
        assert (await refusal_of(server.stub.ReportResult(request))).code() is REFUSED
    beat = pb.HeartbeatRequest(job_id=job_id, worker_id=worker_id, attempt=attempt)
    assert (await server.stub.Heartbeat(beat)).should_stop
    claims = [pb.Claim(job_id=job_id, attempt=attempt)]
    beats = pb.HeartbeatsRequest(worker_id=worker_id, claims=claims)
    assert list((await server.stub.Heartbeats(beats)).stop) == claims
    release = pb.ReleaseRequest(worker_id=worker_id, claims=claims)
    assert (await server.stub.Release(release)).released == 0
    assert await server.table.everything() == before


def broken_bytes(message: Descriptor) -> Iterable[tuple[str, bytes]]:
    yield "cut off", b"\x0a\x7f"
    yield "no tag", b"\xff" * 20
    yield "end of a group", b"\x0c"
    for path, encoded in not_utf8(message):
        yield f"{path} not in UTF-8", encoded


def not_utf8(message: Descriptor, path: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield each string of the message, at any depth, with bytes that are not UTF-8."""
    for field in message.fields:
        name = f"{path}{field.name}"
        if field.type == FieldDescriptor.TYPE_STRING:
            yield name, delimited(field.number, b"\xff\xfe")
        elif field.message_type is not None and field.message_type.file.package == "pulse.v1":
            for inner, encoded in not_utf8(field.message_type, f"{name}."):
                yield inner, delimited(field.number, encoded)


def delimited(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    tag = number << 3 | 2
    head = [tag] if tag < 128 else [tag & 0x7F | 0x80, tag >> 7]
    return bytes([*head, len(content)]) + content


BROKEN = [
    (method.name, method.server_streaming, encoded)
    for method in METHODS
    for _, encoded in broken_bytes(method.input_type)
]


@each_row("method, streams, encoded", BROKEN)
async def test_bytes_that_are_not_a_message_are_an_invalid_argument(
    server: ServerUnderTest, method: str, streams: bool, encoded: bytes
) -> None:
    make: Any = server.channel.unary_stream if streams else server.channel.unary_unary
    call = make(f"/pulse.v1.PulseService/{method}")(encoded)
    if method == "AwaitJobs":
        await call.read()  # the welcome: requests may come at any time after it
    error = await refusal_of(call)
    assert error.code() is INVALID
    assert f"{method}Request" in str(error.details())


async def test_priority_beyond_int32_keeps_to_its_low_bits_as_protobuf_says(server: ServerUnderTest) -> None:
    """protobuf drops the excess bits before the server sees them; client libraries refuse such a number."""
    call: Any = server.channel.unary_unary("/pulse.v1.PulseService/SubmitJob")
    answer = pb.SubmitJobResponse.FromString(await call(b"\x0a\x04mail\x18\x87\x80\x80\x80\x80\x01"))
    assert (await server.get(answer.job_id)).priority == 7
    await server.table.connection.execute("DELETE FROM pulse.jobs WHERE id = $1", answer.job_id)


async def test_request_beyond_the_message_limit_is_resource_exhausted(server: ServerUnderTest) -> None:
    request = pb.SubmitJobsRequest(jobs=[submits(payload=b"x" * 2**20)] * 4)
    error = await refusal_of(server.stub.SubmitJobs(request))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert f"larger than max ({request.ByteSize()} vs. 4194304)" in str(error.details())


async def test_unknown_call_is_unimplemented(server: ServerUnderTest) -> None:
    call: Any = server.channel.unary_unary("/pulse.v1.PulseService/DropJobs")
    error = await refusal_of(call(b""))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_server_is_alive_after_all_of_it(server: ServerUnderTest) -> None:
    job_id = await server.submit("after-all")
    async with server.worker("w3", topics=["after-all"]) as worker:
        await worker.complete(await worker.take_one())
    assert (await server.get(job_id)).status == "COMPLETED"
