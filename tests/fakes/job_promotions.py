"""Waiting jobs whose time has come, in memory."""

from __future__ import annotations

from dataclasses import replace

from pulse_server.domain.jobs import Job, Promotion, Turn
from pulse_server.domain.status import WAITING, JobStatus
from tests.fakes.job_table import JobTable


class InMemoryPromotions(JobTable):
    async def promote_due(self, limit: int) -> Promotion:
        self._answer("promote_due")
        now = self.clock.now()
        waiting = [job for job in self._free() if job.status in WAITING and not job.ready]
        waiting.sort(key=lambda job: job.next_run_at)
        due = [job for job in waiting if job.next_run_at <= now][:limit]
        ahead = [job.next_run_at - now for job in waiting if job.next_run_at > now]
        for job in due:
            self._put(job, ready=True)
        return Promotion(len(due), frozenset(job.topic for job in due), ahead[0] if ahead else None)

    async def promote_in_turn(
        self, limit: int, *, of_each_topic: int, after_topic: str, topics_looked_at: int
    ) -> Turn:
        self._answer("promote_in_turn")
        now = self.clock.now()
        waiting = [job for job in self.jobs.values() if job.status in WAITING and not job.ready]
        topics = sorted({job.topic for job in waiting if job.topic > after_topic})[:topics_looked_at]
        due: list[Job] = []
        for topic in topics:
            of_topic = [job for job in waiting if job.topic == topic and job.next_run_at <= now]
            due += sorted(of_topic, key=lambda job: job.next_run_at)[:of_each_topic]
        del due[limit:]
        for job in due:
            self._put(job, ready=True)
        promoted = [job.topic for job in due]
        last = promoted if len(due) == limit else topics if len(topics) == topics_looked_at else [""]
        return Turn(frozenset(promoted), last[-1])

    async def cancel_unstarted(self, limit: int) -> list[Job]:
        self._answer("cancel_unstarted")
        late = [job for job in self._free() if job.status in WAITING and not self._may_start(job)]
        late.sort(key=lambda job: job.start_by or self.clock.now())
        return [
            self._finish(
                replace(
                    job,
                    last_error=f"not started by {job.start_by:%Y-%m-%d %H:%M:%S} UTC, as start_within asks",
                ),
                JobStatus.CANCELED,
            )
            for job in late[:limit]
        ]
