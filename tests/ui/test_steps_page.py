"""The page of a job with steps: a timeline of them, what it waits for, and how to start it over."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pulse
from pulse_ui.jobs.views import outlook
from tests.eventually import eventually
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest
from tests.ui.jobs_to_show import at, job, past, text_of
from tests.ui.visitors import Visitor


def sentence_of(shown: pulse.JobInfo) -> str:
    return text_of(outlook(shown, at(100)), at(100))


def test_suspended_job_names_what_it_waits_for() -> None:
    sleeps = job("RETRYING", attempts=1, next_run_at=at(340), waits_for="")
    assert sentence_of(sleeps) == "Sleeps: it goes on in 4 min."
    waits = job("RETRYING", attempts=1, waits_for="approved")
    assert sentence_of(waits) == "Waits for the signal “approved”."
    bounded = job("RETRYING", attempts=1, next_run_at=at(340), waits_for="approved")
    assert sentence_of(bounded) == "Waits for the signal “approved”, and goes on without it in 4 min."


def test_dead_letter_of_too_many_steps_says_so() -> None:
    dead = job("DEAD_LETTERED", attempts=2, history=(past(2, 0, 1, "suspended", "sleeps"),))
    assert "it has as many steps as a job may have" in sentence_of(dead)


async def test_page_shows_the_steps_and_starts_a_dead_letter_over(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    visitor = Visitor(dashboard.url)
    async with pulse.Pulse(server.address) as p:

        @p.job("approval")
        async def approval(ctx: pulse.Context) -> None:
            await ctx.step("<charge>", lambda: "charge-7")
            await ctx.wait_for("approved", timeout=timedelta(hours=2))
            if ctx.run == 2:
                raise pulse.Discard("no")

        task = asyncio.create_task(p.run(handle_signals=False))
        handle = await p.enqueue("approval")

        async def waits() -> bool:
            return (await p.get_job(handle.id)).waits_for == "approved"

        await eventually(waits, "the job waits")
        page = (await visitor.get(f"/jobs/{handle.id}")).text
        assert "<code>&lt;charge&gt;</code>" in page
        assert "done in attempt 1" in page
        assert "waits for the signal" in page
        assert "1 suspended" in page
        assert ">Suspended</span>" in page
        assert "2 steps, kept for the next attempt" in page
        await p.signal(handle.id, "approved")

        async def is_dead() -> bool:
            return (await p.get_job(handle.id)).status.is_finished

        await eventually(is_dead, "the job is a dead letter")
        assert "forget its 2 steps" in (await visitor.get(f"/jobs/{handle.id}")).text
        await visitor.post(f"/jobs/{handle.id}/retry", [("fresh", "1")])
        await p.signal(handle.id, "approved")
        await handle.result(timeout=timedelta(seconds=30))
        page = (await visitor.get(f"/jobs/{handle.id}")).text
        assert "done in attempt 2" in page
        assert "2 steps</span>" in page
        task.cancel()
        await asyncio.wait({task})
