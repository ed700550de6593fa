"""Schedules declared in code: sent when `run()` starts, once however often that is."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import timedelta

import grpc
import pytest

import pulse
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import PATIENCE_SECONDS, FakePulsed
from tests.transport.pulse_server_under_test import ServerUnderTest

MINUTE = timedelta(minutes=1)


def application(address: str, minutes: int) -> pulse.Pulse:
    """An application as it is deployed: handlers, and the schedules that feed them."""
    p = pulse.Pulse(address, drain_timeout=timedelta(seconds=5))
    p.register("reconcile", lambda: None)
    p.every("reconcile", minutes * MINUTE)
    p.cron("reconcile", "0 * * * *", {"deep": True}, tz="Europe/Paris", name="reconcile deeply", priority=2)
    return p


async def declared(
    p: pulse.Pulse, is_so: Callable[[list[pulse.ScheduleInfo]], bool]
) -> list[pulse.ScheduleInfo]:
    """Return the schedules once they are as expected."""

    async def look() -> list[pulse.ScheduleInfo] | None:
        found = list(await p.schedules.list())
        return found if is_so(found) else None

    found: list[pulse.ScheduleInfo] = await eventually(look, "the schedules are declared")
    return found


async def test_another_run_makes_no_second_schedule(
    server: ServerUnderTest, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    listed: list[list[pulse.ScheduleInfo]] = []
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.INFO, "pulse.worker"):
            async with application(server.address, 5) as p, running(p):
                await eventually(lambda: "Declared the schedules" in caplog.text, "run() declares")
                listed.append(list(await p.schedules.list()))
    assert listed[0] == listed[1]
    assert [(schedule.name, schedule.topic, schedule.spec) for schedule in listed[0]] == [
        ("reconcile", "reconcile", pulse.Every(5 * MINUTE)),
        ("reconcile deeply", "reconcile", pulse.Cron("0 * * * *", tz="Europe/Paris")),
    ]


async def test_changed_declaration_retunes_the_schedule(server: ServerUnderTest, running: Running) -> None:
    async with application(server.address, 5) as p:
        before = await p.declare()
    async with application(server.address, 7) as p, running(p):
        after = await declared(p, lambda schedules: schedules[0].spec == pulse.Every(7 * MINUTE))
    assert [schedule.id for schedule in after] == [schedule.id for schedule in before]


async def test_redeclared_schedule_stays_paused(server: ServerUnderTest) -> None:
    async with application(server.address, 5) as p:
        await p.declare()
        await p.schedules.pause("reconcile")
        assert [schedule.paused for schedule in await p.declare()] == [True, False]


async def test_awaited_declaration_is_made_at_once(server: ServerUnderTest) -> None:
    async with pulse.Pulse(server.address) as p:
        declaration = p.every(
            "reconcile", MINUTE, {"a": 1}, metadata={"b": "c"}, max_attempts=2, catch_up="all"
        )
        assert (declaration.name, declaration.topic) == ("reconcile", "reconcile")
        assert len(await p.schedules.list()) == 0
        made = await declaration
        assert (made.name, made.args, made.metadata, made.max_attempts, made.catch_up) == (
            "reconcile",
            {"a": 1},
            {"b": "c"},
            2,
            "all",
        )
        assert await declaration == made
        assert (await p.cron("rollup", "@daily")).spec == pulse.Cron("@daily")


async def test_refused_declaration_ends_the_run_and_names_the_schedule(server: ServerUnderTest) -> None:
    async with pulse.Pulse(server.address, drain_timeout=timedelta(seconds=5)) as p:
        p.register("reconcile", lambda: None)
        p.cron("no such topic", "0 12 * * *", name="at noon")
        with pytest.raises(pulse.InvalidArgument, match=r"'at noon' could not be declared: topic"):
            await asyncio.wait_for(p.run(handle_signals=False), PATIENCE_SECONDS)
        with pytest.raises(pulse.InvalidArgument, match=r"'at noon' could not be declared: topic"):
            await p.declare()


async def test_arguments_that_the_handler_could_not_read_are_refused_where_the_schedule_is_declared(
    fake: FakePulsed,
) -> None:
    async def count(n: int) -> None: ...

    sentence = "The schedule 'broken' could not be declared: The handler of 'count' could not read"
    async with pulse.Pulse(fake.address) as p:
        p.register("count", count)
        with pytest.raises(pulse.InvalidArgument, match=sentence):
            p.cron("count", "@daily", {"n": "one"}, name="broken")
        assert await p.declare() == []
    async with pulse.Pulse(fake.address) as p:
        p.cron("count", "@daily", {"n": "one"}, name="broken")
        p.register("count", count)  # only now is it known to be wrong
        with pytest.raises(pulse.InvalidArgument, match=sentence):
            await p.declare()
        with pytest.raises(pulse.InvalidArgument, match=sentence):
            await asyncio.wait_for(p.run(handle_signals=False), PATIENCE_SECONDS)


async def test_worker_works_while_its_declarations_wait(
    fake: FakePulsed, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    fake.schedule_refusal = (grpc.StatusCode.UNAVAILABLE, "The database is away.")
    async with pulse.Pulse(fake.address) as p:
        p.register("work", lambda: None)
        p.every("work", MINUTE)
        with caplog.at_level(logging.INFO, "pulse.worker"):
            async with running(p) as run:
                fake.deliver("j1")
                await fake.until_async(lambda: "j1" in fake.results and len(fake.definitions) > 2)
                with fake.changed:
                    fake.schedule_refusal = None
                await eventually(lambda: "Declared the schedules work." in caplog.text, "it is declared")
                assert not run.done()
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len([text for text in warnings if "'work' is not declared yet" in text]) == 1


async def test_run_that_waits_to_declare_can_be_stopped(fake: FakePulsed, running: Running) -> None:
    fake.schedule_refusal = (grpc.StatusCode.UNAVAILABLE, "The database is away.")
    async with pulse.Pulse(fake.address) as p:
        p.register("work", lambda: None)
        p.every("work", MINUTE)
        async with running(p):
            await fake.until_async(lambda: fake.definitions)


async def test_name_stands_for_one_declaration() -> None:
    p = pulse.Pulse()
    assert p.every("t", MINUTE) is p.every("t", MINUTE)
    with pytest.raises(pulse.InvalidArgument, match=r"declared as 't' already.*name="):
        p.every("t", MINUTE, {"region": "us"})
    p.every("t", MINUTE, {"region": "us"}, name="t in the us")
    with pytest.raises(pulse.InvalidArgument, match="name is empty"):
        p.cron("t", "@daily", name="")
    with pytest.raises(pulse.InvalidArgument, match="topic"):
        p.every("", MINUTE)


async def test_blocking_client_declares(server: ServerUnderTest) -> None:
    with pulse.SyncPulse(server.address) as p:
        p.register("reconcile", lambda: None)
        p.every("reconcile", MINUTE, {"a": 1})
        p.cron("rollup", "@hourly")
        infos = await asyncio.to_thread(p.declare)
        assert [(info.name, info.kind) for info in infos] == [("reconcile", "interval"), ("rollup", "cron")]
        await asyncio.to_thread(p.schedules.delete, "rollup")
        worker = threading.Thread(target=p.run)
        worker.start()
        async with pulse.Pulse(server.address) as other:
            found = await declared(other, lambda schedules: len(schedules) == 2)
        assert found[0].id == infos[0].id
        await asyncio.to_thread(p.close)
        await asyncio.to_thread(worker.join, PATIENCE_SECONDS)
        assert not worker.is_alive()


async def test_worker_logs_what_does_not_apply_because_an_operator_has_set_it(
    server: ServerUnderTest, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async def start(minutes: int) -> str:
        caplog.clear()
        with caplog.at_level(logging.INFO, "pulse.worker"):
            async with application(server.address, minutes) as p, running(p):
                await eventually(lambda: "Declared the schedules" in caplog.text, "run() declares")
        return caplog.text

    await start(5)
    async with pulse.Pulse(server.address) as operator:
        await operator.schedules.update("reconcile", spec=pulse.Every(7 * MINUTE))
        assert "An operator has set every of the schedule 'reconcile'" in await start(6)
        stored = await operator.schedules.get("reconcile")
        assert (stored.spec, stored.declares and stored.declares.spec) == (
            pulse.Every(7 * MINUTE),
            pulse.Every(6 * MINUTE),
        )
        assert "An operator has set" not in await start(7), "it is what the operator has set"
