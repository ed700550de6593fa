"""A queue with one of everything, every text of which would run as a script if a page let it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import pulse
from tests.eventually import eventually
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.declarations import declare

HOSTILE = """<img src=x onerror="alert('x')">'"`</script><script>alert(1)</script>{{7*7}}"""
CANCEL = "0199c0de-0000-7000-8000-0000000000cc"
"""The id of an action that can be undone."""


@dataclass(frozen=True)
class Furnished:
    """What is there, by the page that shows it."""

    pages: dict[str, str]
    """Name of the page → its path."""


@asynccontextmanager
async def furnished(server: ServerUnderTest) -> AsyncIterator[Furnished]:
    """Fill the queue. Two workers stay connected, one of them with a job in its hands, for the block."""
    async with pulse.Pulse(server.address, user="", password="") as client:
        jobs = await submit(client)
        schedule = await plan(client)
        await decide(client, server)
        await limit(client, server)
        suspended, completed = await run_steps(server.address)
        workflow, child = await start_workflows(client, server)
        async with (
            server.worker(f"busy {HOSTILE}", topics=["mail"], capacity=1) as busy,
            server.worker("breaker", topics=["reports"], capacity=20) as breaker,
        ):
            running = await busy.take_one()
            for job in await breaker.take(4):
                await breaker.fail(job, f"ValueError: {HOSTILE} {job.job_id}\n  File x, line 1")
            await client.cancel(jobs["canceled"], HOSTILE, action_id=CANCEL)
            await client.pause(reason=HOSTILE, topic="paused-topic")
            yield Furnished(
                {
                    "overview": "/",
                    "jobs": "/jobs",
                    "jobs by filter": "/jobs?topic=mail&status=PENDING&error=timeout",
                    "search": "/find?q=mail",
                    "search for a field": "/find?q=args.number%3D1.5&topic=reports",
                    "new job": "/jobs/new?topic=mail",
                    "job to edit": f"/jobs/new?source={jobs['dead']}",
                    "waiting job": f"/jobs/{jobs['delayed']}",
                    "running job": f"/jobs/{running.job_id}",
                    "dead job": f"/jobs/{jobs['dead']}",
                    "canceled job": f"/jobs/{jobs['canceled']}",
                    "suspended job": f"/jobs/{suspended}",
                    "completed job": f"/jobs/{completed}",
                    "confirmation": f"/jobs/confirm?action=cancel&id={running.job_id}&id={jobs['delayed']}",
                    "confirmation of all": "/jobs/confirm?action=retry&all=1&status=DEAD_LETTERED",
                    "workflows": "/workflows",
                    "workflow": f"/workflows/{workflow}",
                    "job that waits for jobs": f"/jobs/{child}",
                    "dead letters": "/dead-letters",
                    "schedules": "/schedules",
                    "schedule": f"/schedules/{schedule}",
                    "schedule to edit": f"/schedules/{schedule}/edit",
                    "new schedule": "/schedules/new",
                    "workers": "/workers",
                    "audit": "/audit",
                    "undo": f"/audit/{CANCEL}/undo",
                    "dispatch": "/dispatch",
                    "topics": "/topics",
                    "topic": "/topics/mail",
                    "topic with lanes": "/topics/tenants",
                    "held topic": "/?topic=held",
                    "paused topic": "/topics/paused-topic",
                    "limits of topics": "/topics?view=limits",
                    "settings of topics": "/topics?view=settings",
                    "missing page": "/nowhere",
                }
            )


async def submit(client: pulse.Pulse) -> dict[str, str]:
    """Submit jobs of all kinds. Returns the ids of those that a page is looked at for."""
    metadata = {"customer": HOSTILE, "<b>key</b>": "value", "tenant": "acme"}
    args = {"text": HOSTILE, "number": 1.5, "list": [None, True, {"deep": HOSTILE}]}
    for number in range(3):
        await client.enqueue("mail", {**args, "number": number}, metadata=metadata, key=f"{HOSTILE}-{number}")
    dead = [await client.enqueue("reports", args, max_attempts=1) for _ in range(3)]
    await client.enqueue("reports", args, max_attempts=5)
    delayed = await client.enqueue("mail", args, delay=timedelta(hours=2), metadata=metadata, priority=7)
    canceled = await client.enqueue("paused-topic", args)
    return {"dead": dead[0].id, "delayed": delayed.id, "canceled": canceled.id}


