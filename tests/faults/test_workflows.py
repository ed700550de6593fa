"""Random workflows over SQL alone: nothing is wrong, and faults that are made on purpose are found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.workflows.mutants import MUTANTS
from tests.faults.workflows.trial import carry_out, carry_out_in_cluster
from tests.postgres_cluster import Databases


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
    # The trial did enough to be able to fail.
    for what in ("killed Postgres", "killed sessions", "reaped", "canceled workflows", "retried workflows"):
        assert outcome.counts[what], what


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_fault_that_is_made_on_purpose_is_found(dsn: str, tmp_path: Path, mutant: str) -> None:
    outcome = await carry_out(dsn, tmp_path, seed=1, seconds=90.0, mutant=mutant)
    print(outcome)
    assert outcome.violations, MUTANTS[mutant].fault
