"""Bad input to every call: a named status, a sentence that names the field, nothing changed, server alive."""

import base64
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from pulse.v1 import pulse_pb2 as pb
from tests.postgres_cluster import Databases
from tests.transport.bad_overview_requests import bad_overview_requests
from tests.transport.bad_schedule_requests import bad_schedule_requests
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test

# One server for the module: a refused call must leave no trace, so that the cases cannot meet.
pytestmark = pytest.mark.asyncio(loop_scope="module")

METHODS = pb.DESCRIPTOR.services_by_name["PulseService"].methods
INVALID = grpc.StatusCode.INVALID_ARGUMENT
MISSING = grpc.StatusCode.NOT_FOUND
REFUSED = grpc.StatusCode.FAILED_PRECONDITION
UNKNOWN_ID = "0190f3a0-0000-7000-8000-00000000dead"
LONG = "x" * 256
HUGE = "x" * 200_000
TELLTALES = ("Traceback", "asyncpg", "SELECT", "UPDATE", "INSERT", "pulse.jobs", "line ", "relation", "File ")


@dataclass(frozen=True)
class Case:
    name: str
    request: Message
    field: str
    status: grpc.StatusCode = INVALID

    @property
    def method(self) -> str:
        return type(self.request).__name__.removesuffix("Request")


def submits(**fields: Any) -> pb.SubmitJobRequest:
    return pb.SubmitJobRequest(**({"topic": "mail"} | fields))


