"""One name for the method and its statement, so that a search for it prints the whole path."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from types import ModuleType
from typing import Any, NamedTuple

from pulse_server.database import statements as database_statements
from pulse_server.database.statements import statements
from pulse_server.dispatch.store import PostgresDispatchRepo
from pulse_server.jobs.leases import PostgresLeaseCheckRepo
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.schedules.store import PostgresScheduleRepo
from pulse_server.steps.store import PostgresStepRepo
from pulse_server.topics.store import PostgresTopicSettings
from pulse_server.views.attention import Attention, DeadLetters
from pulse_server.views.explanations import Explanations
from pulse_server.views.servers import Servers
from pulse_server.views.statistics import Minutes, Topics
from pulse_server.views.vitals import VitalsQueries
from pulse_server.wakeups.line import NoWakeupLine, PostgresWakeupLine
from pulse_server.wakeups.watchers import WakeupLine
from pulse_server.work.awaiting import AwaitedJobs
from pulse_server.work.retention import ExpiredJobs, PostgresCompletedDayRepo
from pulse_server.work.submissions import ArrivalQueries
from tests.fakes.wakeups import FakeWakeupLine
from tests.postgres import sql_files
from tests.rows import each_row

# The second half of insert_jobs and insert_rich_jobs; insert_jobs and hand_over_jobs for one job; the parts
# of set_topic and declare_topics;
# a method of PostgresLimitRepo; claim_batch for several topics; complete_jobs for jobs that stay where
# they are, and what is kept of their steps; what follows cancel_workflow and retry_workflow; the arms of
# lists that read completed jobs; what goes before a change that met a lock.
WITHOUT_METHOD = {
    *("find_existing", "find_existing_by_key", "find_rivals", "meet_rivals"),
    *("insert_one", "hand_over_one", "hand_over_limited"),
    *(
        "lock_topics",
        "read_rows",
        "store_entries",
        "delete_entries",
        "replace_runs",
        "store_runs",
        "store_kept",
    ),
    *("forget_rules", "list_steps_of_claimed"),
    *("complete_in_place", "timeline_of_completed"),
    "claim_across_topics",
    *("list_jobs_completed", "matching_jobs_completed", "count_matching_jobs_completed"),
    *("leave_workflow", "unsuccessful_workflow_jobs", "bring_back"),
    *("lock_free_jobs", "lock_deletable_jobs", "claim_limited"),
    *("lock_tables_of_jobs", "wait_no_longer", "obstacles_to"),
}
# Several statements each, by the transaction of this name.
WITHOUT_SECTION = {"set_topic", "declare_topics"}
IN_TWO_FILES = {"database_now"}


class Store(NamedTuple):
    """A class whose methods are the sections of its files."""

    repo: type
    files: tuple[str, ...]


JOB_TRANSITIONS = tuple(
    f"jobs/transitions/{name}.sql"
    for name in ("jobs", "undo", "unique", "claims", "work", "reaping", "promotion")
)
JOB_QUERIES = ("jobs/locks.sql", "jobs/queries.sql")
RETENTION = ("work/transitions.sql", "work/retention.sql")
STORES = [
    Store(PostgresJobRepo, (*JOB_TRANSITIONS, *JOB_QUERIES)),
    Store(PostgresTopicSettings, ("topics/settings.sql",)),
    Store(PostgresScheduleRepo, ("schedules/store.sql", "schedules/transitions.sql")),
    Store(PostgresDispatchRepo, ("dispatch/store.sql",)),
    Store(PostgresStepRepo, ("steps/transitions.sql", "steps/store.sql")),
]


class Noun(NamedTuple):
    """Classes that send the statements, and may have methods besides."""

    adapters: tuple[type | ModuleType, ...]
    files: tuple[str, ...]


NOUNS = [
    Noun((ArrivalQueries,), ("work/submissions.sql",)),
    Noun((ExpiredJobs,), RETENTION),
    Noun((PostgresCompletedDayRepo,), ("work/completed_days.sql",)),
    Noun((PostgresLeaseCheckRepo,), ("jobs/lease_checks.sql",)),
    Noun((AwaitedJobs,), ("work/awaiting.sql",)),
    Noun((DeadLetters, Attention), ("views/attention.sql",)),
    Noun((Explanations,), ("views/explanations.sql",)),
    Noun((VitalsQueries,), ("views/vitals.sql",)),
    Noun((Topics, Minutes), ("views/statistics.sql",)),
    Noun((Servers,), ("views/servers.sql",)),
]
FILES = [file for entry in (*STORES, *NOUNS) for file in entry.files]

of_every_store = each_row("store", STORES)
of_every_noun = each_row("noun", NOUNS)


def methods(cls: type) -> dict[str, Any]:
    return {
        name: inspect.signature(member)
        for name, member in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    }


@of_every_store
def test_sections_are_named_like_the_methods_of_the_store(store: Store) -> None:
    sections = {name for file in store.files for name in statements(file)}

    assert sections - WITHOUT_METHOD == methods(store.repo).keys() - WITHOUT_SECTION


@of_every_noun
def test_sections_of_other_classes_are_named_like_the_methods_that_send_them(noun: Noun) -> None:
    for name in (name for file in noun.files for name in statements(file)):
        (method,) = filter(None, (getattr(adapter, name, None) for adapter in noun.adapters))
        assert f'"{name}"' in inspect.getsource(method), name


def test_every_section_stands_in_one_file_only() -> None:
    counts = Counter(name for file in FILES for name in statements(file))

    assert {name for name, count in counts.items() if count > 1} == IN_TWO_FILES


def test_lines_take_what_the_protocol_takes() -> None:
    taken = methods(WakeupLine)

    for line in (PostgresWakeupLine, NoWakeupLine, FakeWakeupLine):
        assert {name: methods(line)[name] for name in taken} == taken


@of_every_store
def test_each_method_sends_the_section_of_its_own_name(store: Store) -> None:
    for name in methods(store.repo):
        assert f'"{name}"' in inspect.getsource(getattr(store.repo, name)), name


@each_row("file", FILES)
def test_statement_begins_with_its_name_for_pg_stat_activity(file: str) -> None:
    for name, statement in statements(file).items():
        assert statement.startswith(f"/* pulse:{name} */ ")
        assert "--" not in statement


def test_every_fragment_stands_in_a_statement_or_a_function() -> None:
    files = (*sql_files.FILES, *sql_files.FUNCTIONS, *sql_files.FRAGMENTS)
    texts = {file: sql_files.read(file) for file in files} | database_statements.fragments()
    written = [name for file in sql_files.FRAGMENTS for name in re.findall(r"-- name: (\w+)", texts[file])]
    used = {name for text in texts.values() for name in re.findall(r"\{(\w+)\}", text)}

    assert {*written, *database_statements.fragments()} <= used


def test_no_fragment_has_a_parameter_without_a_name() -> None:
    for file in sql_files.FRAGMENTS:
        assert not re.search(r"\$\d", sql_files.read(file)), file


def test_queries_change_no_rows() -> None:
    for statement in statements("jobs/queries.sql").values():
        assert not {"INSERT", "UPDATE", "DELETE"} & set(statement.split())


@each_row("file", sql_files.FILES)
def test_only_transitions_change_jobs(file: str) -> None:
    changes = re.compile(r"\b(INSERT INTO|UPDATE|DELETE FROM) pulse\.jobs\b")
    is_transition = file in sql_files.TRANSITION_FILES
    for name, statement in statements(file).items():
        assert bool(changes.search(statement)) == is_transition, name
