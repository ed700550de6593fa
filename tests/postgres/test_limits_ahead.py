"""Places of a limit for jobs that wait in their worker: after those that start at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pulse.topic_settings import Rate
from pulse_server.jobs.rules import Claim
from tests.fakes.store import LEASE, room, token
from tests.postgres.limited import TOPIC, Limited, in_lane

OFTEN = Rate(1000, timedelta(seconds=1))


async def claim(limited: Limited, running: int, ahead: int, worker: str = "A") -> list[Claim]:
    """Claim with so many slots that start jobs at once, and so many behind them."""
    slots = room(worker, running + ahead)._replace(running=running)
    return [token(job) for job in (await limited.limits.claim_limited([TOPIC], slots, LEASE)).jobs]


async def submit(limited: Limited, count: int) -> None:
    await limited.submit(*(in_lane(f"lane-{number}") for number in range(count)))


async def test_slots_ahead_get_what_the_limit_has_left(limited: Limited) -> None:
    await limited.limit_topic(running=10)
    await submit(limited, 30)
    assert len(await claim(limited, running=2, ahead=5)) == 7
    assert len(await claim(limited, running=0, ahead=20)) == 3
    assert await limited.agrees()


async def test_slots_ahead_leave_room_for_workers_that_could_have_started_a_job(limited: Limited) -> None:
    await limited.limit_topic(running=10)
    await submit(limited, 30)
    first, *rest = await claim(limited, running=2, ahead=8)
    assert await claim(limited, running=4, ahead=0, worker="B") == []

    await limited.complete(first, *rest[:4])
    assert len(await claim(limited, running=0, ahead=8)) == 1, "four places are for the other worker"
    assert len(await claim(limited, running=4, ahead=0, worker="B")) == 4

    await limited.connection.execute("UPDATE pulse.pools SET wanted_until = now()")
    await limited.complete(*rest[4:6])
    assert len(await claim(limited, running=0, ahead=8)) == 2, "it is not waited for any more"
    assert await limited.agrees()


async def test_slots_that_run_are_filled_whatever_others_want(limited: Limited) -> None:
    await limited.limit_topic(running=3)
    await submit(limited, 30)
    one, *_ = await claim(limited, running=5, ahead=5)
    assert await claim(limited, running=9, ahead=0, worker="B") == []
    await limited.complete(one)
    assert len(await claim(limited, running=5, ahead=5)) == 1


async def test_limit_is_exact_for_slots_that_run(limited: Limited) -> None:
    await limited.limit_topic(running=3)
    await submit(limited, 30)
    assert len(await claim(limited, running=5, ahead=5)) == 3
    assert await claim(limited, running=5, ahead=5) == []


async def test_lanes_without_a_limit_of_all_fill_every_slot(limited: Limited) -> None:
    await limited.limit_topic(per_lane=1)
    await submit(limited, 30)
    assert len(await claim(limited, running=2, ahead=20)) == 22


@pytest.mark.parametrize("entries", [{"rate": OFTEN}, {"lane_rate": OFTEN}, {"ordered": True}])
async def test_rates_and_orders_fill_only_slots_that_run(limited: Limited, entries: dict[str, Any]) -> None:
    """A start counts from the claim on, and would come later."""
    await limited.limit_topic(running=20, **entries)
    await submit(limited, 30)
    assert len(await claim(limited, running=2, ahead=20)) == 2
