"""The settings of a topic, from its page: shown with their owners, changed in one form, and reset."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest_asyncio

import pulse
from pulse.topic_settings import ENTRIES
from tests.postgres.completed_jobs import add_completed
from tests.rows import each_row
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest, dashboard_under_test
from tests.ui.declarations import declare
from tests.ui.visitors import Visitor

TOPIC = "/topics/mail"
ALL = "/topics?view=settings"
RESET = [("reset", "1")]
FORMS = [
    (TOPIC, [("running", "1")]),
    (TOPIC, RESET),
    ("/holds", [("topic", "mail"), ("for", "1m")]),
    ("/lanes", [("topic", "mail"), ("lane", "a"), ("weight", "2")]),
]


@pytest_asyncio.fixture(loop_scope="session")
async def client(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address, user="", password="") as client:
        yield client


async def test_form_has_every_entry_with_its_help_and_what_decides_otherwise(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    await declare(server, "mailer-1", max_attempts=8)
    page = (await Visitor(dashboard.url).get(TOPIC)).text
    assert re.findall(r'<(?:input|select) id="set-\w+" name="(\w+)"', page) == list(ENTRIES)
    for entry in ENTRIES.values():
        assert entry.help in page
    assert "Empty: declared by the code: 8" in page
    assert "Empty: the server’s setting: 30d" in page


async def test_settings_in_force_are_shown_with_their_owners(
    server: ServerUnderTest, dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    visitor = Visitor(dashboard.url)
    page = (await visitor.get(ALL)).text
    assert "No topic has its own settings" in page
    assert "<dt>Backoff</dt><dd>1s, then ×2, up to 2h, ±20%</dd>" in page
    assert "<dt>Completed</dt><dd>7d</dd>" in page
    await declare(server, "mailer-1", max_attempts=8)
    page = (await visitor.get(ALL)).text
    assert 'title="declared by the code: 8; the server’s setting: 25">8 <span class="owner code">' in page
    assert 'Declared by <span class="mono">mailer-1</span>' in page
    page = (await visitor.get(TOPIC)).text
    assert "Reset…" not in page, "no operator has set anything"
    await client.set_topic("mail", max_attempts=40, keep_completed="forever")
    page = (await visitor.get(TOPIC)).text
    assert "set by an operator: 40; declared by the code: 8; the server’s setting: 25" in page
    assert 'forever <span class="owner operator">operator</span>' in page
    assert 'title="the server’s setting: 30d">30d</span>' in page
    assert "Reset…" in page


async def test_settings_are_changed_in_one_form_and_reset_at_once(
    server: ServerUnderTest, dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    await declare(server, "mailer-1", running=10, max_attempts=8)
    visitor = Visitor(dashboard.url)
    await visitor.get(TOPIC)
    entered = {
        "running": "4",
        "rate": "50/min",
        "per_lane": "1",
        "ordered": "yes",
        "aging": "5m",
        "max_attempts": "40",
        "backoff": "first=2s,factor=3",
        "attempt_timeout": "2m",
        "keep_completed": "forever",
        "keep_canceled": "12h",
    }
    answer = await visitor.post(TOPIC, [*entered.items()])
    assert answer.location == "/topics/mail#settings"
    settings = await client.topic_settings("mail")
    assert settings.operator == {
        "running": 4,
        "rate": pulse.Rate(50, per=timedelta(minutes=1)),
        "per_lane": 1,
        "ordered": True,
        "aging": timedelta(minutes=5),
        "max_attempts": 40,
        "backoff": pulse.Backoff(first=timedelta(seconds=2), factor=3),
        "attempt_timeout": timedelta(minutes=2),
        "keep_completed": "forever",
        "keep_canceled": timedelta(hours=12),
    }
    page = (await visitor.get(TOPIC)).text
    assert "Saved the settings of mail." in page
    assert 'name="running" value="4"' in page
    assert 'value="first=2s,factor=3,longest=1h,jitter=0.2"' in page
    assert "2s, then ×3, up to 1h, ±20%" in page
    assert "12h" in (await visitor.get(ALL)).text
    await visitor.post(TOPIC, RESET)
    settings = await client.topic_settings("mail")
    assert (settings.operator, settings.in_force["running"], settings.in_force["max_attempts"]) == ({}, 10, 8)
    assert "what its workers declare decides again." in (await visitor.get(TOPIC)).text
    assert settings.before == {"keep_completed": "forever"}, "7d is shorter: not at once"


async def test_topic_without_declarations_goes_back_to_the_server(
    dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    visitor = Visitor(dashboard.url)
    await visitor.get(TOPIC)
    await visitor.post(TOPIC, [("keep_canceled", "12h"), ("running", "3")])
    await visitor.post(TOPIC, [("keep_canceled", ""), ("running", "")])
    assert (
        "Reset the settings of mail: the server’s settings decide again." in (await visitor.get(TOPIC)).text
    )
    assert not len(await client.all_topic_settings())


async def test_entry_that_the_form_did_not_change_is_left_to_others(
    dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    """Another operator sets a limit while the form is open: to save the retention keeps it."""
    visitor = Visitor(dashboard.url)
    await visitor.get(TOPIC)
    await client.set_topic("mail", running=5)
    unchanged = [("running", ""), ("was-running", ""), ("was-keep_canceled", "")]
    await visitor.post(TOPIC, [*unchanged, ("keep_canceled", "8d")])
    settings = await client.topic_settings("mail")
    assert settings.operator == {"running": 5, "keep_canceled": timedelta(days=8)}
    await visitor.post(TOPIC, [*unchanged, ("keep_canceled", "")])
    assert "Nothing was changed." in (await visitor.get(TOPIC)).text
    assert await client.topic_settings("mail") == settings


@each_row(
    "fields, sentence",
    [
        ({"running": "many"}, "Running at once: &#39;many&#39; is not a whole number from 1"),
        ({"running": "0"}, "Running at once is 0: it must be from 1 to 1,000,000."),
        ({"per_lane": "9" * 40}, "is not a whole number from 1 to 1,000,000."),
        ({"rate": "fast"}, "Rate: &#39;fast&#39; is not a rate"),
        ({"rate": "1/1ms"}, "Rate has a period of "),
        ({"lane_rate": "0/s"}, "Lane rate has 0 starts: they must be from 1 to 1,000,000."),
        ({"turns": "maybe"}, "Turns: &#39;maybe&#39; is neither yes nor no."),
        ({"aging": "soon"}, "Aging: &#39;soon&#39; is not a duration"),
        ({"aging": "500d"}, "365 days"),
        ({"pool": "gpu"}, "pool has neither running nor a rate to share"),
        ({"pool": "two words", "running": "1"}, "Pool: &#39;two words&#39; is not allowed"),
        ({"ordered": "yes", "per_lane": "2"}, "per_lane"),
        ({"max_attempts": "many"}, "Attempts: &#39;many&#39; is not a whole number"),
        ({"max_crashes": "0"}, "Crashes is 0"),
        ({"attempt_timeout": "soon"}, "Time limit: &#39;soon&#39; is not a duration"),
        ({"backoff": "fast"}, "Backoff: &#39;fast&#39; is not a backoff"),
        ({"backoff": "first=2h,longest=1h"}, "is shorter than first"),
        ({"keep_completed": "soon"}, "Completed: &#39;soon&#39; is not a duration"),
        ({"keep_completed": "1s"}, "Completed is 1s, below a minute"),
    ],
)
async def test_entry_that_cannot_be_meant_changes_nothing(
    dashboard: DashboardUnderTest, client: pulse.Pulse, fields: dict[str, str], sentence: str
) -> None:
    visitor = Visitor(dashboard.url)
    await visitor.get(TOPIC)
    answer = await visitor.post(TOPIC, [*fields.items()])
    assert (answer.status, sentence in answer.text) == (400, True)
    assert not len(await client.all_topic_settings())


async def test_form_with_a_problem_is_shown_as_it_was_typed(
    dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    await client.set_topic("mail", max_attempts=8)
    visitor = Visitor(dashboard.url)
    await visitor.get(TOPIC)
    typed = [("running", "many"), ("rate", "5/s"), ("keep_canceled", "x"), ("reason", "a <new> worker")]
    page = (await visitor.post(TOPIC, [*typed])).text
    for part in ('value="many"', 'value="5/s"', 'value="8"', 'value="a &lt;new&gt; worker"'):
        assert part in page
    assert "Running at once: &#39;many&#39; is not" in page
    assert "Canceled: &#39;x&#39; is not a duration" in page
    assert 'id="change-settings" open>' in page
    assert "data-live" not in page, "a refresh would replace what was typed"


async def test_settings_of_a_topic_that_cannot_exist_are_refused(dashboard: DashboardUnderTest) -> None:
    visitor = Visitor(dashboard.url)
    await visitor.get(ALL)
    for number in ("1", "many"):
        await visitor.post("/topics/two%20words", [("running", number), ("back", ALL)])
        assert "two words" in (await visitor.get(ALL)).text


async def test_shorter_retention_asks_with_a_count_and_shows_when_it_takes_effect(
    dashboard: DashboardUnderTest, client: pulse.Pulse, database_dsn: str
) -> None:
    connection = await asyncpg.connect(database_dsn)
    await add_completed(connection, 3, timedelta(hours=2))
    await connection.close()
    visitor = Visitor(dashboard.url)
    await visitor.get(TOPIC)
    shorter = [("keep_completed", "1h"), ("keep_canceled", "7d"), ("back", TOPIC)]

    page = (await visitor.post(TOPIC, shorter)).text

    assert "This deletes up to 3 COMPLETED jobs for good" in page
    assert '<input type="hidden" name="keep_completed" value="1h">' in page
    assert not len(await client.all_topic_settings())
    assert (await visitor.post(TOPIC, [*shorter, ("confirmed", "yes")])).status == 303
    settings = await client.topic_settings("mail")
    assert settings.in_force["keep_completed"] == timedelta(hours=1)
    assert settings.before == {"keep_completed": timedelta(days=7)}
    assert "The shorter time takes effect" in (await visitor.get(TOPIC)).text
    for path in (TOPIC, ALL):
        assert "(7d until then)" in (await visitor.get(path)).text


async def test_reset_to_a_shorter_retention_asks(
    dashboard: DashboardUnderTest, client: pulse.Pulse, database_dsn: str
) -> None:
    connection = await asyncpg.connect(database_dsn)
    await add_completed(connection, 2, timedelta(days=8))
    await connection.close()
    await client.set_topic("mail", keep_completed="forever")
    visitor = Visitor(dashboard.url)
    await visitor.get(TOPIC)
    page = (await visitor.post(TOPIC, [*RESET, ("back", TOPIC)])).text
    assert "This deletes up to 2 COMPLETED jobs for good" in page
    assert (await client.topic_settings("mail")).operator == {"keep_completed": "forever"}


async def test_viewer_sees_settings_and_changes_nothing(guarded: DashboardUnderTest) -> None:
    async with guarded.client("operator") as client:
        await client.set_topic("mail", per_lane=2, running=3, max_attempts=8)
        settings = await client.topic_settings("mail")
        visitor = Visitor(guarded.url)
        await visitor.log_in("viewer")
        page = (await visitor.get(TOPIC)).text
        assert "Set by operator" in page
        for action in ("Hold…", "Reset…", 'id="set-settings"', 'id="set-lane"'):
            assert action not in page
        assert "Change…" not in (await visitor.get(ALL)).text
        for path, fields in FORMS:
            assert (await visitor.post(path, fields)).status == 403
        assert await client.topic_settings("mail") == settings
        (known,) = await client.limits()
        assert known.held_until is None


async def test_dashboard_that_is_read_only_changes_no_settings(server: ServerUnderTest) -> None:
    async with dashboard_under_test(server.address, read_only=True) as dashboard:
        visitor = Visitor(dashboard.url)
        await visitor.get(ALL)
        for path, fields in FORMS:
            assert (await visitor.post(path, fields)).status == 403
