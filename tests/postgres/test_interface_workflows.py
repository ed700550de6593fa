"""pulse.enqueue_workflow: a workflow in the transaction of an application. ADR-0077"""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tests.postgres.sessions import Connection
from tests.postgres.workflow_stores import StoredWorkflows, SubmittedWorkflow
from tests.rows import each_row

A = {"name": "a", "topic": "email"}
B = {"name": "b", "topic": "email", "after": ["a"]}


async def enqueue(connection: Connection, *jobs: Any, name: str = "nightly", workflow_id: Any = None) -> Any:
    return await connection.fetchrow(
        "SELECT * FROM pulse.enqueue_workflow($1, $2, $3)", name, json.dumps(jobs), workflow_id
    )


async def test_workflow_of_a_transaction_runs_as_any_other(workflows: StoredWorkflows) -> None:
    async with workflows.connection.transaction():
        answer = await enqueue(
            workflows.connection, {**A, "payload": {"day": 1}}, {**B, "payload_base64": "aGk="}
        )
    workflow = SubmittedWorkflow(
        workflows,
        str(answer["workflow_id"]),
        dict(zip("ab", map(str, answer["job_ids"]), strict=True)),
    )
    assert await workflow.states() == {"a": "ready", "b": "waiting"}
    assert (await workflows.store.job(workflow.ids["a"])).payload == b'{"day": 1}'
    assert (await workflows.store.job(workflow.ids["b"])).payload == b"hi"
    arrivals = await workflows.connection.fetch(
        "SELECT topic, jobs, priority FROM pulse.arrivals ORDER BY priority"
    )
    assert [tuple(row) for row in arrivals] == [("email", 1, 0), ("email", 1, None)]
    await workflow.complete("a")
    await workflow.settle()
    await workflow.complete("b")
    await workflow.settle()
    assert (await workflow.view()).status == "succeeded"


async def test_rolled_back_workflow_was_never_there(workflows: StoredWorkflows) -> None:
    transaction = workflows.connection.transaction()
    await transaction.start()
    await enqueue(workflows.connection, A, B)
    await transaction.rollback()
    for table in ("jobs", "workflows", "workflow_jobs", "workflow_edges", "arrivals"):
        assert await workflows.connection.fetchval(f"SELECT count(*) FROM pulse.{table}") == 0


async def test_repeated_call_with_the_same_id_stores_nothing(workflows: StoredWorkflows) -> None:
    workflow_id = uuid4()
    first = await enqueue(workflows.connection, A, B, workflow_id=workflow_id)
    again = await enqueue(workflows.connection, A, B, workflow_id=workflow_id)
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert again["job_ids"] == first["job_ids"]
    with pytest.raises(asyncpg.UniqueViolationError, match="another workflow"):
        await enqueue(workflows.connection, A, workflow_id=workflow_id)


BAD = [
    ([], "nightly", "jobs must be"),
    ([1], "nightly", "jobs must be"),
    ([A], "", "name is needed"),
    ([A, A], "nightly", "each name is for one job"),
    ([{"topic": "email"}], "nightly", "need names"),
    ([B], "nightly", "after names 'a'"),
    ([B, A], "nightly", "after names 'a'"),
    ([{**A, "after": ["a"]}], "nightly", "after names 'a'"),
    ([A, {**B, "after": "a"}], "nightly", "after of 'b' must be an array"),
    ([{**A, "after": None}], "nightly", "after of 'a' must be an array"),
    ([{**A, "when": "never"}], "nightly", "when 'never'"),
    ([{**A, "when": "failed"}], "nightly", "could fail"),
    ([{**A, "topic": "a b"}], "nightly", "topic"),
    ([{**A, "delay": -1}], "nightly", "delay"),
    ([{**A, "max_attempts": 0}], "nightly", "max_attempts"),
    ([{**A, "unique_key": "k"}], "nightly", "not known: unique_key"),
]


@each_row("jobs, name, words", BAD)
async def test_bad_workflow_is_refused_with_a_sentence(
    workflows: StoredWorkflows, jobs: list[Any], name: str, words: str
) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError) as refused:
        await enqueue(workflows.connection, *jobs, name=name)
    assert words in str(refused.value)
    assert str(refused.value).endswith(".")
    assert await workflows.connection.fetchval("SELECT count(*) FROM pulse.workflows") == 0


async def test_workflow_beyond_the_setting_is_refused(workflows: StoredWorkflows) -> None:
    await workflows.connection.execute("UPDATE pulse.dispatch_control SET max_workflow_jobs = 1")
    try:
        with pytest.raises(asyncpg.InvalidParameterValueError, match="more than 1"):
            await enqueue(workflows.connection, A, B)
    finally:
        await workflows.connection.execute("UPDATE pulse.dispatch_control SET max_workflow_jobs = 10000")
