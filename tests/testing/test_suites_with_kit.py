"""Test suites of applications over the kit: plain pytest, pytest-asyncio, xdist, unittest, FastAPI."""

from __future__ import annotations

from pathlib import Path

from pulse.installation import how_to_install
from tests.testing.projects import run_suite, suite_result

TASKS = """
    import pulse

    p = pulse.Pulse()
    s = pulse.SyncPulse()


    @p.job("hello")
    async def hello(name: str) -> str:
        return f"hello {name}"


    @s.job("double")
    def double(n: int) -> int:
        return n * 2
"""


def test_plugin_is_found_by_its_entry_point(tmp_path: Path) -> None:
    files = {
        "tasks.py": TASKS,
        "test_tasks.py": """
            from tasks import double


            def test_double(pulse_kit):
                double.enqueue(2)
                job = pulse_kit.one(double, n=2)
                assert pulse_kit.drain() == {"completed": 1}
                assert pulse_kit.result(job) == 4
        """,
    }
    assert "1 passed" in suite_result(tmp_path, files)


def test_client_of_a_conftest_reaches_no_queue(tmp_path: Path) -> None:
    files = {
        "tasks.py": TASKS,
        "conftest.py": """
            import os

            os.environ["PULSE_ADDR"] = "localhost:1"
            import tasks

            try:
                tasks.double.enqueue(1)
            except Exception as error:
                refused = error
        """,
        "test_tasks.py": """
            import pulse
            import pytest
            import tasks
            from conftest import refused


            def test_conftest_is_refused():
                assert isinstance(refused, pulse.ClientClosed)


            def test_without_a_fixture():
                with pytest.raises(pulse.ClientClosed, match="pulse_kit"):
                    tasks.double.enqueue(1)


            def test_allowed(pulse_connect):
                with pytest.raises(pulse.Unavailable):
                    tasks.s.enqueue("x", timeout=__import__("datetime").timedelta(seconds=0.5))


            def test_refused_again():
                with pytest.raises(pulse.ClientClosed, match="pulse_kit"):
                    tasks.double.enqueue(1)
        """,
    }
    assert "4 passed" in suite_result(tmp_path, files)


def test_setting_of_pytest_allows_connections(tmp_path: Path) -> None:
    files = {
        "tasks.py": TASKS,
        "test_tasks.py": """
            from datetime import timedelta

            import pulse
            import pytest
            import tasks


            def test_connects():
                with pytest.raises(pulse.Unavailable):
                    tasks.s.enqueue("x", timeout=timedelta(seconds=0.5))
        """,
    }
    assert "1 passed" in suite_result(tmp_path, files, "-o", "pulse_connect=true")


def test_pytest_asyncio(tmp_path: Path) -> None:
    files = {
        "tasks.py": TASKS,
        "test_tasks.py": """
            from tasks import double, hello


            async def test_hello(pulse_kit):
                handle = await hello.enqueue(name="Ada")
                assert await pulse_kit.adrain() == {"completed": 1}
                assert await handle.result() == "hello Ada"


            async def test_second_event_loop(pulse_kit):
                await hello.enqueue(name="Bob")
                ran = await pulse_kit.arun(pulse_kit.one(hello, name="Bob"))
                assert ran.result == "hello Bob"


            def test_without_a_loop(pulse_kit):
                double.enqueue(4)
                assert pulse_kit.drain() == {"completed": 1}
        """,
    }
    assert "3 passed" in suite_result(tmp_path, files, "-o", "asyncio_mode=auto")


def test_xdist(tmp_path: Path) -> None:
    files = {
        "tasks.py": TASKS,
        "test_tasks.py": """
            import pytest
            from tasks import double


            @pytest.mark.parametrize("n", range(8))
            def test_double(pulse_kit, n):
                double.enqueue(n)
                assert pulse_kit.drain() == {"completed": 1}
        """,
    }
    assert "8 passed" in suite_result(tmp_path, files, "-n", "2")


def test_unittest_without_pytest(tmp_path: Path) -> None:
    files = {
        "tasks.py": TASKS,
        "test_tasks.py": """
            import unittest

            import pulse.testing
            from tasks import double, hello


            class Jobs(unittest.TestCase):
                def setUp(self):
                    self.kit = self.enterContext(pulse.testing.Kit())

                def test_double(self):
                    double.enqueue(2)
                    self.assertEqual(self.kit.drain(), {"completed": 1})


            class AsyncJobs(unittest.IsolatedAsyncioTestCase):
                def setUp(self):
                    self.kit = self.enterContext(pulse.testing.Kit())

                async def test_hello(self):
                    await hello.enqueue(name="Ada")
                    self.assertEqual(await self.kit.adrain(), {"completed": 1})
        """,
    }
    assert "Ran 2 tests" in suite_result(tmp_path, files, module="unittest")


def test_fastapi(tmp_path: Path) -> None:
    files = {
        "app.py": """
            import asyncio
            from contextlib import asynccontextmanager

            import fastapi
            import pulse

            p = pulse.Pulse()


            @p.job("double")
            async def double(n: int) -> int:
                if n < 4:
                    await double.enqueue(n=n * 2)
                return n * 2


            @asynccontextmanager
            async def lifespan(app):
                async with p:
                    worker = asyncio.create_task(p.run(handle_signals=False))
                    yield
                    worker.cancel()
                    await asyncio.wait({worker})


            app = fastapi.FastAPI(lifespan=lifespan)


            @app.post("/double/{n}")
            async def start(n: int) -> dict[str, str]:
                return {"id": (await double.enqueue(n=n)).id}


            @app.get("/result/{job_id}")
            async def result(job_id: str) -> int:
                return await double.handle(job_id).result()
        """,
        "test_app.py": """
            import httpx
            from app import app, p
            from fastapi.testclient import TestClient


            def test_view_and_handler_in_different_loops(pulse_kit):
                with TestClient(app) as client:
                    job_id = client.post("/double/1").json()["id"]
                    assert pulse_kit.drain() == {"completed": 3}
                    assert client.get(f"/result/{job_id}").json() == 2


            def test_second_test_has_its_own_queue(pulse_kit):
                with TestClient(app) as client:
                    client.post("/double/4")
                    assert len(pulse_kit.jobs) == 1


            async def test_httpx(pulse_kit):
                transport = httpx.ASGITransport(app)
                async with p, httpx.AsyncClient(transport=transport, base_url="http://x") as client:
                    job_id = (await client.post("/double/2")).json()["id"]
                    assert await pulse_kit.adrain() == {"completed": 2}
                    assert (await client.get(f"/result/{job_id}")).json() == 4
        """,
    }
    assert "3 passed" in suite_result(tmp_path, files, "-o", "asyncio_mode=auto")


def test_missing_extra_is_named(tmp_path: Path) -> None:
    files = {
        "sitecustomize.py": "import sys\nsys.modules['uuid_utils'] = None\n",
        "test_tasks.py": "def test_kit(pulse_kit): ...\n\ndef test_other(): ...\n",
    }
    ended = run_suite(tmp_path, files)
    assert "1 passed" in ended.stdout
    assert how_to_install("testing") in ended.stdout
