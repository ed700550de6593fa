"""run() for some of the topics, and with another concurrency than the client was made with."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import pulse
from tests.rows import each_row
from tests.sdk.fake_pulsed import PATIENCE_SECONDS, FakePulsed


@pytest.fixture
def app(p: pulse.Pulse) -> pulse.Pulse:
    for topic in ("mail", "sms", "fax"):

        @p.job(topic)
        async def handle() -> None: ...

    return p


async def _asked_for(fake: FakePulsed, app: pulse.Pulse, **narrowed: Any) -> Any:
    """The request with which a worker opened its stream."""
    task = asyncio.create_task(app.run(handle_signals=False, **narrowed))
    try:
        await fake.until_async(lambda: bool(fake.opened))
        return fake.opened[-1]
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=PATIENCE_SECONDS)


async def test_run_asks_for_the_named_topics_only(fake: FakePulsed, app: pulse.Pulse) -> None:
    assert app.handled_topics == ("mail", "sms", "fax")
    request = await _asked_for(fake, app, topics=["fax", "mail", "fax"])
    assert list(request.topics) == ["fax", "mail"]


async def test_pattern_selects_the_registered_topics_that_match(fake: FakePulsed, p: pulse.Pulse) -> None:
    for topic in ("mail.send", "sms", "mail.bounce", "mail", "fax.mail"):

        @p.job(topic)
        async def handle() -> None: ...

    request = await _asked_for(fake, p, topics=["sms", "mail.*", "mail.bounce"])
    assert list(request.topics) == ["sms", "mail.send", "mail.bounce"]


async def test_run_asks_for_everything_by_default(fake: FakePulsed, app: pulse.Pulse) -> None:
    assert sorted((await _asked_for(fake, app)).topics) == ["fax", "mail", "sms"]


async def test_concurrency_of_a_run_wins_over_the_clients(fake: FakePulsed, app: pulse.Pulse) -> None:
    assert (await _asked_for(fake, app, concurrency=3)).capacity == 3


@each_row(
    "narrowed, sentence",
    [
        ({"topics": ["letter"]}, "no handler for letter; there are: mail, sms, fax"),
        ({"topics": ["mail", "letter.*"]}, r"no handler for letter\.\*; there are: mail, sms, fax"),
        ({"topics": []}, "topics is empty"),
        ({"topics": "mail"}, "not the string 'mail'"),
        ({"concurrency": 0}, "concurrency has to be between 1 and 10000"),
    ],
)
async def test_run_that_cannot_be_is_refused_with_a_sentence(
    app: pulse.Pulse, narrowed: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(pulse.InvalidArgument, match=sentence):
        await app.run(handle_signals=False, **narrowed)
