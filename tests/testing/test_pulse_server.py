"""The fixture pulse_server: a real pulsed for the tests of an application."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testing.projects import suite_result

TASKS = """
    from datetime import timedelta

    import pulse

    p = pulse.Pulse("localhost:1", user="ada", password="secret")
    s = pulse.SyncPulse()


    @p.job("hello")
    async def hello(name: str) -> str:
        await double.enqueue(n=3)
        return f"hello {name}"


    @p.job("double")
    def double(n: int) -> int:
        return n * 2


    @s.job("blocking")
    def blocking(n: int) -> int:
        return n + 1


    s.every("blocking", timedelta(hours=1), {"n": 1}, name="hourly")
"""

TESTS = """
    import asyncio
    import os
    from datetime import timedelta

    import pytest
    import pulse
    from tasks import blocking, hello, p, s


    def test_blocking_client(pulse_server):
        handle = blocking.enqueue(1)
        with pulse_server.work(s):
            assert handle.result() == 2
        assert s.count_jobs().count == 0
        blocking.enqueue(5)


    async def test_async_client(pulse_server):
        handle = await hello.enqueue(name="Ada")
        pulse_server.work(p)
        assert await handle.result() == "hello Ada"
        assert os.environ["PULSE_ADDR"] == pulse_server.address


    def test_first_changes_everything(pulse_server):
        check_that_nothing_is_there(pulse_server)
        blocking.options(key="once").enqueue(1)
        with pulse_server.work(s):
            s.start(pulse.group(blocking.s(1), blocking.s(2))).wait()
            s.cancel(blocking.options(delay=timedelta(days=1)).enqueue(1).id)
        s.schedule("blocking", {"n": 1}, pulse.Every(timedelta(hours=1)))
        s.pause(reason="a test")
        s.pause(topic="blocking", reason="a test")
        s.set_topic("blocking", max_attempts=1, keep_completed=timedelta(hours=1))
        s.set_topic("blocking", running=1, rate=pulse.Rate(1, per=timedelta(days=1)))


    def test_second_finds_nothing(pulse_server):
        check_that_nothing_is_there(pulse_server)
        first = blocking.options(key="once").enqueue(3)
        assert not first.duplicate
        second = blocking.enqueue(4)
        with pulse_server.work(s):
            assert s.gather(first, second, timeout=timedelta(minutes=1)) == [4, 5]
        assert s.get_job(first.id).max_attempts > 1


    def check_that_nothing_is_there(pulse_server):
        for stored in (s.iter_jobs(), s.workflows.iter(), s.schedules.iter(), s.audit()):
            assert [*stored] == []
        for settings in (s.all_topic_settings(), s.limits()):
            assert [*settings] == []
        status = s.dispatch_status()
        assert (status.paused, dict(status.topics)) == (False, {})


    def test_kit_and_server_in_one_suite(pulse_kit):
        blocking.enqueue(1)
        assert pulse_kit.drain() == {"completed": 1}


    async def test_wait_ends_with_the_error_of_the_worker(pulse_server):
        handle = await hello.enqueue(name="Ada")
        waiting = asyncio.create_task(handle.result())
        await asyncio.sleep(0.1)
        worker = pulse_server.work(p, topics=["unknown"])
        with pytest.raises(pulse.ClientClosed, match="A worker of this test has ended.*InvalidHandler"):
            await waiting
        with pytest.raises(pulse.ClientClosed, match="A worker of this test has ended"):
            await hello.enqueue(name="Ada")
        with pytest.raises(pulse.InvalidHandler):
            worker.stop()
        await hello.enqueue(name="Ada")


    def test_error_of_a_worker_is_raised(pulse_server):
        worker = pulse_server.work(s, topics=["unknown"])
        with pytest.raises(pulse.InvalidHandler):
            worker.stop()


    def test_no_server_no_connection():
        with pytest.raises(pulse.ClientClosed, match="pulse_server"):
            blocking.enqueue(1)
        assert os.environ["PULSE_ADDR"] == "localhost:1"
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_suite_with_a_server_of_its_own_postgres(tmp_path: Path, database_dsn: str, workers: str) -> None:
    files = {"tasks.py": TASKS, "test_tasks.py": TESTS}
    options = ("-o", "asyncio_mode=auto", "-n", workers)
    assert "8 passed" in suite_result(tmp_path, files, *options, DB_HOST=database_dsn)


def test_suite_with_the_embedded_postgres(tmp_path: Path) -> None:
    files = {"tasks.py": TASKS, "test_tasks.py": TESTS}
    assert "8 passed" in suite_result(tmp_path, files, "-o", "asyncio_mode=auto", DB_HOST="")
