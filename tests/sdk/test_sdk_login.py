"""What a client does when it is not let in: a call fails, a worker ends or waits, and both say why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

import pulse
from pulse_server.access.users import parse_users
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import PATIENCE_SECONDS, FakePulsed
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test

WRONG = (grpc.StatusCode.UNAUTHENTICATED, "The user or the password is wrong.")
NOT_ALLOWED = (grpc.StatusCode.PERMISSION_DENIED, "User 'ann' may not call StreamJobs.")
THROTTLED = (grpc.StatusCode.RESOURCE_EXHAUSTED, "Too many logins failed: wait 2 s.")


@pytest.fixture
async def guarded(database_dsn: str) -> AsyncIterator[ServerUnderTest]:
    users = parse_users("ann:right,vic:right:viewer", "PULSE_AUTH_USERS")
    async with server_under_test(database_dsn, users=users) as server:
        yield server


async def _idle() -> None: ...


def _said(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [line for line in lines if words in line]


# ---------------------------------------------------------------- calls


@pytest.mark.parametrize(
    ("credentials", "kind", "sentence"),
    [
        ({}, pulse.Unauthenticated, "PULSE_USER"),
        ({"user": "ann", "password": "wrong"}, pulse.Unauthenticated, "The user or the password is wrong"),
        ({"user": "vic", "password": "right"}, pulse.PermissionDenied, "viewer"),
    ],
)
async def test_call_that_is_not_let_in_fails_at_once_with_the_words_of_the_server(
    guarded: ServerUnderTest, credentials: dict[str, str], kind: type[pulse.PulseError], sentence: str
) -> None:
    async with pulse.Pulse(guarded.address, **credentials) as p:  # type: ignore[arg-type]
        with pytest.raises(kind, match=sentence):
            await p.enqueue("mail")
        with pytest.raises(kind, match=sentence):
            await p.enqueue_many("mail", [{}])


def test_blocking_call_that_is_not_let_in_fails_too(database_dsn: str) -> None:
    async def enqueue_from_a_thread() -> None:
        users = parse_users("ann:right", "PULSE_AUTH_USERS")
        async with server_under_test(database_dsn, users=users) as server:
            with pulse.SyncPulse(server.address, user="ann", password="right") as p:
                assert await asyncio.to_thread(p.enqueue, "mail")
            with pulse.SyncPulse(server.address, user="ann", password="wrong") as p:
                await asyncio.to_thread(p.enqueue, "mail")

    with pytest.raises(pulse.Unauthenticated, match="The user or the password is wrong"):
        asyncio.run(enqueue_from_a_thread())


# ---------------------------------------------------------------- workers


@pytest.mark.parametrize(
    ("credentials", "kind"),
    [
        ({"user": "ann", "password": "wrong"}, pulse.Unauthenticated),
        ({"user": "vic", "password": "right"}, pulse.PermissionDenied),
    ],
)
async def test_worker_that_was_never_let_in_ends_with_the_error(
    guarded: ServerUnderTest, credentials: dict[str, str], kind: type[pulse.PulseError]
) -> None:
    async with pulse.Pulse(guarded.address, **credentials) as p:  # type: ignore[arg-type]
        p.register("mail", _idle)
        with pytest.raises(kind):
            await p.run(handle_signals=False)


@pytest.mark.parametrize("refusal", [WRONG, NOT_ALLOWED])
async def test_worker_that_was_let_in_before_keeps_trying_and_logs_once(
    fake: FakePulsed,
    p: pulse.Pulse,
    running: Running,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    refusal: tuple[grpc.StatusCode, str],
) -> None:
    monkeypatch.setattr("pulse.tuning.RECONNECT_LONGEST_SECONDS", 0.1)
    p.register("work", _idle)
    async with running(p) as task:
        await fake.until_async(lambda: fake.streams)
        fake.stream_refusal = refusal
        fake.streams[0].put(None)
        await fake.until_async(lambda: fake.refused_streams >= 3)
        assert not task.done()
        (warning,) = _said(caplog, refusal[1])
        assert warning.startswith("No longer let in by pulsed at localhost:")
        fake.stream_refusal = None
        fake.deliver("j1")
        await fake.until_async(lambda: "j1" in fake.results)


async def test_throttled_worker_waits_for_its_turn(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    fake.stream_refusal = THROTTLED
    p.register("work", _idle)
    async with running(p):
        await fake.until_async(lambda: fake.refused_streams >= 2)
        fake.stream_refusal = None
        fake.deliver("j1")
        await fake.until_async(lambda: "j1" in fake.results)


async def test_throttled_declaration_waits_for_its_turn(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    fake.schedule_refusal = THROTTLED
    p.register("work", _idle)
    p.cron("work", "@daily", name="daily")
    async with running(p) as task:
        await fake.until_async(lambda: len(fake.definitions) >= 2)
        assert not task.done()


async def test_refused_heartbeat_is_logged_and_the_handler_runs_until_its_lease_is_lost(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakePulsed(lease_seconds=2.0, heartbeat_seconds=0.2).start()
    p = pulse.Pulse(fake.address)
    started, ended = asyncio.Event(), asyncio.Event()

    @p.job("work")
    async def handle() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with p, running(p), asyncio.timeout(PATIENCE_SECONDS):
        fake.deliver("j1")
        await started.wait()
        fake.beats_refusal = WRONG
        await eventually(lambda: _said(caplog, WRONG[1]))
        assert not ended.is_set()
        await ended.wait()
    fake.stop()
    assert len(_said(caplog, "A heartbeat for 1 jobs did not get through")) == 1


async def test_user_that_is_removed_and_comes_back_takes_its_worker_along(
    database_dsn: str, tmp_path: Path, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "users"
    file.write_text("ann:right\nbob:right\n")
    file.chmod(0o600)
    async with server_under_test(database_dsn, users_file=file) as server:
        ann = pulse.Pulse(server.address, user="ann", password="right")
        bob = pulse.Pulse(server.address, user="bob", password="right")
        ann.register("mail", _idle)
        async with ann, bob, running(ann) as task:
            first = await bob.enqueue("mail")
            await server.table.wait_until(first.id, status="COMPLETED")
            file.write_text("bob:right\n")
            server.app.read_again()
            await eventually(lambda: _said(caplog, "No longer let in by"))
            assert not task.done()
            second = await bob.enqueue("mail")
            file.write_text("ann:right\nbob:right\n")
            server.app.read_again()
            await server.table.wait_until(second.id, status="COMPLETED")
