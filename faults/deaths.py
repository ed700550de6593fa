"""Kills a server at each of its failpoints, one server after the other."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

import grpc

import pulse
from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from tests.eventually import eventually
from tests.system.stage import Pulsed, Stage, free_port
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable
from tests.transport.streaming_worker import StreamingWorker, claim_of, wire_duration

# Leases so short that the jobs of a dead server are claimed again within seconds.
HASTY = {
    "PULSE_LEASE_TTL": "1s",
    "PULSE_HEARTBEAT_INTERVAL": "300ms",
    "PULSE_WATCHDOG_INTERVAL": "200ms",
    "PULSE_DISPATCH_INTERVAL": "100ms",
}
PATIENCE = timedelta(minutes=2)
SOON, LATER = timedelta(milliseconds=20), timedelta(hours=1)


class Succession:
    """Servers that follow each other at one address, and everything that was requested of them."""

    def __init__(self, stage: Stage, table: JobsTable) -> None:
        self.stage = stage
        self.table = table
        self.address = f"127.0.0.1:{free_port()}"
        self.enqueues: list[asyncio.Task[pulse.JobHandle]] = []
        self.unanswered: list[pb.ReportResultsRequest] = []
        self.canceled: list[str] = []
        self.clients = AsyncExitStack()

    async def client(self) -> pulse.Pulse:
        """A client that retries until there is a server again."""
        return await self.clients.enter_async_context(pulse.Pulse(self.address, timeout=PATIENCE))

    async def live_and_die(self, point: str, death: "Death") -> None:
        """Run a server that is killed at the point, and verify that it was."""
        armed = f"{point}=kill@{death.nth}"
        settings = HASTY | death.settings | {"PULSE_FAILPOINTS": armed}
        server = self.stage.start_pulsed(self.address, **settings)
        await eventually(lambda: server.is_serving or not server.is_running, f"a server serves, with {armed}")
        async with stub_of(self.address) as stub:
            life = Life(self, server, stub, await self.client(), point)
            with suppress(grpc.aio.AioRpcError):  # its death, as a caller sees it
                await death.act(life)
            assert await server.ended() == -signal.SIGKILL
        assert f"failpoint_hit: {armed}" in server.log
        (warning,) = [event for event in server.events if event["event"] == "failpoints_armed"]
        assert (warning["level"], warning["failpoints"]) == ("warning", [armed])

    async def repeat_reports(self) -> None:
        """Report again what was reported to servers that died: each counts as if it were the first."""
        async with stub_of(self.address) as stub:
            for request in self.unanswered:
                assert not (await stub.ReportResults(request)).refused


@dataclass
class Life:
    """One server that is about to die, and its clients."""

    succession: Succession
    server: Pulsed
    stub: Any
    p: pulse.Pulse
    topic: str

    def enqueue(self, delay: timedelta | None = None) -> None:
        """Store a job through this server or a later one."""
        enqueue = self.p.enqueue(self.topic, Errand(self.topic), delay=delay)
        self.succession.enqueues.append(asyncio.create_task(enqueue))

    async def enqueue_until_dead(self, delay: timedelta | None = None) -> None:
        def is_dead() -> bool:
            self.enqueue(delay)
            return not self.server.is_running

        await eventually(is_dead, f"a server dies of {self.topic}")

    def worker(self) -> StreamingWorker:
        # With slots for all jobs before the one that matters.
        return StreamingWorker(self.stub, f"of {self.topic}", topics=[self.topic], capacity=10_000)

    @asynccontextmanager
    async def job_taken(self) -> AsyncIterator[tuple[StreamingWorker, pb.JobAssignment]]:
        async with self.worker() as worker:
            self.enqueue()
            yield worker, await worker.take_one()


async def submit(life: Life) -> None:
    life.enqueue()


async def submit_to_a_waiting_worker(life: Life) -> None:
    async with life.worker():
        await life.enqueue_until_dead()


async def submit_for_a_claim(life: Life) -> None:
    async with life.worker():
        await life.enqueue_until_dead(SOON)


async def submit_for_later(life: Life) -> None:
    life.enqueue(SOON)


async def report(life: Life, **result: Any) -> None:
    async with life.job_taken() as (worker, job):
        results = [pb.Result(job_id=job.job_id, attempt=job.attempt, run=job.run, **result)]
        request = pb.ReportResultsRequest(worker_id=worker.worker_id, results=results)
        life.succession.unanswered.append(request)
        await life.stub.ReportResults(request)


async def succeed(life: Life) -> None:
    await report(life, success=True)


async def fail(life: Life) -> None:
    await report(life, error="no luck")


async def store_step(life: Life) -> None:
    async with life.job_taken() as (worker, job):
        step = pb.NewStep(claim=claim_of(job), name="a", value=b"1")
        await life.stub.StoreSteps(pb.StoreStepsRequest(worker_id=worker.worker_id, steps=[step]))


async def sleep(life: Life) -> None:
    await report(life, suspension=pb.Suspension(step="sleep", delay=wire_duration(SOON)))


async def send_signal(life: Life) -> None:
    job = await life.p.enqueue(life.topic, Errand(life.topic), delay=SOON)
    life.succession.enqueues.append(asyncio.create_task(_that(job)))
    await life.stub.SignalJob(pb.SignalJobRequest(job_id=job.id, name="go", signal_id=str(uuid4())))


async def take_signal(life: Life) -> None:
    async with life.job_taken() as (worker, job):
        await life.stub.SignalJob(pb.SignalJobRequest(job_id=job.job_id, name="go", signal_id=str(uuid4())))
        claim = claim_of(job)
        await life.stub.TakeSignal(
            pb.TakeSignalRequest(worker_id=worker.worker_id, claim=claim, step="go", signal="go")
        )


async def _that(job: pulse.JobHandle) -> pulse.JobHandle:
    return job


async def beat(life: Life) -> None:
    async with life.job_taken() as (worker, job):
        await worker.beat(job)


async def release(life: Life) -> None:
    async with life.job_taken() as (worker, job):
        await worker.release(job)


async def keep_silent(life: Life) -> None:
    async with life.job_taken():
        await life.server.ended()


async def cancel(life: Life) -> None:
    """Cancel two jobs: one is retried later, one is deleted by retention."""
    for _ in range(2):
        job = await life.p.enqueue(life.topic, Errand("cancelled"), delay=LATER)
        life.succession.canceled.append(job.id)
        await life.stub.CancelJob(pb.CancelJobRequest(job_id=job.id))


async def redrive(life: Life) -> None:
    await life.stub.RetryJob(pb.RetryJobRequest(job_id=life.succession.canceled.pop(), now=True))


async def be_due(life: Life) -> None:
    await life.succession.table.connection.execute(
        """INSERT INTO pulse.schedules
            (id, next_run_at, interval_ms, max_attempts, kind, catch_up, topic, payload)
        VALUES (gen_random_uuid(), now(), 3600000, 5, 'interval', 'all', $1, '{}')""",
        life.topic,
    )


async def pause(life: Life) -> None:
    life.enqueue()
    await life.stub.PauseDispatch(pb.PauseDispatchRequest(topic=life.topic, reason="killed meanwhile"))


async def limit(life: Life) -> None:
    life.enqueue()
    limits = pb.TopicEntries(running=2)
    await life.stub.SetTopic(pb.SetTopicRequest(topic=life.topic, entries=limits))


async def start(_life: Life) -> None:
    return


@dataclass(frozen=True)
class Death:
    """The requests that make a server die at its point, at the nth pass."""

    act: Callable[[Life], Awaitable[None]]
    nth: int = 1
    settings: dict[str, str] = field(default_factory=dict)


OF_A_JOB = {
    "jobs.inserted": Death(submit),
    "submit.answered": Death(submit),
    "handover.stored": Death(submit_to_a_waiting_worker),
    "claim.leased": Death(submit_for_a_claim),
    "stream.writing": Death(submit_to_a_waiting_worker, nth=2),  # the first message is the welcome
    "stream.written": Death(submit_to_a_waiting_worker, nth=2),
    "jobs.completed": Death(succeed),
    "jobs.failed": Death(fail),
    "report.answered": Death(succeed),
    "leases.extended": Death(beat),
    "jobs.released": Death(release),
}
OF_STEPS = {
    "steps.stored": Death(store_step),
    "jobs.suspended": Death(sleep),
    "signals.sent": Death(send_signal),
    "signals.taken": Death(take_signal),
}
OF_LOOPS_AND_OPERATORS = {
    "jobs.reaped": Death(keep_silent),
    "jobs.promoted": Death(submit_for_later),
    "wakeup.sending": Death(submit),  # no worker is here, so other servers are notified
    "schedules.fired": Death(be_due),
    "switch.turned": Death(pause),
    "limits.enforced": Death(limit),
    "limits.set": Death(limit),  # the next server puts it in force
    "jobs.cancelled": Death(cancel, nth=2),
    "jobs.retried": Death(redrive),
    "jobs.forgotten": Death(start, settings={"PULSE_RETENTION_CANCELED": "1ms"}),
}


@asynccontextmanager
async def stub_of(address: str) -> AsyncIterator[Any]:
    # A pool of its own: a shared one would inherit the backoff of earlier failed connections.
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        yield PulseServiceStub(channel)
