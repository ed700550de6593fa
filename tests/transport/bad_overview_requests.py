"""Bad requests about many jobs at once: a name, the request, the text in the refusal, and its status."""

from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from pulse.v1 import pulse_pb2 as pb
from tests.transport.bad_schedule_requests import HUGE, INVALID, LONG, BadRequest

SOME_ID = "01a1efbb-eb84-7740-95ea-fcc7f5d2a472"
NOWHEN = Timestamp(seconds=2**62)
BAD_FILTERS: dict[str, tuple[dict[str, Any], str]] = {
    "odd topic": ({"topic": "a b"}, "topic"),
    "long topic": ({"topic": LONG}, "topic"),
    "unknown status": ({"status": "WAITING"}, "status"),
    "SQL for a status": ({"status": "' OR true --"}, "status"),
    "since when no calendar knows": ({"submitted_since": NOWHEN}, "submitted_since"),
    "before what no calendar knows": ({"submitted_before": NOWHEN}, "submitted_before"),
    "malformed schedule": ({"schedule_id": "hourly"}, "schedule_id"),
    "long text to find": ({"error_contains": HUGE}, "error_contains"),
    "NUL in the text to find": ({"error_contains": "a\0b"}, "error_contains"),
    "many entries of metadata": ({"metadata": {str(number): "" for number in range(65)}}, "metadata"),
    "large metadata": ({"metadata": {"k": HUGE}}, "metadata"),
    "NUL in metadata": ({"metadata": {"k": "a\0b"}}, "metadata"),
    "odd group": ({"error_group": "KeyError"}, "error_group"),
    "group of another length": ({"error_group": "3201d5cec16"}, "error_group"),
    "SQL for a group": ({"error_group": "' OR true --"}, "error_group"),
    "NUL in a group": ({"error_group": "3201d5cec16\0"}, "error_group"),
}


def bad_overview_requests() -> Iterator[BadRequest]:
    for name, (fields, field) in BAD_FILTERS.items():
        wanted = pb.JobFilter(**({"status": "DEAD_LETTERED"} | fields))
        yield name, pb.ListJobsRequest(**fields), field, INVALID
        yield name, pb.CountJobsRequest(filter=wanted), field, INVALID
        yield name, pb.CancelJobsRequest(filter=pb.JobFilter(**fields)), field, INVALID
        yield name, pb.RetryJobsRequest(filter=wanted), field, INVALID
        yield name, pb.PrioritizeJobsRequest(filter=pb.JobFilter(**fields)), field, INVALID
        yield name, pb.DeleteJobsRequest(filter=wanted), field, INVALID
    yield from _bad_prefixes()
    yield from _statuses_that_do_not_fit()
    yield from _bad_batches()
    yield from _bad_watches()
    yield "neither jobs nor a topic", pb.ExplainRequest(), "job_ids", INVALID
    yield "jobs and a topic", pb.ExplainRequest(job_ids=[SOME_ID], topic="mail"), "job_ids", INVALID
    yield "too many jobs", pb.ExplainRequest(job_ids=[SOME_ID] * 201), "job_ids", INVALID
    yield "no id", pb.ExplainRequest(job_ids=["x"]), "job_ids", INVALID
    yield "odd topic", pb.ExplainRequest(topic="a b"), "topic", INVALID
    yield "no text", pb.SearchJobsRequest(), "text", INVALID
    yield "NUL in the text", pb.SearchJobsRequest(text="a\0b"), "text", INVALID
    yield "long text", pb.SearchJobsRequest(text=HUGE), "text", INVALID
    yield "odd topic", pb.SearchJobsRequest(text="x", filter=pb.JobFilter(topic="a b")), "topic", INVALID
    yield "odd token", pb.SearchJobsRequest(text="x", page_token="?"), "page_token", INVALID
    yield "odd topic", pb.ListAuditRequest(topic="a b"), "topic", INVALID
    yield "no id", pb.ListAuditRequest(id="x"), "id", INVALID
    yield "since when no calendar knows", pb.ListAuditRequest(since=NOWHEN), "since", INVALID
    yield "odd token", pb.ListAuditRequest(page_token="?"), "page_token", INVALID
    yield "negative page", pb.ListAuditRequest(page_size=-1), "page_size", INVALID
    yield "NUL in a user", pb.ListAuditRequest(user="a\0b"), "user", INVALID
    yield "no id", pb.UndoActionRequest(), "action_id", INVALID
    yield "odd id", pb.UndoActionRequest(action_id="x"), "action_id", INVALID
    yield "negative limit", pb.UndoActionRequest(action_id=SOME_ID, limit=-1), "limit", INVALID
    yield "negative limit", pb.ListFindingsRequest(limit=-1), "limit", INVALID
    yield "odd topic", pb.ListDeadLetterGroupsRequest(topic="a b"), "topic", INVALID
    yield "negative limit", pb.ListDeadLetterGroupsRequest(limit=-1), "limit", INVALID
    yield from _bad_spans()
    yield from _bad_pages()
    yield from _bad_settings()
    yield from _bad_exports()


