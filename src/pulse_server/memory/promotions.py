"""Waiting jobs whose time has come, in memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, takewhile

from pulse_server.domain.jobs import Job
from pulse_server.domain.promotions import Promotion, Turn
from pulse_server.domain.status import JobStatus
from pulse_server.memory.settling import Settling


class InMemoryPromotions(Settling):
    async def promote_due(self, limit: int) -> Promotion:
        self.answer("promote_due")
        now = self.clock.now()
        due: list[Job] = []
        next_due_in = None
        for job in self.unlocked(self.jobs.waiting[True]):
            if job.next_run_at > now:
                next_due_in = job.next_run_at - now
                break
            if len(due) < limit:
                due.append(job)
        for job in due:
            self.put(job, ready=True)
        return Promotion(len(due), frozenset(job.topic for job in due), next_due_in)

    async def promote_in_turn(
        self, limit: int, *, of_each_topic: int, after_topic: str, topics_looked_at: int
    ) -> Turn:
        self.answer("promote_in_turn")
        now = self.clock.now()
        waiting = [self.jobs[job_id] for _, job_id in self.jobs.waiting[True]]
        topics = sorted({job.topic for job in waiting if job.topic > after_topic})[:topics_looked_at]
        due: list[Job] = []
        for topic in topics:
            due += [job for job in waiting if job.topic == topic and job.next_run_at <= now][:of_each_topic]
        del due[limit:]
        for job in due:
            self.put(job, ready=True)
        promoted = [job.topic for job in due]
        last = promoted if len(due) == limit else topics if len(topics) == topics_looked_at else [""]
        return Turn(frozenset(promoted), last[-1])

    async def cancel_unstarted(self, limit: int) -> list[Job]:
        self.answer("cancel_unstarted")
        unstarted = self.unlocked(self.jobs.unstarted[True])
        late = list(islice(takewhile(lambda job: not self._may_start(job), unstarted), limit))
        canceled = [
            self.finish(
                replace(
                    job,
                    last_error=f"not started by {job.start_by:%Y-%m-%d %H:%M:%S} UTC, as start_within asks",
                ),
                JobStatus.CANCELED,
            )
            for job in late
        ]
        self.settle()
        return canceled
