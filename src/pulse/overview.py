"""The overview of a queue: topics with counts, rates and latencies, workers, servers, and statistics.

Its verbs, the stream of changes, and who changed what.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import grpc.aio

from pulse import tuning
from pulse.errors import NotFound
from pulse.jobs.caller import Caller
from pulse.jobs.models import JobInfo, JobStatus, Progress
from pulse.jobs.selections import aware, names_of, not_empty
from pulse.messages import Items, Reader, existing_id, message
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.streams import Patience, reconnecting_stream


@dataclass(frozen=True, slots=True)
class Rates:
    """The counts of a topic in a span of time."""

    submitted: int
    completed: int
    failed: int
    dead_lettered: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic. Completed jobs are only counted in the rates."""

    topic: str
    ready: int
    """Can be claimed now."""
    waiting: int
    """Delayed, or between two attempts."""
    running: int
    dead_lettered: int
    canceled: int
    oldest_ready_at: datetime | None
    """When the oldest ready job became due."""
    last_minute: Rates
    last_hour: Rates
    paused: bool
    workers: int
    """Connected workers that serve this topic."""
    wait: Latency
    """From due to claimed, over the last hour."""
    run: Latency
    """From claimed to reported, over the last hour."""
    waiting_for_jobs: int = 0
    """In workflows, waiting for other jobs. `waiting` does not count them."""


@dataclass(frozen=True, slots=True)
class TopicPage(Items[TopicInfo]):
    """One page of topics."""

    topics: tuple[TopicInfo, ...]
    next_cursor: str | None
    """Pass it to the next `list_topics`. None on the last page."""
    total: int
    """The number of matching topics on all pages."""
    sum: TopicInfo
    """The totals over all topics, without a name, workers and latencies."""


topic_page = Reader(TopicPage, next_cursor="next_page_token")
"""Returns the page in a `ListTopicsResponse`."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of a duration, in seconds. They come from buckets: each is accurate to 20%."""

    count: int
    """If 0, the percentiles have no meaning."""
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Minute:
    """The counts of one minute."""

    at: datetime | None
    submitted: int
    completed: int
    failed: int
    """Failed attempts."""
    retried: int
    dead_lettered: int
    canceled: int
    wait: Latency
    run: Latency
    ready: int | None = None
    """Ready jobs, sampled once in the minute. None: not sampled."""
    running: int | None = None
    oldest_seconds: float | None = None
    """How long the oldest ready job had been due."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Every minute of a span, oldest first. The last one is still running."""

    minutes: tuple[Minute, ...]
    wait: Latency
    """From due to claimed, over the whole span."""
    run: Latency
    """From claimed to reported, over the whole span."""


Reader(Latency, p50="p50_seconds", p95="p95_seconds", p99="p99_seconds")
statistics = Reader(Statistics)
"""Returns the statistics in a `GetStatisticsResponse`."""


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A job that a worker holds."""

    id: str
    topic: str
    attempt: int
    since: datetime | None
    lease_until: datetime | None
    progress: Progress | None = None
    """As last stored: of this attempt, or of an earlier one."""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """What an operator has ordered of a worker. Such a worker takes no jobs."""

    name: str
    """`quiet`, or `stopping`: it ends once its running jobs have."""
    reason: str
    set_at: datetime | None
    set_by: str = ""
    """The user; empty if the server requires none."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One worker: its connection, if it has one, and the jobs it holds."""

    worker_id: str
    topics: tuple[str, ...]
    capacity: int
    connected_at: datetime | None
    """None if it holds jobs and is not connected."""
    server: str | None
    held_count: int
    held: tuple[HeldJob, ...]
    """At most twenty, the longest held first."""
    topic_count: int = 0
    """The number of its topics. `topics` lists at most the first hundred."""
    host: str = ""
    version: str = ""
    """Of the SDK that it runs."""
    memory_bytes: int = 0
    """Its resident memory, as of its last heartbeat. 0: unknown."""
    last_exit: str = ""
    """How the process before it ended, if a supervisor has replaced it."""
    state: WorkerState | None = None
    """What an operator has ordered. None: it takes jobs."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """One pulsed process."""

    id: str
    name: str
    started_at: datetime | None
    workers: int
    """The number of workers connected to it."""
    address: str | None = None
    """The address that it listens on, as it was set."""
    version: str | None = None
    """The version of pulse-jobs."""
    silent_since: datetime | None = None
    """The time of its last report, if the next one is overdue."""


Reader(HeldJob, id="job_id")
worker_info = Reader(
    WorkerInfo,
    topic_count=lambda view: view.topic_count or len(view.topics),
    host=lambda view: view.facts.host,
    version=lambda view: view.facts.version,
    memory_bytes=lambda view: view.facts.memory_bytes,
    last_exit=lambda view: view.facts.last_exit,
)
"""Returns the worker in a `WorkerView`."""
server_info = Reader(ServerInfo, id="server_id")
"""Returns the server in a `ServerView`."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job does not run, or why a topic starts no jobs."""

    job_id: str | None
    """None: the topic as a whole."""
    cause: str
    """A code such as `topic_paused`. Empty if nothing stops it."""
    sentence: str
    remedy: str
    """What must happen or be done, with the command. May be empty."""
    expected_at: datetime | None
    """About when it goes on, if that is known."""
    brief: str
    """The sentence in a few words."""


