"""Tables that grow are joined by their keys in forms that no statistics can mislead. ADR-0007"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.postgres.sql_files import FILES, FRAGMENTS, FUNCTIONS, read
from tests.rows import each_row

KEYS = {
    *(("jobs", "id"), ("all_jobs", "id"), ("completed_jobs", "id"), ("completed_jobs_day", "id")),
    *(("job_steps", "job_id"), ("job_signals", "id"), ("job_signals", "job_id"), ("workflow_jobs", "job_id")),
    *(("workflows", "id"), ("schedules", "id"), ("audit", "id")),
}
# No joins: the other side is a variable, or the subselect stays one because it computes a value.
LOOK_UPS = {
    ("views/records.sql", "step.job_id = measured.id"),  # an aggregate
    ("work/fragments.sql", "signal.id = step.signal_id"),
    ("workflows/fragments.sql", "node.job_id = job.id"),  # in a CASE
    ("jobs/functions/enqueue_rich_v1.sql", "job.id = enqueue_rich_v1.id"),
    ("jobs/functions/enqueue_rich_v1.sql", "job.id = known.id"),
    ("jobs/functions/obstacles_to_v1.sql", "job.id = new.id"),
    ("topics/functions/return_places_v1.sql", "job.id = lane.waits_for"),
    ("workflows/functions/workflow_of_v1.sql", "known.id = started.schedule_id"),
    ("database/interface/complete_job.sql", "known.id = complete_job.job"),
}
_COMMENT = re.compile(r"^\s*-- (?!name:).*\n", re.MULTILINE)
_ALIAS = re.compile(r"\bpulse\.(\w+) AS (\w+)")
_COMPARED = re.compile(r"\b(\w+)\.(\w+) = \w+\.\w+")
# A subselect with one of these is planned by itself: it does not become a join.
_FENCE = re.compile(r"\bOFFSET 0\b|\bLIMIT\b|\bFOR (NO KEY )?UPDATE\b")


def equalities(text: str) -> Iterator[str]:
    """The comparisons of a key that the planner may take for a join."""
    lines = (
        line
        for line in text.splitlines()
        if line.startswith("-- name:") or not line.lstrip().startswith("--")
    )
    for section in "\n".join(lines).split("-- name:"):
        tables = {alias: table for table, alias in _ALIAS.findall(section)}
        for found in _COMPARED.finditer(section):
            is_key = (tables.get(found[1]), found[2]) in KEYS
            if is_key and not _FENCE.search(subselect(section, found.start())):
                yield found[0]


def subselect(text: str, at: int) -> str:
    """The innermost parentheses around the place that hold a statement; nothing at the top."""
    begin = at
    while begin >= 0:
        depth = 0
        while begin >= 0 and depth >= 0:
            begin -= 1
            depth += {"(": -1, ")": 1}.get(text[begin : begin + 1], 0)
        if text[begin + 1 :].lstrip().startswith(("SELECT", "WITH", "UPDATE", "DELETE")):
            break
    if begin < 0:
        return ""
    depth, end = 1, begin
    while depth:
        end += 1
        depth += {"(": 1, ")": -1}.get(text[end], 0)
    return text[begin:end]


def test_keys_are_joined_by_bounds_or_any() -> None:
    found = {
        (file, equality) for file in (*FILES, *FRAGMENTS, *FUNCTIONS) for equality in equalities(read(file))
    }

    assert found == LOOK_UPS


@each_row(
    "text, is_found",
    [
        ("SELECT FROM claim JOIN pulse.jobs AS job ON job.id = claim.id", True),
        ("DELETE FROM pulse.jobs AS job USING claim WHERE job.id = claim.id", True),
        ("SELECT FROM x WHERE NOT EXISTS (SELECT FROM pulse.jobs AS job WHERE job.id = x.id)", True),
        (
            "SELECT FROM x WHERE NOT EXISTS (SELECT FROM pulse.jobs AS job WHERE job.id = x.id OFFSET 0)",
            False,
        ),
        ("SELECT FROM claim JOIN pulse.jobs AS job ON job.id = ANY(ARRAY[claim.id])", False),
        ("SELECT FROM claim JOIN pulse.jobs AS job ON job.id >= claim.id AND job.id <= claim.id", False),
    ],
)
def test_search_finds_an_equality(text: str, is_found: bool) -> None:
    assert bool(list(equalities(text))) is is_found
