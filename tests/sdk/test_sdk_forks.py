"""Handlers that fork, clients in forked children, and gevent."""

from __future__ import annotations

import signal
from importlib.util import find_spec

import pytest

from tests.sdk.fake_pulsed import FakePulsed
from tests.sdk.scripts import run_script, start_script

FORKING = """
    import asyncio, multiprocessing, os, subprocess, sys
    from concurrent.futures import ProcessPoolExecutor
    import pulse

    p = pulse.Pulse(sys.argv[1], concurrency=2)

    def square(number: int) -> int:
        return number * number

    def pool() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork"))

    @p.job("pool")
    def in_thread() -> None:
        with pool() as processes:
            assert list(processes.map(square, range(4))) == [0, 1, 4, 9]

    @p.job("pool-async")
    async def in_loop() -> None:
        with pool() as processes:
            assert await asyncio.get_running_loop().run_in_executor(processes, square, 3) == 9

    @p.job("run")
    def run() -> None:
        assert subprocess.run(["true"]).returncode == 0

    def wait_for(child: int) -> None:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 70

    @p.job("fork")
    def fork() -> None:
        if child := os.fork():
            wait_for(child)

    @p.job("fork-async")
    async def fork_async(wait: bool = False) -> None:
        if child := os.fork():
            wait_for(child)
        elif wait:
            await asyncio.sleep(0)

    async def main() -> None:
        await p.enqueue("used before")
        await p.run()
        print("returned")

    asyncio.run(main())
"""


def test_handlers_may_fork_and_use_process_pools(fake: FakePulsed) -> None:
    worker = start_script(FORKING, fake.address)
    cases = [(topic, b"") for topic in ("pool", "pool-async", "run", "fork", "fork-async")]
    cases.append(("fork-async", b'{"wait":true}'))
    try:
        for number, (topic, payload) in enumerate(cases * 3):
            fake.deliver(f"{topic}{number}", topic=topic, payload=payload)
            fake.until(lambda count=number + 1: len(fake.results) == count)
    except BaseException:
        worker.kill()
        print(worker.communicate())
        raise
    worker.send_signal(signal.SIGTERM)
    assert worker.communicate(timeout=20) == ("returned\n", "")
    assert {job_id: result.error for job_id, result in fake.results.items() if not result.success} == {}
    assert fake.result_count == 18


@pytest.mark.parametrize("client", ["p", "pulse.SyncPulse(sys.argv[1])"])
def test_client_in_a_child_that_was_forked_after_use_raises_at_once(fake: FakePulsed, client: str) -> None:
    printed = run_script(
        f"""
        import os, sys
        import pulse

        p = pulse.SyncPulse(sys.argv[1])
        p.enqueue("before")
        if child := os.fork():
            status = os.waitpid(child, 0)[1]
            p.enqueue("after")
            print(os.waitstatus_to_exitcode(status))
        else:
            try:
                {client}.enqueue("in the child")
            except pulse.ClientClosed as error:
                print(error, flush=True)
        """,
        fake.address,
    )
    assert printed.startswith("This process was forked after a client was used")
    assert printed.endswith("\n0\n")
    assert sorted(job.topic for job in fake.stored.values()) == ["after", "before"]


def test_async_client_in_a_forked_child_raises_at_once(fake: FakePulsed) -> None:
    printed = run_script(
        """
        import asyncio, os, sys
        import pulse

        p = pulse.Pulse(sys.argv[1])
        asyncio.run(p.enqueue("before"))
        if child := os.fork():
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        else:
            try:
                asyncio.run(p.enqueue("in the child"))
            except pulse.ClientClosed as error:
                print(error, flush=True)
        """,
        fake.address,
    )
    assert "forked" in printed
    assert printed.endswith("\n0\n")


@pytest.mark.parametrize("client", ["p", "pulse.Pulse(sys.argv[1])"])
def test_async_client_in_a_child_that_was_forked_in_a_running_loop_raises_at_once(
    fake: FakePulsed, client: str
) -> None:
    printed = run_script(
        f"""
        import asyncio, os, sys
        import pulse

        p = pulse.Pulse(sys.argv[1])

        async def main() -> None:
            await p.enqueue("before")
            if child := os.fork():
                status = os.waitpid(child, 0)[1]
                await p.enqueue("after")
                print(os.waitstatus_to_exitcode(status))
                return
            for call in ({client}.enqueue("in the child"), {client}.topics()):
                try:
                    await call
                except pulse.ClientClosed as error:
                    print(error, flush=True)
            await p.close()
            os._exit(0)

        asyncio.run(main())
        """,
        fake.address,
    )
    assert printed.count("This process was forked after a client was used") == 2
    assert printed.endswith("\n0\n")
    assert sorted(job.topic for job in fake.stored.values()) == ["after", "before"]


def test_spawned_child_has_a_client_of_its_own(fake: FakePulsed) -> None:
    run_script(
        """
        import subprocess, sys
        import pulse

        with pulse.SyncPulse(sys.argv[1]) as p:
            p.enqueue("parent")
            if len(sys.argv) == 2:
                code = "import sys, pulse; p = pulse.SyncPulse(sys.argv[1]); p.enqueue('child'); p.close()"
                assert subprocess.run([sys.executable, "-c", code, sys.argv[1]]).returncode == 0
        """,
        fake.address,
    )
    assert sorted(job.topic for job in fake.stored.values()) == ["child", "parent"]


@pytest.mark.skipif(find_spec("gevent") is None, reason="needs gevent")
class TestGevent:
    def test_import_after_monkey_patching_is_refused_with_a_sentence(self) -> None:
        printed = run_script(
            """
            from gevent import monkey

            monkey.patch_all()
            try:
                import pulse
            except ImportError as error:
                print(error)
            """
        )
        assert printed.startswith("pulse does not work where gevent has patched threads or select")

    def test_use_after_late_monkey_patching_is_refused(self, fake: FakePulsed) -> None:
        printed = run_script(
            """
            import asyncio, sys
            import pulse

            p = pulse.Pulse(sys.argv[1])

            async def main() -> None:
                from gevent import monkey

                monkey.patch_all()
                try:
                    await p.enqueue("work")
                except pulse.ClientClosed as error:
                    print(error)

            asyncio.run(main())
            """,
            fake.address,
        )
        assert "gevent" in printed

    def test_client_works_with_gevent_that_leaves_threads_alone(self, fake: FakePulsed) -> None:
        run_script(
            """
            from gevent import monkey

            monkey.patch_all(thread=False, select=False)
            import sys
            import pulse

            with pulse.SyncPulse(sys.argv[1]) as p:
                p.enqueue("work")
            """,
            fake.address,
        )
        assert len(fake.stored) == 1
