"""The plan of the nemesis: the same for the same seed, with every kind, and with bounded overlap."""

import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faults.cluster import Cluster
from faults.kinds import KINDS
from faults.kinds.fault import ALL_WORK, Fault
from faults.nemesis import (
    BREATHER_SECONDS,
    CALM_SECONDS,
    MOST_STRUCK,
    SHORTEST_SPELL_SECONDS,
    SPELL_SECONDS,
    STRETCH_SECONDS,
    carry_out,
    draw_plan,
)
from faults.places import FAILPOINTS
from faults.stranger import (
    APPLICATION_ROLE,
    STRANGER_ROLE,
    KnownClaim,
    LockKey,
    forged,
    forgeries,
    lock_keys,
    malformed,
    published_keys,
)
from faults.world import World
from pulse import failpoints
from tests.rows import each_row

ROOT = Path(__file__).resolve().parents[2]
# Plans of long runs cover more cases, and are drawn within milliseconds.
SECONDS = 120.0

seeds = given(seed=st.integers(0, 2**32 - 1))


def impaired(plan: Sequence[Fault], at: float) -> Counter[str]:
    return Counter(name for fault in plan if fault.at <= at < fault.over_at for name in fault.impairs)


def ordinary(plan: Sequence[Fault]) -> list[Fault]:
    """All faults but the spells."""
    return [fault for fault in plan if fault.seconds < STRETCH_SECONDS]


@settings(max_examples=20)
@seeds
def test_same_seed_draws_same_plan(seed: int) -> None:
    assert list(map(str, draw_plan(seed, SECONDS))) == list(map(str, draw_plan(seed, SECONDS)))


@settings(max_examples=20)
@seeds
def test_other_seed_draws_other_plan(seed: int) -> None:
    assert draw_plan(seed, SECONDS) != draw_plan(seed + 1, SECONDS)


@settings(max_examples=20)
@seeds
def test_some_of_each_are_left_to_work_at_every_moment(seed: int) -> None:
    plan = draw_plan(seed, SECONDS)
    for fault in plan:
        struck = impaired(plan, fault.at)
        for names, most in MOST_STRUCK.items():
            assert len([name for name in names if struck[name]]) <= most < len(names)
        assert max(struck.values(), default=0) <= 2  # a process and its link, never the same target twice


@settings(max_examples=20)
@seeds
def test_faults_that_stop_all_work_are_spaced_apart(seed: int) -> None:
    stops = [fault for fault in draw_plan(seed, SECONDS) if fault.impairs == ALL_WORK]
    assert all(later.at - earlier.over_at >= BREATHER_SECONDS for earlier, later in pairwise(stops))


@settings(max_examples=20)
@seeds
def test_every_stretch_ends_with_a_calm_in_which_all_is_healed(seed: int) -> None:
    for fault in ordinary(draw_plan(seed, SECONDS)):
        into_stretch = fault.at % STRETCH_SECONDS
        assert into_stretch + fault.over_at - fault.at <= STRETCH_SECONDS - CALM_SECONDS


@settings(max_examples=20)
@seeds
def test_spell_has_no_other_fault_beside_it(seed: int) -> None:
    plan = draw_plan(seed, SECONDS)
    spells = [fault for fault in plan if fault not in ordinary(plan)]
    assert [fault.at for fault in spells] == [SECONDS - SPELL_SECONDS]
    for spell in spells:
        assert not [other for other in plan if other is not spell and other.over_at > spell.at]


def test_short_run_has_no_spell() -> None:
    plan = draw_plan(1, 2 * SHORTEST_SPELL_SECONDS - 1)
    assert plan == ordinary(plan)


@settings(max_examples=20)
@seeds
def test_target_has_one_fault_at_a_time(seed: int) -> None:
    last: dict[str, Fault] = {}
    for fault in draw_plan(seed, SECONDS):
        assert fault.target not in last or last[fault.target].over_at <= fault.at
        last[fault.target] = fault


def test_long_plan_has_every_kind() -> None:
    """The deck holds each kind: ten minutes deal it several times."""
    assert {fault.kind for fault in draw_plan(1, 600.0)} == {kind.name for kind in KINDS}


def test_each_kind_can_be_injected() -> None:
    """A plan names its faults by kind only."""
    inflicted = {(kind.name, kind.inflict) for kind in KINDS}
    assert len(inflicted) == len({kind.name for kind in KINDS})


class NoWorld(SimpleNamespace):
    """A database with the schema, and nothing else."""

    def __init__(self, dsn: str) -> None:
        super().__init__(cluster=self, ground=SimpleNamespace(failures=[]), history=self, notes=[])
        self.dsn = dsn

    @asynccontextmanager
    async def session(self, user: str = "") -> AsyncIterator[Any]:
        of_others = {"user": user} if user in (STRANGER_ROLE, APPLICATION_ROLE) else {}
        connection = await asyncpg.connect(self.dsn, **of_others)
        try:
            yield connection
        finally:
            connection.terminate()

    def write(self, what: str, **facts: Any) -> None:
        self.notes.append((what, facts))

    recorded = World.recorded
    execute_surely = Cluster.execute_surely


@pytest.fixture
async def no_world(database_dsn: str, cluster_dsn: str) -> AsyncIterator[Any]:
    world = NoWorld(database_dsn)
    # The strangers' roles are of the whole server: one process of pytest-xdist has them at a time.
    turn = await asyncpg.connect(cluster_dsn, timeout=60)
    await turn.execute("SELECT pg_advisory_lock(hashtext('the roles of strangers'))")
    try:
        async with world.session() as session:
            await session.execute("CREATE SCHEMA audit")
            yield world
            for role in (STRANGER_ROLE, APPLICATION_ROLE):
                if await session.fetchval("SELECT to_regrole($1) IS NOT NULL", role):
                    await session.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    finally:
        turn.terminate()


