"""The field Reason: the forms that change something have it, and the audit keeps what was typed."""

from __future__ import annotations

import re
from datetime import timedelta

import pulse
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest
from tests.ui.test_dead_letter_page import let_die
from tests.ui.visitors import Visitor


async def test_reason_of_each_form_is_in_the_audit(guarded: DashboardUnderTest) -> None:
    visitor = Visitor(guarded.url)
    await visitor.log_in("operator")
    async with guarded.client("operator") as client:
        job = await client.enqueue("mail", {}, lane="a")
        dead = await client.enqueue("mail", {})
        await client.set_topic("mail", per_lane=2, running=5)
        schedule = await client.schedule("mail", {}, pulse.Every(timedelta(hours=1)))
        of_job, of_schedule, topic = f"/jobs/{job.id}", f"/schedules/{schedule.id}", ("topic", "mail")
        new = [topic, ("kind", "interval"), ("every", "1h"), ("catch_up", "one"), ("overlap", "allow")]
        edited = [*new, ("every", "2h"), ("priority", "0"), ("max_attempts", "5")]
        forms = [
            ("/topics/mail", "/dispatch/pause", [topic], "PauseDispatch"),
            ("/topics/mail", "/dispatch/resume", [topic], "ResumeDispatch"),
            ("/topics/mail", "/topics/mail", [("running", "3")], "SetTopic"),
            ("/topics/mail", "/lanes", [topic, ("lane", "a"), ("weight", "3")], "SetLane"),
            ("/topics/mail", "/holds", [topic, ("for", "2m")], "HoldTopic"),
            ("/topics/mail", "/topics/mail", [("reset", "1")], "SetTopic"),
            ("/schedules/new", "/schedules/new", new, "CreateSchedule"),
            (f"{of_schedule}/edit", f"{of_schedule}/edit", edited, "UpdateSchedule"),
            (of_schedule, f"{of_schedule}/fire", [], "FireSchedule"),
            (of_schedule, f"{of_schedule}/pause", [], "PauseSchedule"),
            (of_schedule, f"{of_schedule}/resume", [], "ResumeSchedule"),
            ("/schedules", f"{of_schedule}/fire", [], "FireSchedule"),
            ("/schedules", f"{of_schedule}/pause", [], "PauseSchedule"),
            ("/schedules", f"{of_schedule}/resume", [], "ResumeSchedule"),
            (of_schedule, f"{of_schedule}/delete", [], "DeleteSchedule"),
            (of_job, f"{of_job}/prioritize", [("priority", "3")], "PrioritizeJob"),
            ("", f"{of_job}/signal", [("name", "paid")], "SignalJob"),
            (of_job, f"{of_job}/cancel", [], "CancelJob"),
            (of_job, f"{of_job}/retry", [], "RetryJob"),
            (f"/jobs/confirm?action=cancel&id={dead.id}", "/jobs/cancel", [("id", dead.id)], "CancelJob"),
            (f"/jobs/confirm?action=retry&id={dead.id}", "/jobs/retry", [("id", dead.id)], "RetryJob"),
            ("", f"/jobs/{dead.id}/cancel", [], "CancelJob"),
            (f"/jobs/{dead.id}", f"/jobs/{dead.id}/delete", [], "DeleteJob"),
        ]
        for number, (page, action, fields, method) in enumerate(forms):
            if page:
                form = form_of((await visitor.get(page)).text, action)
                assert 'name="reason"' in form, f"{page} asks for no reason of {action}"
            reason = f"ticket {number}"
            answer = await visitor.post(action, [*fields, ("reason", reason)])
            assert answer.status == 303, action
            (entry,) = await client.audit(method=method, limit=1)
            assert entry.reason == reason, action


async def test_reason_of_orders_and_of_a_retry_of_a_dead_letter(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    visitor = Visitor(dashboard.url)
    (dead,) = await let_die(server, ["no route"])
    async with dashboard.client() as client, server.worker("w1", can_stop=True, run_id="run-1"):
        page = (await visitor.get("/dead-letters")).text
        form = form_of(page, "/dead-letters/retry-one")
        fields = re.findall(r'name="(topic|error_group|before|job)" value="([^"]*)"', form)
        assert 'name="reason"' in form
        await visitor.post("/dead-letters/retry-one", [*fields, ("reason", "routed")])
        (entry,) = await client.audit(method="RetryJob", limit=1)
        assert (entry.reason, entry.ids) == ("routed", (dead,))
        for state in ("quiet", "running"):
            form = form_of((await visitor.get("/workers")).text, "/workers/state")
            (of_state,) = [one for one in form.split("</form>") if f'value="{state}"' in one]
            assert 'name="reason"' in of_state
            fields = [("worker", "w1"), ("state", state), ("reason", f"{state} now")]
            await visitor.post("/workers/state", fields)
            (entry,) = await client.audit(method="SetWorkerState", limit=1)
            assert entry.reason == f"{state} now"


async def test_reason_stays_in_a_form_with_a_problem(guarded: DashboardUnderTest) -> None:
    visitor = Visitor(guarded.url)
    await visitor.log_in("operator")
    fields = [("topic", "mail"), ("kind", "interval"), ("every", "often"), ("reason", "a <new> report")]
    again = await visitor.post("/schedules/new", fields)
    assert again.status == 400
    assert 'value="a &lt;new&gt; report"' in again.text


def form_of(page: str, action: str) -> str:
    """Return the forms of a page with this action."""
    forms = re.findall(r"<form[^>]*>.*?</form>", page, re.DOTALL)
    found = [form for form in forms if f'action="{action}"' in form.partition(">")[0]]
    assert found, f"there is no form for {action}"
    return "".join(found)
