"""One name from the port to the statement, so that a search for it prints the whole path."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from pulse_server.postgres import statements
from pulse_server.postgres.jobs import PostgresJobRepo
from pulse_server.repos.jobs import JobRepo
from pulse_server.repos.wakeups import WakeupLine
from tests.fakes.jobs import InMemoryJobRepo
from tests.fakes.wakeups import FakeWakeupLine

# The second half of insert_jobs.
WITHOUT_METHOD = {"find_existing"}


def methods(cls: type) -> dict[str, Any]:
    return {
        name: inspect.signature(member)
        for name, member in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    }


def test_sections_are_named_like_the_methods_of_the_port() -> None:
    sections = {*statements.statements("transitions.sql"), *statements.statements("queries.sql")}

    assert sections - WITHOUT_METHOD == methods(JobRepo).keys()


def test_every_section_stands_in_one_file_only() -> None:
    assert not statements.statements("transitions.sql").keys() & statements.statements("queries.sql").keys()


@pytest.mark.parametrize("store", [PostgresJobRepo, InMemoryJobRepo])
def test_store_has_exactly_the_methods_of_the_port(store: type) -> None:
    assert methods(store) == methods(JobRepo)


def test_fake_line_takes_what_the_port_takes() -> None:
    port = methods(WakeupLine)

    assert {name: methods(FakeWakeupLine)[name] for name in port} == port


def test_each_method_sends_the_section_of_its_own_name() -> None:
    for name in methods(JobRepo):
        assert f'"{name}"' in inspect.getsource(getattr(PostgresJobRepo, name)), name


def test_statement_tells_its_name_to_whoever_watches_the_database() -> None:
    for name, statement in statements.statements("transitions.sql").items():
        assert statement.startswith(f"/* pulse:{name} */ ")
        assert "--" not in statement


def test_only_transitions_change_rows() -> None:
    for statement in statements.statements("queries.sql").values():
        assert not {"INSERT", "UPDATE", "DELETE"} & set(statement.split())
