"""The work of jobs that consist of steps, a sleep and a signal, and what it writes to the history."""

from __future__ import annotations

from datetime import timedelta

import pulse
from faults.history import History

SIGNAL = "go"
_NAP = timedelta(milliseconds=50)
# A signal whose sender failed never comes. Longer than most outages.
_PATIENCE = timedelta(seconds=3)


def run_of(ctx: pulse.Context) -> int:
    """Return the number of the claim. Handlers have no use for it; the checker matches claims by it."""
    return ctx._assignment.run


class SteppedWork:
    """Runs two steps, with a sleep and the wait for a signal between them."""

    def __init__(self, history: History, worker_id: str) -> None:
        self._history = history
        self._worker_id = worker_id

    async def work(self, ctx: pulse.Context) -> None:
        await ctx.step("first", self._run, ctx, "first")
        self._stored(ctx, "first")
        await ctx.sleep(_NAP)
        try:
            value = await ctx.wait_for(SIGNAL, timeout=_PATIENCE)
        except pulse.SignalTimeout:
            value = None
        self._taken(ctx, value)
        await ctx.step("last", self._run, ctx, "last")
        self._stored(ctx, "last")

    def work_in_thread(self, ctx: pulse.Context) -> None:
        ctx.step("first", self._run, ctx, "first")
        self._stored(ctx, "first")
        ctx.sleep(_NAP)
        try:
            value = ctx.wait_for(SIGNAL, timeout=_PATIENCE)
        except pulse.SignalTimeout:
            value = None
        self._taken(ctx, value)
        ctx.step("last", self._run, ctx, "last")
        self._stored(ctx, "last")

    def _run(self, ctx: pulse.Context, step: str) -> str:
        self._history.write("step_ran", job_id=ctx.job_id, run=run_of(ctx), worker=self._worker_id, step=step)
        return step

    def _stored(self, ctx: pulse.Context, step: str) -> None:
        self._history.write("step_stored", job_id=ctx.job_id, run=run_of(ctx), step=step)

    def _taken(self, ctx: pulse.Context, value: object) -> None:
        self._history.write("signal_taken", job_id=ctx.job_id, run=run_of(ctx), step=SIGNAL, value=value)
