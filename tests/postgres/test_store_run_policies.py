"""Run policies of topics: operators win over workers, entry by entry."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta

import asyncpg
import pytest

from pulse_server.domain.policies import PolicyChange, TopicPolicy
from pulse_server.domain.run_policies import NO_RUN_POLICY, Backoff, Declaration, RunPolicy
from pulse_server.domain.status import JobStatus
from pulse_server.postgres.database import Database
from pulse_server.postgres.policies import PostgresPolicyRepo
from tests.postgres.sessions import Connection

MINUTE = timedelta(minutes=1)
BACKOFF = Backoff(timedelta(seconds=2), 3, timedelta(hours=6), 0.2)
DECLARED = RunPolicy(BACKOFF, 8, 2 * MINUTE, 3)


@pytest.fixture
async def policies(shared_dsn: str, connection: Connection) -> AsyncIterator[PostgresPolicyRepo]:
    database = Database(shared_dsn)
    yield PostgresPolicyRepo(database)
    await database.close()


async def override(policies: PostgresPolicyRepo, topic: str, *returned: str, run: RunPolicy) -> TopicPolicy:
    change = PolicyChange(run=run, run_returned=frozenset(returned))
    return await policies.set_policy(topic, change, "ada")


async def in_force(policies: PostgresPolicyRepo) -> Mapping[str, RunPolicy]:
    return {topic: stored.effective for topic, stored in (await policies.read_run_policies()).items()}


async def test_policies_are_read_back_as_they_were_given(policies: PostgresPolicyRepo) -> None:
    await policies.declare_policies({"mail": DECLARED}, "worker-1")
    (policy,) = await policies.list_policies(limit=10)

    assert (policy.topic, policy.declared, policy.declared_by) == ("mail", DECLARED, "worker-1")
    assert policy.declared_at is not None
    assert (policy.run, policy.set_by, policy.set_at) == (NO_RUN_POLICY, "", None)
    assert await in_force(policies) == {"mail": DECLARED}


async def test_what_an_operator_sets_wins_entry_by_entry(policies: PostgresPolicyRepo) -> None:
    await policies.declare_policies({"mail": DECLARED}, "worker-1")
    policy = await override(policies, "mail", run=RunPolicy(max_attempts=50))

    assert (policy.run, policy.declared, policy.set_by) == (RunPolicy(max_attempts=50), DECLARED, "ada")
    assert policy.set_at is not None
    assert await in_force(policies) == {"mail": RunPolicy(BACKOFF, 50, 2 * MINUTE, 3)}


async def test_declaration_does_not_change_what_an_operator_has_set(policies: PostgresPolicyRepo) -> None:
    await override(policies, "mail", run=RunPolicy(max_attempts=50, timeout=MINUTE))
    await policies.declare_policies({"mail": DECLARED}, "worker-1")

    assert await in_force(policies) == {"mail": RunPolicy(BACKOFF, 50, MINUTE, 3)}


async def test_entry_that_an_operator_returns_is_the_declared_one_again(policies: PostgresPolicyRepo) -> None:
    await policies.declare_policies({"mail": DECLARED}, "worker-1")
    await override(policies, "mail", run=RunPolicy(max_attempts=50, timeout=MINUTE))
    policy = await override(policies, "mail", "max_attempts", run=RunPolicy(max_crashes=1))

    assert policy.run == RunPolicy(timeout=MINUTE, max_crashes=1)
    assert await in_force(policies) == {"mail": RunPolicy(BACKOFF, 8, MINUTE, 1)}
    policy = await override(policies, "mail", "timeout", "max_crashes", run=NO_RUN_POLICY)
    assert (policy.run, policy.set_by, policy.set_at) == (NO_RUN_POLICY, "", None)


async def test_policy_that_says_nothing_any_more_is_deleted(policies: PostgresPolicyRepo) -> None:
    await policies.declare_policies({"mail": DECLARED}, "worker-1")
    await override(policies, "mail", run=RunPolicy(max_attempts=50))
    await override(policies, "mail", "max_attempts", run=NO_RUN_POLICY)
    await policies.declare_policies({"mail": NO_RUN_POLICY}, "worker-1")

    assert await policies.list_policies(limit=10) == []
    assert await in_force(policies) == {}


async def test_retention_and_runs_are_set_and_returned_apart(policies: PostgresPolicyRepo) -> None:
    change = PolicyChange({JobStatus.COMPLETED: None}, run=RunPolicy(max_attempts=2))
    policy = await policies.set_policy("mail", change, "ada")
    assert (policy.kept, policy.run) == ({JobStatus.COMPLETED: None}, RunPolicy(max_attempts=2))

    policy = await policies.set_policy("mail", PolicyChange(returned=frozenset({JobStatus.COMPLETED})), "bob")
    assert (policy.kept, policy.run) == ({}, RunPolicy(max_attempts=2))
    assert await policies.list_policies(limit=10) == [policy]


async def test_newest_declaration_holds_and_the_one_before_is_returned(policies: PostgresPolicyRepo) -> None:
    assert await policies.declare_policies({"mail": DECLARED, "sms": DECLARED}, "old") == [
        Declaration("mail", NO_RUN_POLICY),
        Declaration("sms", NO_RUN_POLICY),
    ]
    (replaced,) = await policies.declare_policies({"mail": RunPolicy(max_attempts=9), "sms": DECLARED}, "new")

    assert (replaced.topic, replaced.run, replaced.by) == ("mail", DECLARED, "old")
    assert replaced.at is not None
    assert await in_force(policies) == {"mail": RunPolicy(max_attempts=9), "sms": DECLARED}


async def test_same_declaration_again_keeps_the_worker_that_declared_it_first(
    policies: PostgresPolicyRepo,
) -> None:
    await policies.declare_policies({"mail": DECLARED}, "first")
    (before,) = await policies.list_policies(limit=1)

    assert await policies.declare_policies({"mail": DECLARED}, "second") == []
    assert await policies.list_policies(limit=1) == [before]


async def test_policies_of_both_kinds_are_listed_by_topic(policies: PostgresPolicyRepo) -> None:
    await policies.set_policy("b", PolicyChange({JobStatus.COMPLETED: None}), "ada")
    await policies.declare_policies({"a": DECLARED, "c": DECLARED}, "worker-1")

    async def listed(limit: int, after: str = "") -> list[str]:
        return [policy.topic for policy in await policies.list_policies(limit=limit, after=after)]

    assert await listed(2) == ["a", "b"]
    assert await listed(2, after="b") == ["c"]


async def test_policies_that_have_not_changed_are_not_read_again(policies: PostgresPolicyRepo) -> None:
    await policies.declare_policies({"mail": DECLARED}, "worker-1")
    first = await policies.read_run_policies()
    assert await policies.read_run_policies() is first

    await override(policies, "mail", run=RunPolicy(max_attempts=50))
    assert await policies.read_run_policies() is not first


@pytest.mark.parametrize("column", ["overrides", "declared"])
async def test_database_refuses_a_policy_without_entries_of_its_own(
    connection: Connection, column: str
) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute(f"INSERT INTO pulse.run_policies (topic, {column}) VALUES ('mail', '[]')")
