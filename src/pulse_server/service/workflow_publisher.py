"""Publishes what is done to jobs of workflows: they are stored together, and wait for each other. ADR-0077"""

from __future__ import annotations

from collections.abc import Sequence

from pulse_server.base.metrics import Metrics
from pulse_server.dispatch.roster import Roster
from pulse_server.jobs.new_jobs import NewJob
from pulse_server.jobs.rules import JobStatus, Level
from pulse_server.wakeups.watchers import Watchers, of_new, transition


class WorkflowPublisher:
    def __init__(self, metrics: Metrics, watchers: Watchers, roster: Roster) -> None:
        self._metrics = metrics
        self._watchers = watchers
        self._roster = roster

    def stored(self, jobs: Sequence[NewJob], roots: Sequence[NewJob] = ()) -> None:
        """Jobs of a workflow were stored. The roots wait for no other job."""
        self._metrics.count_topics(self._metrics.submitted, [job.topic for job in jobs])
        self._watchers.publish(lambda: [of_new(job.id, job.topic) for job in jobs])
        ready = [job for job in roots if job.may_be_ready]
        self._roster.jobs_ready({job.topic for job in ready}, jobs=len(ready))

    def ready(self, levels: Sequence[Level], jobs: int) -> None:
        """Jobs no longer wait for other jobs. Their status did not change."""
        self._roster.jobs_ready({level.topic for level in levels}, levels, jobs)

    def dropped(self, topic: str, job_ids: Sequence[str]) -> None:
        """A workflow canceled jobs that waited: their condition cannot hold any more."""
        self._metrics.canceled.add(self._metrics.topic(topic), by=len(job_ids))
        self._watchers.publish_ends(
            lambda: [transition(job_id, topic, JobStatus.CANCELED) for job_id in job_ids]
        )
