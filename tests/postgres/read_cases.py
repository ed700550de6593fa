"""The sections of sql/, and with them the functions of the database, with arguments for ITEMS rows each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from pulse_server.database.connections import HOT_PLANS, READ_PLANS
from pulse_server.database.statements import NEW_JOB, statements
from pulse_server.jobs.reports import CLAIM_BYTES
from pulse_server.jobs.rules import Claim
from pulse_server.topics.rules import LIMITS, RUNS
from tests.postgres.full_tables import ROWS, WORKFLOW, definition
from tests.postgres.interface import token_of
from tests.postgres.sql_files import FILES
from tests.postgres_cluster import SECRET

# More than a walk of a table, and more than each with each in memory, are past the bound of most cases.
ITEMS = 50
MOST = 20 * ITEMS + 200
SECTIONS = {name: text for file in FILES for name, text in statements(file).items()}
THE_PLANNERS_OWN: dict[str, str] = {}  # of the session of an application


class Case(NamedTuple):
    call: str
    """A section, or a statement of an application."""
    args: tuple[str, ...]
    """As literals of SQL."""
    plans: dict[str, str]
    """The settings of the session that sends it."""
    before: str
    """Runs before it, in the same transaction."""
    most: int
    """How many entries of tables and indexes it may read."""

    @property
    def statement(self) -> str:
        return SECTIONS.get(self.call, self.call).replace(
            "pulse.completed_jobs_day", "pulse.completed_jobs_default"
        )


CASES: dict[str, Case] = {}


def case(
    name: str, call: str, *args: str, plans: dict[str, str] = HOT_PLANS, before: str = "", most: int = MOST
) -> None:
    assert name not in CASES, name
    CASES[name] = Case(call, args, plans, before, most)


def array(entries: Iterable[object]) -> str:
    return "'{" + ",".join(map(str, entries)) + "}'"


def ids(kind: str, count: int = ITEMS) -> str:
    return array(f"0190f3a2-7b1c-7000-{kind}-{n:012x}" for n in range(1, count + 1))


def one(kind: str) -> str:
    return f"'0190f3a2-7b1c-7000-{kind}-000000000001'"


def all_of(value: str) -> str:
    return f"array_fill({value}, ARRAY[{ITEMS}])"


def numbered(prefix: str) -> str:
    return array(f"{prefix}{n}" for n in range(1, ITEMS + 1))


def new(**columns: str) -> tuple[str, ...]:
    given = {
        "id": ids("8fff"),
        "topic": all_of("'topic-0'::text"),
        "payload": all_of("'{}'::bytea"),
        "priority": all_of("0"),
        "max_attempts": all_of("5"),
    } | columns
    return tuple(given.get(name, "NULL") for name in NEW_JOB)


def sent(section: str, *args: str) -> str:
    """The section with its arguments, as one statement."""
    text = SECTIONS[section]
    for number in range(len(args), 0, -1):
        text = text.replace(f"${number}", args[number - 1])
    return text + ";"


NIL = "'00000000-0000-0000-0000-000000000000'"
ACTION = f"'{WORKFLOW}'"
TO_WORKERS = ("'{A}'", "'{true}'", "'30 s'")
OF_WORKER_1 = all_of("1")
CLAIMS = (ids("8003"), array(f"worker-{n % 10}" for n in range(1, ITEMS + 1)), all_of("1"), all_of("0"))
COMPACT = (
    *(ids("8003"), array(f"worker-{n}" for n in range(10)), array(n % 10 + 1 for n in range(1, ITEMS + 1))),
    *(all_of("1"), all_of("0"), "NULL"),
)
ONE_CLAIM = (one("8003"), "'worker-1'", "1", "0")

# jobs/transitions/jobs.sql
LONE = (one("8ffe"), "'topic-0'", "'{}'", "0", "5", *["NULL"] * (len(NEW_JOB) - 4))
NO_LEVELS = ("NULL", "NULL", "NULL")
LEVELS = ("'{topic-0,topic-0}'", "'{0,1}'", "'{1e9,1e9}'")
case("insert", "insert_jobs", *new(), "NULL")
case("insert with keys", "insert_jobs", *new(idempotency_key=numbered("new-")), "1")
case("insert repeats", "insert_jobs", *new(id=ids("8001")), "NULL")
case("insert repeats of completed jobs", "insert_jobs", *new(id=ids("8009")), "NULL")
case("insert keys of completed jobs", "insert_jobs", *new(idempotency_key=numbered("done-")), "1")
case("insert one", "insert_one", *LONE)
case("hand over", "hand_over_jobs", *new(), "NULL", *TO_WORKERS, *NO_LEVELS, OF_WORKER_1)
case(
    *("hand over in a free topic", "hand_over_jobs", *new(topic=all_of("'free'::text")), "NULL", *TO_WORKERS),
    *(*NO_LEVELS, array([1] * ITEMS)),
)
case("hand over by levels", "hand_over_jobs", *new(), "NULL", *TO_WORKERS, *LEVELS, OF_WORKER_1)
case("hand over one", "hand_over_one", *LONE, "'A'", "true", "'30 s'", *NO_LEVELS)
case(
    *("hand over in lanes", "hand_over_limited", *new(topic=all_of("'lanes'::text"), lane=numbered("new-"))),
    *("NULL", "'lanes'", str(ITEMS), OF_WORKER_1, *TO_WORKERS, str(CLAIM_BYTES)),
)
case("cancel", "cancel_jobs", ids("8003"), "''", "'{PENDING,RUNNING,RETRYING}'", ACTION)
case("retry", "retry_jobs", ids("8005"), "5", "'{DEAD_LETTERED,CANCELED}'", "false", "'2 s'", "false", ACTION)
case(
    "retry afresh",
    "retry_jobs",
    ids("8005"),
    "5",
    "'{DEAD_LETTERED,CANCELED}'",
    "true",
    "'2 s'",
    "true",
    ACTION,
)
case("prioritize", "prioritize_jobs", ids("8001"), "7", "'{PENDING,RUNNING,RETRYING}'", ACTION)
case("delete", "delete_jobs", ids("8005"), "'{DEAD_LETTERED}'")
case("delete completed jobs", "delete_jobs", ids("8009"), "'{COMPLETED}'")
# jobs/transitions/undo.sql
case("undo", "undo_jobs", ids("8001"), ACTION)
case("jobs of an action", "jobs_of_action", ACTION, NIL, str(ITEMS))

# jobs/transitions/unique.sql, jobs/queries.sql, work/retention.sql
KEYS = array(f"unique-{n:012x}" for n in range(1, ITEMS + 1))
WAITING = all_of("'waiting'::text")
case(
    "insert unique",
    "insert_rich_jobs",
    *new(unique_key=numbered("new-"), unique_scope=WAITING),
    "NULL",
    "NULL",
)
case(
    *("insert throttled", "insert_rich_jobs", *new(unique_key=numbered("new-"), unique_scope=WAITING)),
    *("NULL", all_of("interval '1 h'")),
)
case(
    *("insert in lanes", "insert_rich_jobs", *new(topic=all_of("'lanes'::text"), lane=numbered("new-"))),
    *("NULL", "NULL"),
)
case(
    *("meet rivals", "meet_rivals", *new(unique_key=KEYS, unique_scope=WAITING)),
    *(ids("8001"), all_of("true"), all_of("NULL::interval")),
    before=f"UPDATE pulse.jobs SET topic = 'topic-0' WHERE id = ANY({ids('8001')})",
)
case(
    *("find rivals", "find_rivals", ids("8fff"), all_of("'topic-0'::text"), all_of("'{}'::bytea"), KEYS),
    *("NULL", WAITING, all_of("true")),
)
case(
    *("unique holders", "unique_holders", ids("8005"), "'{waiting,live}'"),
    before=f"UPDATE pulse.jobs SET unique_key = 'k', unique_scope = 'waiting' WHERE id = ANY({ids('8005')})",
)
case("forget periods", "forget_periods", str(ITEMS))

# jobs/transitions/claims.sql, dispatch/store.sql, topics/limits.sql


def claim(topics: int) -> tuple[str, ...]:
    return (
        array(f"topic-{n}" for n in range(topics)),
        str(ITEMS),
        OF_WORKER_1,
        *TO_WORKERS,
        str(CLAIM_BYTES),
        "'{}'",
        "0",
    )


MARK = "pg_current_xact_id()::xid"
MARKED = sent("mark_topic", "'topic-0'")


def limits(topic: str, *, retired: bool = False, **options: str) -> tuple[str, ...]:
    """The arguments of limit_topic."""
    names = ("pool", "laned", "per_lane", "lane_starts", "lane_period", "ordered", "aging")
    given = {"pool": f"'{topic}'", "laned": "false", "ordered": "false", "limit": "1000"} | options
    return (
        *(f"'{topic}'", *(given.get(name, "NULL") for name in names), str(retired)),
        *(given.get(name, "NULL") for name in ("limit", "starts", "period")),
        MARK,
    )


def limited(topic: str, *, retired: bool = False, **options: str) -> str:
    first = MARKED if topic == "topic-0" else ""
    return first + sent("limit_topic", *limits(topic, retired=retired, **options))


IN_LANES = ("'{lanes}'", str(ITEMS), OF_WORKER_1, *TO_WORKERS, str(CLAIM_BYTES), "NULL", "NULL")
case("claim", "claim_batch", *claim(1), "NULL", "NULL")
case("claim levels", "claim_batch", LEVELS[0], *claim(1)[1:], *LEVELS[1:])
case(
    "claim across topics",
    "claim_across_topics",
    *claim(5),
    "NULL",
    "NULL",
    str(2 * ITEMS),
    str(3 * ITEMS // 5 + 3),
)
case(
    *("claim levels across topics", "claim_across_topics", "'{topic-0,topic-1}'", *claim(2)[1:], *LEVELS[1:]),
    *(str(2 * ITEMS), str(ITEMS + 2)),
)
case("claim in lanes", "claim_limited", *IN_LANES)
case("claim in lanes by turns", "claim_limited", *IN_LANES, before=limited("lanes", laned="true"))
case(
    "claim in order",
    "claim_limited",
    *IN_LANES,
    before=limited("lanes", laned="true", ordered="true", per_lane="1"),
)
case(
    *("claim by the rate of lanes", "claim_limited", *IN_LANES),
    before=limited("lanes", laned="true", lane_starts="1", lane_period="'1 h'"),
)
case(
    *("claim after a change of aging", "claim_limited", *IN_LANES),
    before=limited("lanes", laned="true", aging="'1 h'"),
    most=4 * ROWS,
)
case("claim of a limited topic", "claim_limited", "'{topic-0}'", *IN_LANES[1:], before=limited("topic-0"))
case(
    "claim of lanes that jobs enter",
    "claim_limited",
    "'{topic-0}'",
    *IN_LANES[1:],
    before=limited("topic-0", laned="true"),
    most=4 * ROWS,
)
# Running jobs are counted. They are found by the lease checks.
case("limit a topic", "limit_topic", *limits("topic-0"), before=MARKED, most=8 * ROWS)
case(
    *("limit the lanes of a topic", "limit_topic", *limits("topic-0", laned="true", per_lane="2")),
    before=MARKED,
    most=8 * ROWS,
)
case("mark a topic", "mark_topic", "'topic-0'")
case("read a mark", "read_mark", "'topic-0'", before=MARKED)
case("unmark a topic", "unmark_topic", "'topic-0'", MARK, before=MARKED)
case("marked topics", "marked_topics", "'{}'", most=4 * ROWS)
case(
    "transactions that have a running job locked",
    "open_transactions",
    "'lanes'",
    "'{lanes}'",
    "'{}'",
    most=8 * ROWS,
)
case("change the limits of lanes", "limit_topic", *limits("lanes", laned="true", per_lane="10"))
case("change the order of lanes", "limit_topic", *limits("lanes", laned="true", per_lane="1", ordered="true"))
case("end the lanes", "limit_topic", *limits("lanes"), most=8 * ROWS)
case("change the pool of a topic", "limit_topic", *limits("limited-1", pool="'other'"), most=8 * ROWS)
case(
    "unlimit a topic with jobs in lanes",
    "unlimit_topic",
    "'lanes'",
    before=limited("lanes", retired=True),
    most=4 * ROWS,
)
case(
    "unlimit a topic",
    "unlimit_topic",
    "'limited-1'",
    before=limited("limited-1", retired=True),
    most=8 * ROWS,
)
case("unsettled topics", "unsettled_topics", most=4 * ROWS)
case("hold", "hold", "'limited-1'", "'1 h'", "true")
case("set a lane", "set_lane", "'lanes'", "'lane-1'", "2", "3")
case("list limits", "list_limits", "''", str(ITEMS), "NULL", plans=READ_PLANS)
case("list lanes", "list_lanes", "'lanes'", str(ITEMS), "false", plans=READ_PLANS, most=4 * ROWS)
case("forget lanes", "forget_lanes", str(ITEMS))
case("sweep", "sweep", most=10 * ROWS)
case(
    "sweep after a change by hand",
    "sweep",
    before="UPDATE pulse.lanes SET held = held + 1 WHERE topic = 'lanes'",
    most=20 * ROWS,
)
LIMITED = numbered("limited-")

# Set by the test: EXECUTE takes no subquery.
FIRST_OF_WORKFLOW = "current_setting('pulse.first')::uuid"
# jobs/transitions/work.sql, jobs/lease_checks.sql, jobs/locks.sql
PROGRESS = all_of("'{\"fraction\": 0.5}'::text")
case("complete", "complete_jobs", *COMPACT)
case("complete in place", "complete_in_place", *COMPACT)
CLAIMED_IN_LANES = f"""{sent("claim_limited", *IN_LANES)}
SELECT set_config('pulse.claimed', array_agg(id)::text, true)
FROM pulse.jobs WHERE topic = 'lanes' AND locked_by = 'A';"""
case(
    *("complete in lanes", "complete_jobs", "current_setting('pulse.claimed')", "'{A}'"),
    *(array([1] * (ITEMS + 2)), "NULL", "NULL", "NULL"),
    before=CLAIMED_IN_LANES,
)
FIRST_RUNS = f"""
UPDATE pulse.jobs SET status = 'RUNNING', locked_by = 'w', lease_until = now() + interval '1 h',
    started_at = now(), attempts = 1, run = 1 WHERE id = {FIRST_OF_WORKFLOW};"""
OF_FIRST = (f"{FIRST_OF_WORKFLOW}", "'w'", "1", "1")
case(
    *(
        "complete in a workflow",
        "complete_jobs",
        f"ARRAY[{FIRST_OF_WORKFLOW}]::text",
        "'{w}'",
        "'{1}'",
        "'{1}'",
    ),
    *("'{1}'", "NULL"),
    before=FIRST_RUNS,
)
NO_BACKOFF = '\'{"first": 1, "factor": 2, "longest": 100, "jitter": 0}\''
case(
    *("fail", "fail_jobs", *CLAIMS, all_of("'boom'::text"), all_of("NULL::interval"), all_of("false")),
    *(all_of("'g'::text"), all_of("false"), all_of("false"), NO_BACKOFF, "'{}'"),
)
case(
    *("snooze", "snooze_jobs", *CLAIMS, all_of("'1 h'::interval"), all_of("'later'::text"), "1000"),
    *("'too often'", "'g'", "'{}'"),
)
case("extend", "extend_leases", *CLAIMS, "'30 s'", "NULL", "NULL", "NULL")
case(
    "extend with progress",
    "extend_leases",
    *CLAIMS,
    "'30 s'",
    "'{\"topic-0\": 60}'",
    PROGRESS,
    all_of("1e10::float8"),
)
case("release", "release_jobs", *CLAIMS, "NULL", "'{}'")
case("take back starts", "take_back_starts", *CLAIMS, all_of("now()"))
case("current claims", "current_claims", *CLAIMS)
# All jobs of a lease check are looked at.
case(
    *(
        "reap",
        "reap_expired",
        str(ITEMS),
        "clock_timestamp()",
        "''",
        "20",
        *("NULL", "5", "NULL"),
        "'30 s'",
        "''",
    ),
    most=4 * ROWS,
)
case(
    "settle claims",
    "settle_claims",
    "20",
    "NULL",
    most=4 * ROWS,
    before="UPDATE pulse.lease_checks SET settled = false, check_at = now()",
)
case("restore lease checks", "restore_lease_checks", "'-infinity'", NIL, str(ITEMS), most=4 * ROWS)
case("lock free jobs", "lock_free_jobs", ids("8003"))
case("lock deletable jobs", "lock_deletable_jobs", ids("8005"))
case(
    *(
        "obstacles",
        "obstacles_to",
        ids("8fff"),
        all_of("'topic-0'::text"),
        numbered("new-"),
        numbered("new-"),
    ),
    WAITING,
)
case("spare workers", "spare_workers", numbered("spared-"), "'30 s'", most=4 * ROWS)

# steps/transitions.sql, steps/store.sql
NAMES = numbered("new-")
case(
    *("store steps", "store_steps", *CLAIMS, NAMES, all_of("'x'::bytea"), all_of("interval '1 s'")),
    *("1000", "1000000"),
)
case(
    "sleep",
    "suspend_jobs",
    *CLAIMS,
    NAMES,
    all_of("''::text"),
    all_of("'1 h'::interval"),
    "1000",
    "'many'",
    "'g'",
    "'{}'",
)
case(
    *("wait for signals", "suspend_jobs", *CLAIMS, NAMES, all_of("'news'::text"), all_of("'1 h'::interval")),
    *("1000", "'many'", "'g'", "'{}'"),
)
case("take a signal", "take_signal", ids("8003", 1), *ONE_CLAIM[1:], "'new'", "'news'", "1000")
case("signal", "signal_job", ids("8003", 1), "gen_random_uuid()", "'news'", "'x'", "1000", "1000000")
case("list steps", "list_steps", one("8003"))
case("list steps of claimed jobs", "list_steps_of_claimed", ids("8003"), "65536", "1048576", "100")
case("find a step", "find_step", one("8003"), "'step-1'")
case("timeline of a completed job", "timeline_of_completed", one("8009"))
case("knows a signal", "knows_signal", one("8003"), "gen_random_uuid()")
case("forget steps", "forget_steps", NIL, str(ITEMS))
case("forget signals", "forget_signals", NIL, str(ITEMS))

# jobs/transitions/promotion.sql, work/transitions.sql, work/completed_days.sql
case("promote", "promote_due", str(ITEMS))
case("promote in turn", "promote_in_turn", str(ITEMS), str(ITEMS // 5), "''", "50")
case("cancel unstarted", "cancel_unstarted", str(ITEMS))
case(
    "delete expired",
    "delete_expired",
    "'-1 h'",
    "'-1 h'",
    "'-1 h'",
    "'-1 h'",
    "'-infinity'",
    NIL,
    str(ITEMS),
    most=3 * ROWS,
)
# A look at the policy of each topic.
A_DAY = "'-infinity'", NIL, str(ITEMS)
case("delete completed jobs of a day", "delete_expired_completed", "'-1 h'", *A_DAY, "true", most=4 * ROWS)
case(
    *("keep completed jobs of a day", "keep_longer", "'1 day'", *A_DAY, "date_trunc('day', now())"),
    *("date_trunc('day', now()) + interval '1 day'", "1000000", "true"),
    most=4 * ROWS,
)
case("completed days", "completed_days", most=4 * ROWS)
case("add completed days", "add_completed_days", "5")
YESTERDAY = "((now() AT TIME ZONE 'UTC')::date - 1)"
case(
    *("drop a completed day", "drop_completed_day", YESTERDAY, "now()"),
    before=f"SELECT pulse.add_completed_days_v1({YESTERDAY}, 1)",
    most=8 * ROWS,
)

# schedules/transitions.sql, schedules/store.sql
SCHEDULES = ids("9009")
FIRES = (SCHEDULES, all_of("'2026-01-01 00:00+00'::timestamptz"))
FOLLOWING = all_of("'2026-01-01 01:00+00'::timestamptz")
HAVE_FIRED = f"UPDATE pulse.jobs SET schedule_id = NULL WHERE id = ANY({ids('8001', 100)});"
DO_NOT_OVERLAP = "UPDATE pulse.schedules SET overlap = 'skip';"
case("fire", "fire_schedules", *FIRES, FOLLOWING, ids("8ffd"))
case("fire for the last time", "fire_schedules", *FIRES, all_of("NULL::timestamptz"), ids("8ffd"))
case("fire again", "fire_schedules", *FIRES, FOLLOWING, ids("8009"))
case("fire busy schedules", "fire_schedules", *FIRES, FOLLOWING, ids("8ffd"), before=DO_NOT_OVERLAP)
case(
    "fire free schedules",
    "fire_schedules",
    *FIRES,
    FOLLOWING,
    ids("8ffd"),
    before=DO_NOT_OVERLAP + HAVE_FIRED,
)
case("fire what was kept", "fire_queued", *FIRES, ids("8ffd"), before=HAVE_FIRED)
case("fire now", "fire_now", one("9009"), one("8ffd"), "NULL")
case("due schedules", "due_schedules", str(ITEMS))
case("queued schedules", "queued_schedules", str(ITEMS), before=HAVE_FIRED)
case("get a schedule", "get_schedule", one("9009"))
case("find a schedule", "find_schedule", "'schedule-1'")
case("list schedules", "list_schedules", "NULL", NIL, str(ITEMS), "''")
case("has fired", "has_fired", one("9009"), one("8001"))
case("has declared", "has_declared", "'shop-1'")
case("declare schedules", "declare_schedules", "'shop-1'", numbered("schedule-"), "NULL", "1000")
case("pause a schedule", "pause_schedule", one("9009"))
case("resume a schedule", "resume_schedule", one("9009"), "'2026-01-01'", "now()")
case("delete a schedule", "delete_schedule", one("9009"))

# jobs/queries.sql, work/awaiting.sql, views/records.sql
FIELDS = ids("8001"), all_of("'topic-0'::text"), all_of("''::bytea"), "NULL"
case("get a job", "get_job", one("8001"), plans=READ_PLANS)
case("look up jobs", "look_up_jobs", ids("8003"))
case("statuses", "job_statuses", ids("8003"))
case(
    *("jobs of unended workflows", "jobs_of_unended_workflows", "current_setting('pulse.some')::uuid[]"),
    before=f"""SELECT set_config('pulse.some', array_agg(node.job_id)::text, true) FROM (
        SELECT job_id FROM pulse.workflow_jobs WHERE workflow_id = '{WORKFLOW}' LIMIT {ITEMS}) AS node""",
)
case("find existing jobs", "find_existing", *FIELDS, "NULL")
case("find existing jobs by key", "find_existing_by_key", *FIELDS, numbered("done-"))
case(
    "topics with ready jobs",
    "topics_with_ready_jobs",
    "array_to_string('{topic-0,topic-1,free}'::text[], chr(10))",
)
case("find jobs by the beginning of the id", "find_jobs", NIL, one("8009"), str(ITEMS), plans=READ_PLANS)
case("finished jobs", "finished_jobs", ids("8005"), "1000000")
case("finished jobs that completed", "finished_jobs", ids("8009"), "1000000")
case("unfinished jobs", "finished_jobs", ids("8003"), "1000000", plans=READ_PLANS)
case("found jobs", "found_jobs", ids("8003"), plans=READ_PLANS)
case(
    *(
        "export",
        "export_jobs",
        "'-infinity'",
        NIL,
        str(ITEMS),
        "1000000",
        "NULL",
        "now() + interval '1 h'",
        "NULL",
    ),
    "'{COMPLETED,DEAD_LETTERED}'",
    plans=READ_PLANS,
)

# views/: some count what waits or runs.
case("explain", "explain_jobs", ids("8001"), "NULL", "100", plans=READ_PLANS)
case("explain completed jobs", "explain_jobs", ids("8009"), "NULL", "100", plans=READ_PLANS)
case("explain a topic", "explain_jobs", "'{}'", "'topic-0'", "100", plans=READ_PLANS)
case("explain a job in a lane", "explain_jobs", "'{}'", "'lanes'", "100", plans=READ_PLANS, most=4 * ROWS)
case(
    "explain a job of a workflow",
    "explain_jobs",
    f"ARRAY[{FIRST_OF_WORKFLOW}]",
    "NULL",
    "100",
    plans=READ_PLANS,
)
case(
    "explain a job that waits for others",
    "explain_jobs",
    "NULL",
    "'wf'",
    "100",
    plans=READ_PLANS,
    before=f"DELETE FROM pulse.jobs WHERE id = {FIRST_OF_WORKFLOW}",
)
case("jobs ahead", "jobs_ahead", "'{topic-0}'", str(ITEMS), str(ITEMS), plans=READ_PLANS)
case("held by topic", "held_by_topic", plans=READ_PLANS, most=4 * ROWS)
case("groups of dead letters", "list_dead_letter_groups", "NULL", "100", most=4 * ROWS)
case("depths", "topic_depths", most=20 * ROWS)
case("rates", "topic_rates")
case("buckets", "topic_buckets")
case("minutes", "topic_minutes", "'topic-1'", "60")
case(
    "add minutes",
    "add_topic_minutes",
    numbered("topic-"),
    *[all_of("1::bigint")] * 6,
    *[all_of("'{}'::text")] * 2,
)
case("record depths", "record_depths", "100", most=12 * ROWS)
case("forget minutes", "forget_topic_minutes", "'1 day'", most=4 * ROWS)
case("held jobs", "held_jobs", "10", most=4 * ROWS)
case("long runs", "long_runs", "'1 s'", "100", most=6 * ROWS)
case("fullest lanes", "fullest_lanes", "'{lanes}'", "1000", most=6 * ROWS)
case("jobs by topic", "jobs_by_topic", "100", most=12 * ROWS)
case("count of running jobs", "count_running", most=4 * ROWS)
case("vitals", "measure_database")

# workflows/store.sql


def added(jobs: int) -> str:
    fields = {"topic": "wf", "payload": "e30=", "max_attempts": 5, "after": ["first"], "before": ["last"]}
    return "'" + json.dumps([{"name": f"new-{number}", **fields} for number in range(jobs)]) + "'"


FLOW = f"'{WORKFLOW}'"
NOTICES = f"""
DELETE FROM pulse.workflow_notices;
INSERT INTO pulse.workflow_notices
SELECT {FLOW}, array_agg(job_id), 'PENDING'
FROM (SELECT job_id FROM pulse.workflow_jobs WHERE workflow_id = {FLOW} LIMIT {ITEMS}) AS node;"""
CANCELED = f"UPDATE pulse.workflows SET canceled_at = now() WHERE id = {FLOW};"
ALL_CANCELED = f"""{CANCELED}
UPDATE pulse.jobs SET status = 'CANCELED', ended_as = 'CANCELED', finished_at = now()
WHERE workflow_id = {FLOW} AND held;
UPDATE pulse.workflow_jobs SET dropped = 'dropped' WHERE workflow_id = {FLOW} AND name <> 'first';"""
SETTLE = ("10", "100", "5", "100", "NULL")
ADD = ("100000", "1000000")


def ended(condition: str) -> str:
    """Jobs of the workflow complete."""
    return f"""
