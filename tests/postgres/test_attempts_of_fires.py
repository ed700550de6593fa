"""Attempts of schedules that a server of the release before has stored."""

from __future__ import annotations

from pulse_server.schedules.rules import CatchUp, Every
from pulse_server.schedules.service import Definition
from tests.postgres.planning import HOUR, Planning, work


async def test_number_that_an_older_server_stores_is_no_default(planning: Planning) -> None:
    """It does not write the mark that the schedule has."""
    of_handler = work(max_attempts=1, attempts_by_policy=True, max_attempts_is_default=True)
    wanted = Definition("report", Every(HOUR), of_handler, CatchUp.ONE)
    made = await planning.service.create(wanted, replace_existing=True)
    await planning.connection.execute(
        "UPDATE pulse.schedules SET max_attempts = 3, attempts_by_policy = false WHERE id = $1", made.id
    )

    stored = (await planning.current(made)).work
    assert (stored.max_attempts, stored.attempts_by_policy, stored.max_attempts_is_default) == (
        3,
        False,
        False,
    )
