"""Workers: the jobs that each holds, and pages of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from pulse_server.base import tuning
from pulse_server.base.ids import Page, decode_name, encode_name, fitting
from pulse_server.dispatch.rules import ConnectedWorker
from pulse_server.jobs.rules import Progress


class HeldJob(NamedTuple):
    job_id: str
    topic: str
    worker_id: str
    attempt: int
    since: datetime
    lease_until: datetime
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """The number of jobs that one worker holds, and the longest-held jobs."""

    count: int = 0
    jobs: tuple[HeldJob, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """A worker: its connection, if it has one, and the jobs that it holds by the database."""

    worker_id: str
    holding: Holding
    connection: ConnectedWorker | None = None
    server: str = ""


def workers_page(reports: Sequence[WorkerReport], *, limit: int, token: str) -> Page[WorkerReport]:
    """Return one page of the workers, which are sorted by name. Limit 0: as many as fit into an answer."""
    after = tuple(decode_name(token).split("\n")) if token else ()
    begin = bisect_right(reports, after, key=lambda report: (report.worker_id, report.server))
    rest = reports[begin : begin + limit] if limit else reports[begin:]
    count = fitting(map(_weight, rest))
    is_last = begin + count >= len(reports)
    next_token = "" if is_last else encode_name(f"{rest[count - 1].worker_id}\n{rest[count - 1].server}")
    return Page(list(rest[:count]), next_token)


def _weight(report: WorkerReport) -> int:
    """About how many bytes a worker takes in an answer. Few have a state with a reason."""
    topics = report.connection.topics[: tuning.WORKER_TOPICS_SHOWN] if report.connection else ()
    return 200 + 4 * len(report.worker_id) + sum(map(len, topics)) + 400 * len(report.holding.jobs)
