"""The actions of an operator, each recorded when it is sent and when it is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any

import pulse
from faults.history import History
from pulse.ids import uuid7
from pulse.v1 import pulse_pb2 as pb

# With these the server did nothing. After any other error the call may have been carried out: an earlier
# attempt of the same call may have succeeded.
REFUSALS = (pulse.InvalidArgument, pulse.NotFound, pulse.AlreadyExists, pulse.InvalidTransition)


class Operator:
    """Acts through any of the servers. Each verb returns whether it was acknowledged."""

    def __init__(self, history: History, doors: list[pulse.Pulse], random: Random) -> None:
        self._history = history
        self._doors = doors
        self._random = random

    # ------------------------------------------------------------ jobs

    async def cancel(self, job_id: str) -> bool:
        return await self._do("cancel", lambda p: p.cancel(job_id), job_id=job_id)

    async def redrive(self, job_id: str) -> bool:
        return await self._do("redrive", lambda p: p.retry(job_id), job_id=job_id)

    async def prioritize(self, job_id: str, priority: int) -> bool:
        return await self._do("prioritize", lambda p: p.prioritize(job_id, priority), job_id=job_id)

    async def delete(self, job_id: str) -> bool:
        return await self._do("delete", lambda p: p.delete(job_id), job_id=job_id)

    async def cancel_workflow(self, workflow_id: str) -> bool:
        request = pb.CancelWorkflowRequest(workflow_id=workflow_id)
        return await self._do(
            "cancel_workflow",
            lambda p: p._caller.call(lambda stub: stub.CancelWorkflow, request, None),
            workflow_id=workflow_id,
        )

    async def redrive_workflow(self, workflow_id: str) -> bool:
        request = pb.RetryWorkflowRequest(workflow_id=workflow_id)
        return await self._do(
            "redrive_workflow",
            lambda p: p._caller.call(lambda stub: stub.RetryWorkflow, request, None),
            workflow_id=workflow_id,
        )

    async def set_topic(self, topic: str, **entries: Any) -> bool:
        return await self._do("settings", lambda p: p.set_topic(topic, **entries), topic=topic)

    async def limit(self, topic: str, **entries: Any) -> bool:
        shown = {name: str(value) for name, value in entries.items()}
        return await self._do("limits", lambda p: p.set_topic(topic, **entries), topic=topic, entries=shown)

    async def set_lane(self, topic: str, lane: str, weight: int, limit: int | None) -> bool:
        return await self._do(
            "lane", lambda p: p.set_lane(topic, lane, weight=weight, limit=limit), topic=topic, lane=lane
        )

    async def hold(self, topic: str, span: timedelta) -> bool:
        seconds = span.total_seconds()
        return await self._do("hold", lambda p: p.hold(topic, span), topic=topic, seconds=seconds)

    # ------------------------------------------------------------ all jobs of a topic, batch by batch

    async def cancel_all(self, topic: str) -> bool:
        return await self._do_all("cancel_all", lambda p: p.cancel_matching(topic=topic), topic)

    async def redrive_all(self, topic: str, status: str) -> bool:
        return await self._do_all(
            "redrive_all", lambda p: p.retry_matching(topic=topic, status=status), topic
        )

    async def prioritize_all(self, topic: str, priority: int) -> bool:
        return await self._do_all(
            "prioritize_all", lambda p: p.prioritize_matching(priority, topic=topic), topic
        )

    async def delete_all(self, topic: str, status: str) -> bool:
        return await self._do_all(
            "delete_all", lambda p: p.delete_matching(topic=topic, status=status), topic
        )

    # ------------------------------------------------------------ pauses; the topic "" is everything

    async def pause(self, topic: str) -> bool:
        return await self._do(
            "pause", lambda p: p.pause(reason="by the nemesis", topic=topic or None), topic=topic
        )

    async def resume(self, topic: str) -> bool:
        return await self._do("resume", lambda p: p.resume(topic or None), topic=topic)

    # ------------------------------------------------------------ schedules

    async def create_schedule(
        self,
        name: str,
        topic: str,
        spec: pulse.Every | pulse.Cron,
        catch_up: pulse.CatchUp,
        overlap: pulse.Overlap = "allow",
    ) -> bool:
        """Create the schedule of this name. Repeats have the same arguments.

        Jobs of one that does not overlap take longer than its interval.
        """
        args = {"expect": "complete", "seconds": 0.0 if overlap == "allow" else 1.3}
        return await self._do(
            "schedule_create",
            lambda p: p.schedule(
                topic, args, spec, name=name, catch_up=catch_up, overlap=overlap, max_attempts=20
            ),
            name=name,
        )

    async def edit_schedule(self, schedule_id: str, spec: pulse.Every | pulse.Cron) -> bool:
        return await self._do(
            "schedule_edit", lambda p: p.schedules.update(schedule_id, spec=spec), schedule_id=schedule_id
        )

    async def pause_schedule(self, schedule_id: str) -> bool:
        return await self._do(
            "schedule_pause", lambda p: p.schedules.pause(schedule_id), schedule_id=schedule_id
        )

    async def resume_schedule(self, schedule_id: str) -> bool:
        return await self._do(
            "schedule_resume", lambda p: p.schedules.resume(schedule_id), schedule_id=schedule_id
        )

    async def delete_schedule(self, schedule_id: str) -> bool:
        return await self._do(
            "schedule_delete", lambda p: p.schedules.delete(schedule_id), schedule_id=schedule_id
        )

    async def fire_schedule(self, schedule_id: str) -> bool:
        # The verb of the SDK makes the id of the job itself: a lost answer would leave it unknown.
        request = pb.FireScheduleRequest(schedule_id=schedule_id, job_id=uuid7())
        return await self._do(
            "schedule_fire",
            lambda p: p._caller.call(lambda stub: stub.FireSchedule, request, None),
            schedule_id=schedule_id,
            job_id=request.job_id,
        )

    async def schedules(self) -> list[pulse.ScheduleInfo]:
        """Return the schedules; none without an answer."""
        try:
            return list(await self.door().schedules.list())
        except pulse.PulseError:
            return []

    # ------------------------------------------------------------ how

    async def _do(self, verb: str, act: Callable[[pulse.Pulse], Awaitable[object]], **facts: Any) -> bool:
        operation = self._history.operation(verb, **facts)
        try:
            await act(self.door())
        except REFUSALS as error:
            operation.refused(in_words(error))
            return False
        except pulse.PulseError as error:
            operation.unknown(in_words(error))
            return False
        operation.done()
        return True

    async def _do_all(
        self, verb: str, batches: Callable[[pulse.Pulse], AsyncIterator[int]], topic: str
    ) -> bool:
        async def act(p: pulse.Pulse) -> None:
            async for _ in batches(p):
                pass

        return await self._do(verb, act, topic=topic)

    def door(self) -> pulse.Pulse:
        return self._random.choice(self._doors)


def in_words(error: pulse.PulseError) -> str:
    return f"{type(error).__name__}: {error.message}"[:200]


@asynccontextmanager
async def doors_open(addresses: list[str], timeout: timedelta) -> AsyncIterator[list[pulse.Pulse]]:
    """A client for each of the addresses, for the length of a block."""
    doors = [pulse.Pulse(address, timeout=timeout) for address in addresses]
    try:
        yield doors
    finally:
        for door in doors:
            await door.close()
