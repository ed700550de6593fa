"""Places of a limit for jobs that wait in their worker: after those that start at once. ADR-0073"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pulse_server.domain.flow import Rate
from pulse_server.domain.jobs import Claim
from tests.fakes.store import LEASE, room, token
from tests.postgres.governed import TOPIC, Governed, in_lane

OFTEN = Rate(1000, timedelta(seconds=1))


async def claim(governed: Governed, running: int, ahead: int, worker: str = "A") -> list[Claim]:
    """Claim with so many slots that start jobs at once, and so many behind them."""
    slots = room(worker, running + ahead)._replace(running=running)
    return [token(job) for job in (await governed.flow.claim_governed([TOPIC], slots, LEASE)).jobs]


async def submit(governed: Governed, count: int) -> None:
    await governed.submit(*(in_lane(f"lane-{number}") for number in range(count)))


async def test_slots_ahead_get_what_the_limit_has_left(governed: Governed) -> None:
    await governed.govern(limit=10)
    await submit(governed, 30)
    assert len(await claim(governed, running=2, ahead=5)) == 7
    assert len(await claim(governed, running=0, ahead=20)) == 3
    assert await governed.agrees()


async def test_slots_ahead_leave_room_for_workers_that_could_have_started_a_job(governed: Governed) -> None:
    await governed.govern(limit=10)
    await submit(governed, 30)
    first, *rest = await claim(governed, running=2, ahead=8)
    assert await claim(governed, running=4, ahead=0, worker="B") == []

    await governed.complete(first, *rest[:4])
    assert len(await claim(governed, running=0, ahead=8)) == 1, "four places are for the other worker"
    assert len(await claim(governed, running=4, ahead=0, worker="B")) == 4

    await governed.connection.execute("UPDATE pulse.turnstiles SET wanted_until = now()")
    await governed.complete(*rest[4:6])
    assert len(await claim(governed, running=0, ahead=8)) == 2, "it is not waited for any more"
    assert await governed.agrees()


async def test_slots_that_run_are_filled_whatever_others_want(governed: Governed) -> None:
    await governed.govern(limit=3)
    await submit(governed, 30)
    one, *_ = await claim(governed, running=5, ahead=5)
    assert await claim(governed, running=9, ahead=0, worker="B") == []
    await governed.complete(one)
    assert len(await claim(governed, running=5, ahead=5)) == 1


async def test_limit_is_exact_for_slots_that_run(governed: Governed) -> None:
    await governed.govern(limit=3)
    await submit(governed, 30)
    assert len(await claim(governed, running=5, ahead=5)) == 3
    assert await claim(governed, running=5, ahead=5) == []


async def test_lanes_without_a_limit_of_all_fill_every_slot(governed: Governed) -> None:
    await governed.govern(per_lane=1)
    await submit(governed, 30)
    assert len(await claim(governed, running=2, ahead=20)) == 22


@pytest.mark.parametrize("entries", [{"rate": OFTEN}, {"lane_rate": OFTEN}, {"ordered": True}])
async def test_rates_and_orders_fill_only_slots_that_run(governed: Governed, entries: dict[str, Any]) -> None:
    """A start counts from the claim on, and would come later."""
    await governed.govern(limit=20, **entries)
    await submit(governed, 30)
    assert len(await claim(governed, running=2, ahead=20)) == 2