def token(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


def bad_submits() -> Iterator[Case]:
    for name, topic in {
        "empty topic": "",
        "long topic": LONG,
        "huge topic": HUGE,
        "topic with a space": "a b",
        "topic with a NUL": "a\0b",
        "topic with a newline": "mail\n",
        "topic beyond ASCII": "täglich",
        "topic of emoji": "\U0001f600" * 200,
        "topic that starts with a dash": "-mail",
    }.items():
        yield Case(name, submits(topic=topic), "topic")
    yield Case("2 MiB payload", submits(payload=b"x" * 2**21), "payload")
    yield Case("1 byte too much", submits(payload=b"x" * (2**20 + 1)), "payload")
    yield Case("malformed id", submits(job_id="42"), "job_id")
    yield Case("huge id", submits(job_id=HUGE), "job_id")
    yield Case("id with a NUL", submits(job_id=UNKNOWN_ID[:-1] + "\0"), "job_id")
    yield Case("long key", submits(idempotency_key=LONG), "idempotency_key")
    yield Case("key with a NUL", submits(idempotency_key="a\0"), "idempotency_key")
    yield Case("negative delay", submits(delay=Duration(seconds=-1)), "delay")
    yield Case("endless delay", submits(delay=Duration(seconds=2**62)), "delay")
    yield Case("long delay", submits(delay=Duration(seconds=315_576_000_000)), "delay")
    for seconds in (-1, -(2**62), 2**62, 253_402_300_799, -62_135_596_800):
        yield Case(f"run_at {seconds}", submits(run_at=Timestamp(seconds=seconds)), "run_at")
    yield Case("run_at of negative nanos", submits(run_at=Timestamp(seconds=1, nanos=-1)), "run_at")
    for attempts in (0, -1, 1001, 2**31 - 1):
        yield Case(f"max_attempts {attempts}", submits(max_attempts=attempts), "max_attempts")
    yield Case("much metadata", submits(metadata={"k": "v" * 20_000}), "metadata")
    yield Case("many entries", submits(metadata={str(n): "" for n in range(65)}), "metadata")
    yield Case("NUL in a value", submits(metadata={"k": "a\0b"}), "metadata")
    yield Case("NUL in a key", submits(metadata={"a\0b": "v"}), "metadata")
    yield Case("too many jobs", pb.SubmitJobsRequest(jobs=[submits()] * 10_001), "jobs")


def bad_questions() -> Iterator[Case]:
    for request in (
        pb.GetJobRequest,
        pb.CancelJobRequest,
        pb.RetryJobRequest,
        pb.PrioritizeJobRequest,
        pb.DeleteJobRequest,
    ):
        for name, job_id in {"empty": "", "malformed": "42", "huge": HUGE, "NUL in the": "\0" * 36}.items():
            yield Case(f"{name} id", request(job_id=job_id), "job_id")
        yield Case("unknown id", request(job_id=UNKNOWN_ID), UNKNOWN_ID, MISSING)
    for attempts in (0, -1, 1001):
        request_with = pb.RetryJobRequest(job_id=UNKNOWN_ID, attempts=attempts)
        yield Case(f"{attempts} attempts", request_with, "attempts")
    yield Case("odd topic", pb.ListJobsRequest(topic="a b"), "topic")
    yield Case("long topic", pb.ListJobsRequest(topic=LONG), "topic")
    yield Case("unknown status", pb.ListJobsRequest(status="WAITING"), "status")
    yield Case("status in small letters", pb.ListJobsRequest(status="pending"), "status")
    yield Case("huge status", pb.ListJobsRequest(status=HUGE), "status")
    yield Case("SQL for a status", pb.ListJobsRequest(status="' OR true --"), "status")
    yield Case("negative limit", pb.ListJobsRequest(limit=-1), "limit")
    yield Case("negative offset", pb.ListJobsRequest(offset=-1), "offset")
    yield Case("offset of a hike", pb.ListJobsRequest(offset=2**31 - 1), "offset")
    for name, page_token in {
        "garbage": "garbage",
        "huge": HUGE,
        "no base64": "%%%",
        "NUL": "\0",
        "beyond ASCII": "ä",
        "no id": token("2026-01-01T00:00:00+00:00"),
        "bad id": token("2026-01-01T00:00:00+00:00|42"),
        "no zone": token(f"2026-01-01T00:00:00|{UNKNOWN_ID}"),
        "no date": token(f"yesterday|{UNKNOWN_ID}"),
        "first of days": token(f"0001-01-01T00:00:00+23:59|{UNKNOWN_ID}"),
        "last of days": token(f"9999-12-31T23:59:59-23:59|{UNKNOWN_ID}"),
        "not UTF-8": base64.urlsafe_b64encode(b"\xff\xfe|").decode(),
    }.items():
        yield Case(f"page token: {name}", pb.ListJobsRequest(page_token=page_token), "page_token")


def bad_streams() -> Iterator[Case]:
    def stream(**fields: Any) -> pb.StreamJobsRequest:
        usual: dict[str, Any] = {"topics": ["mail"], "worker_id": "w9", "capacity": 1}
        return pb.StreamJobsRequest(**(usual | fields))

    yield Case("no topics", stream(topics=[]), "topics")
    yield Case("an empty topic", stream(topics=["mail", ""]), "topics")
    yield Case("an odd topic", stream(topics=["mail", "a b"]), "topics")
    yield Case("too many topics", stream(topics=[f"t{n}" for n in range(1001)]), "topics")
    yield Case("empty worker_id", stream(worker_id=""), "worker_id")
    yield Case("long worker_id", stream(worker_id=LONG), "worker_id")
    yield Case("NUL in the worker_id", stream(worker_id="w\0"), "worker_id")
    yield Case("long run_id", stream(run_id=LONG), "run_id")
    yield Case("NUL in the run_id", stream(run_id="r\0"), "run_id")
    yield Case("negative capacity", stream(capacity=-1), "capacity")
    yield Case("huge capacity", stream(capacity=2**31 - 1), "capacity")
    yield Case("held without an attempt", stream(held=[pb.Claim(job_id=UNKNOWN_ID)]), "attempt")
    yield Case("held with a malformed id", stream(held=[pb.Claim(job_id="42", attempt=1)]), "job_id")
    too_many = [pb.Claim(job_id=UNKNOWN_ID, attempt=1)] * 10_001
    yield Case("more held than a worker can hold", stream(held=too_many), "held")


def bad_reports() -> Iterator[Case]:
    def report(**fields: Any) -> pb.ReportResultRequest:
        usual: dict[str, Any] = {"job_id": UNKNOWN_ID, "worker_id": "w1", "attempt": 1}
        return pb.ReportResultRequest(**(usual | fields))

    yield Case("empty id", report(job_id=""), "job_id")
    yield Case("malformed id", report(job_id="42"), "job_id")
    yield Case("unknown id", report(success=True), UNKNOWN_ID, MISSING)
    yield Case("unknown id of a failure", report(), UNKNOWN_ID, MISSING)
    yield Case("long worker_id", report(worker_id=LONG), "worker_id")
    yield Case("NUL in the worker_id", report(worker_id="w\0"), "worker_id")
    yield Case("negative attempt", report(attempt=-1), "attempt")
    yield Case("negative retry_after", report(retry_after=Duration(seconds=-1)), "retry_after")
    yield Case("endless retry_after", report(retry_after=Duration(seconds=2**62)), "retry_after")
    yield Case("empty worker_id", pb.ReportResultsRequest(), "worker_id")
    yield Case("long worker_id", pb.ReportResultsRequest(worker_id=LONG), "worker_id")
    for capacity in (-1, 10_001, 2**31 - 1):
        batch = pb.ReportResultsRequest(worker_id="w1", capacity=capacity)
        yield Case(f"capacity {capacity}", batch, "capacity")
    for seconds in (-0.5, float("inf"), float("nan")):
        batch = pb.ReportResultsRequest(worker_id="w1", run_seconds=seconds)
        yield Case(f"run_seconds {seconds}", batch, "run_seconds")
    too_many = [pb.Result(job_id=UNKNOWN_ID, attempt=1)] * 10_001
    yield Case("too many results", pb.ReportResultsRequest(worker_id="w1", results=too_many), "results")


def bad_claims() -> Iterator[Case]:
    def beat(**fields: Any) -> pb.HeartbeatRequest:
        return pb.HeartbeatRequest(**({"job_id": UNKNOWN_ID, "worker_id": "w1"} | fields))

    yield Case("empty id", beat(job_id=""), "job_id")
    yield Case("malformed id", beat(job_id="42"), "job_id")
    yield Case("empty worker_id", beat(worker_id=""), "worker_id")
    yield Case("long worker_id", beat(worker_id=LONG), "worker_id")
    yield Case("negative attempt", beat(attempt=-1), "attempt")
    good = pb.Claim(job_id=UNKNOWN_ID, attempt=1)
    for request in (pb.HeartbeatsRequest, pb.ReleaseRequest):
        yield Case("empty worker_id", request(claims=[good]), "worker_id")
        yield Case("NUL in the worker_id", request(worker_id="w\0", claims=[good]), "worker_id")
        yield Case("no attempt", request(worker_id="w1", claims=[pb.Claim(job_id=UNKNOWN_ID)]), "attempt")
        bad = pb.Claim(job_id=UNKNOWN_ID, attempt=-(2**31))
        yield Case("negative attempt", request(worker_id="w1", claims=[good, bad]), "attempt")
        bad = pb.Claim(job_id="42", attempt=1)
        yield Case("malformed id", request(worker_id="w1", claims=[good, bad]), "job_id")
        yield Case("too many claims", request(worker_id="w1", claims=[good] * 20_001), "claims")


CASES = [
    *bad_submits(),
    *bad_questions(),
    *bad_streams(),
    *bad_reports(),
    *bad_claims(),
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
    """One job in each status. The running one is held by w1, whose stream is gone."""
    await server.submit_many(5)
    async with server.worker(capacity=5) as worker:
        assignments = await worker.take(5)
        done, retrying, dead, cancelled, _ = assignments
        await worker.complete(done)
        await worker.fail(retrying, after=timedelta(hours=1))
        await worker.fail(dead, discard=True)
    await server.stub.CancelJob(pb.CancelJobRequest(job_id=cancelled.job_id))
    waiting = await server.submit(delay=Duration(seconds=3600))
    assignments.append(pb.JobAssignment(job_id=waiting, attempt=1))
    in_order = ("COMPLETED", "RETRYING", "DEAD_LETTERED", "CANCELED", "RUNNING", "PENDING")
    for status, job in zip(in_order, assignments, strict=True):
        assert (await server.get(job.job_id)).status == status
    return dict(zip(in_order, assignments, strict=True))


async def refusal_of(call: Any) -> grpc.aio.AioRpcError:
    """The error with which the call ends; for a stream, before its first message."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (call.read() if isinstance(call, grpc.aio.UnaryStreamCall) else call)
    assert not [word for word in TELLTALES if word in str(caught.value.details())]
    return caught.value


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.method}: {case.name}")
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
    calls = {method.name for method in METHODS if method.input_type.fields and not method.client_streaming}
    assert {case.method for case in CASES} == calls


@pytest.mark.parametrize("status", ["PENDING", "RETRYING", "COMPLETED", "DEAD_LETTERED", "CANCELED"])
@pytest.mark.parametrize("success", [True, False], ids=["success", "failure"])
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


@pytest.mark.parametrize(
    "claim", [("w2", 1), ("w1", 2), ("w1", 2**31 - 1)], ids=["worker", "attempt", "huge attempt"]
)
async def test_claim_of_somebody_else_has_no_power_over_a_running_job(
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
    """Each string of the message, however deep, with bytes that are no UTF-8."""
    for field in message.fields:
        name = f"{path}{field.name}"
        if field.type == FieldDescriptor.TYPE_STRING:
            yield name, delimited(field.number, b"\xff\xfe")
        elif field.message_type is not None and field.message_type.file.package == "pulse.v1":
            for inner, encoded in not_utf8(field.message_type, f"{name}."):
                yield inner, delimited(field.number, encoded)


def delimited(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


BROKEN = [
    pytest.param(method.name, method.server_streaming, encoded, id=f"{method.name}: {name}")
    for method in METHODS
    for name, encoded in broken_bytes(method.input_type)
]


@pytest.mark.parametrize(("method", "streams", "encoded"), BROKEN)
async def test_bytes_that_are_no_message_are_an_invalid_argument(
    server: ServerUnderTest, method: str, streams: bool, encoded: bytes
) -> None:
    make: Any = server.channel.unary_stream if streams else server.channel.unary_unary
    error = await refusal_of(make(f"/pulse.v1.PulseService/{method}")(encoded))
    assert error.code() is INVALID
    assert f"{method}Request" in str(error.details())


async def test_priority_beyond_int32_keeps_to_its_low_bits_as_protobuf_says(server: ServerUnderTest) -> None:
    """The bits that do not fit never reach the server's code; a client library refuses such a number."""
    call: Any = server.channel.unary_unary("/pulse.v1.PulseService/SubmitJob")
    answer = pb.SubmitJobResponse.FromString(await call(b"\x0a\x04mail\x18\x87\x80\x80\x80\x80\x01"))
    assert (await server.get(answer.job_id)).priority == 7
    await server.table.connection.execute("DELETE FROM pulse.jobs WHERE id = $1", answer.job_id)


async def test_request_beyond_the_message_limit_is_resource_exhausted(server: ServerUnderTest) -> None:
    request = pb.SubmitJobsRequest(jobs=[submits(payload=b"x" * 2**20)] * 33)
    error = await refusal_of(server.stub.SubmitJobs(request))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_unknown_call_is_unimplemented(server: ServerUnderTest) -> None:
    call: Any = server.channel.unary_unary("/pulse.v1.PulseService/DropJobs")
    error = await refusal_of(call(b""))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_server_is_alive_after_all_of_it(server: ServerUnderTest) -> None:
    job_id = await server.submit("after-all")
    async with server.worker("w3", topics=["after-all"]) as worker:
        await worker.complete(await worker.take_one())
    assert (await server.get(job_id)).status == "COMPLETED"
