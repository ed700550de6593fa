"""`pulse.django` stores a job after the commit, in the transaction, or at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.test import override_settings

import pulse
from pulse.celery import Tasks
from pulse.django.clients import DjangoPulse, configured, enqueue_now, refresh_connections
from tests.cli.serving import serving
from tests.postgres_cluster import Databases
from tests.rows import each_row
from tests.sdk.libraries import django_connection


@pytest.fixture(scope="module")
def shared(databases: Databases, template_database: str) -> Iterator[tuple[str, str]]:
    """A database with the schema of pulse, and the address of its pulsed."""
    with databases.temporary(template_database) as dsn, serving(dsn) as address:
        yield dsn, address


@pytest.fixture
def connection(shared: tuple[str, str]) -> Iterator[Any]:
    opened = django_connection(shared[0])
    yield opened
    opened.close()


@pytest.fixture
def app(shared: tuple[str, str], connection: Any) -> Iterator[DjangoPulse]:
    pulse_setting = {"ADDRESS": shared[1], "DEFAULTS": {"max_attempts": 3}}
    with override_settings(PULSE=pulse_setting), DjangoPulse(configured()) as client:
        yield client


def count(app: DjangoPulse, topic: str) -> int:
    return app.count_jobs(topic=topic).count


def test_job_is_stored_after_the_commit(app: DjangoPulse) -> None:
    @app.job("after-commit")
    def receipt(order: int) -> None: ...

    with transaction.atomic():
        handle = receipt.enqueue(7)
        assert count(app, "after-commit") == 0
    job = app.get_job(handle.id)
    assert (job.args, job.max_attempts) == ({"order": 7}, 3)


def test_defaults_are_those_of_every_handler(app: DjangoPulse) -> None:
    router = pulse.SyncRouter()
    routed = router.register("routed", lambda: None)
    own = router.register("routed-own", lambda: None, max_attempts=7)
    app.include(router)
    late = router.register("routed-late", lambda: None)
    celery = Tasks(app).task(name="celery")(lambda: None)
    jobs = (routed, own, late, celery, app.register("registered", lambda: None))
    assert [app.get_job(job.enqueue().id).max_attempts for job in jobs] == [3, 7, 3, 3, 3]
    assert [job._handler.options.max_attempts for job in jobs] == [3, 7, 3, 3, 3]


def test_job_of_a_rollback_is_not_stored(app: DjangoPulse) -> None:
    with transaction.atomic():
        app.enqueue("rolled-back")
        transaction.set_rollback(True)
    with transaction.atomic():
        with transaction.atomic():
            app.enqueue("rolled-back")
            transaction.set_rollback(True)
        app.enqueue("rolled-back", {"kept": True})
    (job,) = app.iter_jobs(topic="rolled-back")
    assert app.get_job(job.id).args == {"kept": True}


def test_job_is_stored_at_once_outside_of_a_transaction(app: DjangoPulse) -> None:
    assert isinstance(app.enqueue("at-once"), pulse.SyncJobHandle)
    assert count(app, "at-once") == 1


def test_transaction_by_hand_is_refused(app: DjangoPulse, connection: Any) -> None:
    """Django does not report its commit: the job would be stored whatever becomes of it."""
    transaction.set_autocommit(False)
    with pytest.raises(transaction.TransactionManagementError, match="on_commit"):
        app.enqueue("by-hand")
    transaction.set_autocommit(True)
    assert count(app, "by-hand") == 0


def test_id_of_a_job_with_a_key_is_known_after_the_commit(app: DjangoPulse) -> None:
    first = app.enqueue("with-key", {"n": 1}, key="k")
    with transaction.atomic():
        handle = app.enqueue("with-key", {"n": 1}, key="k")
        with pytest.raises(pulse.InvalidTransition, match="after the commit of its transaction"):
            _ = handle.id
    assert (handle.id, handle.duplicate) == (first.id, True)
    assert handle.submitted_at is not None
    assert handle.submitted_at == first.submitted_at


def test_handles_are_gathered_after_the_commit(app: DjangoPulse) -> None:
    with transaction.atomic():
        handles = [app.enqueue("gathered"), *app.enqueue_many("gathered", [1, 2])]
        with pytest.raises(pulse.InvalidTransition, match="after the commit of its transaction"):
            app.gather(*handles)
    for handle in handles:
        app.cancel(handle.id)
    errors = app.gather(*handles, return_exceptions=True)
    assert [type(error) for error in errors] == [pulse.JobCanceled] * 3
    assert {done.id for done in app.as_completed(handles)} == {handle.id for handle in handles}


def test_wait_before_the_commit_is_refused(app: DjangoPulse) -> None:
    with transaction.atomic():
        handle = app.enqueue("waited-for")
        with pytest.raises(pulse.InvalidTransition, match="enqueue_now"):
            handle.wait()


def test_arguments_and_options_are_refused_before_the_commit(app: DjangoPulse) -> None:
    @app.job("checked")
    def checked(order: int) -> None: ...

    with transaction.atomic():
        with pytest.raises(pulse.InvalidArgument, match="order"):
            checked.enqueue("seven")  # type: ignore[arg-type]
        with pytest.raises(pulse.InvalidArgument, match="priority"):
            app.enqueue("checked", {"order": 7}, priority="high")  # type: ignore[arg-type]
        with pytest.raises(pulse.InvalidArgument, match="no option 'prio'"):
            app.enqueue("checked", {"order": 7}, prio=3)  # type: ignore[call-arg]
        with pytest.raises(pulse.InvalidArgument, match="key has 256 characters"):
            app.enqueue("checked", {"order": 7}, key="k" * 256)
        with pytest.raises(pulse.InvalidArgument, match="timeout has to be a timedelta"):
            app.enqueue("checked", {"order": 7}, timeout=3)  # type: ignore[arg-type]
        with pytest.raises(pulse.InvalidArgument, match="Item number 1: lane has 256 characters"):
            app.enqueue_many("checked", [{"order": 7}, pulse.JobItem({"order": 8}, lane="l" * 256)])
        with pytest.raises(pulse.InvalidArgument, match="makes one job of all items"):
            app.enqueue_many("checked", [{"order": 7}, {"order": 8}], unique=pulse.Unique("k"))
    assert count(app, "checked") == 0


def test_many_jobs_are_stored_after_the_commit(app: DjangoPulse) -> None:
    @app.job("many")
    def many(order: int) -> None: ...

    with transaction.atomic():
        handles = many.enqueue_many([{"order": 1}, pulse.JobItem({"order": 2}, priority=9)])
        assert count(app, "many") == 0
    assert [app.get_job(handle.id).args["order"] for handle in handles] == [1, 2]
    assert [app.get_job(handle.id).priority for handle in handles] == [0, 9]


def test_enqueue_now_does_not_wait_for_the_commit(app: DjangoPulse) -> None:
    @app.job("now")
    def now(order: int) -> None: ...

    with transaction.atomic():
        handle = enqueue_now(now.options(priority=4), 7)
        transaction.set_rollback(True)
    assert app.get_job(handle.id).priority == 4


def test_refresh_leaves_the_transaction_of_a_test_alone(app: DjangoPulse, connection: Any) -> None:
    with transaction.atomic():
        refresh_connections()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    refresh_connections()
    assert connection.connection is None, "CONN_MAX_AGE is 0"


# ------------------------------------------------------------ in the transaction


@pytest.fixture
def transactional(app: DjangoPulse, shared: tuple[str, str]) -> Iterator[DjangoPulse]:
    with override_settings(PULSE={"ADDRESS": shared[1], "ENQUEUE": "transaction"}):
        yield app


def test_job_is_stored_in_the_transaction(transactional: DjangoPulse, connection: Any) -> None:
    @transactional.job("in-transaction")
    def receipt(order: int) -> None: ...

    with transaction.atomic():
        receipt.enqueue(7)
        transaction.set_rollback(True)
    with transaction.atomic():
        handle = receipt.options(priority=5).enqueue(8)
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pulse.jobs WHERE topic = 'in-transaction'")
            assert cursor.fetchone() == (1,)
        assert count(transactional, "in-transaction") == 0, "no server sees it"
    job = transactional.get_job(handle.id)
    assert (job.args, job.priority, job.max_attempts) == ({"order": 8}, 5, 3)


def test_wait_in_the_transaction_is_refused_with_the_reason(transactional: DjangoPulse) -> None:
    @transactional.job("too-early")
    def receipt(order: int) -> None: ...

    with (
        transaction.atomic(),
        pytest.raises(pulse.ResultGone, match="is stored by the commit: wait for it after that"),
    ):
        receipt.enqueue(7).result()


def test_nul_is_refused_as_by_a_server(transactional: DjangoPulse, connection: Any) -> None:
    sentence = "key contains a NUL character, which cannot be stored."
    with transaction.atomic():
        for send in (
            lambda: transactional.enqueue("nul", None, key="a\0b"),
            lambda: transactional.enqueue_many("nul", [pulse.JobItem(None, key="a\0b")]),
            lambda: pulse.sql.enqueue(connection, "nul", None, key="a\0b"),
        ):
            with pytest.raises(pulse.InvalidArgument, match=sentence):
                send()
        with pytest.raises(pulse.InvalidArgument, match="metadata contains a NUL"):
            pulse.sql.enqueue(connection, "nul", None, metadata={"a": "\0"})
        pulse.sql.enqueue(connection, "nul", None, metadata={"a": r"\u0000"})  # the transaction goes on
    assert count(transactional, "nul") == 1


def test_topic_without_a_handler_is_stored_in_the_transaction(transactional: DjangoPulse) -> None:
    with transaction.atomic():
        handle = transactional.enqueue("elsewhere", {"order": 8}, key="k")
        many = transactional.enqueue_many("elsewhere", [{"order": 1}, {"order": 2}])
    assert isinstance(handle, pulse.SyncJobHandle)
    orders = [transactional.get_job(job.id).args["order"] for job in (handle, *many)]
    assert orders == [8, 1, 2]


def test_middleware_surrounds_an_enqueue_of_a_transaction(transactional: DjangoPulse) -> None:
    @transactional.enqueue_middleware
    def stamped(enqueue: pulse.Enqueue, call_next: Any) -> None:
        enqueue.metadata["tenant"] = "ada"
        call_next()

    @transactional.job("stamped")
    def receipt(order: int) -> None: ...

    with transaction.atomic():
        handle = receipt.enqueue(7)
    assert transactional.get_job(handle.id).metadata == {"tenant": "ada"}


# ------------------------------------------------------------ settings


@each_row(
    "setting, sentence",
    [
        ("localhost", "has to be a dict, such as"),
        ({"ADDR": "localhost"}, "no key 'ADDR'. Did you mean ADDRESS?"),
        ({"color": "red"}, "The keys are ADDRESS, USER, PASSWORD"),
        ({"ENQUEUE": "soon"}, "has to be one of 'on_commit', 'transaction', 'now'"),
        ({"DATABASE": "orders"}, "DATABASES has only 'default'"),
        ({"DEFAULTS": 3}, r'PULSE\["DEFAULTS"\] has to be a dict'),
    ],
)
def test_setting_that_cannot_be_used_is_refused(connection: Any, setting: Any, sentence: str) -> None:
    with override_settings(PULSE=setting), pytest.raises(ImproperlyConfigured, match=sentence):
        configured()
