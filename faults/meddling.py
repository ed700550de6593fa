"""Operators who act on jobs and schedules while the queue works."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from random import Random

import pulse
from faults.history import History
from faults.operating import Operator
from faults.orders import Order

_TOPIC = "tick"
_SCHEDULES: dict[
    str, tuple[pulse.Every | pulse.Cron, pulse.CatchUp] | tuple[pulse.Every, pulse.CatchUp, pulse.Overlap]
] = {
    "late-once": (pulse.Every(timedelta(seconds=1)), "one"),
    "every-one": (pulse.Every(timedelta(seconds=1)), "all"),
    "never-late": (pulse.Every(timedelta(seconds=2)), "skip"),
    "minutely": (pulse.Cron("* * * * *"), "all"),
    "one-at-a-time": (pulse.Every(timedelta(seconds=1)), "one", "skip"),
    "one-behind": (pulse.Every(timedelta(seconds=1)), "one", "queue"),
}
_CANCELED_REMEMBERED = 50
_RECENT = 30


class Meddler:
    """Takes one action after the other on acknowledged jobs and on schedules."""

    def __init__(
        self,
        history: History,
        doors: list[pulse.Pulse],
        random: Random,
        acknowledged: Sequence[tuple[str, Order]],
    ) -> None:
        self._operator = Operator(history, doors, random)
        self._random = random
        self._acknowledged = acknowledged
        self._canceled: list[str] = []
        self._schedules: list[pulse.ScheduleInfo] = []

    async def meddle(self, every_seconds: float, is_over: asyncio.Event) -> None:
        verbs = {
            self._cancel: 4,
            self._redrive: 3,
            self._prioritize: 2,
            self._delete: 1,
            self._make_schedules: 2,
            self._edit_schedule: 4,
            self._change_settings: 2,
        }
        await self._make_schedules()
        while not is_over.is_set():
            (verb,) = self._random.choices(list(verbs), weights=list(verbs.values()))
            await verb()
            await pause(self._random.expovariate(1 / every_seconds), is_over)

    # ------------------------------------------------------------ jobs

    async def _cancel(self) -> None:
        recent = list(self._acknowledged)[-_RECENT:]
        if recent:
            job_id, _ = self._random.choice(recent)
            if await self._operator.cancel(job_id):
                self._canceled = [*self._canceled[-_CANCELED_REMEMBERED:], job_id]

    async def _redrive(self) -> None:
        dead = [job_id for job_id, order in self._acknowledged if order.errands[0].expect == "discard"]
        if candidates := dead + self._canceled:
            job_id = self._random.choice(candidates)
            # Once only: another operator may cancel it again while this is under way.
            self._canceled = [known for known in self._canceled if known != job_id]
            await self._operator.redrive(job_id)

    async def _prioritize(self) -> None:
        if self._acknowledged:
            job_id, _ = self._random.choice(self._acknowledged)
            await self._operator.prioritize(job_id, self._random.randrange(-9, 10))

    async def _delete(self) -> None:
        # A key is free again once its job is deleted, and a repeat would then make a second job.
        candidates = [job_id for job_id, order in self._acknowledged if not order.has_key]
        if candidates:
            await self._operator.delete(self._random.choice(candidates))

    async def _change_settings(self) -> None:
        """Set, change or reset the delays and the time limit of a topic. No handler takes that long."""
        first = timedelta(seconds=self._random.uniform(0.05, 1.0))
        backoff = pulse.Backoff(first=first, factor=self._random.uniform(1, 3), longest=5 * first)
        limit = timedelta(seconds=self._random.uniform(8, 20))
        await self._operator.set_topic(
            self._random.choice(("mail", "report", "thumbnail")),
            backoff=self._random.choice((backoff, backoff, "default")),
            attempt_timeout=self._random.choice((limit, limit, "default")),
        )

    # ------------------------------------------------------------ schedules

    async def _make_schedules(self) -> None:
        """Create all of them; those that were edited since are refused."""
        for name, (spec, *rules) in _SCHEDULES.items():
            await self._operator.create_schedule(name, _TOPIC, spec, *rules)
        self._schedules = await self._operator.schedules() or self._schedules

    async def _edit_schedule(self) -> None:
        if not self._schedules:
            return
        schedule = self._random.choice(self._schedules)
        match self._random.choice(("edit", "edit", "pause", "resume", "resume", "fire", "delete")):
            case "edit" if schedule.kind == "interval":
                spec = pulse.Every(timedelta(seconds=self._random.choice((1, 1, 2, 3))))
                await self._operator.edit_schedule(schedule.id, spec)
            case "pause":
                await self._operator.pause_schedule(schedule.id)
            case "resume":
                await self._operator.resume_schedule(schedule.id)
            case "fire":
                await self._operator.fire_schedule(schedule.id)
            case "delete":
                await self._operator.delete_schedule(schedule.id)


async def pause(seconds: float, is_over: asyncio.Event) -> None:
    """Wait for this long, or until the run is over."""
    with suppress(TimeoutError):
        await asyncio.wait_for(is_over.wait(), seconds)