async def run_steps(address: str) -> tuple[str, str]:
    """Run two jobs in steps. One waits for a signal, with progress; the other is completed, with a result."""
    async with pulse.Pulse(address, user="", password="") as worker:

        @worker.job("in-steps")
        async def in_steps(ctx: pulse.Context) -> dict[str, str]:
            ctx.progress(0.4, HOSTILE)
            await ctx.step(f"step {HOSTILE}", lambda: HOSTILE)
            await ctx.step("a-name-without-any-place-to-break-a-line-" + "x" * 60, lambda: None)
            return {"text": await ctx.wait_for(HOSTILE, timeout=timedelta(days=1), returns=str)}

        task = asyncio.create_task(worker.run(handle_signals=False))
        suspended, completed = await in_steps.enqueue(), await in_steps.enqueue()
        for handle in (suspended, completed):
            await eventually(lambda id=handle.id: _waits(worker, id), "the job waits for its signal")
        await worker.signal(completed.id, HOSTILE, HOSTILE)
        await completed.result(timeout=timedelta(seconds=30))
        task.cancel()
        await asyncio.wait({task})
    return suspended.id, completed.id


async def _waits(client: pulse.Pulse, job_id: str) -> bool:
    return (await client.get_job(job_id)).waits_for == HOSTILE


async def start_workflows(client: pulse.Pulse, server: ServerUnderTest) -> tuple[str, str]:
    """Start a workflow with a job in every state, and a large one. Returns its id, and a job that waits."""
    async with client.workflow(f"nightly {HOSTILE}") as flow:
        done = flow.add("in-workflows", name=f"done {HOSTILE}", priority=9)
        dead = flow.add("in-workflows", name="x" * 200, priority=8, max_attempts=1)
        retrying = flow.add("in-workflows", name="retrying", priority=7)
        ready = flow.add("later", name="ready")
        flow.add("later", name="delayed", after=done, delay=timedelta(hours=1))
        flow.add("later", name="dropped", after=[done, dead])
        flow.add("later", name="skipped", after=done, when="failed")
        flow.add("later", name="waits", after=[done, retrying, ready], when="always")
    async with client.workflow("many") as many:
        parts = [many.add("later", name=f"part-{number}") for number in range(250)]
        many.add("later", name="last", after=parts)
    async with server.worker("of-workflows", topics=["in-workflows"], capacity=3) as worker:
        completes, fails, fails_again = await worker.take(3)
        await worker.complete(completes)
        await worker.fail(fails, f"ValueError: {HOSTILE}")
        await worker.fail(fails_again, HOSTILE)
    await eventually(lambda: _is_settled(client, flow.id), "the workflow follows its jobs")
    return flow.id, flow.handle.jobs["waits"].id


async def _is_settled(client: pulse.Pulse, workflow_id: str) -> bool:
    found = await client.workflows.get(workflow_id)
    return (found.succeeded, found.failed, found.canceled, found.skipped) == (1, 1, 1, 1)


async def decide(client: pulse.Pulse, server: ServerUnderTest) -> None:
    """Let a worker declare settings of topics, and an operator set some."""
    backoff = pulse.Backoff(first=timedelta(seconds=2), factor=3, longest=timedelta(hours=6), jitter=0.1)
    for topic in ("mail", "reports"):
        await declare(
            server, f"declaring {HOSTILE}", topic, max_attempts=8, attempt_timeout=timedelta(seconds=90)
        )
    await client.set_topic("mail", backoff=backoff, max_attempts=40, keep_completed="forever")
    await client.set_topic("reports", keep_canceled=timedelta(hours=12))
    await client.set_topic("thumbnails/of-every-size", max_crashes=2)


async def limit(client: pulse.Pulse, server: ServerUnderTest) -> None:
    """Let two workers declare different limits, and an operator set others."""
    rate = pulse.Rate(100, per=timedelta(minutes=1))
    for name, most in (("one", 5), ("other", 8)):
        await declare(
            server, f"{name} {HOSTILE}", "tenants", running=most, rate=rate, per_lane=2, lane_rate=rate
        )
    await client.set_topic("tenants", running=3, aging=timedelta(minutes=5))
    await client.set_topic("held", rate=pulse.Rate(1, per=timedelta(hours=1)), pool="shared")
    await client.set_lane("tenants", HOSTILE, weight=3, limit=4)
    await client.hold("held", timedelta(hours=1))
    for lane in (HOSTILE, "customer-42", "x" * 255, None):
        await client.enqueue("tenants", {}, lane=lane)


async def plan(client: pulse.Pulse) -> str:
    """Make schedules of all kinds. Returns the id of one that has fired."""
    cron = await client.schedule(
        "mail", {"text": HOSTILE}, pulse.Cron("0 9 * * 1-5", "Europe/Paris"), name=f"nightly {HOSTILE}"
    )
    await client.schedule("reports", {}, pulse.Every(timedelta(minutes=5)), name="every five minutes")
    await client.schedule("reports", {}, pulse.After(timedelta(hours=1)))
    async with pulse.Pulse(client.address, user="", password="", application=f"shop {HOSTILE}") as shop:
        await shop.every("reports", timedelta(hours=1), name="no longer in the code")
        await shop.declare()
    async with pulse.Pulse(client.address, user="", password="", application=f"shop {HOSTILE}") as shop:
        await shop.declare()
    await client.schedules.fire(cron.id)
    await client.schedules.pause("every five minutes")
    return cron.id
