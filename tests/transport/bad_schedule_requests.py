"""Bad requests about schedules and switches: a name, the request, the text in the refusal, and its status."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from pulse.v1 import pulse_pb2 as pb

INVALID = grpc.StatusCode.INVALID_ARGUMENT
MISSING = grpc.StatusCode.NOT_FOUND
UNKNOWN_ID = "0190f3a0-0000-7000-8000-00000000dead"
LONG = "x" * 256
HUGE = "x" * 200_000
HOURLY = Duration(seconds=3600)
BAD_TOPICS = {"long": LONG, "spaced": "a b", "NUL": "a\0b", "beyond ASCII": "täglich"}
BAD_SPANS = {
    "negative": Duration(seconds=-1),
    "a nanosecond": Duration(nanos=1),
    "eleven years": Duration(seconds=11 * 366 * 86400),
    "endless": Duration(seconds=2**62),
}
BAD_IDS = {"empty": "", "malformed": "42", "huge": HUGE, "NUL in the": "\0" * 36}

BadRequest: TypeAlias = tuple[str, Message, str, grpc.StatusCode]


def bad_schedule_requests() -> Iterator[BadRequest]:
    yield from _bad_definitions()
    yield from _bad_timetables()
    yield from _bad_ids()
    yield from _bad_changes()
    yield from _bad_pages()
    yield from _bad_switches()


def create(**fields: Any) -> pb.CreateScheduleRequest:
    spec = {} if {"at", "every", "cron"} & fields.keys() else {"every": HOURLY}
    return pb.CreateScheduleRequest(**({"topic": "mail"} | spec | fields))


def _bad_definitions() -> Iterator[BadRequest]:
    for name, topic in (BAD_TOPICS | {"empty": ""}).items():
        yield f"{name} topic", create(topic=topic), "topic", INVALID
    yield "2 MiB payload", create(payload=b"x" * 2**21), "payload", INVALID
    yield "no spec", pb.CreateScheduleRequest(topic="mail"), "spec", INVALID
    yield "long name", create(name=LONG), "name", INVALID
    yield "NUL in the name", create(name="a\0b"), "name", INVALID
    for attempts in (0, -1, 1001):
        yield f"max_attempts {attempts}", create(max_attempts=attempts), "max_attempts", INVALID
    yield "NUL in the metadata", create(metadata={"k": "a\0b"}), "metadata", INVALID
    yield "much metadata", create(metadata={"k": "v" * 20_000}), "metadata", INVALID
    for name, catch_up in {"unknown": "some", "huge": HUGE, "in capitals": "ONE", "NUL": "\0"}.items():
        yield f"catch_up: {name}", create(catch_up=catch_up), "catch_up", INVALID
    for name, span in BAD_SPANS.items():
        yield f"start_within: {name}", create(start_within=span), "start_within", INVALID
    yield "start_within: none", create(start_within=Duration()), "start_within", INVALID
    yield "strict, and passed", create(at=Timestamp(seconds=1_000_000_000), strict=True), "at", INVALID


def _bad_timetables() -> Iterator[BadRequest]:
    for request in (create, pb.PreviewScheduleRequest):
        for name, every in {
            "0": Duration(),
            "99 ms": Duration(nanos=99_000_000),
            "-1 s": Duration(seconds=-1),
            "a little less than nothing": Duration(nanos=-1),
            "ten thousand years": Duration(seconds=315_576_000_000),
            "endless": Duration(seconds=2**62),
        }.items():
            yield f"every {name}", request(every=every), "every", INVALID
        for seconds in (-1, -(2**62), 2**62, 253_402_300_799):
            yield f"at {seconds}", request(at=Timestamp(seconds=seconds)), "at", INVALID
        for name, cron in {
            "empty": "",
            "blank": " \t\n ",
            "six fields": "0 0 * * * *",
            "nonsense": "at tea time",
            "February 30th": "0 0 30 2 *",
            "bad hour": "0 24 * * *",
            "unknown name": "@reboot",
            "NUL": "0 0 * * \0",
            "huge": "9" * 200_000 + " * * * *",
            "many fields": "* " * 100_000,
        }.items():
            yield f"cron: {name}", request(cron=cron), "cron", INVALID
        for name, zone in {
            "unknown": "Mars/Olympus",
            "of the host": "localtime",
            "a path": "../../etc/passwd",
            "NUL": "UTC\0",
            "huge": HUGE,
        }.items():
            yield f"zone: {name}", request(cron="@daily", time_zone=zone), "time_zone", INVALID
        yield "zone of an interval", request(every=HOURLY, time_zone="UTC"), "time_zone", INVALID
        at = Timestamp(seconds=2_000_000_000)
        yield "zone of a moment", request(at=at, time_zone="UTC"), "time_zone", INVALID
    yield "no spec", pb.PreviewScheduleRequest(), "spec", INVALID
    for count in (-1, 101, 2**31 - 1):
        yield f"count {count}", pb.PreviewScheduleRequest(every=HOURLY, count=count), "count", INVALID


def _bad_ids() -> Iterator[BadRequest]:
    for request in (
        pb.GetScheduleRequest,
        pb.PauseScheduleRequest,
        pb.ResumeScheduleRequest,
        pb.DeleteScheduleRequest,
        pb.UpdateScheduleRequest,
        pb.FireScheduleRequest,
        pb.ListScheduleJobsRequest,
        pb.ListScheduleFiresRequest,
    ):
        for name, schedule_id in BAD_IDS.items():
            yield f"{name} id", request(schedule_id=schedule_id), "schedule_id", INVALID
        if request not in (pb.ListScheduleJobsRequest, pb.ListScheduleFiresRequest):  # jobs outlive schedules
            yield "unknown id", request(schedule_id=UNKNOWN_ID), UNKNOWN_ID, MISSING
    yield "unknown name", pb.GetScheduleRequest(name="reconcile"), "reconcile", MISSING
    yield "long name", pb.GetScheduleRequest(name=LONG), "name", INVALID
    yield "NUL in the name", pb.GetScheduleRequest(name="a\0"), "name", INVALID
    for name, job_id in BAD_IDS.items():
        if job_id:
            fire = pb.FireScheduleRequest(schedule_id=UNKNOWN_ID, job_id=job_id)
            yield f"{name} job id", fire, "job_id", INVALID


def _bad_changes() -> Iterator[BadRequest]:
    def update(**fields: Any) -> pb.UpdateScheduleRequest:
        return pb.UpdateScheduleRequest(schedule_id=UNKNOWN_ID, **fields)

    for name, topic in (BAD_TOPICS | {"empty": ""}).items():
        yield f"{name} topic", update(topic=topic), "topic", INVALID
    yield "2 MiB payload", update(payload=b"x" * 2**21), "payload", INVALID
    yield "no attempts", update(max_attempts=0), "max_attempts", INVALID
    yield "NUL in the metadata", update(metadata=pb.Metadata(entries={"a\0": ""})), "metadata", INVALID
    yield "unknown catch_up", update(catch_up="some"), "catch_up", INVALID
    for name, span in BAD_SPANS.items():
        yield f"start_within: {name}", update(start_within=span), "start_within", INVALID
    yield "endless interval", update(every=Duration(seconds=2**62)), "every", INVALID
    yield "moment of no calendar", update(at=Timestamp(seconds=2**62)), "at", INVALID
    yield "zone of an interval", update(every=HOURLY, time_zone="UTC"), "time_zone", INVALID


def _bad_pages() -> Iterator[BadRequest]:
    requests: list[tuple[Any, dict[str, str]]] = [
        (pb.ListSchedulesRequest, {}),
        (pb.ListScheduleJobsRequest, {"schedule_id": UNKNOWN_ID}),
        (pb.ListScheduleFiresRequest, {"schedule_id": UNKNOWN_ID}),
    ]
    for request, fields in requests:
        yield "negative limit", request(limit=-1, **fields), "limit", INVALID
        for name, token in {"garbage": "garbage", "huge": HUGE, "NUL": "\0"}.items():
            yield f"page token: {name}", request(page_token=token, **fields), "page_token", INVALID


def _bad_switches() -> Iterator[BadRequest]:
    for request in (pb.PauseDispatchRequest, pb.ResumeDispatchRequest):
        for name, topic in BAD_TOPICS.items():
            yield f"{name} topic", request(topic=topic), "topic", INVALID
