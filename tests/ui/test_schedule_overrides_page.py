"""What operators have set of a schedule that code declares, on the pages of schedules."""

from __future__ import annotations

import pulse
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest
from tests.ui.visitors import Visitor


async def declare(server: ServerUnderTest) -> pulse.ScheduleInfo:
    async with pulse.Pulse(server.address) as p:
        return await p.cron("reports", "0 3 * * *", tz="Europe/Paris")


async def test_entry_that_is_edited_stays_until_it_is_handed_back(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    made = await declare(server)
    page, visitor = f"/schedules/{made.id}", Visitor(dashboard.url)
    assert "Set by operators" not in (await visitor.get(page)).text
    await visitor.get(f"{page}/edit")
    await visitor.post(f"{page}/edit", [("cron", "30 4 * * *")])

    stored = await declare(server)
    assert stored.spec == pulse.Cron("30 4 * * *", "Europe/Paris")
    assert [override.entry for override in stored.overrides] == ["cron"]
    shown = (await visitor.get(page)).text
    assert '<td class="mono">30 4 * * *</td>' in shown
    assert '<td class="mono">0 3 * * *</td>' in shown
    assert "Operators have set cron" in (await visitor.get("/schedules")).text

    await visitor.post(f"{page}/reset", [("entry", "cron")])
    assert "Set by operators" not in (await visitor.get(page)).text
    assert (await declare(server)).spec == made.spec


async def test_form_asks_before_a_rare_schedule_fires_often(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    made = await declare(server)
    page, visitor = f"/schedules/{made.id}", Visitor(dashboard.url)
    await visitor.get(f"{page}/edit")
    asked = await visitor.post(f"{page}/edit", [("cron", "* * * * *")])
    assert "reports would fire 1,440 times a day instead of once." in asked.text
    assert (await declare(server)).spec == made.spec
    await visitor.post(f"{page}/edit", [("cron", "* * * * *"), ("confirmed", "yes")])
    assert (await declare(server)).spec == pulse.Cron("* * * * *", "Europe/Paris")


async def test_deletion_states_that_code_makes_the_schedule_again(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    made = await declare(server)
    visitor = Visitor(dashboard.url)
    assert "Code declares it" in (await visitor.get(f"/schedules/{made.id}")).text
    await visitor.post(f"/schedules/{made.id}/delete")
    assert "makes it again" in (await visitor.get("/schedules")).text
