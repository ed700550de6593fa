"""The kit in a project that uses `pulse.django`."""

from __future__ import annotations

from pathlib import Path

from tests.testing.projects import suite_result

PROJECT = {
    "settings.py": """
        SECRET_KEY = "x"
        INSTALLED_APPS = ["pulse.django", "shop"]
        try:
            import django.tasks
        except ImportError:  # Django 5.2
            INSTALLED_APPS.append("django_tasks")
        _BACKEND = "pulse.django.tasks_backend.PulseBackend"
        TASKS = {"default": {"BACKEND": _BACKEND, "QUEUES": ["default", "slow"]}}
        _MEMORY = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
        DATABASES = {"default": _MEMORY, "orders": _MEMORY}
        PULSE = {"DATABASE": "orders"}
    """,
    "shop/__init__.py": "",
    "shop/tasks.py": """
        from pulse.django import app


        @app.job("add")
        def add(first: int, second: int) -> int:
            return first + second


        try:
            from django.tasks import task
        except ImportError:
            from django_tasks import task


        @task(takes_context=True)
        def greet(context, name, greeting="hello"):
            return f"{greeting} {name}"


        @task
        async def decline():
            raise ValueError("declined")
    """,
    "test_shop.py": """
        import pulse
        import pytest
        from django.db import connections, transaction
        from shop.tasks import add, decline, greet


        def test_handler_without_queries_needs_no_database(pulse_kit):
            connections["orders"]  # a connection that was never opened
            job = add._client.enqueue_now("add", {"first": 1, "second": 2})
            assert pulse_kit.run(job).result == 3


        @pytest.mark.django_db(databases=["default", "orders"])
        def test_callbacks_of_the_database_of_pulse_run(pulse_kit):
            with pulse_kit.on_commit(), transaction.atomic(using="orders"):
                add.enqueue(1, 2)
            pulse_kit.one(add)


        @pytest.mark.django_db(databases=["default", "orders"])
        def test_callbacks_that_did_not_run_are_named(pulse_kit):
            with transaction.atomic(using="orders"):
                add.enqueue(1, 2)
            with pytest.raises(AssertionError, match="1 on_commit callback of .*with pulse_kit.on_commit"):
                pulse_kit.one(add)


        @pytest.mark.django_db(databases=["default", "orders"])
        def test_job_of_a_transaction_is_refused(pulse_kit, settings):
            settings.PULSE = {**settings.PULSE, "ENQUEUE": "transaction"}
            with pytest.raises(pulse.ClientClosed, match='no database.*set "ENQUEUE" to "on_commit"'):
                add.enqueue(1, 2)
            settings.PULSE = {**settings.PULSE, "ENQUEUE": "on_commit"}
            with pulse_kit.on_commit():
                add.enqueue(1, 2)
            pulse_kit.one(add)


        def test_task_of_django_is_found_by_its_arguments(pulse_kit):
            greet.enqueue("ada")
            greet.using(queue_name="slow").enqueue(name="bob", greeting="hi")
            assert len(pulse_kit.all(greet)) == 2
            assert pulse_kit.run(pulse_kit.one(greet, name="ada")).result == "hello ada"
            assert pulse_kit.one(greet, name="bob", greeting="hi").topic == "slow:shop.tasks.greet"
            pulse_kit.none(greet, name="eve")
            with pytest.raises(AssertionError, match="2 jobs match shop.tasks.greet"):
                pulse_kit.one(greet)


        def test_error_of_an_async_task_is_logged(pulse_kit, caplog):
            decline.enqueue()
            job = pulse_kit.one(decline)
            assert pulse_kit.run(job, attempt=job.max_attempts).outcome == "dead_lettered"
            (record,) = [one for one in caplog.records if one.name.startswith("django") and one.exc_info]
            assert str(record.exc_info[1]) == "declined"
    """,
}


def test_project_with_another_database(tmp_path: Path) -> None:
    assert "6 passed" in suite_result(tmp_path, PROJECT, "--ds=settings", "--no-migrations")
