"""`delay` and `apply_async` store the jobs that callers of Celery expect, or are refused with a sentence."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import pulse
from pulse.celery import Task, Tasks
from tests.cli.serving import serving
from tests.postgres_cluster import Databases
from tests.rows import each_row
from tests.sdk.fake_pulsed import PATIENCE_SECONDS
from tests.sdk.scripts import run_script

PATIENCE = timedelta(seconds=PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def address(databases: Databases, template_database: str) -> Iterator[str]:
    with databases.temporary(template_database) as dsn, serving(dsn) as address:
        yield address


@pytest.fixture
def p(address: str) -> Iterator[pulse.SyncPulse]:
    with pulse.SyncPulse(address) as client:
        yield client


@contextmanager
def worker(p: pulse.SyncPulse, *topics: str) -> Iterator[None]:
    thread = threading.Thread(target=p.run, kwargs={"topics": topics or None, "handle_signals": False})
    thread.start()
    yield
    p.close()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def add_task(p: pulse.SyncPulse, **options: Any) -> Task[..., ..., int]:
    @Tasks(p).task(name="add", **options)
    def add(left: int, right: int = 1) -> int:
        return left + right

    return add


def test_both_calls_run_the_handler_and_have_its_result(p: pulse.SyncPulse) -> None:
    add = add_task(p)
    with worker(p):
        calls = [
            add.delay(2),
            add.delay(2, right=3),
            add.apply_async((2, 4)),
            add.apply_async([2], {"right": 5}),
            add.apply_async(kwargs={"left": 2, "right": 6}),
            add.options(priority=3).apply_async((2, 7)),
            add.enqueue(2, 8),
        ]
        assert [call.result(PATIENCE) for call in calls] == [3, 5, 6, 7, 8, 9, 10]
    assert add(2, 9) == 11


def test_unannotated_task_takes_arguments_by_position(p: pulse.SyncPulse) -> None:
    @Tasks(p).task(name="one")
    def one(value):  # type: ignore[no-untyped-def]
        return [value]

    @Tasks(p).task(name="two")
    def two(left, right):  # type: ignore[no-untyped-def]
        return [left, right]

    with worker(p):
        assert one.delay({"a": 1}).result(PATIENCE) == [{"a": 1}]
        assert two.delay(1, "b").result(PATIENCE) == [1, "b"]


def test_countdown_and_eta_set_the_start(p: pulse.SyncPulse) -> None:
    add = add_task(p)
    later = datetime(2100, 1, 1, tzinfo=UTC)
    assert p.get_job(add.apply_async((1,), eta=later).id).next_run_at == later
    job = p.get_job(add.apply_async((1,), countdown=90.5).id)
    assert job.next_run_at is not None
    assert job.submitted_at is not None
    wait = job.next_run_at - job.submitted_at
    assert abs(wait - timedelta(seconds=90.5)) < timedelta(milliseconds=400), "the clock is read for each"
    assert p.get_job(add.apply_async((1,), countdown=0).id).status is pulse.JobStatus.PENDING


def test_expiry_counts_from_the_call_and_not_from_the_start(p: pulse.SyncPulse) -> None:
    add = add_task(p)
    before = datetime.now(UTC)
    jobs = [
        p.get_job(call.id)
        for call in (
            add.apply_async((1,), expires=3600),
            add.apply_async((1,), countdown=60, expires=3600),
            add.apply_async((1,), expires=before + timedelta(seconds=3600)),
            add.apply_async((1,), eta=before + timedelta(minutes=1), expires=3600),
            add.apply_async((1,), eta=before - timedelta(days=1), expires=3600),
        )
    ]
    after = datetime.now(UTC)
    # Each side reads a clock of its own.
    for job in jobs:
        assert job.start_by is not None
        assert before + timedelta(seconds=3540) < job.start_by < after + timedelta(seconds=3660)


def test_priority_is_passed_on(p: pulse.SyncPulse) -> None:
    add = add_task(p, priority=4)
    jobs = [add.apply_async((1,)), add.apply_async((1,), priority=9), add.apply_async((1,), priority=0)]
    assert [p.get_job(job.id).priority for job in jobs] == [4, 9, 0]


def test_queue_is_a_topic_that_a_worker_can_serve_alone(p: pulse.SyncPulse) -> None:
    add = add_task(p, queues=["bulk", "mail", "bulk"], max_attempts=7)
    assert p.handled_topics == ("add", "bulk.add", "mail.add")
    plain, in_bulk = add.delay(1), add.apply_async((1, 2), queue="bulk")
    job = p.get_job(in_bulk.id)
    assert (job.topic, job.max_attempts) == ("bulk.add", 7)
    with worker(p, "bulk.*"):
        assert in_bulk.result(PATIENCE) == 3
        assert p.get_job(plain.id).status is pulse.JobStatus.PENDING
        with pytest.raises(pulse.InvalidArgument, match=r"no queue 'other'.*Declare it.*queues=\['other'\]"):
            add.apply_async((1,), queue="other")


def test_options_of_pulse_come_before_the_call(p: pulse.SyncPulse) -> None:
    add = add_task(p, queues="bulk").options(key="once")
    assert add.apply_async((1,)).id == add.apply_async((1,)).id
    assert add.apply_async((1,), queue="bulk").topic == "bulk.add"


def test_tasks_of_a_router_are_enqueued_by_its_client(p: pulse.SyncPulse) -> None:
    router = pulse.SyncRouter()

    @Tasks(router).task(name="shout", queues=["bulk"])
    def shout(text: str) -> str:
        return text.upper()

    with pytest.raises(pulse.InvalidHandler, match="include"):
        shout.delay("hi")
    p.include(router)
    with worker(p):
        assert shout.delay("hi").result(PATIENCE) == "HI"
        assert shout.apply_async(("ho",), queue="bulk").result(PATIENCE) == "HO"


def test_task_can_be_a_job_of_a_workflow(p: pulse.SyncPulse) -> None:
    add = add_task(p)
    with worker(p):
        run = p.start(pulse.chain(add.s(1), add.s(2, 2)), name="sums")
        assert run.result("add-2", timeout=PATIENCE) == 4


# ---------------------------------------------------------------- refused


@each_row(
    "options, sentence",
    [
        ({"link": None}, "apply_async of pulse.celery has no option 'link'. Use a workflow: p.start("),
        ({"link_error": None}, 'with a job that has when="failed"'),
        ({"task_id": "a"}, "Use task.options(key=…).apply_async(…)"),
        ({"headers": {}}, "metadata={…}"),
        ({"time_limit": 5}, "@app.task(timeout=timedelta(…))"),
        ({"serializer": "pickle"}, "stored as JSON"),
        ({"retry": True}, "Leave it out"),
        ({"shape": 1}, "It has countdown, eta, expires, priority and queue."),
        ({"countdown": 1, "eta": datetime.now(UTC)}, "Give countdown or eta, not both"),
        ({"countdown": timedelta(seconds=1)}, "countdown has to be a number of seconds"),
        ({"countdown": True}, "countdown has to be a number of seconds"),
        ({"countdown": 1e30}, "countdown has to be at most 3650 days"),
        ({"countdown": float("nan")}, "countdown has to be at most 3650 days"),
        ({"eta": "2026-01-01"}, "eta has to be a datetime"),
        ({"eta": datetime(2026, 1, 1)}, "eta has no time zone"),
        ({"expires": datetime(2026, 1, 1)}, "expires has no time zone"),
        ({"expires": 0}, "would expire before it may start"),
        ({"expires": 60, "countdown": 60}, "would expire before it may start"),
        ({"priority": "high"}, "priority has to be a whole number"),
        ({"args": (1, 2, 3)}, "add"),
        ({"args": ("one",)}, "could not read this job"),
    ],
)
def test_call_that_pulse_cannot_make_is_refused(options: dict[str, Any], sentence: str) -> None:
    add = add_task(pulse.SyncPulse())
    with pytest.raises(pulse.InvalidArgument) as refused:
        add.apply_async(**{"args": (1,), **options})
    assert sentence in str(refused.value)


@each_row(
    "options, sentence",
    [
        (
            {"bind": True},
            "A task of pulse.celery has no option 'bind'. Use a parameter `ctx",
        ),
        ({"max_retries": 3}, "Use max_attempts"),
        ({"autoretry_for": (OSError,)}, "retry_on=(…)"),
        ({"retry_backoff": True}, "retry=pulse.Backoff("),
        ({"rate_limit": "10/m"}, "rate=pulse.Rate("),
        ({"acks_late": True}, "a job is completed after its handler"),
        ({"soft_time_limit": 5}, "timeout=timedelta(…)"),
        ({"queue": "bulk"}, 'queues=["bulk"]'),
        ({"no_such": 1}, "A handler has no option 'no_such'"),
    ],
)
def test_option_of_celery_is_refused_with_that_of_pulse(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(pulse.InvalidArgument) as refused:
        Tasks(pulse.SyncPulse()).task(**options)
    assert sentence in str(refused.value)


def test_client_of_asyncio_is_refused() -> None:
    with pytest.raises(pulse.InvalidHandler, match="delay blocks"):
        Tasks(pulse.Pulse())  # type: ignore[arg-type]


def test_name_is_that_of_the_module_and_the_function() -> None:
    @Tasks(pulse.SyncPulse()).task
    def send_mail(to: str) -> None: ...

    assert send_mail.name == send_mail.topic == f"{__name__}.send_mail"


def test_task_of_a_program_needs_a_name_and_celery_is_not_imported() -> None:
    printed = run_script(
        """
        import sys
        import pulse
        from pulse.celery import Tasks

        try:
            Tasks(pulse.SyncPulse()).task(print_all := lambda: None)
        except pulse.InvalidHandler as error:
            print(error)
        print("celery" in sys.modules)
        """
    )
    assert "Give the task a name" in printed
    assert printed.endswith("False\n")
    assert "celery" not in sys.modules
