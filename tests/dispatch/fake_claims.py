"""A stand-in for Claims, for tests of what the hub asks of it and when."""

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from datetime import timedelta

from pulse_server.dispatch.rules import LimitedClaims, LimitedHandover
from pulse_server.jobs.new_jobs import NewJob, Submitted
from pulse_server.jobs.reports import Slots
from pulse_server.jobs.rules import Claim, ClaimedJob, Level
from tests.eventually import PATIENCE_SECONDS


class FakeClaims:
    """Jobs wait in lines, one per topic. Every call of the hub is recorded."""

    def __init__(self) -> None:
        self.lines: dict[str, deque[str]] = {}
        self.claims_made: list[tuple[frozenset[str], Slots]] = []
        # Claims of limited topics; how many jobs of a topic may start, if not all; when others may.
        self.limited_made: list[tuple[list[str], Slots]] = []
        self.may_start: dict[str, int] = {}
        self.next_starts: dict[str, float] = {}
        self.handovers_made: list[tuple[str, list[str], Slots]] = []
        self.levels_asked: list[Sequence[Level] | None] = []
        # Of the jobs of claims that fill their slots. None: such a claim leaves no floors behind.
        self.age_seconds: float | None = None
        self.probes_made: list[frozenset[str]] = []
        self.released: list[Claim] = []
        self.gone: set[Claim] = set()
        self.error: Exception | None = None
        # What claims of a topic fail with, what the look at all topics fails with, topics whose claims hang.
        self.errors: dict[str, Exception] = {}
        self.look_error: Exception | None = None
        self.held_up: dict[str, asyncio.Event] = {}
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._calls = 0
        self._called = asyncio.Condition()

    def add_jobs(self, topic: str, *job_ids: str) -> None:
        self.lines.setdefault(topic, deque()).extend(job_ids)

    def publish(self, jobs: Sequence[ClaimedJob], sent_at: int) -> None:
        return

    async def wait_for_calls(self, count: int) -> None:
        """Return once the hub has made that many claims and probes in all."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._called:
            await self._called.wait_for(lambda: self._calls >= count)

    async def claim(
        self, topics: Collection[str], slots: Slots, levels: Sequence[Level] | None = None
    ) -> list[ClaimedJob]:
        self.levels_asked.append(levels)
        self.claims_made.append((frozenset(topics), slots))
        await self._answer()
        for topic in topics:
            if topic in self.held_up:
                await self.held_up[topic].wait()
            if topic in self.errors:
                raise self.errors[topic]
        ready = [(topic, line) for topic in sorted(topics) if (line := self.lines.get(topic))]
        found = [(topic, line.popleft()) for topic, line in ready for _ in range(len(line))]
        for topic, job_id in found[len(slots.order) :]:
            self.lines[topic].append(job_id)
        is_filled = len(found) >= len(slots.order)
        age_seconds = self.age_seconds if is_filled else 0.0
        return [
            claimed(job_id, slots.workers[index], topic=topic)._replace(age_seconds=age_seconds)
            for (topic, job_id), index in zip(found, slots.order, strict=False)
        ]

    async def claim_limited(self, topics: Sequence[str], slots: Slots) -> LimitedClaims:
        self.limited_made.append((list(topics), slots))
        await self._answer()
        for topic in topics:
            if topic in self.errors:
                raise self.errors[topic]
        left = list(slots.order)
        jobs = []
        for topic in topics:
            line = self.lines.get(topic, deque())
            most = min(len(line), len(left), self.may_start.get(topic, len(line)))
            self.may_start = {name: rest - most * (name == topic) for name, rest in self.may_start.items()}
            jobs += [claimed(line.popleft(), slots.workers[left.pop(0)], topic=topic) for _ in range(most)]
        return LimitedClaims(
            jobs, {topic: self.next_starts[topic] for topic in topics if topic in self.next_starts}
        )

    async def hand_over_limited(self, topic: str, jobs: Sequence[NewJob], slots: Slots) -> LimitedHandover:
        self.handovers_made.append((topic, [job.id for job in jobs], slots))
        self.add_jobs(topic, *(job.id for job in jobs))
        claims = await self.claim_limited([topic], slots)
        taken = {job.id for job in claims.jobs}
        return LimitedHandover([Submitted(job.id, False, job.id in taken) for job in jobs], claims)

    async def topics_with_ready_jobs(self, topics: Collection[str]) -> set[str]:
        self.probes_made.append(frozenset(topics))
        await self._answer()
        if self.look_error is not None:
            raise self.look_error
        return {topic for topic in topics if self.lines.get(topic)}

    def release_soon(self, claims: Sequence[Claim]) -> None:
        self.released.extend(claims)

    async def finish_releases(self, patience: timedelta) -> None:
        return

    async def still_held(self, claims: Sequence[Claim]) -> set[Claim]:
        return set(claims) - self.gone

    async def _answer(self) -> None:
        async with self._called:
            self._calls += 1
            self._called.notify_all()
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error


def claimed(job_id: str, worker_id: str, *, topic: str = "mail", attempt: int = 1) -> ClaimedJob:
    return ClaimedJob(job_id, topic, b"", attempt, attempt, 0, 5, None, None, worker_id, False, 0.0)
