"""Schedules: recurring jobs, and a reminder for later. Runs until Ctrl-C.

    pulsed                           # terminal 1: the server
    python examples/schedules.py     # terminal 2: this; started twice, it makes no second schedule

The server keeps the schedules and makes a job at each fire, whether or not this program runs; any worker of
the topic may take it. Set PULSE_ADDR=host:port if the server is not at localhost:50051.
"""

import asyncio
import contextlib
import itertools
import sys
from datetime import timedelta

import pulse

p = pulse.Pulse(timeout=timedelta(seconds=3))
runs = itertools.count(1)


@p.job("tidy-up")
async def tidy_up() -> None:
    print(f"tidy-up: run {next(runs)}", flush=True)


@p.job("remind")
async def remind(who: str, what: str) -> None:
    print(f"remind: {who}, {what}", flush=True)


# Declared where the handlers are, and sent when run() starts. Starting again makes no second schedule; with
# another interval it retunes the one that is there.
p.cron("remind", "0 9 * * 1-5", {"who": "all", "what": "stand-up"}, tz="Europe/Paris", name="work hours")
p.every("tidy-up", timedelta(seconds=2))


async def main() -> None:
    declared = await p.declare()  # run() does this too; here it is asked for what came of it
    for schedule in declared:
        print(f"{schedule.name}: {schedule.spec}, next at {schedule.next_run_at:%c} UTC", flush=True)
    tea = {"who": "ada", "what": "the tea is ready"}
    await p.schedule("remind", tea, pulse.After(timedelta(seconds=2)))

    await p.run()

    for schedule in declared:
        print(f"{schedule.name}: fired {len(await p.schedules.fires(schedule))} times")
        with contextlib.suppress(pulse.NotFound):  # an example cleans up; an application leaves them there
            await p.schedules.delete(schedule)
    await p.close()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except pulse.Unavailable as error:
        sys.exit(str(error))
