"""Races of signals and steps in Postgres: a job that begins to wait misses no signal."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pulse_server.base.ids import new_id
from pulse_server.jobs.reports import NewStep
from pulse_server.jobs.rules import JobStatus
from pulse_server.steps.store import _SQL
from tests.postgres.sessions import Connection, blocked
from tests.postgres.stepped import BOUNDS, HOUR, StoredSteps

pytestmark = pytest.mark.usefixtures("patience_of_a_busy_machine")


# ---------------------------------------------------------------- races


async def test_job_that_begins_to_wait_while_its_signal_is_stored_does_not_miss_it(
    stepped: StoredSteps, rival: Connection
) -> None:
    claim = await stepped.store.start()
    await rival.fetch(_SQL["signal_job"], [claim.job_id], new_id(), "approved", b"1", *BOUNDS)
    waiting = await blocked(stepped.connection, stepped.wait(claim))
    await rival.execute("COMMIT")
    ended = await waiting
    assert ended is not None
    assert ended.status is JobStatus.RETRYING
    assert await stepped.is_ready(claim.job_id), "the signal has come: it runs again at once"


async def test_signal_that_meets_a_job_about_to_wait_wakes_it(
    stepped: StoredSteps, rival: Connection
) -> None:
    claim = await stepped.store.start()
    columns = [[value] for value in (*claim, "approved", "approved", None)]
    await rival.fetch(_SQL["suspend_jobs"], *columns, BOUNDS.steps, "", "", [None])
    sending = await blocked(stepped.connection, stepped.signal(claim.job_id))
    await rival.execute("COMMIT")
    sent = await sending
    assert sent is not None
    assert sent.is_awaited
    assert await stepped.is_ready(claim.job_id)


async def test_two_steps_that_take_signals_at_once_never_take_the_same(
    stepped: StoredSteps, rival: Connection
) -> None:
    claim = await stepped.store.start()
    for value in (b"1", b"2"):
        await stepped.signal(claim.job_id, value=value)
    await rival.fetch(_SQL["take_signal"], [claim.job_id], *claim[1:], "a", "approved", BOUNDS.steps)
    taking = await blocked(stepped.connection, stepped.take(claim, step="b"))
    await rival.execute("COMMIT")
    second = await taking or await stepped.take(claim, step="b")
    assert second is not None
    assert second.value == b"2"
    assert await stepped.values(claim.job_id) == {"a": b"1", "b": b"2"}


async def test_step_that_is_stored_twice_at_once_counts_once(stepped: StoredSteps, rival: Connection) -> None:
    claim = await stepped.store.start()
    columns = [[value] for value in (*claim, "fetch", b"first", timedelta(0))]
    await rival.fetch(_SQL["store_steps"], *columns, *BOUNDS)
    storing = await blocked(stepped.connection, stepped.step(claim, "fetch", b"second"))
    await rival.execute("COMMIT")
    assert await storing is False
    assert await stepped.values(claim.job_id) == {"fetch": b"first"}
    assert (await stepped.store.job(claim.job_id)).steps == 1


async def test_step_is_not_stored_for_a_claim_that_ends_meanwhile(
    stepped: StoredSteps, rival: Connection
) -> None:
    claim = await stepped.store.start()
    columns = [[value] for value in (*claim, "sleep", "", HOUR)]
    await rival.fetch(_SQL["suspend_jobs"], *columns, BOUNDS.steps, "", "", [None])
    storing = await blocked(
        stepped.connection, stepped.steps.store_steps([NewStep(claim, "late", b"1")], BOUNDS)
    )
    await rival.execute("COMMIT")
    assert await storing == [None]
    assert await stepped.names(claim.job_id) == ["sleep"]
