"""Servers and their connected workers, with the jobs that each holds.

Each server keeps its own row, so that each can list all of them.
"""

from __future__ import annotations

import json
import os
import socket
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pulse_server.base import tuning
from pulse_server.base.exposition import installed_version
from pulse_server.base.ids import Page, decode_name, encode_name, fitting, new_id
from pulse_server.base.loops import Loop, in_turns
from pulse_server.database.connections import Database
from pulse_server.database.statements import Rows, statements
from pulse_server.dispatch.rules import ConnectedWorker, WorkerFacts
from pulse_server.jobs.reads import progress_from_json
from pulse_server.jobs.rules import Progress
from pulse_server.settings import Settings


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


# ---------------------------------------------------------------- worker rows
# The connected workers of a server, as its row stores them.

# Topic names in the row of one server, about a megabyte. Past this, each further list of topics is
# cut to WORKER_TOPICS_SHOWN.
SERVER_ROW_TOPICS = 50_000


def workers_to_json(workers: Sequence[ConnectedWorker]) -> str:
    """A worker with the topics of an earlier one has that worker's index as `same_as`.

    Otherwise a thousand workers with a thousand topics each would be a million names, written every
    few seconds and read by every server that lists workers.
    """
    places: dict[tuple[str, ...], int] = {}
    room = SERVER_ROW_TOPICS
    entries: list[dict[str, object]] = []
    for place, worker in enumerate(workers):
        entry: dict[str, object] = {
            "worker_id": worker.worker_id,
            "topics": [],
            "capacity": worker.capacity,
            "connected_at": worker.connected_at.isoformat(),
            "facts": worker.facts,
            "concurrency": worker.concurrency,
            "run_id": worker.run_id,
            "can_stop": worker.can_stop,
        }
        if worker.hindrance:
            entry["hindrance"] = worker.hindrance
        if (same_as := places.setdefault(worker.topics, place)) != place:
            entry["same_as"] = same_as
        else:
            shown = worker.topics[: max(room, tuning.WORKER_TOPICS_SHOWN)]
            room -= len(shown)
            entry["topics"] = shown
            entry["topics_left_out"] = len(worker.topics) - len(shown) + worker.topics_left_out
        entries.append(entry)
    return json.dumps(entries)


def workers_from_json(text: str) -> tuple[ConnectedWorker, ...]:
    workers: list[ConnectedWorker] = []
    for entry in json.loads(text):
        topics, left_out = _topics(entry, workers)
        workers.append(
            ConnectedWorker(
                entry["worker_id"],
                topics,
                entry["capacity"],
                datetime.fromisoformat(entry["connected_at"]),
                left_out,
                WorkerFacts(*entry.get("facts", ())),
                entry.get("concurrency", 0),
                entry.get("hindrance", ""),
                entry.get("run_id", ""),
                entry.get("can_stop", False),
            )
        )
    return tuple(workers)


def _topics(entry: dict[str, Any], before: Sequence[ConnectedWorker]) -> tuple[tuple[str, ...], int]:
    if "same_as" in entry:
        same = before[entry["same_as"]]
        return same.topics, same.topics_left_out
    return tuple(entry["topics"]), entry.get("topics_left_out", 0)


# ---------------------------------------------------------------- servers

# How often a server reports, how many missed rounds make it silent, and when its row is deleted.
SERVERS_INTERVAL = timedelta(seconds=5)
SERVER_SILENT_ROUNDS = 4
SERVER_FORGOTTEN_AFTER = timedelta(hours=1)
HELD_JOBS_SHOWN = 20

_SQL = statements("views/servers.sql")


class Sparing(NamedTuple):
    """How the workers of a server that stopped reporting are spared from reaping.

    `after` and `until` count from the last report. After `after`, the server counts as cut off from
    the database. Its workers are spared until `until`, so that they can move to another server. If
    the server reports again, they are spared for `once_back` more. ADR-0042
    """

    after: timedelta
    until: timedelta
    once_back: timedelta


def sparing_of(settings: Settings) -> Sparing:
    """Return how long the workers of a silent server are spared.

    A server is silent for less time than any lease has left when it counts as cut off.
    """
    silence = (settings.lease_ttl - settings.heartbeat_interval) * 3 / 4
    return Sparing(silence, 2 * settings.lease_ttl, settings.lease_ttl)


class Server(NamedTuple):
    """One pulsed process, and its connected workers."""

    id: str
    name: str
    workers: tuple[ConnectedWorker, ...]
    address: str = ""
    """The address that it listens on, as it was set."""
    version: str = ""
    silent_since: datetime | None = None
    """Its last report, if that is overdue."""
    started_at: datetime | None = None
    """None: not recorded yet."""


