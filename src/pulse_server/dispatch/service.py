"""Pause and resume dispatch, topics and workers, and keep this server in step with the switches.

The claim itself reads the switch. The copy here keeps the hub from useless claims, and stays as it was
while the database is away: an outage neither pauses a queue nor resumes one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import islice

from pulse_server.base.errors import WorkerNotFound
from pulse_server.base.loops import Loop
from pulse_server.dispatch.claims import Claims
from pulse_server.dispatch.publisher import Publisher
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.rules import QUIET, RUNNING, STOPPING, ConnectedWorker, DispatchState
from pulse_server.dispatch.store import PostgresDispatchRepo
from pulse_server.wakeups.watchers import Wakeup

# How long another server may keep claiming without result; a claim itself sees the switch at once.
GATE_INTERVAL = timedelta(seconds=1)
# How long a change of a switch waits for the gate of its server. Claims of jobs may have every connection,
# each behind a lock of another session.
CATCH_UP = timedelta(milliseconds=500)
# How many paused topics, and how many quiet workers, the log names.
PAUSED_TOPICS_SHOWN = 100

log = logging.getLogger(__name__)


class Gate:
    """Reads the pause switches, the limited topics and the states of workers, and has dispatch go by them.

    While the database is away the state stays as it was: an outage must neither pause nor resume a queue.
    docs/figures.md#the-pause-switch
    """

    def __init__(
        self, repo: PostgresDispatchRepo, roster: Roster, claims: Claims, *, interval: timedelta
    ) -> None:
        self._repo = repo
        self._roster = roster
        self._claims = claims
        self._reads = self._newest = 0
        self._readings: set[asyncio.Task[None]] = set()
        self.is_primed = False
        self.loop = Loop("gate", self.refresh, interval)

    @property
    def state(self) -> DispatchState:
        return self._roster.switches

    async def refresh(self) -> None:
        """Read the switches. The first call comes before the server accepts work, and must not fail."""
        self._reads = read = self._reads + 1
        state = await self._repo.read_gate()
        if read < self._newest:
            return  # a read that began later was answered sooner
        self._newest = read
        self.is_primed = True
        if state == self.state:
            return
        if replace(state, secret=self.state.secret) != self.state:
            log.info(
                "dispatch_gate",
                extra={
                    "paused": state.everything is not None,
                    "reason": state.everything.reason if state.everything else "",
                    "paused_by": state.everything.by if state.everything else "",
                    "paused_topics": sorted(islice(state.topics, PAUSED_TOPICS_SHOWN)),
                    "paused_topic_count": len(state.topics),
                    "limited_topic_count": len(state.limited),
                    "quiet_workers": sorted({worker_id for worker_id, _ in state.workers})[
                        :PAUSED_TOPICS_SHOWN
                    ],
                },
            )
        self._claims.release_soon(self._roster.switch(state))

    async def catch_up(self) -> None:
        """Read the switches, but do not wait for long: the loop reads them again if this fails."""
        reading = asyncio.create_task(self.refresh())
        self._readings.add(reading)
        reading.add_done_callback(self._end_reading)
        await asyncio.wait([reading], timeout=CATCH_UP.total_seconds())

    def _end_reading(self, reading: asyncio.Task[None]) -> None:
        self._readings.discard(reading)
        if reading.cancelled() or reading.exception() is not None:
            self.loop.nudge()

    def heard(self, wakeup: Wakeup) -> None:
        """Another server has something new."""
        if wakeup.gate_changed:
            self.loop.nudge()


class Dispatch:
    """Sets the pause switches: first the row, then this server's gate, then other gates."""

    def __init__(
        self,
        repo: PostgresDispatchRepo,
        gate: Gate,
        publisher: Publisher,
        connections_of: Callable[[str], Awaitable[Sequence[ConnectedWorker]]],
    ) -> None:
        """`connections_of` returns the connections of a worker, over all servers."""
        self._repo = repo
        self._gate = gate
        self._publisher = publisher
        self._connections_of = connections_of

    async def pause(self, topic: str | None, reason: str, by: str = "") -> None:
        """Pause one topic, or everything. `by` is the user."""
        if topic is None:
            await self._repo.pause_everything(reason, by)
        else:
            await self._repo.pause_topic(topic, reason, by)
        await self._publish()

    async def resume(self, topic: str | None) -> None:
        if topic is None:
            await self._repo.resume_everything()
        else:
            await self._repo.resume_topic(topic)
        await self._publish()

    async def set_worker_state(self, worker_id: str, name: str, reason: str, by: str = "") -> bool:
        """Order a worker to be quiet, to stop, or to take jobs again, at whichever server it is connected.

        False: it was to stop, and is quiet, because its client knows no such order. Raises WorkerNotFound
        if it is not connected; a worker that has a state can be resumed nevertheless.
        """
        states = {
            one.run_id: QUIET if name == STOPPING and not one.can_stop else name
            for one in await self._connections_of(worker_id)
        }
        if name == RUNNING:
            is_known = await self._repo.resume_worker(worker_id) or bool(states)
        elif is_known := bool(states):
            await self._repo.set_worker_state(worker_id, states, reason, by)
        if not is_known:
            raise WorkerNotFound(worker_id)
        await self._publish()
        return set(states.values()) <= {name}

    async def status(self) -> DispatchState:
        """The switches as the database has them now."""
        return await self._repo.read_gate()

    async def _publish(self) -> None:
        """Bring the gates in step. The switch is stored: nothing here may refuse the call, or delay it."""
        await self._gate.catch_up()
        self._publisher.paused_or_resumed()
