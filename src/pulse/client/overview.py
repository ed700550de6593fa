"""The verbs for the overview: topics, workers, servers, dead letters, statistics, changes, and access."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pulse.client.caller import Caller
from pulse.client.filters import names_of, not_empty
from pulse.client.watch import Transitions, Watch
from pulse.errors import NotFound
from pulse.messages import Items, Reader, existing_id, message
from pulse.models.jobs import JobInfo
from pulse.models.overview import (
    Explanation,
    Findings,
    ServerInfo,
    Statistics,
    TopicInfo,
    TopicPage,
    WorkerInfo,
    explanation,
    findings,
    server_info,
    statistics,
    topic_page,
    worker_info,
)
from pulse.v1 import pulse_pb2 as pb


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
