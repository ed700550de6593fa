"""The hot statements with their arguments: how each reaches its rows, and how many of them it may see."""

from __future__ import annotations

from typing import NamedTuple

from pulse_server.database.statements import NEW_JOB
from pulse_server.jobs.reports import CLAIM_BYTES
from tests.postgres import large_tables
from tests.postgres.large_tables import RUNNING, TOPICS
from tests.postgres.planned_tables import BATCH

NIL_ID = "00000000-0000-0000-0000-000000000000"


def running_claims() -> list[str]:
    """The tokens of as many running jobs as a batch holds, as columns."""
    numbers = range(1, BATCH + 1)
    ids = ",".join(f"0190f3a2-7b1c-7000-8003-{number:012x}" for number in numbers)
    workers = ",".join(f"worker-{number % 10}" for number in numbers)
    return [
        f"'{{{ids}}}'",
        f"'{{{workers}}}'",
        *(f"array_fill({number}, ARRAY[{BATCH}])" for number in (1, 0)),
    ]


def claim(topics: int) -> list[str]:
    names = [f"topic-{number}" for number in range(topics)]
    asked = f"'{{{','.join(names)}}}'"
    slots = f"array_fill(1, ARRAY[{BATCH}])"
    return [asked, str(BATCH), slots, "'{A}'", "'{t}'", "'30 s'", str(CLAIM_BYTES), "'{}'", "0"]


# Of the backlog's topics, all of it: the ages are those of years.
LEVELS = ["'{0,1}'", "'{1e9,1e9}'"]
NO_LEVELS = ["NULL", "NULL", "NULL"]


def new_jobs(count: int, levels: list[str]) -> list[str]:
    """The columns of new jobs in a topic where many wait, each with a worker that would take it."""

    def column(value: str) -> str:
        return f"array_fill({value}, ARRAY[{count}])"

    ids = ",".join(f"0190f3a2-7b1c-7000-8fff-{number:012x}" for number in range(count))
    return [
        f"'{{{ids}}}'",
        *(column(value) for value in ("'topic-0'::text", "'{}'::bytea", "0", "5")),
        *["NULL"] * (len(NEW_JOB) - 5),
        "NULL",
        *("'{A}'", "'{true}'"),
        "'30 s'",
        *levels,
        f"'{{{','.join(['1'] * count)}}}'",
    ]


# One of them, and with its worker.
LONE = [f"'{NIL_ID}'", "'topic-0'", "'{}'", "0", "5", *["NULL"] * (len(NEW_JOB) - 4)]
LONE_WITH_WORKER = [*LONE, "'A'", "true", "'30 s'"]


class Case(NamedTuple):
    """A statement, its arguments, its ways to the jobs table, and how many of its rows it may see."""

    statement: str
    args: list[str]
    indexes: list[str]
    most_rows: int