def faults_of(kind: str) -> list[Fault]:
    """Faults of this kind in all their forms, at once and without duration."""
    plan = [fault for fault in draw_plan(3, 2400.0) if fault.kind == kind]
    forms = {str(sorted(fault.how.items())): fault for fault in plan}
    return [
        replace(fault, target=f"{kind}-{number}", seconds=0.0, at=0.0)
        for number, fault in enumerate(forms.values())
    ]


@pytest.mark.parametrize(
    ("kind", "forms"),
    [
        *(("rows", 10), ("tables", 6), ("old day", 2), ("days", 2)),
        *(("prepared", 10), ("slow commits", 3), ("many workflows", 1), ("intruder", 4), ("forger", 1)),
    ],
)
async def test_locks_fit_the_schema(no_world: Any, kind: str, forms: int) -> None:
    plan = faults_of(kind)[: 2 * forms]
    for fault in plan:  # one after the other: they lock the same tables
        await carry_out(no_world, [fault])
    assert no_world.ground.failures == []
    assert [what for what, _facts in no_world.notes].count("fault") == len(plan) >= forms


async def test_day_that_was_locked_is_dropped_again(no_world: Any) -> None:
    (fault, *_) = faults_of("old day")
    await carry_out(no_world, [fault])
    async with no_world.session() as session:
        day = fault.how["day"].replace("-", "")
        assert await session.fetchval(f"SELECT to_regclass('pulse.completed_jobs_{day}')") is None


async def test_fault_whose_statement_does_not_fit_the_schema_fails_the_run(no_world: Any) -> None:
    await carry_out(no_world, [replace(faults_of("table")[0], how={"mode": "NO SUCH"})])
    (failure,) = no_world.ground.failures
    assert "table of table-0 cannot be injected" in failure


def test_points_that_are_armed_exist() -> None:
    """An unknown name would end the process at its start."""
    for fault in draw_plan(2, 1200.0):
        if fault.kind == FAILPOINTS:
            assert failpoints.read(fault.how["armed"].failpoints)


def test_skewed_clock_shows_another_time_and_measures_the_same_durations() -> None:
    here, there = clocks(""), clocks("from faults import skewed_clock; skewed_clock.shift(3000)")
    # The second reading was later, by as long as a process takes to start.
    assert all(3000 < after - before < 3500 for before, after in zip(here[:-1], there[:-1], strict=True))
    assert 0 < there[-1] - here[-1] < 500


def clocks(preparation: str) -> list[float]:
    """Return the clocks of another process; the last of them is monotonic."""
    program = "print(time.time(), time.time_ns() / 1e9, d.datetime.now(d.UTC).timestamp(), time.monotonic())"
    lines = [preparation, "import time, datetime as d", program]
    output = subprocess.check_output([sys.executable, "-c", "\n".join(lines)], text=True, cwd=ROOT)
    return [float(word) for word in output.split()]


def test_skewed_clock_leaves_the_deadlines_of_grpc_alone() -> None:
    """They are compared with the clock of the machine: an hour behind, every call would be late at once."""
    lines = [
        "from faults import skewed_clock; skewed_clock.shift(-3600)",
        "import time",
        "from grpc import _channel; from grpc.aio import _utils",
        "print(_channel._deadline(5) - time.time(), _utils._timeout_to_deadline(5) - time.time())",
    ]
    output = subprocess.check_output([sys.executable, "-c", "\n".join(lines)], text=True, cwd=ROOT)
    assert all(3600 < float(word) < 3700 for word in output.split())


# ---------------------------------------------------------------- what a stranger finds out from outside


@each_row("key", [482973020531, 1, -1, -(2**63), 2**63 - 1])
async def test_stranger_takes_the_lock_that_it_saw(no_world: Any, key: int) -> None:
    async with no_world.session() as ours, no_world.session() as theirs:
        await ours.execute("SELECT pg_advisory_lock($1)", key)
        (seen,) = await lock_keys(theirs)
        assert seen.arguments == (key,)


def test_lock_of_two_integers_is_taken_as_such() -> None:
    assert LockKey(2**32 - 1, 7, 2).arguments == (-1, 7)


def test_published_source_has_the_keys_of_locks() -> None:
    assert published_keys()


def test_heard_message_is_repeated_about_other_claims_and_with_wrong_values() -> None:
    claim = KnownClaim("a job", "worker-1", 3)
    texts = list(forged('{"ended":[],"topics":["mail"]}', [claim], Random(1)))
    assert texts[0] == '{"ended":[],"topics":["mail"]}'
    assert '{"ended":[["a job","worker-1",3]],"topics":["mail"]}' in texts
    assert all(len(text) < 8_000 for text in (*texts, *malformed()))


async def test_application_calls_the_function_as_it_is_with_all_that_it_knows(no_world: Any) -> None:
    claim = KnownClaim("00000000-0000-0000-0000-000000000001", "worker-1", 3)
    async with no_world.session() as session:
        calls = await forgeries(session, "complete_job%", claim)
        assert calls
        for statement, arguments in calls:
            assert arguments[:3] == [claim.job_id, claim.worker, claim.run]
            with pytest.raises(asyncpg.PostgresError):
                await session.execute(statement, *arguments)
