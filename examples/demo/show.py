"""The demo from start to end: set the stage, play the acts, keep a load, sum up, clear the stage."""

import asyncio
import signal
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pulse
from examples.demo import load, shop, summary
from examples.demo.acts import failures, ordinary, recovery, turns
from examples.demo.facts import NotAsPromised
from examples.demo.narrator import Narrator, Tone
from examples.demo.scene import Scene, name_of
from examples.demo.stage import Progress, Stage

# What the acts take without any pause, the start of the server included.
_STORY_SECONDS = 20
_ACTS = 4
_LONGEST_PAUSE_SECONDS = 5
# How long the job of act 2 that never succeeds takes to be given up. In a hurry, act 3 does not wait for it.
_GIVING_UP = timedelta(seconds=4)
# Less than this is not worth another act: then the demo ends a little early.
_SHORTEST_LOAD_SECONDS = 8


class Show:
    """One run of the demo."""

    def __init__(self, *, seconds: float | None, keep: Path | None) -> None:
        self._seconds = seconds
        self._keep = keep
        self._narrator = Narrator()
        self._stage = Stage(keep, self._show_progress)
        self._scene: Scene | None = None
        self._dashboard = ""
        self._problem: Exception | None = None
        self._doing: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Run to the end, or until Ctrl-C. Returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._interrupt)
        try:
            for part in (self._play, self._sum_up, self._clear_the_stage):
                await self._until_interrupted(part())
        finally:
            self._stage.abandon()
        return 0 if self._problem is None else 1

    def _interrupt(self) -> None:
        if self._doing is not None:
            self._doing.cancel()

    async def _until_interrupted(self, part: Coroutine[Any, Any, None]) -> None:
        """Do a part to its end, or until Ctrl-C. An error is shown and kept as the problem."""
        self._doing = asyncio.create_task(part)
        await asyncio.wait({self._doing})
        if self._doing.cancelled():
            return
        error = self._doing.exception()
        if isinstance(error, NotAsPromised | pulse.PulseError):
            self._problem = error
            is_silent = isinstance(error, pulse.Unavailable)
            reason = "The server does not answer any more." if is_silent else str(error)
            self._narrator.show("demo", f"has to stop. {reason}", Tone.BAD)
        elif error is not None:
            raise error

    # ------------------------------------------------------------ the parts

    async def _play(self) -> None:
        scene = await self._set_the_stage()
        await ordinary.play(scene)
        giving_up = await failures.play(scene)
        try:
            if self._pause() >= _GIVING_UP:
                await giving_up
            await turns.play(scene)
            await giving_up
        finally:
            await failures.end(giving_up)
        killed = await recovery.play(scene)
        if self._remaining_seconds() > _SHORTEST_LOAD_SECONDS:
            await self._keep_a_load(scene, killed)

    async def _set_the_stage(self) -> Scene:
        self._narrator.introduce(
            "Pulse runs jobs in the background: work that a program hands over instead of waiting for it.",
            {
                "app": "submits jobs, as a web application would",
                "server": "pulsed: stores the jobs in Postgres until they are done",
                "worker": "a process that runs jobs; there are two, A and B",
            },
        )
        place = "a temporary directory" if self._keep is None else str(self._keep)
        self._narrator.show("server", f"starts, with a Postgres of its own in {place}")
        self._stage.start_server()
        address = await self._stage.address()
        self._narrator.show("server", f"answers at {address}")
        scene = self._scene = Scene(pulse.Pulse(address), self._stage, self._narrator, self._pause())
        self._stage.start_dashboard(address)
        await asyncio.gather(self._enter(scene, "worker A"), self._enter(scene, "worker B"))
        self._dashboard = await self._stage.dashboard_address()
        self._narrator.invite("Dashboard", self._dashboard)
        return scene

    async def _enter(self, scene: Scene, worker: str, remark: str = "") -> None:
        """Start a worker, and show it once it is connected."""
        self._stage.start_worker(worker, scene.client.address)
        await scene.connected(worker)
        self._narrator.show(worker, f"is connected{remark}")

    async def _keep_a_load(self, scene: Scene, killed: str) -> None:
        end = "until you press Ctrl-C" if self._seconds is None else f"until {self._seconds:g} s are over"
        self._narrator.title(
            f"5. A shop, {end}",
            "Orders, payments, pictures and exports, some of which fail. Returns wait for their package, and "
            f"sellers that import products take turns. Look at it: {self._dashboard}",
            "Submit jobs of your own in another terminal, if you like:",
            f"PULSE_ADDR={scene.client.address} .venv/bin/python examples/producer.py",
        )
        await asyncio.gather(
            self._enter(scene, "worker C", f", in place of {killed}"),
            self._enter(scene, shop.OFFICE, ", for the shop's short jobs"),
            self._enter(scene, shop.MEDIA, ", for pictures and exports"),
        )
        await load.keep_up(scene, is_over=lambda: self._remaining_seconds() <= 0)

    async def _sum_up(self) -> None:
        has_server = not isinstance(self._problem, pulse.PulseError)
        if has_server and self._scene is not None and self._scene.submitted:
            await summary.show(self._scene)

    async def _clear_the_stage(self) -> None:
        if not self._stage.is_set:
            return
        self._narrator.gap()
        if self._scene is not None:
            await self._scene.client.close()
        await self._stage.close()
        rest = "and its directory is removed" if self._keep is None else f"its data is in {self._keep}"
        self._narrator.paragraph(f"Everything is stopped, {rest}.")
        if self._problem is None:
            self._narrator.paragraph("Read on: README.md, then examples/worker.py and examples/producer.py.")
        elif self._keep is None:
            self._narrator.paragraph("Run it once more with --keep DIR, and look into the logs there.")

    # ------------------------------------------------------------ time, and reports of workers

    def _remaining_seconds(self) -> float:
        return float("inf") if self._seconds is None else self._seconds - self._narrator.seconds

    def _pause(self) -> timedelta:
        """How long a reader gets for the explanation of each act: what the given time allows."""
        spare = (self._remaining_seconds() + self._narrator.seconds - _STORY_SECONDS) / (_ACTS + 1)
        return timedelta(seconds=min(max(spare, 0), _LONGEST_PAUSE_SECONDS))

    def _show_progress(self, progress: Progress) -> None:
        if progress.percent == 0:
            words = f"begins {name_of('make-video', progress.job_id)}, attempt {progress.attempt}"
        else:
            words = f"is {progress.percent} % through"
        self._narrator.show(progress.worker, words)