def _bad_settings() -> Iterator[BadRequest]:
    for name, topic in (("odd topic", "a b"), ("no topic", ""), ("long topic", LONG)):
        yield name, pb.SetTopicRequest(topic=topic), "topic", INVALID
    for name, keep in (
        ("negative", pb.Keep(duration=Duration(seconds=-1))),
        ("of a second", pb.Keep(duration=Duration(seconds=1))),
        ("of a million years", pb.Keep(duration=Duration(seconds=10**13))),
        ("beyond any duration", pb.Keep(duration=Duration(seconds=2**62))),
        ("not forever", pb.Keep(forever=False)),
    ):
        request = pb.SetTopicRequest(topic="mail", entries=pb.TopicEntries(keep_completed=keep))
        yield f"retention {name}", request, "keep_completed", INVALID
    for name, run in (
        ("max_attempts", pb.TopicEntries(max_attempts=0)),
        ("max_crashes", pb.TopicEntries(max_crashes=-1)),
        ("attempt_timeout", pb.TopicEntries(attempt_timeout=Duration(seconds=2**62))),
        ("backoff", pb.TopicEntries(backoff=pb.Backoff())),
    ):
        yield f"no {name}", pb.SetTopicRequest(topic="mail", entries=run), name, INVALID
        declared = [pb.DeclaredTopic(topic="mail", entries=run)]
        declaration = pb.DeclareTopicsRequest(worker_id="w", topics=declared)
        yield f"no {name}", declaration, name, INVALID
    yield from _bad_limits()
    yield "no worker", pb.DeclareTopicsRequest(), "worker_id", INVALID
    yield "no application", pb.DeclareSchedulesRequest(), "application", INVALID
    yield "negative page", pb.ListTopicSettingsRequest(page_size=-1), "page_size", INVALID
    yield "no page token", pb.ListTopicSettingsRequest(page_token="\0"), "page_token", INVALID
    yield "odd topic", pb.ListTopicSettingsRequest(topics=["a b"]), "topics", INVALID
    yield "too many topics", pb.ListTopicSettingsRequest(topics=["a"] * 1001), "topics", INVALID


