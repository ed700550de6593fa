"""Attempts of fired jobs: the schedule's own, the policy's, the handler's, or those of the settings."""

from __future__ import annotations

from typing import Any

import pytest

from pulse_server.base.errors import ScheduleExists
from pulse_server.base.ids import new_id
from pulse_server.schedules.rules import CatchUp, Every, Schedule, Work
from pulse_server.schedules.service import Changes, Definition
from tests.postgres.planning import HOUR, SECOND, Planning, work

# What the server makes of a request with a number, with the number of a handler, and without one.
OWN: dict[str, Any] = {"max_attempts": 3}
OF_HANDLER: dict[str, Any] = {"max_attempts": 1, "attempts_by_policy": True, "max_attempts_is_default": True}
OF_SETTINGS: dict[str, Any] = {"max_attempts": 25, "attempts_by_policy": True}


async def set_attempts(planning: Planning, *, operator: int | None = None, worker: int | None = None) -> None:
    if operator is not None:
        await planning.settings.set_topic("mail", {"max_attempts": operator}, (), "ada")
    if worker is not None:
        await planning.settings.declare_topics({"mail": {"max_attempts": worker}}, "worker-1")


async def declare(planning: Planning, attempts: dict[str, Any], *, replace: bool = True) -> Schedule:
    wanted = Definition("report", Every(HOUR), work(**attempts), CatchUp.ONE)
    return await planning.service.create(wanted, replace_existing=replace)


def attempts_of(found: Work) -> dict[str, Any]:
    return {name: getattr(found, name) for name in OF_HANDLER}


@pytest.mark.parametrize(
    ("attempts", "policy", "fired"),
    [
        (OWN, {"operator": 7, "worker": 2}, 3),
        (OF_HANDLER, {}, 1),
        (OF_HANDLER, {"worker": 2}, 2),
        (OF_HANDLER, {"operator": 7}, 7),
        (OF_HANDLER, {"operator": 7, "worker": 2}, 7),
        (OF_SETTINGS, {}, 25),
        (OF_SETTINGS, {"worker": 2}, 2),
    ],
    ids=str,
)
async def test_fire_takes_the_first_number_that_is_set(
    planning: Planning, attempts: dict[str, Any], policy: dict[str, int], fired: int
) -> None:
    await set_attempts(planning, **policy)
    schedule = await planning.make(overdue=SECOND, **attempts)
    await planning.scheduler.tick()
    await planning.repo.fire_now(schedule.id, new_id())

    assert [job.max_attempts for job in await planning.jobs_of(schedule)] == [fired, fired]


@pytest.mark.parametrize("attempts", [OWN, OF_HANDLER, OF_SETTINGS], ids=str)
async def test_same_attempts_declared_again_leave_the_schedule_as_it_is(
    planning: Planning, attempts: dict[str, Any]
) -> None:
    made = await declare(planning, attempts)

    assert await declare(planning, attempts) == made
    assert await planning.current(made) == made
    (listed,) = await planning.repo.list_schedules(limit=10)
    assert attempts_of(listed.work) == attempts_of(made.work) == attempts_of(work(**attempts))


async def test_other_settings_of_a_server_do_not_change_the_schedule(planning: Planning) -> None:
    made = await declare(planning, OF_SETTINGS)

    assert await declare(planning, OF_SETTINGS | {"max_attempts": 9}) == made


async def test_declaration_takes_over_what_the_handler_has_now(planning: Planning) -> None:
    made = await declare(planning, OF_SETTINGS)
    for attempts in (OF_HANDLER, OF_HANDLER | {"max_attempts": 2}, OWN, OF_HANDLER, OF_SETTINGS):
        before = await planning.current(made)
        changed = await declare(planning, attempts)
        assert (changed.id, changed.next_run_at) == (made.id, made.next_run_at)
        assert attempts_of(changed.work) == attempts_of(work(**attempts))
        assert changed.updated_at != before.updated_at


async def test_default_of_a_handler_is_no_other_definition(planning: Planning) -> None:
    made = await declare(planning, OF_SETTINGS)
    assert await declare(planning, OF_HANDLER, replace=False) == made

    made = await declare(planning, OF_HANDLER)
    assert await declare(planning, OF_SETTINGS, replace=False) == made
    with pytest.raises(ScheduleExists):
        await declare(planning, OWN, replace=False)


async def test_update_without_a_number_keeps_the_default_and_one_with_it_ends_it(planning: Planning) -> None:
    made = await declare(planning, OF_HANDLER)

    kept = await planning.service.update(made.id, Changes(priority=3))
    assert attempts_of(kept.work) == attempts_of(made.work)
    own = await planning.service.update(made.id, Changes(max_attempts=3))
    assert attempts_of(own.work) == attempts_of(work(**OWN))
