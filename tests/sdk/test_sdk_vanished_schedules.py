"""Schedules that have vanished from the code of an application: a warning at start, and `schedules.prune`."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from pathlib import Path

import pytest

import pulse
from pulse.client import application_name
from tests.eventually import eventually
from tests.rows import each_row
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed
from tests.sdk.scripts import run_script
from tests.transport.pulse_server_under_test import ServerUnderTest

HOUR = timedelta(hours=1)
SENTENCE = (
    "Delete them with: pulse schedules prune --declared-by shop. If another program has the same name, give "
    "each its own instead: Pulse(application=…)."
)


def application(address: str, *names: str) -> pulse.Pulse:
    p = pulse.Pulse(address, application="shop", drain_timeout=timedelta(seconds=5))
    p.register("report", lambda: None)
    for name in names:
        p.every("report", HOUR, name=name)
    return p


async def started(p: pulse.Pulse, running: Running, caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Run the worker until it has logged the text."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "pulse.worker"):
        async with p, running(p):
            await eventually(lambda: text in caplog.text, "the worker logs it")


async def test_worker_warns_of_schedules_that_have_vanished_from_its_code(
    server: ServerUnderTest, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async with application(server.address, "daily", "weekly") as p:
        await p.declare()
    assert "prune" not in caplog.text
    await started(application(server.address, "daily"), running, caplog, SENTENCE)
    assert "shop declared earlier are not in its code any more, and still fire: weekly." in caplog.text
    assert [record.levelname for record in caplog.records if SENTENCE in record.message] == ["WARNING"]
    await started(application(server.address), running, caplog, "still fire: daily, weekly.")


async def test_declare_warns_too_and_prune_deletes_what_has_vanished(
    server: ServerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    async with application(server.address, "daily", "weekly") as p:
        await p.schedule("report", None, pulse.Every(HOUR), name="by hand")
        await p.declare()
        assert await p.schedules.prune("shop") == []
    async with application(server.address, "daily") as p:
        await p.declare()
        assert SENTENCE in caplog.text
        assert [(one.name, one.declared_by) for one in await p.schedules.vanished()] == [("weekly", "shop")]
        assert await p.schedules.vanished("billing") == []
        assert [one.name for one in await p.schedules.prune("shop")] == ["weekly"]
        assert {one.name for one in await p.schedules.list()} == {"daily", "by hand"}
        caplog.clear()
        await p.declare()
        assert SENTENCE not in caplog.text


async def test_blocking_client_prunes(server: ServerUnderTest) -> None:
    async with application(server.address, "weekly") as p:
        await p.declare()
    async with application(server.address) as p:
        await p.declare()
    with pulse.SyncPulse(server.address) as blocking:
        assert len(await asyncio.to_thread(blocking.schedules.vanished, "shop")) == 1
        assert len(await asyncio.to_thread(blocking.schedules.prune, "shop")) == 1


async def test_older_server_that_knows_no_declarations_is_no_problem(
    fake: FakePulsed, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    fake.knows_declarations = False
    p = application(fake.address, "daily")
    await started(p, running, caplog, "Declared the schedules daily.")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_application_is_named_by_the_module_that_creates_the_client() -> None:
    assert pulse.Pulse()._declarations.application == __name__
    assert pulse.SyncPulse()._async._declarations.application == __name__
    assert pulse.Pulse(application="shop")._declarations.application == "shop"


def test_environment_names_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSE_APPLICATION", "from the environment")
    assert pulse.Pulse()._declarations.application == "from the environment"
    assert pulse.SyncPulse(application="shop")._async._declarations.application == "shop"


@each_row("name", ["a" * 256, "a\nb", 5])
def test_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(pulse.InvalidArgument, match="application has to be a name"):
        application_name(name)


def test_program_is_named_by_its_file_or_its_module(tmp_path: Path) -> None:
    code = "import pulse\nprint(repr(pulse.Pulse()._declarations.application))\n"
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("")
    (tmp_path / "shop" / "__main__.py").write_text(code)
    (tmp_path / "shop" / "app.py").write_text(code)

    def named(*arguments: str) -> str:
        script = f"""
        import subprocess, sys
        print(subprocess.run([sys.executable, *{arguments!r}], cwd={str(tmp_path)!r}, text=True,
            capture_output=True).stdout)
        """
        return run_script(script).strip()

    assert named("-m", "shop.app") == "'shop.app'"
    assert named("-m", "shop") == "'shop'"
    assert named("shop/app.py") == "'app'"
    assert named("-c", code) == "''"
