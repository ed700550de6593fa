"""Facts about the system checks. `test_django_tasks` runs them."""

from typing import Any

import django
import pytest

django.setup()

from django.core.checks import run_checks  # noqa: E402
from django.test import override_settings  # noqa: E402

from pulse.django import clients  # noqa: E402
from tests.system.tasks_site import settings  # noqa: E402

BACKEND = "pulse.django.tasks_backend.PulseBackend"


@pytest.fixture(autouse=True)
def new_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has settings of its own, and the client is made of them once."""
    monkeypatch.setattr(clients, "_client", None)


def found(**changed: Any) -> dict[str, str]:
    """Return the messages of pulse for these settings, by their ids, with their hints."""
    with override_settings(**changed):
        messages = [message for message in run_checks() if message.id.startswith("pulse.")]
    assert all(message.hint for message in messages)
    return {message.id: message.msg for message in messages}


def tasks(**params: Any) -> dict[str, Any]:
    return {"default": {"BACKEND": BACKEND, **params}}


def test_project_has_no_problems() -> None:
    assert found() == {}


def test_unknown_key_is_an_error() -> None:
    assert found(PULSE={"ADRESS": "localhost"}) == {
        "pulse.E001": "The setting PULSE has no key 'ADRESS'. Did you mean ADDRESS?"
    }


def test_value_that_the_client_refuses_is_an_error() -> None:
    assert "concurrency" in found(PULSE={"CONCURRENCY": "many"})["pulse.E001"]


def test_default_that_is_no_option_of_a_handler_is_an_error() -> None:
    message = found(PULSE={"DEFAULTS": {"max_attempt": 5}})["pulse.E001"]
    assert message.startswith("PULSE[\"DEFAULTS\"] cannot be used: A handler has no option 'max_attempt'")


def test_hint_lists_the_keys() -> None:
    with override_settings(PULSE={"ADRESS": "localhost"}):
        (message,) = run_checks(tags=["pulse"])
    assert message.hint.startswith("The keys of PULSE are ADDRESS, USER")
    assert "DATABASE" in message.hint


def test_missing_address_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = "The address of pulsed is not set, so the project uses localhost:50051."
    assert found(PULSE={}) == {"pulse.W001": sentence}
    monkeypatch.setenv("PULSE_ADDR", "queue:50051")
    assert found(PULSE={}) == {}


def test_dashboard_that_no_browser_opens_is_a_warning() -> None:
    assert list(found(PULSE={**settings.PULSE, "DASHBOARD": "pulse.example"})) == ["pulse.W002"]


def test_async_unsafe_queries_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    assert list(found()) == ["pulse.W003"]


def test_backend_without_the_app_is_an_error() -> None:
    apps = [
        app for app in settings.INSTALLED_APPS if app not in ("pulse.django", "django.contrib.staticfiles")
    ]
    assert "not in INSTALLED_APPS" in found(INSTALLED_APPS=apps)["pulse.E002"]


def test_queue_that_no_topic_can_name_is_an_error() -> None:
    assert "'a queue'" in found(TASKS=tasks(QUEUES=["default", "a queue"]))["pulse.E003"]


def clean_up() -> None: ...


def test_queue_that_no_topic_can_name_stops_no_module_with_tasks() -> None:
    with override_settings(TASKS=tasks(QUEUES=["default", "a queue"])):
        from pulse.django.tasks_backend import task

        made = task(clean_up)
        assert clients.client().handled_topics == (f"default:{made.module_path}",)


def test_transactions_of_another_database_are_an_error() -> None:
    messages = found(
        TASKS=tasks(OPTIONS={"ENQUEUE": "transaction"}), PULSE={**settings.PULSE, "DATABASE": "other"}
    )
    assert "which is not PostgreSQL" in messages["pulse.E004"]


def test_transactions_of_the_setting_itself_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import connection

    messages = found(TASKS={}, PULSE={**settings.PULSE, "DATABASE": "other", "ENQUEUE": "transaction"})
    assert messages["pulse.E004"].startswith("PULSE stores jobs in transactions of the database 'other'")
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    assert list(found(TASKS={}, PULSE={**settings.PULSE, "ENQUEUE": "now"})) == ["pulse.W004"]


@pytest.mark.skipif(django.VERSION >= (6, 0), reason="Django checks the backends of TASKS itself")
def test_backend_is_checked_without_the_app_of_the_package() -> None:
    apps = [app for app in settings.INSTALLED_APPS if app != "django_tasks"]
    with override_settings(INSTALLED_APPS=apps, TASKS=tasks(QUEUES=["a queue"])):
        assert [message.id for message in run_checks(tags=["pulse"])] == ["pulse.E003"]


def test_tasks_that_start_before_their_request_is_committed_are_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from django.db import connection

    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    assert list(found(TASKS=tasks())) == ["pulse.W004"]
    assert found(TASKS=tasks(OPTIONS={"ENQUEUE": "on_commit"})) == {}