explanation = Reader(Explanation)
"""Returns the explanation in an `Explanation` of the contract."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What needs attention about a topic, about a worker, or about the whole queue."""

    kind: str
    """The most harmful part: full, paused, scheduler, dead, failing, starving, old, limited, long, flood,
    worker, silent or memory."""
    urgent: bool
    """A problem. Otherwise a warning."""
    topic: str | None
    worker_id: str | None
    sentence: str
    """Of a topic or a worker: the rest of the sentence, after its name."""
    harm: float
    """Jobs per minute over the last five minutes: late ones count 1, failed 10, dead-lettered 100."""


@dataclass(frozen=True, slots=True)
class Findings(Items[Finding]):
    """The findings. Trouble of the whole queue comes first, then the most harm."""

    findings: tuple[Finding, ...]
    findings_left_out: int
    """The number of findings beyond the limit."""
    found_at: datetime | None


findings = Reader(Findings)
"""Returns the findings in a `ListFindingsResponse`."""


# ---------------------------------------------------------------- changes of jobs


@dataclass(frozen=True, slots=True)
class Transition:
    """One committed change of a job's status, or of its progress."""

    job_id: str
    topic: str
    status: JobStatus
    attempt: int
    worker_id: str | None
    error: str | None
    """The first line of the error."""
    at: datetime | None
    progress: Progress | None = None
    """Set with `watch(progress=True)`: the job runs as before, and its handler has reported this."""


@dataclass(frozen=True, slots=True)
class Transitions:
    """The changes since the previous item."""

    transitions: tuple[Transition, ...]
    missed: int
    """The number of further changes, of any topic, that were dropped."""
    interrupted: bool = False
    """True after the connection was lost: changes in between are missing."""


_transitions = Reader(Transitions, interrupted=lambda response: False)


class Watch:
    """Watches jobs. `timeout_seconds` bounds the wait for the first welcome only."""

    def __init__(self, connection: Connection, request: pb.WatchJobsRequest, timeout_seconds: float) -> None:
        self._connection = connection
        self._request = request
        self._patience = Patience(connection, timeout_seconds)
        self._was_welcomed = False
        self._is_new = True

    async def transitions(self) -> AsyncGenerator[Transitions, None]:
        """Yield the changes until closed. The first of each connection is empty.

        Raises a PulseError if no server answers at first, and later if one refuses this caller for good.
        """
        patience = self._patience
        stream = reconnecting_stream(
            self._connection, self._open, patience.lost, welcome_seconds=patience.welcome_seconds
        )
        async with contextlib.aclosing(stream):
            async for message in stream:
                is_interrupted = self._is_new and self._was_welcomed
                self._is_new, self._was_welcomed = False, True
                patience.renew()
                yield replace(_transitions(message), interrupted=is_interrupted)

    def _open(self) -> grpc.aio.UnaryStreamCall[pb.WatchJobsRequest, pb.WatchJobsResponse]:
        self._is_new = True
        return self._connection.open_stream(self._connection.stub.WatchJobs, self._request)


# ---------------------------------------------------------------- verbs


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """Dead letters of one topic whose errors differ only in numbers, ids and quoted values.

    For an error with a cause, only the innermost cause is compared.
    """

    topic: str
    error_group: str
    """`none` for dead letters that are older than the groups."""
    count: int
    first_at: datetime | None
    last_at: datetime | None
    sample: JobInfo
    """The latest dead letter of the group, without its payload."""


@dataclass(frozen=True, slots=True)
class DeadLetters(Items[DeadLetterGroup]):
    """The groups of dead letters. The group with the latest dead letter comes first."""

    groups: tuple[DeadLetterGroup, ...]
    groups_left_out: int
    """The number of groups beyond the limit."""
    counted_at: datetime | None


_dead_letters = Reader(DeadLetters)


