"""Servers and their connected workers. Each server keeps its own row, so that each can list all of them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pulse_server import tuning
from pulse_server.domain.ids import new_id
from pulse_server.domain.overview import ConnectedWorker, Holding, Server, Sparing
from pulse_server.loops import Loop
from pulse_server.repos.overview import OverviewRepo
from pulse_server.service.paging import Page, decode_name, encode_name, fitting
from pulse_server.turns import in_turns

# How many missed rounds make a server silent, and when its row is deleted.
SERVER_SILENT_ROUNDS = 4
SERVER_FORGOTTEN_AFTER = timedelta(hours=1)
HELD_JOBS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """A worker: its connection, if it has one, and the jobs that it holds by the database."""

    worker_id: str
    holding: Holding
    connection: ConnectedWorker | None = None
    server: str = ""


class Servers:
    def __init__(
        self,
        repo: OverviewRepo,
        name: str,
        connected: Callable[[], Sequence[ConnectedWorker]],
        *,
        interval: timedelta,
        sparing: Sparing | None = None,
    ) -> None:
        self._repo = repo
        self._id = new_id()
        self._name = name
        self._connected = connected
        self._silence = interval * SERVER_SILENT_ROUNDS
        self._has_recorded = False
        self._sparing = sparing
        # Two late rounds must not make a live server count as silent.
        self.loop = Loop("servers", self.record, min(interval, sparing.after / 3) if sparing else interval)

    async def record(self) -> None:
        """Refresh the row of this server. The first time, delete the rows of servers that died long ago."""
        if not self._has_recorded:
            await self._repo.forget_servers(self._id, SERVER_FORGOTTEN_AFTER)
            self._has_recorded = True
        await self._repo.record_server(self._id, self._name, self._connected(), self._sparing)

    async def leave(self) -> None:
        """Delete the row of this server, if there may be one."""
        if self._has_recorded:
            await self._repo.forget_servers(self._id, SERVER_FORGOTTEN_AFTER)

    async def servers(self) -> list[Server]:
        """Return this server as it is now, and other servers as last recorded, by name."""
        known = {server.id: server for server in await self._repo.list_servers(self._silence)}
        row = known.get(self._id)
        known[self._id] = Server(
            self._id, self._name, tuple(self._connected()), row.started_at if row else None
        )
        return sorted(known.values(), key=lambda server: server.name)

    async def topics_of(self, is_wanted: Callable[[str], bool]) -> set[str]:
        """Return the topics of the workers with these ids, over all servers."""
        return {
            topic
            for server in await self.servers()
            for worker in server.workers
            if is_wanted(worker.worker_id)
            for topic in worker.topics
        }

    async def workers_by_topic(self) -> Counter[str]:
        """Return the number of workers by topic, over all servers."""
        counted: Counter[str] = Counter()
        for server in await self.servers():
            # Workers with the same topics have the same tuple: each is walked once.
            sets = Counter(id(worker.topics) for worker in server.workers)
            topics = {id(worker.topics): worker.topics for worker in server.workers}
            async for some in in_turns(
                [(name, sets[key]) for key, names in topics.items() for name in names], 10_000
            ):
                for name, workers in some:
                    counted[name] += workers
        return counted

    async def workers(self) -> list[WorkerReport]:
        """Return all workers that are connected to any server or hold a job, by name.

        A worker that is connected twice is listed twice. One that lost its connection and still holds jobs
        is listed without a connection.
        """
        holdings = await self._repo.held_jobs(HELD_JOBS_SHOWN)
        reports = [
            WorkerReport(worker.worker_id, holdings.get(worker.worker_id, Holding()), worker, server.name)
            for server in await self.servers()
            for worker in server.workers
        ]
        connected = {report.worker_id for report in reports}
        reports += [
            WorkerReport(worker_id, holding)
            for worker_id, holding in holdings.items()
            if worker_id not in connected
        ]
        return sorted(reports, key=lambda report: (report.worker_id, report.server))


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
    """About how many bytes a worker takes in an answer."""
    topics = report.connection.topics[: tuning.WORKER_TOPICS_SHOWN] if report.connection else ()
    return 200 + 4 * len(report.worker_id) + sum(map(len, topics)) + 400 * len(report.holding.jobs)
