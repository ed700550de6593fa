"""Each condition of the claims, of promotion and of limits has a cause in the explanations.

A condition that is added to a claim fails here until it is explained. tests/transport/test_rpc_explain.py
stages a job for each cause.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pulse_server.database.connections import Database
from pulse_server.database.statements import statements, with_fragments
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.rules import ConnectedWorker
from pulse_server.settings import Settings
from pulse_server.views.explanations import Explanations
from pulse_server.views.servers import Servers
from pulse_server.wakeups.line import NoWakeupLine
from tests.fakes.store import LEASE, Store, a_job
from tests.postgres.sessions import Connection
from tests.postgres.sql_files import function, read
from tests.rows import each_row
from tests.transport.test_rpc_explain import WORDS

ROOT = Path(__file__).parents[2]
NOW = datetime.now(UTC)
SECOND = timedelta(seconds=1)

# Staged after the others, in the same test; and no cause that keeps a job from running.
ELSEWHERE = {"dispatch_paused", "finished"}
# The conditions of a plain claim. A job that is not queued is not due, sleeps, or waits for others.
PLAIN = {
    " ".join(with_fragments("{dispatch_is_on}").split()): "dispatch_paused",
    "NOT EXISTS (SELECT FROM pulse.barred_topics AS barred "
    "WHERE barred.topic = asked.topic OFFSET 0)": "topic_paused",
    "job.queued": "delayed",
    "job.locked_by IS NULL": "worker_gone",
    "(job.start_by IS NULL OR job.attempts > 0 OR job.start_by > clock_timestamp())": "too_late",
    "job.tier IS NULL": "lane_turn",
}
PROMOTION = {
    "NOT job.queued": "due",
    "job.finished_at IS NULL": "finished",
    "job.held IS NULL": "waits_for_jobs",
}
# What claim_limited_v1 and share_room_v1 read of policies, pools and lanes.
LIMITED = {
    "pool.limit": "topic_limit",
    "pool.held": "topic_limit",
    "pool.starts": "topic_rate",
    "pool.slices": "topic_rate",
    "pool.closed_until": "topic_held",
    "policy.closed_until": "topic_held",
    "policy.lane_starts": "lane_rate",
    "policy.per_lane": "lane_limit",
    "policy.ordered": "ordered",
    "known.held": "lane_limit",
    "known.limit": "lane_limit",
    "known.slices": "lane_rate",
    "known.waits_for": "ordered",
    "known.weight": "lane_turn",
}
# What the functions that pick jobs of limited topics look for in the tables of jobs and lanes. `None`: which
# topic, lane or job is meant.
MAY_START = "(job.start_by IS NULL OR job.attempts > 0 OR job.start_by > clock_timestamp())"
IN_LANE = {
    "job.queued": "delayed",
    "job.tier IS NOT NULL": "lane_turn",
    "job.locked_by IS NULL": "worker_gone",
    MAY_START: "too_late",
    "job.topic = policy.topic": None,
}
PICKED: dict[str, dict[str, str | None]] = {
    "pick_in_order": {
        "job.topic = of_topic": None,
        **{condition: cause for condition, cause in PLAIN.items() if condition.startswith(("job.", "(job."))},
    },
    "pick_by_turns": {
        **IN_LANE,
        "job.lane = turn.lane": None,
        "next.topic = policy.topic": None,
        "(turn.waits_for IS NULL OR job.id = turn.waits_for)": "ordered",
    },
    "next_in_order": {
        **IN_LANE,
        "job.lane = of_lane": None,
        # A job that is tried again, and one that has not entered its lane.
        "job.id = ANY(tried)": "ordered",
        "job.finished_at IS NULL": "ordered",
        "job.tier IS NULL": "ordered",
    },
    "take_turns": {
        "lane.topic = policy.topic": None,
        "lane.next_at <= stamp": "lane_rate",
        "place.topic = policy.topic": None,
    },
}
# How rates are counted, and which topics and lanes are meant. No job waits for these alone; room that is
# reserved for workers, and new ranks, last for a moment.
NO_GATES = {
    *("pool.name", "pool.slice", "pool.period", "pool.wanted", "pool.wanted_until"),
    *("policy.topic", "policy.pool", "policy.retired", "policy.laned", "policy.lane_period"),
    *("policy.ranked_lane", "policy.shrinks"),
    *("known.name", "known.topic", "known.pool", "known.laned", "known.slice"),
}


def code_of(name: str) -> str:
    """The function without its comments."""
    return re.sub(r"--.*", "", function(f"{name}_v1"))


def conditions(text: str) -> list[str]:
    """The parts of a conjunction, on one line each."""
    flat = " ".join(with_fragments(text).split())
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(flat):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and flat.startswith(" AND ", at):
            parts.append(flat[begin:at].strip())
            begin = at + len(" AND ")
    return [*parts, flat[begin:].strip()]


def test_each_condition_of_a_plain_claim_has_a_cause() -> None:
    assert conditions("{asked_topic_is_open} AND {is_claimable}") == list(PLAIN)
    assert "{asked_topic_is_open}" in read("database/fragments/claims.sql")
    assert set(PLAIN.values()) <= WORDS.keys() | ELSEWHERE


def test_each_condition_of_promotion_has_a_cause() -> None:
    assert conditions("{waits}") == list(PROMOTION)
    assert with_fragments("{waits}") in statements("jobs/transitions/promotion.sql")["promote_due"]


def test_each_limit_that_a_claim_reads_has_a_cause() -> None:
    code = "\n".join(code_of(name) for name in ("claim_limited", "share_room", *PICKED))
    fields = set(re.findall(r"\b(?:pool|policy|known)\.[a-z_]+", code))
    assert fields - NO_GATES == LIMITED.keys()
    assert set(LIMITED.values()) <= WORDS.keys()


@each_row("name", list(PICKED))
def test_each_condition_of_a_limited_pick_has_a_cause(name: str) -> None:
    clauses = re.findall(
        r"(?<!DELETE )FROM pulse\.(?:jobs|lanes|lane_line) AS \w+\s+WHERE (.*?)(?=ORDER BY|LIMIT|\)?;)",
        code_of(name),
        re.DOTALL,
    )
    assert {condition for clause in clauses for condition in conditions(clause)} == PICKED[name].keys()
    assert {cause for cause in PICKED[name].values() if cause} <= WORDS.keys()


def test_causes_of_the_code_and_of_the_page_are_the_same() -> None:
    page = (ROOT / "docs" / "how-to" / "debug-a-stuck-job.md").read_text("utf-8")
    rows = re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE)
    documented = {cause for row in rows for cause in re.findall(r"`(\w+)`", row)}
    views = ROOT / "src" / "pulse_server" / "views"
    code = "\n".join((views / name).read_text("utf-8") for name in ("gates.py", "explanations.py"))

    assert documented == WORDS.keys() | ELSEWHERE
    assert set(re.findall(r'Explanation\(\s*"(\w+)"', code)) <= documented


# ---------------------------------------------------------------- causes that end by themselves


@each_row(
    "change, cause",
    [
        ("queued = false, next_run_at = now() - interval '1 s'", "due"),
        ("start_by = now() - interval '1 s'", "too_late"),
    ],
)
async def test_passing_state_has_its_cause(
    shared_dsn: str, store: Store, connection: Connection, change: str, cause: str
) -> None:
    (job_id,) = await store.submit(a_job())
    await connection.execute(f"UPDATE pulse.jobs SET {change}")
    database = Database(shared_dsn)
    servers = Servers(database, "here", lambda: [ConnectedWorker("w1", ("email",), 1, NOW)], interval=SECOND)
    reads = Explanations(database, servers, Roster(LEASE, NoWakeupLine()), Settings("", None))
    (found,) = await reads.of_jobs([job_id])
    await database.close()
    assert found.cause == cause
    assert await store.claim() == []
