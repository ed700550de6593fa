"""The audit on pages: the list with its filters, and the changes of a job, a topic and a schedule."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, timedelta

import pytest

import pulse
from pulse_text.times import iso
from pulse_ui.audit import AuditQuery, audit_rows, method_words
from tests.eventually import eventually
from tests.ui.dashboards import DashboardUnderTest
from tests.ui.visitors import Visitor


def entry(**facts: object) -> pulse.AuditEntry:
    known = {
        "action_id": "a",
        "at": datetime(2030, 1, 1, tzinfo=UTC),
        "user": "ada",
        "role": "operator",
        "address": "127.0.0.1",
        "method": "CancelJobs",
        "reason": "",
        "topic": "mail",
        "ids": (),
        "count": 1,
        "outcome": "OK",
        "refusal": "",
        "asked": {},
        "changes": {},
        "can_undo": False,
    }
    return pulse.AuditEntry(**{**known, **facts})  # type: ignore[arg-type]


def test_changes_have_the_old_and_the_new_value() -> None:
    (row,) = audit_rows([entry(changes={"running": {"old": 5, "new": 2}, "pool": {"new": "gpu"}})])
    assert [(value.name, value.old, value.new) for value in row.changes] == [
        ("pool", "–", "gpu"),
        ("running", "5", "2"),
    ]


def test_ids_lead_to_the_pages_of_their_kind() -> None:
    ids = ("0190aaaa-0000-7000-8000-000000000001",)
    methods = ("CancelJob", "PauseSchedule", "CancelWorkflow")
    rows = audit_rows([entry(method=method, ids=ids) for method in methods])
    assert [row.links[0][0].split("/")[1] for row in rows] == ["jobs", "schedules", "workflows"]


def test_bulk_action_counts_the_jobs_that_it_does_not_list() -> None:
    (row,) = audit_rows([entry(ids=("x" * 36,) * 64, count=50_000)])
    assert (row.amount, row.links_left_out) == ("50,000", 49_997)


def test_long_value_is_cut() -> None:
    (row,) = audit_rows([entry(changes={"payload": {"old": None, "new": "x" * 10_000}})])
    assert len(row.changes[0].new) < 300


def test_method_is_written_in_words() -> None:
    assert method_words("SetTopic") == "Set topic"


def test_filter_is_in_the_address() -> None:
    assert AuditQuery().path() == "/audit"
    assert AuditQuery("ada", topic="a&b", refused=True).path("x") == (
        "/audit?user=ada&topic=a%26b&refused=1&cursor=x"
    )


async def test_change_is_listed_with_user_reason_and_values(guarded: DashboardUnderTest) -> None:
    async with guarded.client("operator") as client:
        await client.pause(reason="the bank is down", topic="mail")
        await client.set_topic("mail", running=3)
        schedule = await client.schedule("mail", {}, pulse.Every(timedelta(hours=1)))
        job = await client.enqueue("mail", {})
        await client.cancel(job.id, "a wrong price list")
    visitor = Visitor(guarded.url)
    await visitor.log_in("viewer")
    text = (await visitor.get("/audit?topic=mail&user=operator")).text
    limit = '<span class="muted">running</span> <ins>3</ins>'
    for part in ("the bank is down", "Pause dispatch", limit, "a wrong price list"):
        assert part in text
    assert "the bank is down" not in (await visitor.get("/audit?user=admin")).text
    assert "the bank is down" in (await visitor.get("/topics/mail")).text
    assert "a wrong price list" in (await visitor.get(f"/jobs/{job.id}")).text
    assert "Create schedule" in (await visitor.get(f"/schedules/{schedule.id}")).text


async def test_refused_call_is_found(guarded: DashboardUnderTest) -> None:
    visitor = Visitor(guarded.url)
    await visitor.log_in("viewer")
    async with guarded.client("viewer") as client:
        with contextlib.suppress(pulse.PermissionDenied):
            await client.pause(topic="mail")
    text = (await visitor.get("/audit?refused=1")).text
    assert "Pause dispatch" in text
    assert "Refused" in text


async def test_bulk_action_is_undone_from_its_page_after_a_fresh_count(guarded: DashboardUnderTest) -> None:
    visitor = Visitor(guarded.url)
    await visitor.log_in("operator")
    async with guarded.client("operator") as client:
        jobs = [await client.enqueue("mail", {}) for _ in range(3)]
        counted = (await client.count_jobs(topic="mail")).counted_at
        assert counted is not None
        which = [("topic", "mail"), ("all", "1"), ("counted_at", iso(counted)), ("total", "3")]
        operation = (await visitor.post("/jobs/cancel", which)).location
        ended = await eventually_shown(visitor, operation, "Done: 3 jobs canceled.")
        ((path, _),) = re.findall(r'href="(/audit/([0-9a-f-]+)/undo)"', ended)
        await client.retry(jobs[0].id)  # its last action is another one now

        question = (await visitor.get(path)).text
        assert "Undo the action for 2 jobs?" in question
        assert (await client.get_job(jobs[1].id)).status == "CANCELED", "a question changes nothing"
        operation = (await visitor.post(path, [("total", "2"), ("reason", "wrong list")])).location
        await eventually_shown(visitor, operation, "Done: 2 jobs undone.")

        assert {(await client.get_job(job.id)).status for job in jobs} == {"PENDING"}
        (undo,) = await client.audit(method="UndoAction")
        assert (undo.reason, undo.count) == ("wrong list", 2)
    assert "Nothing is left to undo" in (await visitor.get(path)).text


async def test_selected_jobs_are_one_entry_that_is_undone(guarded: DashboardUnderTest) -> None:
    visitor = Visitor(guarded.url)
    await visitor.log_in("operator")
    async with guarded.client("operator") as client:
        jobs = [await client.enqueue("mail", {}) for _ in range(3)]
        which = [("id", job.id) for job in jobs]
        await visitor.post("/jobs/cancel", [*which, ("list", "/jobs"), ("reason", "wrong list")])
        notice = (await visitor.get("/jobs")).text
        (entry,) = await client.audit(method="CancelJob")
        assert (entry.count, entry.reason) == (3, "wrong list")
        path = f"/audit/{entry.action_id}/undo"
        assert f'href="{path}"' in notice
        operation = (await visitor.post(path, [("total", "3")])).location
        await eventually_shown(visitor, operation, "Done: 3 jobs undone.")
        await visitor.post("/jobs/cancel", which)
        await visitor.get("/jobs")
        await visitor.post("/jobs/delete", [*which, ("list", "/jobs"), ("reason", "tidy up")])
        assert "/undo" not in (await visitor.get("/jobs")).text
        (entry,) = await client.audit(method="DeleteJob")
        assert (entry.count, entry.reason) == (3, "tidy up")


async def eventually_shown(visitor: Visitor, path: str, text: str) -> str:
    """Return the page once it has the text."""

    async def shown() -> str:
        page = (await visitor.get(path)).text
        return page if text in page else ""

    page: str = await eventually(shown, f"{path} has {text!r}")
    return page


async def test_pages_are_shown_while_the_audit_cannot_be_read(
    guarded: DashboardUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> pulse.AuditPage:
        raise pulse.ResourceExhausted("Too many searches at once.")

    async with guarded.client("operator") as client:
        job = await client.enqueue("mail", {})
        schedule = await client.schedule("mail", {}, pulse.Every(timedelta(hours=1)))
    visitor = Visitor(guarded.url)
    await visitor.log_in("operator")
    monkeypatch.setattr(pulse.Pulse, "audit", refuse)
    for path in (f"/jobs/{job.id}", "/topics/mail", f"/schedules/{schedule.id}"):
        answer = await visitor.get(path)
        assert answer.status == 200, path
        assert "They cannot be read now: Too many searches at once." in answer.text


async def test_wrong_filter_is_reported(guarded: DashboardUnderTest) -> None:
    visitor = Visitor(guarded.url)
    await visitor.log_in("viewer")
    assert (await visitor.get("/audit?topic=two%20words")).status in (200, 400)
    assert (await visitor.get("/audit?cursor=nonsense")).status == 400
    await visitor.log_in("producer")
    assert (await visitor.get("/audit")).status == 403
