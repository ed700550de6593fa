"""docs/job-lifecycle.md says what the code does."""

import re
from pathlib import Path
from typing import NamedTuple

from pulse_server.database.schema import known_functions
from pulse_server.jobs.rules import INITIAL, LEGAL_TRANSITIONS, TERMINAL, JobStatus
from tests.postgres.sql_files import TRANSITIONS as SECTIONS
from tests.rows import each_row

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "job-lifecycle.md").read_text(encoding="utf-8")
MIGRATIONS = ROOT / "src/pulse_server/database/migrations"
SCHEMA = (MIGRATIONS / "0001_schema" / "1_jobs.sql").read_text(encoding="utf-8")
EVERY_MIGRATION = "".join(file.read_text(encoding="utf-8") for file in sorted(MIGRATIONS.rglob("*.sql")))


class Arrow(NamedTuple):
    source: str
    target: str
    section: str


ARROWS = [Arrow(*found) for found in re.findall(r"^(\S+) +-> +(\S+) +(\w+) ", DOCUMENT, re.MULTILINE)]
# Arrows of functions.
ROWS = [
    Arrow(*found)
    for found in re.findall(r"^\| ([^|]+) \| ([^|]+) \| `(\w+)` \| [^|]+ \| [^|]+ \|$", DOCUMENT, re.M)
]
CHANGES = [arrow for arrow in ARROWS if arrow.source != arrow.target]


def test_every_arrow_of_the_document_is_read() -> None:
    assert len(ARROWS) == DOCUMENT.count("->")


def test_arrows_are_the_legal_transitions() -> None:
    legal = {(source, target) for source, targets in LEGAL_TRANSITIONS.items() for target in targets}
    drawn = {
        (arrow.source, arrow.target)
        for arrow in CHANGES
        if arrow.source != "(new)" and arrow.target != "(gone)"
    }
    assert drawn == legal


def test_new_job_waits_or_is_handed_over() -> None:
    assert {arrow.target for arrow in ARROWS if arrow.source == "(new)"} == INITIAL


def test_whatever_is_finished_may_be_deleted_and_nothing_else() -> None:
    assert {arrow.source for arrow in ARROWS if arrow.target == "(gone)"} == TERMINAL
    assert {arrow.section for arrow in ARROWS if arrow.target == "(gone)"} == {
        section
        for section, statement in SECTIONS.items()
        if "DELETE FROM pulse.jobs" in statement and "INSERT INTO pulse.completed_jobs" not in statement
    }


def test_no_arrow_is_drawn_twice() -> None:
    assert len(set(ARROWS)) == len(ARROWS)


def test_arrows_name_every_section_of_the_transitions_and_no_other() -> None:
    assert {arrow.section for arrow in ARROWS} == SECTIONS.keys()


def test_functions_that_write_a_status_have_a_row() -> None:
    writes = re.compile(r"INSERT INTO pulse\.(jobs|completed_jobs) |\bSET\s+status = ")
    writing = {function.name for function in known_functions() if writes.search(function.sql)}
    # It takes back what it inserts.
    assert {function for _, _, function in ROWS} == writing - {"obstacles_to_v1"}


def test_arrows_and_rows_name_their_guards() -> None:
    lines = [line for line in DOCUMENT.splitlines() if "->" in line or "_v1` |" in line]
    assert [line for line in lines if "the same" in line] == []


@each_row("section", sorted(SECTIONS))
def test_section_writes_the_statuses_that_its_arrows_lead_to(section: str) -> None:
    targets = {arrow.target for arrow in CHANGES if arrow.section == section} - {"(gone)"}
    assert written_statuses(SECTIONS[section]) == targets


def test_every_section_lists_what_it_writes() -> None:
    assert set(first_cells("What each transition writes")) == SECTIONS.keys()


def test_columns_are_those_of_the_table() -> None:
    table = SCHEMA.split("CREATE TABLE pulse.jobs (")[1].split("CONSTRAINT")[0]
    columns = re.findall(r"^    (\w+) +(?:uuid|text|bytea|jsonb|integer|boolean|timestamptz)\b", table, re.M)
    columns += re.findall(r"ALTER TABLE pulse\.jobs ADD COLUMN (\w+)", EVERY_MIGRATION)
    assert sorted(first_cells("Columns")) == sorted(columns)


def test_constraints_that_are_named_exist() -> None:
    named = set(re.findall(r"`(jobs_\w+)`", DOCUMENT))
    assert named
    assert named <= set(re.findall(r"\bjobs_\w+", EVERY_MIGRATION))


def written_statuses(statement: str) -> set[str]:
    """The statuses that an UPDATE assigns (maybe a CASE), or that an INSERT selects or stands for."""
    if "INSERT INTO pulse.completed_jobs" in statement:
        return {"COMPLETED"}
    if "was.status" in statement:  # an undo restores the status before a cancel or a retry
        return {"PENDING", "RETRYING", "DEAD_LETTERED", "CANCELED"}
    if "INSERT INTO pulse.jobs" in statement:
        part = statement.split("INSERT INTO pulse.jobs")[1].split("FROM unnest")[0]
    else:
        assignment = re.search(r"\bSET status = (CASE.*?END|'\w+')", statement, re.DOTALL)
        part = assignment[1] if assignment else ""
    return {name for name in re.findall(r"'([A-Z_]+)'", part) if name in JobStatus.__members__}


def first_cells(heading: str) -> list[str]:
    """The names in the first column of the table under a heading of the document."""
    part = DOCUMENT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)
