"""`pulse.django` in the project of tasks_site/: the facts of its files."""

from __future__ import annotations

import pytest

from tests.postgres_cluster import Databases
from tests.system.django_facts import names, outcomes


@pytest.fixture(scope="module")
def found(
    databases: Databases, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], str]:
    return outcomes(databases, template_database, tmp_path_factory.mktemp("facts"))


@pytest.mark.parametrize(("module", "fact"), [*names()])
def test_fact_holds(module: str, fact: str, found: dict[tuple[str, str], str]) -> None:
    assert found[module, fact] == ""
