"""Signals to children that handlers have forked."""

from __future__ import annotations

import signal

import pytest

from tests.sdk.fake_pulsed import FakePulsed
from tests.sdk.scripts import start_script

SIGNALED = """
    import asyncio, multiprocessing, os, signal, sys, time
    import pulse

    p = pulse.Pulse(sys.argv[1])
    fork = multiprocessing.get_context("fork")

    def terminate(at_once: bool) -> None:
        child = fork.Process(target=time.sleep, args=(60,))
        child.start()
        if not at_once:
            time.sleep(0.05)
        child.terminate()
        child.join()
        assert child.exitcode == -signal.SIGTERM, child.exitcode

    @p.job("thread")
    def in_thread(at_once: bool) -> None:
        terminate(at_once)

    @p.job("loop")
    async def in_loop(at_once: bool) -> None:
        terminate(at_once)

    @p.job("pool")
    def pool(at_once: bool) -> None:
        with fork.Pool(2) as processes:  # terminates them at its end
            assert processes.map(abs, [-1, -2]) == [1, 2]

    @p.job("interrupt")
    def interrupt(at_once: bool) -> None:
        reader, writer = os.pipe()
        if child := os.fork():
            os.read(reader, 1)
            os.kill(child, signal.SIGINT)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
        else:
            try:
                os.write(writer, b".")
                for _ in range(600):  # Python ends no sleep for a signal that arrives just before it
                    time.sleep(0.1)
            except KeyboardInterrupt:
                os._exit(5)

    asyncio.run(p.run())
    print("returned")
"""


@pytest.mark.parametrize("topic", ["thread", "loop", "pool", "interrupt"])
def test_signal_to_a_child_that_a_handler_forked_ends_the_child_and_not_the_worker(
    fake: FakePulsed, topic: str
) -> None:
    worker = start_script(SIGNALED, fake.address)
    try:
        for number in range(10):
            payload = b'{"at_once":%s}' % (b"true" if number % 2 else b"false")
            fake.deliver(f"j{number}", topic=topic, payload=payload)
            fake.until(lambda count=number + 1: len(fake.results) == count)
        assert worker.poll() is None
    finally:
        worker.send_signal(signal.SIGTERM)
        output, errors = worker.communicate(timeout=30)
        print(output, errors)
    assert {job_id: result.error for job_id, result in fake.results.items() if not result.success} == {}
    assert (output, errors) == ("returned\n", "")
