"""Faults made on purpose in functions and statements of workflows. A trial has to find each of them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple
from unittest.mock import patch

import asyncpg

from pulse_server.jobs import store

_SETTLE, _JUDGE = "settle_workflows_v1", "judge_workflow_jobs_v1"


class Mutant(NamedTuple):
    """A text of a function, or of a statement of jobs, that is replaced. Spaces and line breaks are equal."""

    where: str
    replaced: tuple[tuple[str, str], ...]
    fault: str


MUTANTS = {
    "no-lock": Mutant(
        _SETTLE,
        (("FOR NO KEY UPDATE SKIP LOCKED", ""),),
        "two settlers count the ends of one workflow at the same time",
    ),
    "notices-believed": Mutant(
        _SETTLE,
        (
            (
                "WHEN job.status = 'DEAD_LETTERED' OR (job.id IS NULL AND seen.was_dead) THEN 'failed'",
                "WHEN seen.was_dead THEN 'failed'",
            ),
        ),
        "a notice decides that a job is dead, although it was brought back since",
    ),
    "late-notice": Mutant(
        _SETTLE,
        (
            (
                "WHEN job.id IS NULL AND EXISTS (SELECT FROM pulse.completed_jobs AS done "
                "WHERE done.id = ANY(ARRAY[seen.job_id])) THEN 'succeeded'",
                "",
            ),
        ),
        "a job that was brought back and completed counts as dead, by its older notice",
    ),
    "retry-forgets": Mutant(
        "retry_jobs",
        (("WHEN job.held OR ", "WHEN "),),
        "a waiting job that was canceled is ready once it is retried",
    ),
    "looks-at-unfinished": Mutant(
        _SETTLE,
        (
            (
                "COALESCE(job.held, false) AS held",
                "COALESCE(job.held AND job.finished_at IS NULL, false) AS held",
            ),
        ),
        "a job that its workflow canceled is not looked at when a notice names it",
    ),
    "counts-only-news": Mutant(
        _SETTLE,
        (("child.dropped IS NOT NULL OR 'waiting' <>", "'waiting' <>"),),
        "a job that its workflow canceled does not come back with its parent",
    ),
}


@asynccontextmanager
async def spoiled(dsn: str, mutant: Mutant | None) -> AsyncIterator[None]:
    """Have the fault for the length of a block; in a function of the database, from now on."""
    if mutant is None:
        yield
    elif mutant.where in store._SQL:
        with patch.dict(store._SQL, {mutant.where: _replaced(store._SQL[mutant.where], mutant)}):
            yield
    else:
        connection = await asyncpg.connect(dsn)
        text = await connection.fetchval(
            "SELECT pg_get_functiondef(to_regproc($1)::oid)", f"pulse.{mutant.where}"
        )
        await connection.execute(_replaced(text, mutant))
        await connection.close()
        yield


def _replaced(text: str, mutant: Mutant) -> str:
    for old, new in mutant.replaced:
        pattern = r"\s+".join(re.escape(word) for word in old.split())
        text, times = re.subn(pattern, new, text)
        assert times == 1, f"{mutant.where} has {old!r} {times} times: bring the mutant in step with it."
    return text
