"""A handler that exits, or raises what ends programs, fails its job. The worker goes on."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable

import click
import pytest

import pulse
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed
from tests.sdk.scripts import start_script


@click.command()
def command() -> None:
    """A command that ends as click ends all of them: with sys.exit."""


def exit_with_code() -> None:
    sys.exit(3)


def interrupt() -> None:
    raise KeyboardInterrupt


def close_generator() -> None:
    raise GeneratorExit


def run_click() -> None:
    command([])


class Unusual(BaseException):
    pass


def raise_unusual() -> None:
    raise Unusual("not an Exception")


CAUSES = [
    (exit_with_code, "SystemExit: 3"),
    (interrupt, "KeyboardInterrupt"),
    (close_generator, "GeneratorExit"),
    (run_click, "SystemExit: 0"),
    (raise_unusual, "Unusual: not an Exception"),
]


@pytest.mark.parametrize(("cause", "error"), CAUSES)
@pytest.mark.parametrize("kind", ["at once", "after a wait", "in a thread"])
async def test_handler_that_exits_fails_its_job_and_not_the_worker(
    fake: FakePulsed, p: pulse.Pulse, running: Running, cause: Callable[[], None], error: str, kind: str
) -> None:
    async def handle(ctx: pulse.Context) -> None:
        if kind == "after a wait":
            await asyncio.sleep(0)
        if ctx.job_id == "exits":
            cause()

    def handle_in_thread(ctx: pulse.Context) -> None:
        if ctx.job_id == "exits":
            cause()

    p.register("work", handle_in_thread if kind == "in a thread" else handle)
    async with running(p) as worker:
        fake.deliver("exits", "next")
        await fake.until_async(lambda: len(fake.results) == 2)
        assert not worker.done()
    assert fake.results["exits"].error.startswith(error)
    assert fake.results["next"].success


@pytest.mark.parametrize("waits", [False, True])
async def test_handler_that_cancels_its_own_task_fails_its_job(
    fake: FakePulsed, p: pulse.Pulse, running: Running, waits: bool
) -> None:
    """Its claim would be extended for as long as the worker lives, and its slot never be used again."""

    async def handle() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if waits:
            await asyncio.sleep(0)
        raise asyncio.CancelledError

    p.register("work", handle)
    async with running(p) as worker:
        fake.deliver("j1")
        await fake.until_async(lambda: "j1" in fake.results)
        assert not worker.done()
    assert fake.results["j1"].error.startswith("CancelledError")


async def test_job_of_a_loop_that_shuts_down_is_released_and_not_failed(fake: FakePulsed) -> None:
    worker = start_script(
        """
        import asyncio, sys
        import pulse

        p = pulse.Pulse(sys.argv[1])
        started = asyncio.Event()

        @p.job("work")
        async def handle() -> None:
            started.set()
            await asyncio.sleep(60)

        async def main() -> None:
            background = asyncio.create_task(p.run(handle_signals=False))
            await started.wait()

        asyncio.run(main())
        """,
        fake.address,
    )
    fake.deliver("j1")
    await asyncio.to_thread(worker.communicate, timeout=20)
    assert "j1" not in fake.results
    assert fake.released == ["j1"]


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("loop.call_soon(sys.exit, 1)", "SystemExit"),
        ("loop.stop()", "RuntimeError"),
        ("await asyncio.create_task(exit_in_task())", "SystemExit"),
    ],
)
async def test_job_that_ends_the_event_loop_is_failed_and_not_released(
    fake: FakePulsed, end: str, error: str
) -> None:
    """Else it would end that of one worker after the other, for ever."""
    worker = start_script(
        f"""
        import asyncio, sys
        import pulse

        p = pulse.Pulse(sys.argv[1])
        started = asyncio.Event()

        async def exit_in_task() -> None:
            sys.exit(1)

        @p.job("end")
        async def end() -> None:
            await started.wait()
            loop = asyncio.get_running_loop()
            {end}
            await asyncio.sleep(60)

        @p.job("work")
        async def handle() -> None:
            started.set()
            await asyncio.sleep(60)

        asyncio.run(p.run())
        """,
        fake.address,
    )
    fake.deliver("beside")
    fake.deliver("j1", topic="end")
    await asyncio.to_thread(worker.communicate, timeout=20)
    assert worker.returncode == 1
    assert fake.released == []
    assert {result.error.partition(":")[0] for result in fake.results.values()} == {error}
    assert fake.results.keys() == {"beside", "j1"}


def test_interrupt_from_the_keyboard_ends_a_worker_without_signal_handlers(fake: FakePulsed) -> None:
    """The KeyboardInterrupt lands in the handler by chance: it is the worker that shall stop."""
    worker = start_script(
        """
        import asyncio, sys, time
        import pulse

        p = pulse.Pulse(sys.argv[1])

        @p.job("work")
        async def handle() -> None:
            print("started", flush=True)
            while True:
                time.sleep(0.01)

        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(p.run(handle_signals=False))
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """,
        fake.address,
    )
    fake.deliver("j1")
    assert worker.stdout is not None
    assert worker.stdout.readline() == "started\n"
    worker.send_signal(signal.SIGINT)
    printed, _ = worker.communicate(timeout=20)
    assert (worker.returncode, printed) == (0, "interrupted\n")
    assert fake.results["j1"].error.startswith("KeyboardInterrupt")