class OverviewVerbs:
    """The verbs of a `Pulse` that read topics, workers, servers and dead letters."""

    _caller: Caller

    async def topics(self, *, search: str | None = None, timeout: timedelta | None = None) -> list[TopicInfo]:
        """Return the topics that have jobs, had jobs recently, or have workers, by name.

        `search` selects topics whose name contains it. `timeout` bounds each of the calls that this takes.
        With many thousands of topics, read pages with `list_topics`.
        """
        found: list[TopicInfo] = []
        cursor: str | None = None
        while True:
            page = await self._topics(timeout, search=not_empty("search", search), page_token=cursor)
            found += page.topics
            if (cursor := page.next_cursor) is None:
                return found

    async def list_topics(
        self,
        *,
        search: str | None = None,
        names: Iterable[str] = (),
        busiest: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
        timeout: timedelta | None = None,
    ) -> TopicPage:
        """Return a page of the topics, by name, with the totals over all topics.

        `search` selects topics whose name contains it. `names` selects these topics, with or without jobs.
        `busiest` sorts by the number of ready and running jobs; there is no next page then. `limit` is at
        most 1,000.
        """
        return await self._topics(
            timeout,
            search=not_empty("search", search),
            topics=names_of("names", names),
            order=pb.TOPIC_ORDER_BUSIEST if busiest else None,
            page_size=limit,
            page_token=cursor,
        )

    async def _topics(self, timeout: timedelta | None, **fields: Any) -> TopicPage:
        request = message(
            pb.ListTopicsRequest, **{name: value for name, value in fields.items() if value is not None}
        )
        return topic_page(await self._caller.call(lambda stub: stub.ListTopics, request, timeout))

    async def workers(self, *, timeout: timedelta | None = None) -> list[WorkerInfo]:
        """Return the workers that are connected to any server, or hold jobs, by name.

        `timeout` bounds each of the calls that this takes.
        """
        found: list[WorkerInfo] = []
        request = pb.ListWorkersRequest()
        while True:
            response = await self._caller.call(lambda stub: stub.ListWorkers, request, timeout)
            found += [worker_info(view) for view in response.workers]
            if not response.next_page_token:
                return found
            request = pb.ListWorkersRequest(page_token=response.next_page_token)

    async def servers(self, *, silent: bool = False, timeout: timedelta | None = None) -> list[ServerInfo]:
        """Return the servers that share this database, by name.

        `silent` adds servers that have stopped reporting within the last hour: they are dead, or cut off
        from the database.
        """
        request = pb.ListServersRequest(silent=silent)
        response = await self._caller.call(lambda stub: stub.ListServers, request, timeout)
        return [server_info(view) for view in response.servers]

    async def dead_letters(
        self, *, topic: str | None = None, limit: int | None = None, timeout: timedelta | None = None
    ) -> DeadLetters:
        """Return the dead letters in groups of the same topic and the same error.

        Errors are the same if they differ only in numbers, ids and quoted values. An error that has a cause
        counts as its innermost cause: the error that it was raised from or while handling, or the first one
        of an exception group. Pass a group's `error_group` to `list_jobs` or `retry_matching` to list or
        retry its jobs.
        """
        request = message(pb.ListDeadLetterGroupsRequest, topic=not_empty("topic", topic), limit=limit or 0)
        return _dead_letters(
            await self._caller.call(lambda stub: stub.ListDeadLetterGroups, request, timeout)
        )

    async def findings(self, *, limit: int | None = None, timeout: timedelta | None = None) -> Findings:
        """Return what needs attention: trouble of the whole queue, then one finding per topic or worker.

        They are ordered by harm: jobs that were dead-lettered, failed or late per minute, over the last five
        minutes. `limit` is 100 by default.
        """
        request = message(pb.ListFindingsRequest, limit=limit or 0)
        return findings(await self._caller.call(lambda stub: stub.ListFindings, request, timeout))

    async def statistics(
        self, *, topic: str | None = None, minutes: int | None = None, timeout: timedelta | None = None
    ) -> Statistics:
        """Return counts for each minute, of one topic or of all. The default is the last hour."""
        request = message(pb.GetStatisticsRequest, topic=not_empty("topic", topic), minutes=minutes or 0)
        return statistics(await self._caller.call(lambda stub: stub.GetStatistics, request, timeout))

    async def explain(self, job_id: str, *, timeout: timedelta | None = None) -> Explanation:
        """Return why a job does not run, what must happen, and about when. Raises NotFound."""
        found = await self.explain_jobs([job_id], timeout=timeout)
        if not found:
            raise NotFound(f"There is no job {job_id}.")
        return found[0]

    async def explain_jobs(
        self, job_ids: Iterable[str], *, timeout: timedelta | None = None
    ) -> list[Explanation]:
        """Explain up to 200 jobs in one call, in this order. Deleted jobs are left out."""
        ids = [existing_id(job_id) for job_id in names_of("job_ids", job_ids)]
        return await self._explain(pb.ExplainRequest(job_ids=ids), timeout) if ids else []

    async def explain_topic(self, topic: str, *, timeout: timedelta | None = None) -> Explanation:
        """Return why a topic starts no jobs: what stops all of them, or its next job."""
        request = message(pb.ExplainRequest, topic=topic)
        (found,) = await self._explain(request, timeout)
        return found

    async def _explain(self, request: pb.ExplainRequest, timeout: timedelta | None) -> list[Explanation]:
        response = await self._caller.call(lambda stub: stub.Explain, request, timeout)
        return [explanation(item) for item in response.explanations]

    async def watch(
        self,
        *,
        topics: Iterable[str] = (),
        job_ids: Iterable[str] = (),
        progress: bool = False,
        timeout: timedelta | None = None,
    ) -> AsyncGenerator[Transitions, None]:
        """Yield changes of jobs as they happen: of all jobs, of some topics, or of some jobs.

        With `progress`, also yield the reports of handlers: transitions to RUNNING that have a
        `progress`. Some reports may be left out, and are not counted as missed.

        The first item is empty: changes from then on are seen. If the connection is lost, this reconnects
        and yields an item marked `interrupted`; changes in between are lost. `timeout` bounds the first
        connection. Leave the loop, or close the iterator, to stop watching.
        """
        request = message(
            pb.WatchJobsRequest,
            topics=names_of("topics", topics),
            job_ids=names_of("job_ids", job_ids),
            progress=progress,
        )
        watch = Watch(self._caller.session().connection, request, self._caller.seconds(timeout))
        async with contextlib.aclosing(watch.transitions()) as stream:
            async for transitions in stream:
                yield transitions


