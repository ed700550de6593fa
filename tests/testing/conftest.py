"""Fixtures for tests of the kit. Here, unlike in the rest of this repository, no client may connect."""

from collections.abc import AsyncIterator, Iterator

import pytest

from pulse.testing import Kit
from pulse.wire.redirection import Refusing, redirected
from tests.testing import shop
from tests.testing.queues import KitQueue, Queue, server_queue
from tests.transport.pulse_server_under_test import SECOND


@pytest.fixture(autouse=True)
def _guard() -> Iterator[None]:
    shop.seen.clear()
    with redirected(Refusing()):
        yield


@pytest.fixture(params=["kit", "server"])
def dsn(request: pytest.FixtureRequest) -> str | None:
    """The database of the server. None: the queue is that of a kit."""
    return None if request.param == "kit" else str(request.getfixturevalue("database_dsn"))


@pytest.fixture
async def queue(dsn: str | None, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Queue]:
    """A queue of a kit, or of a real server."""
    if dsn is None:
        with Kit() as kit:
            yield KitQueue(kit)
        return
    monkeypatch.setattr("pulse_server.work.PROMOTE_INTERVAL", 0.02 * SECOND)
    monkeypatch.setattr("pulse_server.work.submissions.START_LIMIT_INTERVAL", 0.02 * SECOND)
    async with server_queue(dsn) as running:
        yield running