def _bad_limits() -> Iterator[BadRequest]:
    endless = Duration(seconds=2**62)
    for name, limits in (
        ("running", pb.TopicEntries(running=0)),
        ("running", pb.TopicEntries(running=2000000)),
        ("per_lane", pb.TopicEntries(per_lane=-1)),
        ("rate", pb.TopicEntries(rate=pb.StartRate())),
        ("rate", pb.TopicEntries(rate=pb.StartRate(starts=1, period=Duration(nanos=1000)))),
        ("lane_rate", pb.TopicEntries(lane_rate=pb.StartRate(starts=1, period=endless))),
        ("aging", pb.TopicEntries(aging=Duration())),
        ("ordered", pb.TopicEntries(ordered=True, per_lane=2)),
        ("pool", pb.TopicEntries(running=1, pool="a b")),
    ):
        yield f"no {name}", pb.SetTopicRequest(topic="mail", entries=limits), name, INVALID
        declared = [pb.DeclaredTopic(topic="mail", entries=limits)]
        declaration = pb.DeclareTopicsRequest(worker_id="w", topics=declared)
        yield f"no {name}", declaration, name, INVALID
    both = pb.SetTopicRequest(topic="mail", entries=pb.TopicEntries(running=1), reset=["running"])
    yield "set and reset", both, "reset", INVALID
    yield "odd topic", pb.ListLimitsRequest(topics=["a b"]), "topics", INVALID
    yield "negative page", pb.ListLimitsRequest(page_size=-1), "page_size", INVALID
    yield "no page token", pb.ListLimitsRequest(page_token="\0"), "page_token", INVALID
    yield "too many topics", pb.ListLimitsRequest(topics=["a"] * 1001), "topics", INVALID
    yield "no topic", pb.ListLanesRequest(), "topic", INVALID
    yield "negative count", pb.ListLanesRequest(topic="mail", limit=-1), "limit", INVALID
    yield "no topic", pb.HoldTopicRequest(duration=Duration(seconds=1)), "topic", INVALID
    yield "no length", pb.HoldTopicRequest(topic="mail"), "duration", INVALID
    yield (
        "into the past",
        pb.HoldTopicRequest(topic="mail", duration=Duration(seconds=-1)),
        "duration",
        INVALID,
    )
    yield "too long", pb.HoldTopicRequest(topic="mail", duration=endless), "duration", INVALID
    yield (
        "for a century",
        pb.HoldTopicRequest(topic="mail", duration=Duration(seconds=10**10)),
        "duration",
        INVALID,
    )
    yield "no moment", pb.HoldTopicRequest(topic="mail", until=NOWHEN), "until", INVALID
    yield "no worker", pb.SetWorkerStateRequest(state="quiet"), "worker_id", INVALID
    yield "huge worker", pb.SetWorkerStateRequest(worker_id=HUGE, state="quiet"), "worker_id", INVALID
    yield "no state", pb.SetWorkerStateRequest(worker_id="w1"), "state", INVALID
    yield "unknown state", pb.SetWorkerStateRequest(worker_id="w1", state="busy"), "state", INVALID
    yield "no lane", pb.SetLaneRequest(topic="mail"), "lane", INVALID
    yield "huge lane", pb.SetLaneRequest(topic="mail", lane=HUGE), "lane", INVALID
    yield "no weight", pb.SetLaneRequest(topic="mail", lane="a", weight=0), "weight", INVALID
    yield "no limit", pb.SetLaneRequest(topic="mail", lane="a", limit=0), "limit", INVALID


def _bad_exports() -> Iterator[BadRequest]:
    yield "odd topic", pb.ExportJobsRequest(topic="a b"), "topic", INVALID
    yield "unknown status", pb.ExportJobsRequest(status="WAITING"), "status", INVALID
    yield "status of unfinished jobs", pb.ExportJobsRequest(status="PENDING"), "status", INVALID
    yield (
        "since when no calendar knows",
        pb.ExportJobsRequest(finished_since=NOWHEN),
        "finished_since",
        INVALID,
    )
    yield (
        "before what no calendar knows",
        pb.ExportJobsRequest(finished_before=NOWHEN),
        "finished_before",
        INVALID,
    )
    yield "no page token", pb.ExportJobsRequest(page_token="\0"), "page_token", INVALID


def _bad_pages() -> Iterator[BadRequest]:
    for request in (pb.ListTopicsRequest, pb.ListWorkersRequest):
        yield "negative page", request(page_size=-1), "page_size", INVALID
        yield "no page token", request(page_token="\0"), "page_token", INVALID
    yield "long search", pb.ListTopicsRequest(search=HUGE), "search", INVALID
    yield "NUL in the search", pb.ListTopicsRequest(search="a\0b"), "search", INVALID
    yield "odd topic", pb.ListTopicsRequest(topics=["a b"]), "topic", INVALID
    yield "too many topics", pb.ListTopicsRequest(topics=["a"] * 1001), "topics", INVALID


def _bad_prefixes() -> Iterator[BadRequest]:
    for name, prefix in {
        "empty": "",
        "only a dash": "-",
        "no id": "xyz",
        "too long": "0" * 33,
        "NUL": "\0",
    }.items():
        yield f"prefix: {name}", pb.FindJobsRequest(prefix=prefix), "prefix", INVALID
    yield "prefix: huge", pb.FindJobsRequest(prefix=HUGE), "prefix", INVALID


