"""Sentry's default integration makes one event of a dead letter, and none of an attempt that is retried.

Each attempt has an isolation scope of its own: what its handler sets is on its events, and on no others.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

import pulse
from pulse import tuning
from pulse.worker.runners import copies_for_attempts
from pulse.worker.worker import WorkerSettings
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed
from tests.sdk.sentry_facts import NOTHING, deliver, facts, facts_of, set_facts
from tests.transport.pulse_server_under_test import ServerUnderTest


class _Kept(Transport):
    """Keeps the events that would be sent."""

    events: list[Any]

    def capture_envelope(self, envelope: Envelope) -> None:
        if (event := envelope.get_event()) is not None:
            self.events.append(event)


@pytest.fixture
def events() -> Iterator[list[Any]]:
    _Kept.events = []
    sentry_sdk.init(dsn="http://key@127.0.0.1:1/1", transport=_Kept)
    yield _Kept.events
    sentry_sdk.get_client().close()
    sentry_sdk.init()


async def test_dead_letter_is_an_event_with_its_exception_and_job(
    fake: FakePulsed, p: pulse.Pulse, running: Running, events: list[Any]
) -> None:
    @p.job("work")
    async def handle() -> None:
        raise ValueError("bad") from KeyError("customer")

    @p.job("threaded")
    def discard() -> None:
        raise pulse.Discard("no such user")

    async with running(p):
        fake.deliver("retried", attempt=1, max_attempts=3)
        await fake.until_async(lambda: "retried" in fake.results)
        assert events == []
        fake.deliver("dead", attempt=3, max_attempts=3)
        fake.deliver("discarded", topic="threaded", attempt=1, max_attempts=3)
        await fake.until_async(lambda: len(fake.results) == 3)
    by_job = {event["extra"]["pulse_job_id"]: event for event in events}
    assert set(by_job) == {"dead", "discarded"}
    dead = by_job["dead"]
    assert [one["type"] for one in dead["exception"]["values"]] == ["KeyError", "ValueError"]
    assert (dead["level"], dead["extra"]["pulse_topic"], dead["extra"]["pulse_attempt"]) == (
        "error",
        "work",
        3,
    )
    assert by_job["discarded"]["exception"]["values"][-1]["type"] == "Discard"


@pytest.mark.parametrize("kind", ["short", "waiting", "threaded"])
async def test_what_a_handler_sets_is_on_the_events_of_its_attempt_alone(
    fake: FakePulsed, p: pulse.Pulse, running: Running, events: list[Any], kind: str
) -> None:
    def work(tenant: str) -> None:
        if tenant:
            set_facts(tenant)
            sentry_sdk.capture_message("noted")
        raise ValueError("bad")

    @p.job("short")
    async def short(tenant: str) -> None:
        work(tenant)

    @p.job("waiting")
    async def waiting(tenant: str) -> None:
        await asyncio.sleep(0)
        work(tenant)

    @p.job("threaded")
    def threaded(tenant: str) -> None:
        work(tenant)

    with sentry_sdk.isolation_scope():
        async with running(p):
            for job_id, tenant in (("j1", "ada"), ("j2", ""), ("j3", "bob"), ("j4", "")):
                deliver(fake, job_id, kind, tenant)
            await fake.until_async(lambda: len(fake.results) == 4)
        sentry_sdk.capture_message("after all")
    noted = [facts(event) for event in events if event.get("message") == "noted"]
    assert sorted(noted, key=str) == [facts_of("ada"), facts_of("bob")]
    by_job = {event["extra"]["pulse_job_id"]: event for event in events if "exception" in event}
    assert {job_id: facts(event) for job_id, event in by_job.items()} == {
        "j1": facts_of("ada"),
        "j2": NOTHING,
        "j3": facts_of("bob"),
        "j4": NOTHING,
    }
    assert by_job["j1"]["contexts"]["order"] == {"tenant": "ada"}
    assert "order" not in by_job["j2"]["contexts"]
    assert len({event["contexts"]["trace"]["trace_id"] for event in by_job.values()}) == 4
    assert facts(events[-1]) == NOTHING  # the scope of the process


async def test_handlers_that_run_at_once_do_not_share_a_scope(
    fake: FakePulsed, p: pulse.Pulse, running: Running, events: list[Any]
) -> None:
    both = asyncio.Barrier(2)

    @p.job("work")
    async def handle(tenant: str) -> None:
        set_facts(tenant)
        sentry_sdk.Scope.get_current_scope().set_tag("current", tenant)
        await both.wait()
        raise ValueError("bad")

    with sentry_sdk.isolation_scope():
        async with running(p):
            for tenant in ("ada", "bob"):
                deliver(fake, tenant, "work", tenant)
            await fake.until_async(lambda: len(fake.results) == 2)
    assert [event["tags"] for event in sorted(events, key=lambda event: str(event["tags"]))] == [
        {"tenant": "ada", "current": "ada"},
        {"tenant": "bob", "current": "bob"},
    ]


@pytest.mark.parametrize("topic", ["work", "threaded"])
async def test_tag_of_middleware_is_on_the_event_and_one_of_a_scope_that_it_has_left_is_not(
    fake: FakePulsed, p: pulse.Pulse, running: Running, events: list[Any], topic: str
) -> None:
    @p.middleware
    async def tag(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
        if call.context.job_id == "j1":
            sentry_sdk.set_tag("tenant", "ada")
        with sentry_sdk.new_scope() as scope:
            scope.set_tag("left", "new")
            await call_next()

    @p.middleware
    async def leave(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
        with sentry_sdk.isolation_scope() as scope:
            scope.set_tag("left", "isolation")
            await call_next()

    @p.job("work")
    async def handle() -> None:
        raise ValueError("bad")

    @p.job("threaded")
    def handle_in_thread() -> None:
        raise ValueError("bad")

    with sentry_sdk.isolation_scope():
        async with running(p):
            for job_id in ("j1", "j2"):
                fake.deliver(job_id, topic=topic, max_attempts=1)
            await fake.until_async(lambda: len(fake.results) == 2)
    by_job = {event["extra"]["pulse_job_id"]: event.get("tags", {}) for event in events}
    assert by_job == {"j1": {"tenant": "ada"}, "j2": {}}


async def test_tags_that_a_resource_sets_are_on_every_event(
    fake: FakePulsed, p: pulse.Pulse, events: list[Any]
) -> None:
    @p.resource
    async def opener() -> AsyncIterator[None]:
        sentry_sdk.set_tag("region", "eu")
        yield

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        sentry_sdk.set_tag("job", ctx.job_id)
        raise ValueError("bad")

    # In contextvars that do not have a scope yet.
    task = asyncio.create_task(p.run(handle_signals=False), context=contextvars.Context())
    for job_id in ("j1", "j2"):
        fake.deliver(job_id, max_attempts=1)
    await fake.until_async(lambda: len(fake.results) == 2)
    task.cancel()
    await asyncio.wait({task})
    assert [event["tags"] for event in events] == [
        {"region": "eu", "job": "j1"},
        {"region": "eu", "job": "j2"},
    ]


async def test_dead_letter_that_is_logged_after_its_handler_has_its_tags(
    fake: FakePulsed,
    p: pulse.Pulse,
    running: Running,
    events: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tuning, "TIME_LIMIT_GRACE_SECONDS", 0.05)
    go = threading.Event()

    @p.job("never-ends", timeout=timedelta(seconds=1))  # it waits in C by then
    def never_end() -> None:
        set_facts("never-ends")
        go.wait()

    @p.job("canceled")
    async def cancel_itself() -> None:
        set_facts("canceled")
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    topics = ("never-ends", "canceled")
    p._worker_settings = WorkerSettings(3, 5.0, None, lost_slots_exit=3)
    with sentry_sdk.isolation_scope():
        async with running(p):
            for topic in topics:
                fake.deliver(topic, topic=topic, max_attempts=1)
            await fake.until_async(lambda: len(fake.results) == len(topics))
            go.set()
    by_job = {event["extra"]["pulse_job_id"]: facts(event) for event in events}
    assert by_job == {topic: facts_of(topic) for topic in topics}


async def test_handler_that_returns_and_fails_nevertheless_has_its_tags_on_the_event(
    server: ServerUnderTest, running: Running, events: list[Any]
) -> None:
    async with pulse.Pulse(server.address) as p:

        @p.job("no-json", max_attempts=1)
        async def return_no_json() -> object:
            set_facts("no-json")
            await asyncio.sleep(0)
            return object()

        @p.job("went-on", max_attempts=1)
        async def go_on(ctx: pulse.Context) -> None:
            set_facts("went-on")
            with contextlib.suppress(BaseException):
                await ctx.sleep(timedelta(minutes=1))

        with sentry_sdk.isolation_scope():
            async with running(p):
                for topic in ("no-json", "went-on"):
                    await p.enqueue(topic)
                await eventually(lambda: len(events) == 2)
    by_topic = {event["extra"]["pulse_topic"]: facts(event) for event in events}
    assert by_topic == {topic: facts_of(topic) for topic in ("no-json", "went-on")}


async def test_worker_without_sentry_copies_contextvars_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = contextvars.copy_context()
    monkeypatch.delitem(sys.modules, "sentry_sdk")
    assert copies_for_attempts(process) == process.copy


async def test_scopes_that_cannot_be_forked_leave_the_attempt_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = contextvars.copy_context()
    monkeypatch.setattr(sentry_sdk.Scope, "fork", None)
    assert dict(copies_for_attempts(process)()) == dict(process)
    monkeypatch.delattr(sentry_sdk.Scope, "set_isolation_scope")
    assert copies_for_attempts(process) == process.copy
