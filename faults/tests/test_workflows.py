"""Random workflows over SQL alone: nothing is wrong. Faults can be made on purpose for the checker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from faults.workflows.mutants import MUTANTS, spoiled
from faults.workflows.trial import carry_out_in_cluster
from tests.postgres_cluster import Databases

_FUNCTIONS = """
SELECT proname::text AS name, prosrc FROM pg_proc WHERE pronamespace = 'pulse'::regnamespace ORDER BY proname
"""


@pytest.fixture
def dsn(databases: Databases, template_database: str) -> Iterator[str]:
    """The address of a database whose functions may be replaced."""
    with databases.temporary(template_database) as dsn:
        yield dsn


async def test_random_workflows_end_as_their_conditions_demand(tmp_path: Path) -> None:
    """With killed sessions, and a killed Postgres."""
    outcome = await carry_out_in_cluster(tmp_path, seed=41, seconds=20.0)
    print(outcome)
    assert not outcome.violations, str(outcome)
    # The trial did enough to be able to fail. How much else it did depends on the machine.
    for what in ("completed", "killed sessions"):
        assert outcome.counts[what], what


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_fault_can_be_made_on_purpose(dsn: str, mutant: str) -> None:
    """How long a trial takes to find it depends on the machine: `dev.py chaos --workflows --mutant NAME`."""
    connection = await asyncpg.connect(dsn)
    before = await connection.fetch(_FUNCTIONS)
    async with spoiled(dsn, MUTANTS[mutant]):
        during = await connection.fetch(_FUNCTIONS)
    await connection.close()
    changed = {row["name"] for row, was in zip(during, before, strict=True) if row != was}
    assert changed == {MUTANTS[mutant].where} & {row["name"] for row in before}