CLAIMS = running_claims()
WORKERS_ONCE = [
    f"'{{{','.join(f'worker-{number}' for number in range(10))}}}'",
    f"'{{{','.join(str(number % 10 + 1) for number in range(1, BATCH + 1))}}}'",
]
ACTION = "'0190f3a2-0000-7000-8000-000000000000'"
DEAD = f"'{{{','.join(large_tables.dead_letter_ids(BATCH))}}}'"
PROGRESS = '{"fraction": 0.5, "text": "half", "number": 1}'
NONE_GIVEN = f"array_fill(NULL::interval, ARRAY[{BATCH}])"
CASES = {
    # Of the two ways to read a place, one runs.
    "claim of one topic": Case(
        "claim_batch", [*claim(1), "NULL", "NULL"], ["Tid Scan", "jobs_claim", "jobs_claim"], 2 * BATCH
    ),
    # The first few of each topic, further ones of some; each job that is taken is locked, then written.
    "claim of five topics": Case(
        "claim_across_topics",
        [*claim(5), "NULL", "NULL", str(2 * BATCH), str(3 * BATCH // 5 + 3)],
        ["Tid Scan", "Tid Scan", *["jobs_claim"] * 6],
        8 * BATCH,
    ),
    "hand over": Case("hand_over_jobs", new_jobs(BATCH, NO_LEVELS), ["jobs_claim", "jobs_claim"], 1),
    "hand over by levels": Case(
        "hand_over_jobs",
        new_jobs(BATCH, ["'{topic-0,topic-0}'", *LEVELS]),
        ["jobs_claim", "jobs_claim"],
        1,
    ),
    "insert one": Case("insert_one", LONE, [], 0),
    "hand over one": Case("hand_over_one", [*LONE_WITH_WORKER, *NO_LEVELS], ["jobs_claim", "jobs_claim"], 1),
    "hand over one by levels": Case(
        "hand_over_one", [*LONE_WITH_WORKER, "'{topic-0,topic-0}'", *LEVELS], ["jobs_claim", "jobs_claim"], 1
    ),
    "claim of levels": Case(
        "claim_batch",
        ["'{topic-0,topic-0}'", *claim(1)[1:], *LEVELS],
        ["Tid Scan", "jobs_claim", "jobs_claim"],
        2 * BATCH,
    ),
    "claim of levels of two topics": Case(
        "claim_across_topics",
        [*claim(2), *LEVELS, str(2 * BATCH), str(BATCH + 2)],
        ["Tid Scan", "Tid Scan", *["jobs_claim"] * 6],
        # As claims of whole topics: the first few of each level, then further ones of the best level.
        9 * BATCH,
    ),
    "complete": Case("complete_jobs", [CLAIMS[0], *WORKERS_ONCE, *CLAIMS[2:], "NULL"], ["jobs_pkey"], BATCH),
    "fail": Case(
        "fail_jobs",
        [
            *CLAIMS,
            f"array_fill('boom'::text, ARRAY[{BATCH}])",
            NONE_GIVEN,
            f"array_fill(false, ARRAY[{BATCH}])",
            f"array_fill('3201d5cec167'::text, ARRAY[{BATCH}])",
            *[f"array_fill(false, ARRAY[{BATCH}])"] * 2,
            *("NULL", "'{}'"),
        ],
        ["jobs_pkey"],
        BATCH,
    ),
    "extend": Case("extend_leases", [*CLAIMS, "'30 s'", "NULL", "NULL", "NULL"], ["jobs_pkey"], BATCH),
    "snooze": Case(
        "snooze_jobs",
        [
            *CLAIMS,
            f"array_fill('1 h'::interval, ARRAY[{BATCH}])",
            f"array_fill('later'::text, ARRAY[{BATCH}])",
            *("1000", "'too often'", "'3201d5cec167'", "'{}'"),
        ],
        ["jobs_pkey"],
        BATCH,
    ),
    "extend with everything": Case(
        "extend_leases",
        [
            *CLAIMS,
            "'30 s'",
            "'{\"topic-0\": 60}'",
            f"array_fill('{PROGRESS}'::text, ARRAY[{BATCH}])",
            f"array_fill(1e10::float8, ARRAY[{BATCH}])",
        ],
        ["jobs_pkey"],
        BATCH,
    ),
    "take back starts": Case(
        "take_back_starts", [*CLAIMS, f"array_fill(now(), ARRAY[{BATCH}])"], ["jobs_pkey"], BATCH
    ),
    "release": Case("release_jobs", [*CLAIMS, "NULL", "'{}'"], ["jobs_pkey"], BATCH),
    # Every job of two lease checks is looked at; of those that expired a batch is locked, then written.
    "reap": Case(
        "reap_expired",
        [str(BATCH), "clock_timestamp()", "''", "20", "NULL", "5", "NULL", "'30 s'", "''"],
        ["jobs_pkey", "jobs_pkey", "jobs_pkey"],
        RUNNING + 2 * BATCH,
    ),
    "settle": Case("settle_claims", ["20", "NULL"], ["jobs_pkey"], 2 * BATCH),
    "restore": Case("restore_lease_checks", ["'-infinity'", f"'{NIL_ID}'", str(BATCH)], ["jobs_live"], BATCH),
    "promote": Case("promote_due", [str(BATCH)], ["jobs_due", "jobs_due", "jobs_pkey"], 2 * BATCH + 1),
    # A probe for each topic, and a batch in all.
    "promote in turn": Case(
        "promote_in_turn",
        [str(BATCH), str(BATCH // TOPICS), "''", str(10 * TOPICS)],
        ["jobs_due_in_turn", "jobs_due_in_turn", "jobs_due_in_turn", "jobs_pkey"],
        2 * BATCH + TOPICS,
    ),
    "cancel unstarted": Case("cancel_unstarted", [str(BATCH)], ["jobs_pkey", "jobs_start_by"], 0),
    "cancel": Case(
        "cancel_jobs",
        [CLAIMS[0], "''", "'{PENDING,RUNNING,RETRYING}'", ACTION],
        ["jobs_pkey", "jobs_pkey"],
        2 * BATCH,
    ),
    "retry": Case(
        "retry_jobs",
        [DEAD, "5", "'{DEAD_LETTERED,CANCELED}'", "false", "'2 s'", "false", ACTION],
        ["jobs_pkey"],
        BATCH,
    ),
    "prioritize": Case(
        "prioritize_jobs",
        [CLAIMS[0], "7", "'{PENDING,RUNNING,RETRYING}'", ACTION],
        ["jobs_pkey", "jobs_pkey"],
        2 * BATCH,
    ),
    "jobs of an action": Case("jobs_of_action", [ACTION, ACTION, str(BATCH)], ["jobs_undo"], 0),
    "undo": Case("undo_jobs", [DEAD, ACTION], ["jobs_pkey", "jobs_pkey"], BATCH),
    "delete": Case("delete_jobs", [DEAD, "'{DEAD_LETTERED}'"], ["jobs_pkey", "jobs_pkey"], 2 * BATCH),
    "find by prefix": Case(
        "find_jobs",
        ["'0190f3a2-0000-0000-0000-000000000000'", "'0190f3a2-ffff-ffff-ffff-ffffffffffff'", str(BATCH)],
        ["jobs_pkey"],
        BATCH,
    ),
    "look up": Case("look_up_jobs", [CLAIMS[0]], ["jobs_pkey"], BATCH),
    "job statuses": Case("job_statuses", [CLAIMS[0]], ["jobs_pkey"], BATCH),
    "lock free": Case("lock_free_jobs", [CLAIMS[0]], ["jobs_pkey"], BATCH),
    "lock deletable": Case("lock_deletable_jobs", [CLAIMS[0]], ["jobs_pkey"], BATCH),
    # The second search is not made: none has finished.
    "unfinished": Case("finished_jobs", [CLAIMS[0], "1000000"], ["jobs_pkey", "jobs_pkey"], BATCH),
    "finished": Case("finished_jobs", [DEAD, "1000000"], ["jobs_pkey", "jobs_pkey"], 2 * BATCH),
    "current claims": Case("current_claims", CLAIMS, ["jobs_pkey"], BATCH),
    "ready topics": Case(
        "topics_with_ready_jobs", [f"array_to_string({claim(5)[0]}::text[], chr(10))"], ["jobs_claim"], TOPICS
    ),
    "find existing": Case(
        "find_existing",
        [CLAIMS[0], CLAIMS[1], f"array_fill(''::bytea, ARRAY[{BATCH}])", "NULL", "NULL"],
        ["jobs_pkey"],
        BATCH,
    ),
    # No job has one of these keys.
    "find existing by key": Case(
        "find_existing_by_key",
        [CLAIMS[0], CLAIMS[1], f"array_fill(''::bytea, ARRAY[{BATCH}])", "NULL", CLAIMS[1]],
        ["jobs_key"],
        0,
    ),
    # An age below zero: all that is finished is old enough. What is not is never looked at.
    "delete expired": Case(
        "delete_expired",
        ["'-1 h'", "NULL", "NULL", "'-1 h'", "'-infinity'", f"'{NIL_ID}'", str(BATCH)],
        ["jobs_finished", "jobs_pkey", "jobs_pkey"],
        3 * BATCH,
    ),
}
# A row per topic; the ids together; the sum of what was promoted; where the walk stopped.
FEW = {
    "complete": TOPICS,
    "ready topics": TOPICS,
    "cancel unstarted": 0,
    "take back starts": 0,
    "find existing by key": 0,
}
FEW |= {"jobs of an action": 0, "undo": 0}
ANSWERS = FEW | dict.fromkeys(
    [name for name in CASES if name.startswith("hand over")]
    + ["insert one", "promote", "promote in turn", "delete expired", "settle", "restore", "unfinished"],
    1,
)
