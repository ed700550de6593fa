"""The shop of the demo uses what the pages of the dashboard show: limits, lanes, steps, progress, results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

import pulse
from examples.demo import shop
from tests.transport.pulse_server_under_test import server_under_test

PATIENCE = timedelta(seconds=60)


@pytest.fixture
async def p(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[pulse.Pulse]:
    """A client whose own worker serves the whole shop, without failures, and quickly."""
    monkeypatch.setattr(shop.random, "uniform", lambda least, _most: least / 100)
    monkeypatch.setattr(shop.random, "random", lambda: 1.0)
    async with server_under_test(database_dsn) as server, pulse.Pulse(server.address) as client:
        shop.register_office(client)
        shop.register_media(client)
        worker = asyncio.create_task(client.run(handle_signals=False))
        yield client
        worker.cancel()
        await asyncio.wait({worker})


async def test_return_consists_of_steps_and_ends_with_a_refund(p: pulse.Pulse) -> None:
    handle = await p.enqueue("orders/return", {"order": 7})
    await p.signal(handle.id, shop.PACKAGE_ARRIVED, "as new")
    result = await handle.result(timeout=PATIENCE)
    assert result["label"] == "RMA-7"
    assert result["refund"] > 0
    steps = [(step.name, str(step.kind)) for step in await p.steps(handle.id)]
    assert steps == [
        ("label", "step"),
        ("pickup", "sleep"),
        ("package-arrived", "signal"),
        ("refund", "step"),
    ]


async def test_export_reports_progress_and_returns_its_file(
    p: pulse.Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    monkeypatch.setattr(pulse.Context, "progress", lambda _self, _fraction, text: reported.append(text))
    result = await (await p.enqueue("exports/csv", {"table": "sales", "rows": 200})).result(timeout=PATIENCE)
    assert result["rows"] == 200
    assert result["file"].endswith(".csv")
    assert (reported[0], reported[-1]) == ("0 of 200 rows", "190 of 200 rows")


async def test_sellers_take_turns(p: pulse.Pulse) -> None:
    for seller in ("big-books", "corner-shop"):
        handle = await p.enqueue("catalog/import", {"product": "a"}, lane=seller)
        await handle.result(timeout=PATIENCE)
    (limits,) = await p.limits()
    assert (limits.topic, limits.in_force["turns"]) == ("catalog/import", True)
    assert {lane.lane for lane in await p.lanes("catalog/import")} == {"big-books", "corner-shop"}
