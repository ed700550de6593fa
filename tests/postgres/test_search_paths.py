"""Functions of the schema look up names in pg_catalog alone."""

from __future__ import annotations

import re

from tests.postgres.sessions import Connection

PINNED = "search_path=pg_catalog, pg_temp"
# Each computes a value from its arguments alone. The planner puts its expression into the statement, and the
# names in it are looked up as those of the statement: in pg_catalog, in our sessions. A setting ends that.
INLINED = {
    *(
        "with_attempt_v1",
        "retry_delay_v1",
        "with_progress_v1",
        "places_of_v1",
        "rank_of_v1",
        "slice_seconds_v1",
        "new_job_id_v1",
    ),
    *("slices_at_v1", "slices_sum_v1", "slices_with_v1", "slices_of_both_v1", "workflow_verdict_v1"),
}
FUNCTIONS = """
SELECT proc.proname::text AS name, COALESCE(proc.proconfig, '{}') AS settings, proc.prosrc AS body,
       language.lanname::text AS language, proc.prosecdef AS acts_for_owner
FROM pg_proc AS proc JOIN pg_language AS language ON language.oid = proc.prolang
WHERE proc.pronamespace = 'pulse'::regnamespace
"""


async def test_functions_pin_their_search_path_unless_they_are_inlined(connection: Connection) -> None:
    functions = await connection.fetch(FUNCTIONS)
    assert {row["name"] for row in functions if PINNED not in row["settings"]} == INLINED


async def test_inlined_functions_call_built_in_functions_alone(connection: Connection) -> None:
    built_in = {
        row["proname"]
        for row in await connection.fetch(
            "SELECT proname::text FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace "
            "UNION SELECT word FROM pg_get_keywords()"
        )
    }
    for row in await connection.fetch(FUNCTIONS):
        if row["name"] in INLINED:
            assert (row["language"], row["acts_for_owner"]) == ("sql", False), row["name"]
            assert "pulse." not in row["body"], row["name"]
            called = set(re.findall(r"(\w+) ?\(", row["body"].lower())) - {"counted"}
            assert called <= built_in, row["name"]
