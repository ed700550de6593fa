"""Which clients a kit serves, and that no client connects without one."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from datetime import timedelta

import pytest

import pulse
from pulse.testing import Kit
from tests.testing import shop


def test_without_a_fixture_every_verb_is_refused_at_once() -> None:
    with pytest.raises(pulse.ClientClosed, match=r"pulse_kit(?s:.*)pulse_server(?s:.*)pulse_connect"):
        shop.double.enqueue(1)
    with pytest.raises(pulse.ClientClosed, match="pulse_kit"):
        asyncio.run(shop.p.get_job("01a1eeeb-a99e-7b37-b801-74f399d7512b"))
    with pytest.raises(pulse.ClientClosed, match="pulse_kit"):
        asyncio.run(shop.p.run())
    with pytest.raises(pulse.ClientClosed, match="pulse_kit"):
        shop.s.run()


def test_client_that_was_used_in_one_kit_works_in_the_next() -> None:
    for _ in range(2):
        with Kit() as kit:
            shop.double.enqueue(0)
            assert kit.drain() == {"completed": 1}
    with pytest.raises(pulse.ClientClosed, match="pulse_kit"):
        shop.double.enqueue(0)


def test_client_is_used_from_several_event_loops(pulse_kit: Kit) -> None:
    async def enqueue() -> None:
        await shop.send_mail.enqueue(to="x")

    async def within() -> None:
        await enqueue()
        await asyncio.to_thread(asyncio.run, enqueue())

    asyncio.run(within())
    assert pulse_kit.drain() == {"completed": 2}


def test_threads_enqueue_side_by_side(pulse_kit: Kit) -> None:
    def some() -> None:
        for _ in range(25):
            shop.double.enqueue(0)

    threads = [threading.Thread(target=some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pulse_kit.all(shop.double)) == 100


def test_two_clients_with_a_handler_for_a_topic_are_refused(pulse_kit: Kit) -> None:
    clients = [pulse.SyncPulse("localhost:1") for _ in range(2)]
    for client in clients:
        client.register("clash", lambda: "one")
    clients[0].enqueue("clash")
    with pytest.raises(AssertionError, match=r"2 clients have a handler for 'clash'(?s:.*)pulse_kit.use"):
        pulse_kit.drain()
    pulse_kit.use(clients[1])
    assert pulse_kit.run(pulse_kit.one("clash")).result == "one"


def test_job_without_a_handler_waits(pulse_kit: Kit) -> None:
    job = shop.s.enqueue("elsewhere", {"a": 1})
    assert pulse_kit.drain() == {}
    with pytest.raises(AssertionError, match="No client of this process has a handler for 'elsewhere'"):
        pulse_kit.run(job)


def test_refusals_are_those_of_the_server(pulse_kit: Kit) -> None:
    with pytest.raises(pulse.InvalidArgument, match="topic"):
        shop.s.enqueue("a b\nc" * 100)
    with pytest.raises(pulse.InvalidArgument, match="bytes"):
        shop.s.enqueue("big", b"x" * 3_000_000)
    shop.s.enqueue("keyed", {"a": 1}, key="k")
    with pytest.raises(pulse.AlreadyExists):
        shop.s.enqueue("keyed", {"a": 2}, key="k")


def test_wait_for_an_unfinished_job_is_refused(pulse_kit: Kit) -> None:
    handle = shop.double.enqueue(1)
    with pytest.raises(pulse.PulseError, match=r"pulse_kit.drain\(\)"):
        handle.result()
    pulse_kit.drain()
    assert handle.result() == 2


async def test_worker_of_the_application_idles_until_it_is_canceled(pulse_kit: Kit) -> None:
    worker = asyncio.create_task(shop.p.run(handle_signals=False))
    await shop.send_mail.enqueue(to="x")
    await asyncio.sleep(0.05)
    assert not worker.done()
    assert await pulse_kit.adrain() == {"completed": 1}
    worker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await worker


def test_blocking_worker_of_the_application_idles_until_it_is_closed(pulse_kit: Kit) -> None:
    client = pulse.SyncPulse("localhost:1")
    client.register("idle", lambda: None)
    worker = threading.Thread(target=client.run, kwargs={"handle_signals": False})
    worker.start()
    while not client._registry.is_serving:
        threading.Event().wait(0.01)
    client.enqueue("idle")
    assert pulse_kit.drain() == {"completed": 1}
    while client._stop_worker is None:
        threading.Event().wait(0.01)
    client.close()
    worker.join(10)
    assert not worker.is_alive()


def test_schedules_are_created_and_previewed(pulse_kit: Kit) -> None:
    client = pulse.SyncPulse("localhost:1")
    client.cron("report", "0 9 * * 1-5", tz="Europe/Paris", name="daily")
    (schedule,) = client.declare()
    assert schedule.kind == "cron"
    assert [one.name for one in client.schedules.list()] == ["daily"]
    assert len(client.schedules.preview(pulse.Cron("0 9 * * *"), count=3)) == 3
    client.schedules.delete(schedule)


def test_policy_of_a_handler_holds_for_jobs_of_other_clients(pulse_kit: Kit) -> None:
    other = pulse.SyncPulse("localhost:1")
    assert pulse_kit.job(other.enqueue("shop.mail", {"to": "x"})).max_attempts == 3


def test_clock_moves_by_hours_and_never_back(pulse_kit: Kit) -> None:
    before = pulse_kit.now
    pulse_kit.advance(timedelta(hours=1), minutes=30)
    assert timedelta(hours=1, minutes=30) <= pulse_kit.now - before < timedelta(hours=1, minutes=31)
    with pytest.raises(AssertionError, match="only moves forward"):
        pulse_kit.advance(seconds=-1)


def test_missing_extra_is_named_with_its_command() -> None:
    code = "import sys; sys.modules['cronsim'] = None; from pulse.testing import Kit"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    line = r"pulse.testing needs cronsim, which is not installed\. Run: pip install .*\[testing\]"
    assert re.search(line, ended.stderr)