DELETE FROM pulse.workflow_notices;
WITH gone AS (
    DELETE FROM pulse.jobs WHERE id = ANY(ARRAY(
        SELECT job_id FROM pulse.workflow_jobs WHERE workflow_id = {FLOW} AND {condition} LIMIT {ITEMS}))
    RETURNING id, submitted_at, priority, max_attempts, topic, payload
),
done AS (
    INSERT INTO pulse.completed_jobs (id, submitted_at, next_run_at, started_at, finished_at, priority,
        attempts, max_attempts, delivered, topic, payload)
    SELECT id, submitted_at, now(), now(), now(), priority, 1, max_attempts, true, topic, payload FROM gone
)
INSERT INTO pulse.workflow_notices SELECT {FLOW}, array_agg(id), 'COMPLETED' FROM gone;"""


case(
    "store a workflow", "store_workflow", "gen_random_uuid()", "'x'", "'d'", "NULL", f"'{definition(ITEMS)}'"
)
case("add a job", "add_to_workflow", *OF_FIRST, added(1), *ADD, before=FIRST_RUNS)
case("add jobs", "add_to_workflow", *OF_FIRST, added(ITEMS), *ADD, before=FIRST_RUNS)
case("settle: children become ready", "settle_workflows", *SETTLE, before=ended("number = 1"), most=8 * ROWS)
case("settle: parents end", "settle_workflows", *SETTLE, before=ended("name LIKE 'part-%'"), most=8 * ROWS)
case("settle: nothing has changed", "settle_workflows", *SETTLE, before=NOTICES, most=8 * ROWS)
case("settle: canceled", "settle_workflows", *SETTLE, before=CANCELED + NOTICES, most=8 * ROWS)
case("noticed workflows", "noticed_workflows", str(ITEMS), most=4 * ROWS)
case("cancel a workflow", "cancel_workflow", FLOW, most=4 * ROWS)
case("leave a workflow", "leave_workflow", FLOW, str(ITEMS), before=CANCELED, most=8 * ROWS)
case(
    "unsuccessful jobs of a workflow", "unsuccessful_workflow_jobs", FLOW, before=ALL_CANCELED, most=8 * ROWS
)
case("retry a workflow", "retry_workflow", FLOW, before=ALL_CANCELED)
case("bring jobs of a workflow back", "bring_back", FLOW, before=ALL_CANCELED, most=60 * ROWS)
case("get a workflow", "get_workflow", FLOW, plans=READ_PLANS, most=4 * ROWS)
case(
    "list workflows",
    "list_workflows",
    "NULL",
    "NULL",
    "NULL",
    "NULL",
    str(ITEMS),
    plans=READ_PLANS,
    most=4 * ROWS,
)
PAGE = ("0", str(ITEMS), "true")
case("jobs of a workflow", "list_workflow_jobs", FLOW, "NULL", "NULL", "false", *PAGE, plans=READ_PLANS)
case(
    "parents of a job",
    "list_workflow_jobs",
    FLOW,
    "current_setting('pulse.last')::uuid",
    "NULL",
    "false",
    *PAGE,
    before=f"SELECT set_config('pulse.last', job_id::text, true) FROM pulse.workflow_jobs "
    f"WHERE workflow_id = {FLOW} AND name = 'last'",
    plans=READ_PLANS,
    most=4 * ROWS,
)
case(
    "jobs of a workflow by name",
    "list_workflow_jobs",
    FLOW,
    "NULL",
    numbered("part-"),
    "false",
    *PAGE,
    plans=READ_PLANS,
    most=6 * ROWS,
)
case(
    "canceled workflows of jobs",
    "canceled_workflows_of",
    f"ARRAY[{FIRST_OF_WORKFLOW}]",
    before=CANCELED + " UPDATE pulse.jobs SET held = true WHERE id = " + FIRST_OF_WORKFLOW,
)
case("workflow of a job", "find_workflow_job", FIRST_OF_WORKFLOW, plans=READ_PLANS)
case("delete workflows", "delete_workflows", "'1 s'", "'1 s'", str(ITEMS), most=4 * ROWS)

# work/submissions.sql, database/audit.sql, topics/settings.sql, dispatch/store.sql, work/retention.sql
case("take arrivals", "take_arrivals", str(ITEMS))
case("lock a setting", "lock_settings", "'settings email'")
case("unlock a setting", "unlock_settings", "'settings email'")
case("read pauses", "read_pauses", "'{paused-1}'")
case("read settings", "read_settings", LIMITED, "'lane'", one("9009"), "'shop-1'", "'worker-1'")
case(
    "write an entry",
    "write_entry",
    "gen_random_uuid()",
    *["''"] * 6,
    "''",
    "'{}'",
    "'{}'",
    "'{}'",
    "'{}'",
    "1",
)
case(
    "audit of a topic",
    "entries_of_topic",
    "'topic-1'",
    str(ITEMS),
    plans=READ_PLANS | {"enable_bitmapscan": "on"},
)
case("delete old audit", "delete_old_audit", "'1 s'", str(ITEMS))
LIMITS_AND_RUNS = (array(LIMITS), array(RUNS))
RUN = numbered("run-")
case("lock topics", "lock_topics", RUN)
case("read rows of owners", "read_rows", LIMITED, "'worker-1'", LIMITS_AND_RUNS[1])
STORED = all_of("'{\"running\": 6}'::text")
case("store entries", "store_entries", LIMITED, STORED, "'worker-2'", "'{}'", "''")
case("delete entries", "delete_entries", LIMITED, "'worker-1'")
case("replace runs", "replace_runs", RUN, "'worker-2'", LIMITS_AND_RUNS[1])
case(
    *("store runs", "store_runs", RUN, all_of("NULL::text"), all_of("false"), all_of("4"), all_of("true")),
    *(all_of("NULL::interval"), all_of("NULL::int")),
)
case("store what is kept", "store_kept", "'kept-1'", *["NULL"] * 7)
case("forget rules", "forget_rules", RUN)
case("list topics", "list_topics", "''", str(ITEMS), "NULL", plans=READ_PLANS)
case("list some topics", "list_topics", "''", str(ITEMS), RUN, plans=READ_PLANS)
case("read owners", "read_owners", LIMITED, *LIMITS_AND_RUNS, "'1 min'", "'1 min'", plans=READ_PLANS)
case("mark missing", "mark_missing", LIMITS_AND_RUNS[0], "'1 min'", most=8 * ROWS)
case(
    *("forget declarations", "forget_declarations", LIMITED, *LIMITS_AND_RUNS, "'1 min'"),
    before="UPDATE pulse.topic_settings SET missing_since = now() - interval '1 h' WHERE owner = 'worker-1'",
)
case("forget owners", "forget_owners", LIMITED)
case("pause a topic", "pause_topic", "'paused-1'", "''", "''")
case("resume a topic", "resume_topic", "'paused-1'")
case("set the state of a worker", "set_worker_state", "'worker-1'", "'{run}'", "'{quiet}'", "''", "''")
case("resume a worker", "resume_worker", "'worker-1'")

# database/interface/
APPLICATION = {"plans": THE_PLANNERS_OWN}
TOKEN = token_of(Claim(one("8003").strip("'"), "worker-1", 1, 1)).hex()
case(
    "complete_job",
    f"SELECT pulse.complete_job({one('8003')}, 'worker-1', 1, '\\x{TOKEN}')",
    before=f"INSERT INTO pulse.cluster_secret (secret) VALUES ('\\x{SECRET.hex()}') "
    "ON CONFLICT (id) DO UPDATE SET secret = EXCLUDED.secret; "
    f"UPDATE pulse.jobs SET run = 1 WHERE id = {one('8003')}",
    **APPLICATION,
)
case("enqueue", "SELECT pulse.enqueue('topic-0', '{}')", **APPLICATION)
case("enqueue with a key", "SELECT pulse.enqueue('topic-0', '{}', key => 'new')", **APPLICATION)
case(
    "enqueue with the key of a completed job",
    "SELECT pulse.enqueue('topic-1', '{}', key => 'done-1')",
    **APPLICATION,
)
case("enqueue with an id", "SELECT pulse.enqueue('topic-0', '{}', id => gen_random_uuid())", **APPLICATION)
case(
    "enqueue unique",
    "SELECT pulse.enqueue('topic-1', '{}', unique_key => 'unique-000000000002', on_conflict => 'replace')",
    **APPLICATION,
)
case(
    "enqueue what a commit looks at again",
    "SELECT pulse.enqueue('topic-1', '{}', unique_key => 'unique-000000000002')",
    before="SET CONSTRAINTS ALL IMMEDIATE",
    **APPLICATION,
)
case(
    "enqueue throttled",
    "SELECT pulse.enqueue('topic-1', '{}', unique_key => 'new', on_conflict => 'throttle', period => '1 h')",
    **APPLICATION,
)
PAYLOADS = all_of("'x'::bytea")
case("enqueue_many", f"SELECT pulse.enqueue_many('topic-0', {PAYLOADS})", **APPLICATION)
case(
    "enqueue_many with keys",
    f"SELECT pulse.enqueue_many('topic-0', {PAYLOADS}, keys => {numbered('new-')})",
    **APPLICATION,
)
case(
    "enqueue_many in lanes",
    f"SELECT pulse.enqueue_many('lanes', {PAYLOADS}, lanes => {numbered('lane-')})",
    **APPLICATION,
)
case("enqueue_json", "SELECT pulse.enqueue_json('topic-0', '{}')", **APPLICATION)
CHAIN = json.dumps(
    [
        {"name": f"part-{n}", "topic": "wf", "payload": {}, "after": [f"part-{n - 1}"] if n else []}
        for n in range(ITEMS)
    ]
)
case("enqueue_workflow", f"SELECT pulse.enqueue_workflow('x', '{CHAIN}')", **APPLICATION)

# Sections that are not measured, and why.
WITHOUT_CASE = (
    dict.fromkeys(
        (
            *("list_jobs", "list_jobs_completed", "matching_jobs", "matching_jobs_completed"),
            *("count_matching_jobs", "count_matching_jobs_completed", "search_jobs", "search_jobs_completed"),
        ),
        "listing.py adds its conditions: test_overview_plans.py and test_operators_plans.py.",
    )
    | dict.fromkeys(("list_audit",), "audit.py adds its conditions: test_operators_plans.py.")
    | dict.fromkeys(
        ("read_gate", "read_rules", "scheduler_status", "forget_worker_states"),
        "It is there to read all settings, all schedules or all workers.",
    )
    | dict.fromkeys(("create_schedule", "update_schedule"), "One row, by its key, without a join.")
    | dict.fromkeys(("lock_audit", "lock_tables_of_jobs", "grants_to_look"), "It reads no row.")
    | dict.fromkeys(("list_migrations",), "A row for each migration.")
    | dict.fromkeys(("read_secret",), "A table of one row.")
    | dict.fromkeys(
        ("blockers_of", "holders_of_turn", "inspect_onlookers", "plain_starts"), "It reads no table of ours."
    )
    | dict.fromkeys(
        ("record_server", "forget_servers", "list_servers", "steady_for"), "A row for each server: few."
    )
)
# Past their bound, and why.
KNOWN: set[str] = set()
