"""Sentry's default integration makes one event of a dead letter, and none of an attempt that is retried."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

import pulse
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed


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
