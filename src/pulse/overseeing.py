"""The verbs that see the whole at a glance."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from pulse.blocking import Blocking
from pulse.calling import Caller, message
from pulse.errors import InvalidArgument
from pulse.overview import (
    DeadLetters,
    ServerInfo,
    Statistics,
    TopicInfo,
    Transitions,
    WorkerInfo,
    dead_letters,
    server_info,
    statistics,
    topic_info,
    worker_info,
)
from pulse.selecting import named
from pulse.v1 import pulse_pb2 as pb
from pulse.watching import watched

if TYPE_CHECKING:
    from pulse.client import Pulse


class Overseeing:
    """What a `Pulse` sees of topics, workers, servers and dead letters."""

    _caller: Caller

    async def find_jobs(self, prefix: str, *, timeout: timedelta | None = None) -> list[str]:
        """Return the ids that begin like this, ten at the most; dashes may be left out."""
        request = message(pb.FindJobsRequest, prefix=prefix)
        response = await self._caller.call(lambda stub: stub.FindJobs, request, timeout)
        return list(response.job_ids)

    async def topics(self, *, timeout: timedelta | None = None) -> list[TopicInfo]:
        """Return the topics that have jobs, had some lately, or have workers, by name."""
        request = pb.ListTopicsRequest()
        response = await self._caller.call(lambda stub: stub.ListTopics, request, timeout)
        return [topic_info(view) for view in response.topics]

    async def workers(self, *, timeout: timedelta | None = None) -> list[WorkerInfo]:
        """Return who is connected, to any server, and who holds jobs without being so; by name."""
        request = pb.ListWorkersRequest()
        response = await self._caller.call(lambda stub: stub.ListWorkers, request, timeout)
        return [worker_info(view) for view in response.workers]

    async def servers(self, *, timeout: timedelta | None = None) -> list[ServerInfo]:
        """Return the servers that share this database and were heard of lately, by name."""
        request = pb.ListServersRequest()
        response = await self._caller.call(lambda stub: stub.ListServers, request, timeout)
        return [server_info(view) for view in response.servers]

    async def dead_letters(
        self, *, topic: str | None = None, limit: int | None = None, timeout: timedelta | None = None
    ) -> DeadLetters:
        """Return the dead letters in groups: those of one topic that died of the same error.

        Errors are the same when they differ in numbers, ids and quoted values only. Give a group's
        `error_group` to `list_jobs` or `retry_matching` to see or retry its jobs.
        """
        request = message(pb.ListDeadLetterGroupsRequest, topic=named("topic", topic), limit=limit or 0)
        return dead_letters(await self._caller.call(lambda stub: stub.ListDeadLetterGroups, request, timeout))

    async def statistics(
        self, *, topic: str | None = None, minutes: int | None = None, timeout: timedelta | None = None
    ) -> Statistics:
        """Return what happened minute by minute, of one topic or of all; the last hour unless said."""
        request = message(pb.GetStatisticsRequest, topic=named("topic", topic), minutes=minutes or 0)
        return statistics(await self._caller.call(lambda stub: stub.GetStatistics, request, timeout))

    async def watch(
        self,
        *,
        topics: Iterable[str] = (),
        job_ids: Iterable[str] = (),
        timeout: timedelta | None = None,
    ) -> AsyncGenerator[Transitions, None]:
        """Yield changes of jobs as they happen: of all jobs, or of these topics, or these jobs.

        The first one is empty: what happens from then on is seen. When the server goes away this waits until
        one is back and goes on; that one is marked as `interrupted`, since what happened meanwhile is lost.
        `timeout` bounds the first welcome. Leave the loop, or close the iterator, to stop watching.
        """
        request = message(
            pb.WatchJobsRequest, topics=_names("topics", topics), job_ids=_names("job_ids", job_ids)
        )
        seconds = self._caller.seconds(timeout)
        stream = watched(self._caller.session().connection, request, seconds)
        try:
            async for news in stream:
                yield news
        finally:
            await stream.aclose()


class SyncOverseeing:
    """What a `SyncPulse` sees of topics, workers, servers and dead letters."""

    _pulse: Pulse
    _blocking: Blocking

    def find_jobs(self, prefix: str, *, timeout: timedelta | None = None) -> list[str]:
        """Return the ids that begin like this, ten at the most; dashes may be left out."""
        return self._blocking.call(self._pulse.find_jobs, prefix, timeout=timeout)

    def topics(self, *, timeout: timedelta | None = None) -> list[TopicInfo]:
        """Return the topics that have jobs, had some lately, or have workers, by name."""
        return self._blocking.call(self._pulse.topics, timeout=timeout)

    def workers(self, *, timeout: timedelta | None = None) -> list[WorkerInfo]:
        """Return who is connected, to any server, and who holds jobs without being so; by name."""
        return self._blocking.call(self._pulse.workers, timeout=timeout)

    def servers(self, *, timeout: timedelta | None = None) -> list[ServerInfo]:
        """Return the servers that share this database and were heard of lately, by name."""
        return self._blocking.call(self._pulse.servers, timeout=timeout)

    def dead_letters(
        self, *, topic: str | None = None, limit: int | None = None, timeout: timedelta | None = None
    ) -> DeadLetters:
        """Return the dead letters in groups that died of the same error. See `Pulse.dead_letters`."""
        return self._blocking.call(self._pulse.dead_letters, topic=topic, limit=limit, timeout=timeout)

    def statistics(
        self, *, topic: str | None = None, minutes: int | None = None, timeout: timedelta | None = None
    ) -> Statistics:
        """Return what happened minute by minute, of one topic or of all; the last hour unless said."""
        return self._blocking.call(self._pulse.statistics, topic=topic, minutes=minutes, timeout=timeout)

    def watch(
        self,
        *,
        topics: Iterable[str] = (),
        job_ids: Iterable[str] = (),
        timeout: timedelta | None = None,
    ) -> Generator[Transitions, None, None]:
        """Yield changes of jobs as they happen, blocking until there are some. See `Pulse.watch`."""
        return self._blocking.iterate(self._pulse.watch(topics=topics, job_ids=job_ids, timeout=timeout))


def _names(field: str, names: Iterable[str]) -> list[str]:
    if isinstance(names, str):
        raise InvalidArgument(f"{field}={names!r} is one text: give a list, such as {field}=[{names!r}].")
    return list(names)
