"""Facts about the admin's list of jobs. `test_django_tasks` runs them."""

from collections.abc import Iterator
from typing import Any

import django
import pytest

django.setup()

from django.contrib.auth.models import Permission, User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection  # noqa: E402
from django.test import Client  # noqa: E402

import pulse  # noqa: E402
from pulse.django import admin, clients  # noqa: E402

PAGE = "/admin/pulse/job/"


@pytest.fixture(scope="module", autouse=True)
def tables() -> None:
    call_command("migrate", verbosity=0)


@pytest.fixture
def browser() -> Iterator[Client]:
    """A browser of a member of staff who may view jobs."""
    member = User.objects.create_user("ada", is_staff=True)
    member.user_permissions.add(Permission.objects.get(codename="view_job"))
    browser = Client()
    browser.force_login(member)
    yield browser
    member.delete()


@pytest.fixture(scope="module")
def jobs() -> list[str]:
    """Jobs of two topics, the newest first. The first is canceled."""
    ids = [clients.client().enqueue_now(f"admin-{number % 2}").id for number in range(4)]
    clients.client().cancel(ids[-1], "for <b>the</b> page\nsecond line")
    return ids[::-1]


def shown(browser: Client, query: str, ids: list[str]) -> list[int]:
    """Return the positions of the jobs that the page shows."""
    text = browser.get(PAGE + query).content.decode()
    return [at for at, job_id in enumerate(ids) if job_id in text]


def test_page_lists_jobs_and_links_to_the_dashboard(browser: Client, jobs: list[str]) -> None:
    text = browser.get(PAGE).content.decode()
    assert f'<a href="https://pulse.example/ui/jobs/{jobs[0]}">{jobs[0]}</a>' in text
    assert '<a href="https://pulse.example/ui/">Open the dashboard</a>' in text
    assert "for &lt;b&gt;the&lt;/b&gt; page" in text
    assert "second line" not in text


def test_page_of_another_site_links_to_its_own_pages(browser: Client) -> None:
    text = browser.get("/staff/pulse/job/").content.decode()
    assert 'href="/staff/"' in text
    assert 'href="/admin/' not in text


def test_page_filters_by_topic_and_status(browser: Client, jobs: list[str]) -> None:
    assert shown(browser, "?topic=admin-0", jobs) == [1, 3]
    assert shown(browser, "?status=CANCELED", jobs) == [0]
    assert shown(browser, "?topic=admin-1&status=PENDING", jobs) == [2]
    assert "No job matches." in browser.get(PAGE + "?topic=none").content.decode()


def test_pages_follow_each_other(browser: Client, jobs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "_PAGE_SIZE", 1)
    first = browser.get(PAGE + "?topic=admin-1")
    second = first.context_data["next"]
    assert "topic=admin-1&amp;cursor=" in first.content.decode()
    assert shown(browser, second, jobs) == [2]
    assert browser.get(PAGE + second).context_data["first"] == "?topic=admin-1"


def test_page_asks_no_table(browser: Client, jobs: list[str]) -> None:
    queries: list[str] = []

    def record(execute: Any, statement: str, *rest: Any) -> Any:
        queries.append(statement)
        return execute(statement, *rest)

    with connection.execute_wrapper(record):
        browser.get(PAGE)
    assert not [query for query in queries if "pulse_job" in query]


def test_wrong_filter_is_a_sentence(browser: Client) -> None:
    for query in ("?status=BROKEN", "?cursor=broken", "?topic=%20a%20b"):
        assert browser.get(PAGE + query).context_data["problem"]


def test_server_that_is_away_is_a_sentence(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_client", pulse.SyncPulse("127.0.0.1:1"))
    from datetime import timedelta

    monkeypatch.setattr(admin, "_TIMEOUT", timedelta(milliseconds=200))
    answer = browser.get(PAGE)
    assert answer.status_code == 200
    assert "127.0.0.1:1" in answer.context_data["problem"]


def test_page_needs_the_permission(browser: Client) -> None:
    User.objects.get(username="ada").user_permissions.clear()
    assert browser.get(PAGE).status_code == 403
    assert Client().get(PAGE).url.startswith("/admin/login/")


def test_page_is_to_read_only(browser: Client, jobs: list[str]) -> None:
    assert browser.get(PAGE + "add/").status_code == 404
    assert browser.get(f"{PAGE}{jobs[0]}/change/").status_code == 404
    index = browser.get("/admin/").content.decode()
    assert PAGE in index
    assert PAGE + "add/" not in index