def _statuses_that_do_not_fit() -> Iterator[BadRequest]:
    def of(status: str) -> pb.JobFilter:
        return pb.JobFilter(status=status)

    yield "everything", pb.CancelJobsRequest(), "filter", INVALID
    yield "everything", pb.PrioritizeJobsRequest(priority=1), "filter", INVALID
    for status in ("COMPLETED", "DEAD_LETTERED", "CANCELED"):
        yield f"{status} ones", pb.CancelJobsRequest(filter=of(status)), "status", INVALID
        yield f"{status} ones", pb.PrioritizeJobsRequest(filter=of(status)), "status", INVALID
    for status in ("", "PENDING", "RUNNING", "RETRYING", "COMPLETED"):
        yield f"{status or 'whichever'} ones", pb.RetryJobsRequest(filter=of(status)), "status", INVALID
    for status in ("", "PENDING", "RUNNING", "RETRYING"):
        yield f"{status or 'whichever'} ones", pb.DeleteJobsRequest(filter=of(status)), "status", INVALID
    for status in ("PENDING", "CANCELED"):
        both = pb.JobFilter(status=status, error_group="3201d5cec167")
        yield f"{status} ones of a group", pb.CountJobsRequest(filter=both), "error_group", INVALID
        yield f"{status} ones of a group", pb.DeleteJobsRequest(filter=both), "error_group", INVALID


def _bad_batches() -> Iterator[BadRequest]:
    lane = pb.JobFilter(lane="customer-42")
    yield "lane without a topic", pb.CountJobsRequest(filter=lane), "lane", INVALID
    yield "lane without a topic", pb.CancelJobsRequest(filter=lane), "lane", INVALID
    mail, dead = pb.JobFilter(topic="mail"), pb.JobFilter(status="DEAD_LETTERED")
    for limit in (-1, 501):
        yield f"limit {limit}", pb.CancelJobsRequest(filter=mail, limit=limit), "limit", INVALID
        yield f"limit {limit}", pb.RetryJobsRequest(filter=dead, limit=limit), "limit", INVALID
        yield f"limit {limit}", pb.PrioritizeJobsRequest(filter=mail, limit=limit), "limit", INVALID
        yield f"limit {limit}", pb.DeleteJobsRequest(filter=dead, limit=limit), "limit", INVALID
    for attempts in (0, -1, 1001):
        yield f"attempts {attempts}", pb.RetryJobsRequest(filter=dead, attempts=attempts), "attempts", INVALID
    for name, token in {"garbage": "garbage", "huge": HUGE}.items():
        yield (
            f"page token: {name}",
            pb.CancelJobsRequest(filter=mail, page_token=token),
            "page_token",
            INVALID,
        )
        yield (
            f"page token: {name}",
            pb.PrioritizeJobsRequest(filter=mail, page_token=token),
            "page_token",
            INVALID,
        )
        yield (
            f"page token: {name}",
            pb.DeleteJobsRequest(filter=dead, page_token=token),
            "page_token",
            INVALID,
        )
        yield (
            f"page token: {name}",
            pb.RetryJobsRequest(filter=dead, page_token=token),
            "page_token",
            INVALID,
        )


def _bad_watches() -> Iterator[BadRequest]:
    requests: dict[str, tuple[Message, str]] = {
        "odd topic": (pb.WatchJobsRequest(topics=["mail", "a b"]), "topic"),
        "many topics": (pb.WatchJobsRequest(topics=["mail"] * 1001), "topics"),
        "malformed id": (pb.WatchJobsRequest(job_ids=["42"]), "job_ids"),
        "many ids": (pb.WatchJobsRequest(job_ids=["42"] * 1001), "job_ids"),
    }
    status: grpc.StatusCode = INVALID
    for name, (request, field) in requests.items():
        yield name, request, field, status


def _bad_spans() -> Iterator[BadRequest]:
    for minutes in (-1, -(2**31), 1441, 2**31 - 1):
        yield f"{minutes} minutes", pb.GetStatisticsRequest(minutes=minutes), "minutes", INVALID
    for name, topic in {"odd topic": "a b", "long topic": LONG, "NUL": "a\0"}.items():
        yield f"statistics: {name}", pb.GetStatisticsRequest(topic=topic), "topic", INVALID
