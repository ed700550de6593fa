"""How a worker process ends: signals, and applications that have their own."""

from __future__ import annotations

import signal

import pytest

from tests.sdk.fake_pulsed import FakePulsed
from tests.sdk.scripts import finish_script, start_script

WORKER = """
    import asyncio, signal, sys
    import pulse

    p = pulse.Pulse(sys.argv[1])

    @p.job("work")
    async def handle(seconds: float) -> None:
        await p.enqueue("started")
        await asyncio.sleep(seconds)

    async def main() -> None:
        before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        await p.run()
        assert before == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        print("returned")

    asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_lets_the_running_handler_finish_and_run_return(
    fake: FakePulsed, number: signal.Signals
) -> None:
    worker = start_script(WORKER, fake.address)
    fake.deliver("j1", payload=b'{"seconds":0.2}')
    fake.until(lambda: fake.stored)
    worker.send_signal(number)
    assert finish_script(worker) == "returned\n"
    assert fake.results["j1"].success


def test_second_signal_does_not_wait(fake: FakePulsed) -> None:
    worker = start_script(WORKER, fake.address)
    fake.deliver("j1", payload=b'{"seconds":3600}')
    fake.until(lambda: fake.stored)
    worker.send_signal(signal.SIGTERM)
    fake.until(lambda: 1 in fake.capacities)
    worker.send_signal(signal.SIGTERM)
    assert finish_script(worker) == "returned\n"
    assert fake.released == ["j1"]


def test_application_keeps_its_own_signal_handlers(fake: FakePulsed) -> None:
    worker = start_script(
        """
        import asyncio, signal, sys
        import pulse

        p = pulse.Pulse(sys.argv[1])
        p.register("work", lambda: None)

        async def main() -> None:
            stop = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
            worker = asyncio.create_task(p.run())
            await stop.wait()
            print("the application decides", worker.done())
            worker.cancel()
            await asyncio.wait({worker})

        asyncio.run(main())
        """,
        fake.address,
    )
    fake.until(lambda: fake.opened)
    worker.send_signal(signal.SIGTERM)
    assert finish_script(worker) == "the application decides False\n"


def test_sync_handler_that_never_returns_does_not_keep_the_process(fake: FakePulsed) -> None:
    worker = start_script(
        """
        import sys, time
        from datetime import timedelta
        import pulse

        p = pulse.SyncPulse(sys.argv[1], drain_timeout=timedelta(milliseconds=1))

        @p.job("work")
        def handle() -> None:
            p.enqueue("started")
            time.sleep(3600)

        p.run()
        print("returned")
        """,
        fake.address,
    )
    fake.deliver("j1")
    fake.until(lambda: fake.stored)
    worker.send_signal(signal.SIGTERM)
    printed, complaints = worker.communicate(timeout=20)
    assert (worker.returncode, printed) == (0, "returned\n")
    assert "did not stop" in complaints
    assert (fake.released, fake.results) == ([], {})