class AccessVerbs:
    """The verbs of a `Pulse` for its own access."""

    _caller: Caller

    async def whoami(self, *, timeout: timedelta | None = None) -> Identity:
        """Return the user and the role that the server sees in this client."""
        return _identity(await self._caller.call(lambda stub: stub.WhoAmI, pb.WhoAmIRequest(), timeout))


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller as the server sees it."""

    user: str | None
    """None if the server requires no login."""
    role: str
    """admin, operator, producer, worker or viewer."""
    methods: frozenset[str]
    """The RPCs that this role may call, such as RetryJobs."""

    def may(self, method: str) -> bool:
        """True if the role may call this RPC."""
        return method in self.methods


_identity = Reader(Identity)


# ---------------------------------------------------------------- audit


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """An action that changed something, or refused calls of one minute."""

    action_id: str
    at: datetime | None
    """When it began, by the clock of the database."""
    user: str
    """Empty if the server requires no login."""
    role: str
    address: str
    """Through the dashboard, that of the visitor and that of the dashboard: `203.0.113.9 via 10.0.0.4`."""
    method: str
    """The RPC, such as CancelJobs."""
    reason: str
    topic: str
    """Empty: several topics, or none."""
    ids: tuple[str, ...]
    """The jobs, schedules and workflows; the first 64."""
    count: int
    """The number of changes, or of refused calls."""
    outcome: str
    """OK, or the status of a refused call."""
    refusal: str
    """Why it was refused."""
    asked: Mapping[str, Any]
    """The filter and the short fields of the request, without payloads."""
    changes: Mapping[str, Mapping[str, Any]]
    """Of settings: each entry that changed, with `old` and `new`."""
    can_undo: bool


@dataclass(frozen=True, slots=True)
class AuditPage(Items[AuditEntry]):
    """Entries of the audit, newest first."""

    entries: tuple[AuditEntry, ...]
    next_cursor: str | None
    """None: this is the last page."""


def _parsed(field: str) -> Callable[[pb.AuditEntry], Any]:
    return lambda entry: json.loads(getattr(entry, field) or "{}")


_audit_entry = Reader(AuditEntry, asked=_parsed("asked_json"), changes=_parsed("changes_json"))
_audit_page = Reader(AuditPage, next_cursor="next_page_token")


class AuditVerbs:
    """The verb of a `Pulse` for the audit."""

    _caller: Caller

    async def audit(
        self,
        *,
        user: str | None = None,
        method: str | None = None,
        topic: str | None = None,
        id: str | None = None,
        since: datetime | None = None,
        refused: bool = False,
        limit: int = tuning.PAGE_SIZE,
        cursor: str | None = None,
        timeout: timedelta | None = None,
    ) -> AuditPage:
        """Return one page of the audit, newest first: which user changed what, when and why.

        `id` is that of a job, a schedule, a workflow or an action. `refused` selects calls that were refused
        for want of a permission. A bulk action is one entry.
        """
        request = message(
            pb.ListAuditRequest,
            user=not_empty("user", user),
            method=not_empty("method", method),
            topic=not_empty("topic", topic),
            id=not_empty("id", id),
            since=aware("since", since),
            refused=refused,
            page_size=limit,
            page_token=cursor or "",
        )
        return _audit_page(await self._caller.call(lambda stub: stub.ListAudit, request, timeout))
