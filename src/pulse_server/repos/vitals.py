"""The port to the vitals: gauges of the queue and its database."""

from __future__ import annotations

from typing import Protocol

from pulse_server.domain.horizon import Holder
from pulse_server.domain.vitals import DatabaseVitals, JobCounts, ReadyTopic


class VitalsRepo(Protocol):
    async def ready_by_topic(self, most_topics: int) -> list[ReadyTopic]:
        """The deepest topics, and one nameless entry with the sum of all other topics."""
        ...

    async def count_jobs(self) -> JobCounts: ...

    async def measure_database(self) -> DatabaseVitals: ...

    async def oldest_holder(self) -> Holder | None:
        """The session that has blocked vacuum for the longest, if there is one."""
        ...

    async def ping(self) -> None:
        """Return if the database responds."""
        ...
