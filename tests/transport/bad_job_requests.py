"""Bad requests about jobs."""

import base64
from collections.abc import Iterator
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from pulse.v1 import pulse_pb2 as pb
from tests.transport.bad_requests import HUGE, LONG, MISSING, UNKNOWN_ID, Case


def _span(seconds: int) -> Duration:
    return Duration(seconds=seconds)


# What is wrong with a `unique`, and the sentence that the RPC and the interface answer with.
BAD_UNIQUE: list[tuple[dict[str, Any], str]] = [
    ({"key": ""}, "unique.key is empty"),
    ({"key": "a" * 256}, "unique.key has 256 characters"),
    ({"key": "a\0"}, "unique.key contains a NUL"),
    ({"scope": "ever"}, "unique.scope 'ever' is not known: use waiting, live."),
    ({"on_conflict": "fail"}, "unique.on_conflict 'fail' is not known"),
    ({"on_conflict": "throttle"}, "unique.period is missing"),
    ({"on_conflict": "throttle", "period": _span(0)}, "unique.period is below a millisecond"),
    ({"on_conflict": "throttle", "period": _span(367 * 86400)}, "unique.period is longer than 366 days"),
    (
        {"on_conflict": "debounce", "period": _span(1), "longest": _span(367 * 86400)},
        "unique.longest is longer than 366 days",
    ),
    ({"period": _span(1)}, "unique.period belongs to debounce and throttle"),
    ({"scope": "live", "on_conflict": "replace"}, "a job that runs cannot be replaced"),
    ({"longest": _span(1)}, "unique.longest belongs to debounce"),
    (
        {"on_conflict": "debounce", "period": _span(2), "longest": _span(1)},
        "unique.longest is below the period",
    ),
]


def bad_job_requests() -> Iterator[Case]:
    yield from _bad_submits()
    yield from _bad_ids()
    yield from _bad_lists()


def submits(**fields: Any) -> pb.SubmitJobRequest:
    return pb.SubmitJobRequest(**({"topic": "mail"} | fields))


def _bad_submits() -> Iterator[Case]:
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


def _bad_ids() -> Iterator[Case]:
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


def _bad_lists() -> Iterator[Case]:
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
        "no id": _token("2026-01-01T00:00:00+00:00"),
        "bad id": _token("2026-01-01T00:00:00+00:00|42"),
        "no zone": _token(f"2026-01-01T00:00:00|{UNKNOWN_ID}"),
        "no date": _token(f"yesterday|{UNKNOWN_ID}"),
        "first of days": _token(f"0001-01-01T00:00:00+23:59|{UNKNOWN_ID}"),
        "last of days": _token(f"9999-12-31T23:59:59-23:59|{UNKNOWN_ID}"),
        "not UTF-8": base64.urlsafe_b64encode(b"\xff\xfe|").decode(),
    }.items():
        yield Case(f"page token: {name}", pb.ListJobsRequest(page_token=page_token), "page_token")


def _token(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()
