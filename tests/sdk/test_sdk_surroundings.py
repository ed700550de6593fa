"""When middleware and resources can be registered, and registered again."""

from __future__ import annotations

from typing import Any

import pytest

import pulse
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed
from tests.sdk.test_sdk_resources import Mailer


def _cell(p: pulse.Pulse, version: int) -> None:
    """Run a cell of a notebook again."""
    names: dict[str, Any] = {"p": p, "version": version, "__name__": "__main__"}
    exec(
        "@p.resource\n"
        "def database() -> int:\n    yield version\n"
        "@p.middleware\n"
        "async def around(call, call_next):\n    await call_next()\n",
        names,
    )


def test_cell_of_a_notebook_replaces_what_it_registered_before() -> None:
    p = pulse.Pulse()
    for version in (1, 2):
        _cell(p, version)
    surroundings = p._registry.surroundings
    assert len(surroundings._middleware) == len(surroundings._resources) == 1
    assert surroundings._resources[0].factory.__globals__["version"] == 2


async def test_registration_while_a_worker_runs_comes_too_late(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    @p.job("work")
    async def handle() -> None: ...

    async def around(call: pulse.JobCall, call_next: pulse.CallNext) -> None: ...

    async with running(p):
        await eventually(lambda: p._registry.surroundings._openings)
        with pytest.raises(pulse.InvalidHandler, match="comes too late"):
            p.middleware(around)
        with pytest.raises(pulse.InvalidHandler, match="comes too late"):
            p.resource(Mailer)
    p.resource(Mailer)
