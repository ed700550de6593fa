"""Twenty seconds of handlers that exit, fork, hang, leak and blow up."""

import sys

import pytest

from faults.handlers.campaign import carry_out
from faults.handlers.kinds import KINDS
from tests.system.stage import Stage


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
async def test_workers_survive_handlers_that_misbehave(stage: Stage) -> None:
    outcome = await carry_out(stage, seconds=20.0, seed=20, report=print)
    print(outcome)
    assert not outcome.complaints, str(outcome)
    # Each kind has run.
    assert set(outcome.jobs) == set(KINDS)