def name_of_process() -> str:
    """Return the name of this server for operators: its host and its process."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Servers:
    def __init__(
        self,
        database: Database,
        name: str,
        connected: Callable[[], Sequence[ConnectedWorker]],
        *,
        interval: timedelta,
        sparing: Sparing | None = None,
        address: str = "",
    ) -> None:
        self._database = database
        self._id = new_id()
        self._name = name
        self._address = address
        self._version = installed_version()
        self._clock_ahead = timedelta()
        self._connected = connected
        self._silence = interval * SERVER_SILENT_ROUNDS
        self._has_recorded = False
        self._sparing = sparing
        # Two late rounds must not make a live server count as silent.
        self.loop = Loop("servers", self.record, min(interval, sparing.after / 3) if sparing else interval)

    async def record(self) -> None:
        """Refresh the row of this server. The first time, delete the rows of servers that died long ago."""
        if not self._has_recorded:
            await self.forget_servers(self._id, SERVER_FORGOTTEN_AFTER)
            self._has_recorded = True
        now = await self.record_server(self._id, self._name, self._connected(), self._sparing)
        self._clock_ahead = now - datetime.now(UTC)

    def now(self) -> datetime:
        """Return the time by the clock of the database, as of the last record."""
        return datetime.now(UTC) + self._clock_ahead

    async def leave(self) -> None:
        """Delete the row of this server, if there may be one."""
        if self._has_recorded:
            await self.forget_servers(self._id, SERVER_FORGOTTEN_AFTER)

    async def servers(self, *, silent: bool = False) -> list[Server]:
        """Return this server as it is now, and other servers as last recorded, by name.

        `silent`: also servers that have stopped reporting and are not forgotten yet.
        """
        seen_within = SERVER_FORGOTTEN_AFTER if silent else self._silence
        known = {server.id: server for server in await self.list_servers(seen_within)}
        row = known.get(self._id)
        known[self._id] = Server(
            self._id,
            self._name,
            tuple(self._connected()),
            self._address,
            self._version,
            started_at=row.started_at if row else None,
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

    async def connections_of(self, worker_id: str) -> list[ConnectedWorker]:
        """Return the connections of the worker, over all servers."""
        return [
            worker
            for server in await self.servers()
            for worker in server.workers
            if worker.worker_id == worker_id
        ]

    async def workers_by_topic(self, *, without: Container[tuple[str, str]] = ()) -> Counter[str]:
        """Return the number of workers by topic, over all servers.

        `without`: processes that do not count, as worker id and run id.
        """
        counted: Counter[str] = Counter()
        for server in await self.servers():
            # Workers with the same topics have the same tuple: each is walked once.
            workers = [one for one in server.workers if (one.worker_id, one.run_id) not in without]
            sets = Counter(id(worker.topics) for worker in workers)
            topics = {id(worker.topics): worker.topics for worker in workers}
            async for some in in_turns(
                [(name, sets[key]) for key, names in topics.items() for name in names], 10_000
            ):
                for name, count in some:
                    counted[name] += count
        return counted

    async def workers(self) -> list[WorkerReport]:
        """Return all workers that are connected to any server or hold a job, by name.

        A worker that is connected twice is listed twice. One that lost its connection and still holds jobs
        is listed without a connection.
        """
        holdings = await self.held_jobs(HELD_JOBS_SHOWN)
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

    async def held_jobs(self, per_worker: int) -> dict[str, Holding]:
        """The jobs that each worker holds, by worker."""
        holdings: dict[str, Holding] = {}
        async for rows in in_turns(await self._fetch("held_jobs", per_worker)):
            for row in rows:
                job = HeldJob(
                    str(row["id"]),
                    row["topic"],
                    row["locked_by"],
                    row["attempts"],
                    row["started_at"],
                    row["lease_until"],
                    progress_from_json(row["progress"]),
                )
                found = holdings.get(job.worker_id, Holding())
                holdings[job.worker_id] = Holding(row["held_count"], (*found.jobs, job))
        return holdings

    async def record_server(
        self,
        server_id: str,
        name: str,
        workers: Sequence[ConnectedWorker],
        sparing: Sparing | None = None,
    ) -> datetime:
        """Record that this server is alive with these workers. They are spared if it falls silent.

        Returns the time of the database.
        """
        row, spared = workers_to_json(workers), sparing or (None, None, None)
        (answer,) = await self._fetch(
            "record_server", server_id, name, row, *spared, self._address, self._version
        )
        now: datetime = answer["now"]
        return now

    async def forget_servers(self, server_id: str, silent_for: timedelta) -> None:
        """Remove this server, and servers that were silent for `silent_for`."""
        await self._fetch("forget_servers", server_id, silent_for)

    async def list_servers(self, seen_within: timedelta) -> list[Server]:
        """The servers that were seen within this time."""
        return [
            Server(
                str(row["id"]),
                row["name"],
                workers_from_json(row["workers"]),
                row["address"],
                row["version"],
                row["seen_at"] if row["unseen_for"] > self._silence else None,
                row["started_at"],
            )
            for row in await self._fetch("list_servers", seen_within)
        ]

    async def _fetch(self, name: str, *args: object) -> Rows:
        return await self._database.watch.fetch(name, _SQL[name], *args)
