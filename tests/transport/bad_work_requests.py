"""Bad requests of workers."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.transport.bad_requests import LONG, MISSING, UNKNOWN_ID, Case


def bad_work_requests() -> Iterator[Case]:
    yield from _bad_streams()
    yield from _bad_reports()
    yield from _bad_claims()


def _bad_streams() -> Iterator[Case]:
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
    yield Case("negative concurrency", stream(concurrency=-1), "concurrency")
    yield Case("huge concurrency", stream(concurrency=2**31 - 1), "concurrency")
    yield Case("held without an attempt", stream(held=[pb.Claim(job_id=UNKNOWN_ID)]), "attempt")
    yield Case("held with a malformed id", stream(held=[pb.Claim(job_id="42", attempt=1)]), "job_id")
    too_many = [pb.Claim(job_id=UNKNOWN_ID, attempt=1)] * 10_001
    yield Case("more held than a worker can hold", stream(held=too_many), "held")


def _bad_reports() -> Iterator[Case]:
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


def _bad_claims() -> Iterator[Case]:
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
