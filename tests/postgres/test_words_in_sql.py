"""Words that the domain has one list of, and that stand again in SQL: the same ones."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from datetime import UTC, datetime, timedelta

import pytest

from pulse.topic_settings import Backoff, to_json
from pulse_server.base.bounds import LEASE_EXPIRED, TIME_LIMIT_EXCEEDED
from pulse_server.database.statements import statements
from pulse_server.jobs.rules import TERMINAL, Job, JobStatus, Outcome, StepKind
from pulse_server.schedules.rules import CatchUp, Cron, Every, Once, Schedule, Timetable, Work
from pulse_server.views.statistics import TopicDepth
from pulse_server.views.vitals import HolderKind
from pulse_server.work.retention import _STATUSES as KEPT
from tests.postgres.sessions import Connection
from tests.postgres.sql_files import TRANSITIONS
from tests.retry_delays import MOST_ATTEMPTS_SQUARED, retry_delay

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
TIMETABLES: list[Timetable] = [Once(NOON), Every(timedelta(hours=1)), Cron("@daily")]


def quoted(text: str) -> set[str]:
    return set(re.findall(r"'([^']*)'", text))


def kind_of(timetable: Timetable) -> str:
    return Schedule("", None, timetable, Work("mail", b"", 0, 1), CatchUp.ONE, False, NOON).kind


async def words_of(connection: Connection, constraint: str) -> set[str]:
    """The words that a constraint of the schema knows."""
    found = await connection.fetchval(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = $1", constraint
    )
    return quoted(found)


async def test_table_knows_the_statuses(connection: Connection) -> None:
    assert await words_of(connection, "jobs_status_is_known") == set(JobStatus)
    assert await words_of(connection, "jobs_finished_means_terminal") == TERMINAL


async def test_table_knows_the_kinds_of_schedules_and_the_ways_to_catch_up(connection: Connection) -> None:
    kinds = {kind_of(timetable) for timetable in TIMETABLES}

    assert await words_of(connection, "schedules_kind_has_its_one_spec") == kinds
    assert await words_of(connection, "schedules_catch_up_is_known") == set(CatchUp)


async def test_table_knows_the_kinds_of_steps(connection: Connection) -> None:
    assert await words_of(connection, "job_steps_kind_is_known") == set(StepKind)


def test_attempts_end_in_the_outcomes_of_the_domain() -> None:
    found = re.findall(
        r"with_attempt_v\d+\(.*?started_at,\s*(.*?)\)", " ".join(TRANSITIONS.values()), re.DOTALL
    )

    assert set().union(*map(quoted, found)) == set(Outcome)


def test_expired_lease_is_recorded_in_the_words_of_the_domain() -> None:
    assert TRANSITIONS["reap_expired"].count(f"'{LEASE_EXPIRED}'") == 1
    assert TRANSITIONS["reap_expired"].count(f"'{TIME_LIMIT_EXCEEDED}'") == 1


@pytest.mark.parametrize("failures", [1, 25, MOST_ATTEMPTS_SQUARED, MOST_ATTEMPTS_SQUARED + 1, 2**31 - 1])
@pytest.mark.parametrize(
    "backoff",
    [
        None,
        Backoff(first=timedelta(seconds=2), factor=3, longest=timedelta(hours=6), jitter=0),
        Backoff(first=timedelta(milliseconds=1), factor=100, longest=timedelta(days=3650), jitter=0),
        Backoff(first=timedelta(seconds=1), factor=1, longest=timedelta(seconds=1), jitter=0),
    ],
)
async def test_database_waits_as_long_as_reckoned(
    connection: Connection, failures: int, backoff: Backoff | None
) -> None:
    policy = None if backoff is None else json.dumps(to_json({"backoff": backoff})["backoff"])
    delay = await connection.fetchval("SELECT pulse.retry_delay_v1($1, $2)", policy, failures)

    assert delay.total_seconds() == pytest.approx(retry_delay(failures, backoff).total_seconds())


async def test_jitter_draws_from_the_range_around_the_delay(connection: Connection) -> None:
    backoff = Backoff(first=timedelta(seconds=100), factor=1, longest=timedelta(seconds=100), jitter=0.2)
    found = await connection.fetchrow(
        "SELECT min(delay) AS shortest, max(delay) AS longest FROM generate_series(1, 1000) AS n "
        "CROSS JOIN LATERAL (SELECT pulse.retry_delay_v1($1, n)) AS drawn (delay)",
        json.dumps(to_json({"backoff": backoff})["backoff"]),
    )
    assert timedelta(seconds=80) <= found["shortest"] < timedelta(seconds=90)
    assert timedelta(seconds=110) < found["longest"] <= timedelta(seconds=120)


def test_holders_of_vacuum_have_the_kinds_of_the_domain() -> None:
    found = re.findall(r"(?:THEN|ELSE|SELECT) ('[a-z ]+')", statements("views/vitals.sql")["oldest_holder"])

    assert quoted(" ".join(found)) - {"active", "inactive"} == set(HolderKind)


def test_depths_of_topics_are_counted_under_the_names_of_the_domain() -> None:
    section = statements("views/statistics.sql")["topic_depths"]
    found = quoted(" ".join(re.findall(r"(?:job|ready|running)\.topic, '[a-z_]+'", section))) | {
        "dead_lettered",
        "canceled",
    }

    assert found == {field.name for field in fields(TopicDepth)} - {"topic", "oldest_ready_at"}


def test_retention_knows_every_status_that_a_job_can_end_in() -> None:
    assert set(KEPT.values()) == TERMINAL
    assert [status.lower() for status in KEPT.values()] == list(KEPT)


def test_fragment_has_all_of_a_job_but_what_may_be_large() -> None:
    found = re.findall(r"job\.(\w+)", statements("jobs/queries.sql")["list_jobs"])

    # `queued` and `locked_by` together are `ready`.
    assert {"ready" if name == "queued" else name for name in found} == {
        field.name for field in fields(Job)
    } - {"payload", "history", "result"}
