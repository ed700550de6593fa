"""The verbs that see the whole at a glance, blocking."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from datetime import timedelta

from pulse.blocking.bridge import Bridge
from pulse.client.overseeing import Overseeing
from pulse.models.dead_letters import DeadLetters
from pulse.models.identity import Identity
from pulse.models.statistics import Statistics
from pulse.models.topics import TopicInfo, TopicPage
from pulse.models.transitions import Transitions
from pulse.models.workers import ServerInfo, WorkerInfo


class SyncOverseeing:
    """What a `SyncPulse` sees of topics, workers, servers, dead letters, and of itself."""

    _pulse: Overseeing
    _bridge: Bridge

    def topics(self, *, search: str | None = None, timeout: timedelta | None = None) -> list[TopicInfo]:
        """Return the topics that have jobs, had some lately, or have workers, by name. See `Pulse.topics`."""
        return self._bridge.call(self._pulse.topics, search=search, timeout=timeout)

    def list_topics(
        self,
        *,
        search: str | None = None,
        names: Iterable[str] = (),
        busiest: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
        timeout: timedelta | None = None,
    ) -> TopicPage:
        """Return a page of the topics, with the sum over all of them. See `Pulse.list_topics`."""
        return self._bridge.call(
            self._pulse.list_topics,
            search=search,
            names=names,
            busiest=busiest,
            limit=limit,
            cursor=cursor,
            timeout=timeout,
        )

    def workers(self, *, timeout: timedelta | None = None) -> list[WorkerInfo]:
        """Return who is connected, to any server, and who holds jobs without being so; by name."""
        return self._bridge.call(self._pulse.workers, timeout=timeout)

    def servers(self, *, timeout: timedelta | None = None) -> list[ServerInfo]:
        """Return the servers that share this database and were heard of lately, by name."""
        return self._bridge.call(self._pulse.servers, timeout=timeout)

    def whoami(self, *, timeout: timedelta | None = None) -> Identity:
        """Return who the server takes this client for, and what it may do."""
        return self._bridge.call(self._pulse.whoami, timeout=timeout)

    def dead_letters(
        self, *, topic: str | None = None, limit: int | None = None, timeout: timedelta | None = None
    ) -> DeadLetters:
        """Return the dead letters in groups that died of the same error. See `Pulse.dead_letters`."""
        return self._bridge.call(self._pulse.dead_letters, topic=topic, limit=limit, timeout=timeout)

    def statistics(
        self, *, topic: str | None = None, minutes: int | None = None, timeout: timedelta | None = None
    ) -> Statistics:
        """Return what happened minute by minute, of one topic or of all; the last hour unless said."""
        return self._bridge.call(self._pulse.statistics, topic=topic, minutes=minutes, timeout=timeout)

    def watch(
        self,
        *,
        topics: Iterable[str] = (),
        job_ids: Iterable[str] = (),
        timeout: timedelta | None = None,
    ) -> Generator[Transitions, None, None]:
        """Yield changes of jobs as they happen, blocking until there are some. See `Pulse.watch`."""
        return self._bridge.iterate(self._pulse.watch(topics=topics, job_ids=job_ids, timeout=timeout))
