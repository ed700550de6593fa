"""One job for each cause that keeps a job from running, on topics of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.step_calls import suspend
from tests.transport.streaming_worker import StreamingWorker, wire_duration
from tests.transport.workflow_requests import node, submitting

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
# For the server: no lease ends while the jobs are staged, although their workers send no heartbeats.
SETTINGS: dict[str, Any] = {"lease_ttl": 10 * MINUTE, "heartbeat_interval": MINUTE}


class Stage:
    """Stages jobs. The workers stay connected until the stack is closed."""

    def __init__(self, server: ServerUnderTest, stack: AsyncExitStack) -> None:
        self.server = server
        self._stack = stack
        self.jobs: dict[str, str] = {}
        """The id of the staged job, by its cause."""

    async def worker(self, *topics: str, capacity: int = 1, name: str = "") -> StreamingWorker:
        worker = self.server.worker(name or f"{topics[0]}-worker", topics=topics, capacity=capacity)
        return await self._stack.enter_async_context(worker)

    async def limit(self, topic: str, **limits: Any) -> None:
        await self.server.stub.SetTopic(pb.SetTopicRequest(topic=topic, entries=pb.TopicEntries(**limits)))

    async def states(self) -> None:
        """Jobs that are not ready."""
        server, jobs = self.server, self.jobs
        jobs["delayed"] = await server.submit("later", delay=wire_duration(HOUR))
        worker = await self.worker("later", "cards", "nap", "approval", capacity=10, name="w1")
        await server.submit("cards")
        job = await worker.take_one()
        await worker.fail(job, "TimeoutError: the bank does not answer", after=HOUR)
        jobs["between_attempts"] = job.job_id
        for cause, topic, signal in (("sleeping", "nap", ""), ("waits_for_signal", "approval", "approved")):
            jobs[cause] = await server.submit(topic)
            await suspend(server, await worker.take_one(), "wait", signal, HOUR if not signal else None)

        stored = await submitting(server, node("extract"), node("load", "extract"))
        jobs["waits_for_jobs"] = stored.job_ids[1]

    async def pauses(self) -> None:
        self.jobs["topic_paused"] = await self.server.submit("invoices")
        await self.server.stub.PauseDispatch(
            pb.PauseDispatchRequest(topic="invoices", reason="the mail server is down")
        )

    async def limits(self) -> None:
        """Jobs behind the limits and rates of topics, pools and lanes."""
        hourly = pb.StartRate(starts=1, period=Duration(seconds=3600))
        stages: tuple[tuple[str, dict[str, Any], str], ...] = (
            ("topic_limit", {"running": 1}, ""),
            ("topic_rate", {"rate": hourly}, ""),
            ("lane_limit", {"per_lane": 1}, "acme"),
            ("lane_rate", {"lane_rate": hourly}, "acme"),
            ("ordered", {"ordered": True}, "acme"),
        )
        for cause, limits, lane in stages:
            topic = cause.replace("_", "-")
            await self.limit(topic, **limits)
            await self.behind_one(cause, topic, topic, lane)
        for cause, limits in (("pool_limit", {"running": 1}), ("pool_rate", {"rate": hourly})):
            other, topic = cause.replace("_", "-"), f"{cause}-second".replace("_", "-")
            for name in (other, topic):
                await self.limit(name, pool=cause, **limits)
            await self.behind_one(cause, other, topic)
        await self.limit("held", running=5)
        await self.server.stub.HoldTopic(pb.HoldTopicRequest(topic="held", duration=wire_duration(HOUR)))
        await self.worker("held")
        self.jobs["topic_held"] = await self.server.submit("held")

    async def behind_one(self, cause: str, first: str, second: str, lane: str = "") -> None:
        """Run a job of the first topic, then submit one of the second, which a free worker takes too."""
        worker = await self.worker(*sorted({first, second}), capacity=5)
        await self.server.submit(first, lane=lane)
        await worker.take_one()
        self.jobs[cause] = await self.server.submit(second, lane=lane)

    async def workers(self) -> None:
        """Jobs without a free worker."""
        server, jobs = self.server, self.jobs
        await self.worker("orders.confirm")
        jobs["no_worker"] = await server.submit("orders.confrim")
        await self.worker("unwanted", capacity=1, name="quiet-worker")
        await server.stub.SetWorkerState(
            pb.SetWorkerStateRequest(worker_id="quiet-worker", state="quiet", reason="memory grows")
        )
        jobs["workers_quiet"] = await server.submit("unwanted")
        photos = await self.worker("photos")
        await server.submit("photos")
        await photos.take_one()
        jobs["workers_full"] = await server.submit("photos")
        jobs["outranked"] = await server.submit("photos", priority=-1)
        await self.limit("tenants", turns=True)
        tenants = await self.worker("tenants")
        await server.submit("tenants", lane="a")
        await tenants.take_one()
        for _ in range(2):  # a lane has one turn, however often it was noticed
            await server.submit("tenants", lane="b")
        jobs["lane_turn"] = await server.submit("tenants", lane="c")

    async def runs(self) -> None:
        """Running jobs, and one that a free worker is about to take."""
        server, jobs = self.server, self.jobs
        for cause in ("worker_gone", "worker_silent", "running"):
            worker = await self.worker(cause)
            await server.submit(cause)
            job = await worker.take_one()
            await server.stub.Heartbeat(pb.HeartbeatRequest(job_id=job.job_id, worker_id=worker.worker_id))
            jobs[cause] = job.job_id
            if cause == "worker_gone":
                worker.leave()
        # A worker that extended a lease a moment ago counts as connected.
        for cause, left in (("worker_silent", "4 minutes"), ("worker_gone", "299.9 seconds")):
            await server.table.connection.execute(
                "UPDATE pulse.jobs SET lease_until = clock_timestamp() + $2::text::interval WHERE id = $1",
                *(jobs[cause], left),
            )

    async def locks(self) -> None:
        """Jobs that no server promotes, cancels or claims: another session has their rows locked."""
        server, jobs = self.server, self.jobs
        await self.worker("due", capacity=1, name="due-worker")
        jobs["due"] = await server.submit("due", delay=wire_duration(HOUR))
        jobs["too_late"] = await server.submit("too-late", start_within=wire_duration(HOUR))
        jobs["overdue"] = await server.submit("overdue")
        jobs["locked"] = await server.submit("locked")
        ids = [jobs[cause] for cause in ("due", "too_late", "overdue")]
        # A server locks FOR UPDATE, and skips these rows. The change of their times does not wait. No holder
        # is named where two share a lock.
        for locked in (ids, [*ids, jobs["locked"]]):
            other = server.table.connection.another()
            self._stack.push_async_callback(other.close)
            await self._stack.enter_async_context(other.transaction())
            await other.execute("SELECT FROM pulse.jobs WHERE id = ANY($1::uuid[]) FOR KEY SHARE", locked)
        await server.table.connection.execute(
            """UPDATE pulse.jobs
               SET next_run_at = now() - interval '1 minute', start_by = start_by - interval '2 hours'
               WHERE id = ANY($1::uuid[])""",
            ids,
        )
        await self.worker("overdue")
        await self.worker("locked")


@asynccontextmanager
async def staged(server: ServerUnderTest) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        stage = Stage(server, stack)
        await stage.states()
        await stage.pauses()
        await stage.limits()
        await stage.workers()
        await stage.runs()
        await stage.locks()
        await server.dispatch_settles()
        yield stage
