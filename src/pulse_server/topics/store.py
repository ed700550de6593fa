"""The settings of topics and their limits. Each method sends the SQL section of the same name."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import groupby
from time import monotonic
from typing import NamedTuple

import asyncpg

from pulse.topic_settings import Entries, Keep, Rate, from_json, to_json
from pulse_server.base.errors import LimitsLocked, PulseError
from pulse_server.database import audit
from pulse_server.database import audit as database_audit
from pulse_server.database.connections import Connections, Database
from pulse_server.database.statements import Fetch, Rows, statements
from pulse_server.dispatch.store import HASTY_MILLISECONDS, PostgresLimitedClaims, fetch_hastily, lock_named
from pulse_server.topics.rules import (
    GRACE,
    KEPT,
    LIMITS,
    RUNS,
    Declaration,
    Declared,
    Grace,
    HeldUntil,
    Kept,
    LaneState,
    Limits,
    OpenTransaction,
    Owners,
    OwnRow,
    OwnTopic,
    Repaired,
    Replaced,
    Runs,
    Shortened,
    in_force,
    is_news,
    own_entries,
    part,
    pending,
    shortened,
)

_SQL = statements("topics/settings.sql", "topics/limits.sql")


# ---------------------------------------------------------------- topic settings
# The settings of topics. Each method sends the SQL section of the same name, or says which.

_COLUMNS = dict(zip(("completed", "canceled", "dead_lettered"), KEPT, strict=True))
# Stored for `forever`: longer than any accepted duration, but short enough for Postgres to subtract
# it from the present.
_FOREVER = timedelta(days=365_000)
# Some 1,000 topics. Longer texts are parsed in a thread: 10,000 take 30 ms, which would delay jobs.
_LONG_TEXT = 64 * 1024
# A server records its workers every 5 s. A server that is silent for longer may have lost them.
_SERVER_SILENCE = timedelta(seconds=20)


class PostgresTopicSettings:
    def __init__(self, database: Database, grace: Grace | None = None) -> None:
        self._database = database
        self._grace = grace or Grace()
        # The last rules, and their checksum. They are read every few seconds and rarely change.
        self._last: tuple[str, Mapping[str, Runs]] = ("", {})

    async def set_topic(self, topic: str, entries: Entries, reset: Collection[str], by: str) -> None:
        """Set entries of operators, and reset others."""

        async def work(fetch: Fetch) -> Rows:
            (rules,) = await fetch(_SQL["lock_topics"], [topic])
            owners = (await _owners_of(fetch, [topic], ""))[topic].owners
            kept = {name: value for name, value in owners.operator.items() if name not in reset}
            operator = {**kept, **entries}
            texts = [json.dumps(to_json(entries))]
            await fetch(_SQL["store_entries"], [topic], texts, "", list(reset), by)
            await _store_runs(fetch, {topic: owners.runs}, {topic: operator})
            if any(name in KEPT for name in (*entries, *reset)):
                known = Shortened(_kept(rules, "before"), rules["shorter_from"])
                longer = shortened(owners.operator, operator, known, self._grace, rules["now"])
                columns = (*_lengths(operator), *_lengths(longer.before), longer.shorter_from)
                await fetch(_SQL["store_kept"], topic, *columns)
            await fetch(_SQL["forget_rules"], [topic])
            return []

        await self._database.operators.transact("set_topic", work)

    async def declare_topics(self, declared: Mapping[str, Entries], worker: str) -> Declared:
        """Store what a worker declares, by topic. What is stored already is not written again.

        However many topics there are, this is one transaction of a few statements.
        """
        topics = sorted(declared)
        rows = await self._database.operators.fetch(
            "read_rows", _SQL["read_rows"], topics, worker, list(RUNS)
        )
        news = _news(declared, _owners(topics, rows, worker), worker)
        if not news:
            return Declared((), ())
        replaced: list[Replaced] = []

        async def work(fetch: Fetch) -> Rows:
            replaced.clear()
            await fetch(_SQL["lock_topics"], news)
            known = await _owners_of(fetch, news, worker)
            # Another worker may have declared the same since.
            still = _news({topic: declared[topic] for topic in news}, known, worker)
            rows = {topic: own_entries(declared[topic], known[topic].owners, worker) for topic in still}
            # Without entries only a row that had limits stays: it says that the worker has none by now.
            stored = [topic for topic in still if rows[topic] or _has_limits(known[topic].own)]
            texts = [json.dumps(to_json(rows[topic])) for topic in stored]
            await fetch(_SQL["store_entries"], stored, texts, worker, [], "")
            if left := [topic for topic in still if not rows[topic] and topic not in stored]:
                await fetch(_SQL["delete_entries"], left, worker)
            runs = {topic: part(declared[topic], RUNS) for topic in still}
            changed = [topic for topic in still if runs[topic] != known[topic].owners.runs]
            if changed:
                await fetch(_SQL["replace_runs"], changed, worker, list(RUNS))
                operators = {topic: known[topic].owners.operator for topic in changed}
                await _store_runs(fetch, {topic: runs[topic] for topic in changed}, operators)
            await fetch(_SQL["forget_rules"], news)
            for owners in (known[topic].owners for topic in changed):
                replaced.append(Replaced(owners.topic, owners.runs, owners.runs_by, owners.runs_at))
            return []

        await self._database.operators.transact("declare_topics", work)
        return Declared(news, replaced)

    async def list_topics(
        self, *, limit: int, after: str = "", topics: Collection[str] | None = None
    ) -> list[OwnTopic]:
        named = None if topics is None else list(topics)
        rows = await self._database.reads.fetch("list_topics", _SQL["list_topics"], after, limit, named)
        return [
            OwnTopic(row["topic"], Shortened(_kept(row, "before"), row["shorter_from"]).at(row["now"]))
            for row in rows
        ]

    async def read_owners(self, topics: Collection[str] | None = None) -> list[Owners]:
        """The owners of these topics; without `topics`, of those that have limits."""
        named = None if topics is None else list(topics)
        rows = await self._database.reads.fetch(
            "read_owners", _SQL["read_owners"], named, list(LIMITS), list(RUNS), _SERVER_SILENCE, GRACE
        )
        return [_grouped(topic, list(group)) for topic, group in groupby(rows, key=_topic)]

    async def read_rules(self) -> Mapping[str, Runs]:
        """How the jobs run of each topic that has rules for it."""
        checksum, rules = self._last
        ((text,),) = await self._database.hot.fetch("read_rules", _SQL["read_rules"], checksum)
        if text is not None:
            rules = await asyncio.to_thread(_read, text) if len(text) > _LONG_TEXT else _read(text)
            self._last = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(), rules
        return rules

    async def mark_missing(self) -> None:
        """Record which of the workers with declarations are connected."""
        await self._database.operators.fetch(
            "mark_missing", _SQL["mark_missing"], list(LIMITS), _SERVER_SILENCE
        )

    async def forget_declarations(self, topics: Collection[str], after: timedelta) -> None:
        """Withdraw the limits of workers that have been away for at least `after`."""
        await self._database.operators.fetch(
            "forget_declarations", _SQL["forget_declarations"], list(topics), list(LIMITS), list(RUNS), after
        )

    async def forget_owners(self, topics: Collection[str]) -> None:
        """Delete what owners have withdrawn."""
        await self._database.operators.fetch("forget_owners", _SQL["forget_owners"], list(topics))
        await self._database.operators.fetch("forget_rules", _SQL["forget_rules"], list(topics))


def kept_from_column(span: timedelta) -> Kept:
    return None if span >= _FOREVER else span


# ---------------------------------------------------------------- in a transaction


class _Known(NamedTuple):
    """The owners that a change has to know, and the row of the worker that declares."""

    owners: Owners
    own: OwnRow | None


async def _owners_of(fetch: Fetch, topics: Sequence[str], worker: str) -> Mapping[str, _Known]:
    return _owners(topics, await fetch(_SQL["read_rows"], topics, worker, list(RUNS)), worker)


def _owners(topics: Iterable[str], rows: Rows, worker: str) -> Mapping[str, _Known]:
    known = {topic: _Known(Owners(topic), None) for topic in topics}
    for topic, owner, text, set_at, is_missing in rows:
        (owners, own), entries = known[topic], from_json(json.loads(text))
        if not owner:
            owners = replace(owners, operator=entries)
        elif runs := part(entries, RUNS):
            owners = replace(owners, runs=runs, runs_by=owner, runs_at=set_at)
        known[topic] = _Known(owners, OwnRow(entries, is_missing) if owner == worker and owner else own)
    return known


def _has_limits(own: OwnRow | None) -> bool:
    return own is not None and (not own.entries or bool(part(own.entries, LIMITS)))


def _news(declared: Mapping[str, Entries], known: Mapping[str, _Known], worker: str) -> list[str]:
    return [
        topic
        for topic in sorted(declared)
        if is_news(declared[topic], known[topic].own, known[topic].owners, worker)
    ]


async def _store_runs(
    fetch: Fetch, declared: Mapping[str, Entries], operators: Mapping[str, Entries]
) -> None:
    rules = [in_force(part(operators[topic], RUNS), runs) for topic, runs in declared.items()]
    values = {name: [each[name].value if name in each else None for each in rules] for name in RUNS}
    by_operator = {name: [name in operators[topic] for topic in declared] for name in RUNS}
    backoffs = [
        None if backoff is None else json.dumps(to_json({"backoff": backoff})["backoff"])
        for backoff in values["backoff"]
    ]
    await fetch(
        _SQL["store_runs"],
        list(declared),
        backoffs,
        by_operator["backoff"],
        values["max_attempts"],
        by_operator["max_attempts"],
        values["attempt_timeout"],
        values["max_crashes"],
    )


def _lengths(entries: Entries) -> list[timedelta | None]:
    """Return the columns of durations."""
    found: list[Keep | None] = [entries.get(name) for name in _COLUMNS.values()]
    return [_FOREVER if keep == "forever" else keep for keep in found]


def _kept(row: asyncpg.Record, kind: str) -> dict[str, Keep]:
    spans = {name: row[f"{column}_{kind}"] for column, name in _COLUMNS.items()}
    return {name: "forever" if span >= _FOREVER else span for name, span in spans.items() if span is not None}


# ---------------------------------------------------------------- rows


def _topic(row: asyncpg.Record) -> str:
    topic: str = row["topic"]
    return topic


def _grouped(topic: str, rows: Sequence[asyncpg.Record]) -> Owners:
    operator = next((row for row in rows if row["is_operator"]), None)
    workers = [row for row in rows if not row["is_operator"]]
    declarations = [_declaration(row) for row in workers if row["has_limits"]]
    runs = next((row for row in workers if row["runs"] is not None), None)
    return Owners(
        topic,
        {} if operator is None else from_json(json.loads(operator["entries"])),
        "" if operator is None else operator["set_by"],
        None if operator is None else operator["set_at"],
        declarations,
        # Only while all are away it counts that others serve the topic.
        rows[0]["is_served"] and all(each.missing_for is not None for each in declarations),
        any(row["has_moved"] for row in rows),
        {} if runs is None else from_json(json.loads(runs["runs"])),
        "" if runs is None else runs["runs_by"],
        None if runs is None else runs["runs_at"],
    )


def _declaration(row: asyncpg.Record) -> Declaration:
    missing = row["missing_seconds"]
    return Declaration(
        from_json(json.loads(row["entries"])),
        row["workers"],
        row["worker_id"],
        row["set_at"],
        None if missing is None else timedelta(seconds=missing),
    )


def _read(text: str) -> Mapping[str, Runs]:
    return {
        topic: Runs(attempts, by_operator, None if seconds is None else timedelta(seconds=seconds))
        for topic, (attempts, by_operator, seconds) in json.loads(text).items()
    }


# ---------------------------------------------------------------- limits
# Limits. Each method sends the SQL section of the same name; most of them call a function. ADR-0064

# How long a change waits for a lock of a running job or of the pool; ends of the topic's jobs wait with it.
# Longer after a transaction that has ended since: many short ones, of a slow database. Below
# deadlock_timeout (1 s).
_PATIENT_MILLISECONDS, _LONGEST_MILLISECONDS = 300, 900
# A claim of a server takes no longer than its statement may. All that were under way before the mark have
# ended in time, so this is not the session of another program.
_LONGEST_START_MILLISECONDS = 5000
_BETWEEN_LOOKS = timedelta(milliseconds=10)
# What limit_topic_v1 returns.
_IN_FORCE, _LOCKED, _UNMARKED = "in force", "locked", "unmarked"


class PostgresLimitRepo(PostgresLimitedClaims):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._met: dict[str, _Obstacle] = {}

    async def limit_topic(self, topic: str, limits: Entries) -> Sequence[OpenTransaction] | None:
        """Put the limits in force. Every server applies them from its next claim on.

        Returns the transactions that have to end first; nothing is changed then. None: they are in force.
        """
        return await self._limit_topic(topic, limits, is_retired=False)

    async def retire(self, topic: str) -> Sequence[OpenTransaction] | None:
        """Stop limiting the topic, as `limit_topic`. Its row is removed later by `remove_retired`."""
        return await self._limit_topic(topic, {}, is_retired=True)

    async def _limit_topic(
        self, topic: str, limits: Entries, *, is_retired: bool
    ) -> Sequence[OpenTransaction] | None:
        ordered = bool(limits.get("ordered"))
        per_lane = 1 if ordered else limits.get("per_lane")
        rate, lane_rate = limits.get("rate"), limits.get("lane_rate")
        is_laned = (
            per_lane is not None or lane_rate is not None or "aging" in limits or bool(limits.get("turns"))
        )
        change = _Change(
            self._database.operators,
            topic,
            (
                topic,
                limits.get("pool", topic),
                is_laned,
                per_lane,
                lane_rate and lane_rate.starts,
                lane_rate and lane_rate.per,
                ordered,
                limits.get("aging"),
                is_retired,
                limits.get("running"),
                rate and rate.starts,
                rate and rate.per,
            ),
            self._met.pop(topic, None),
        )
        met = await change.make()
        if met is None:
            return None
        self._met[topic] = met
        change_of_entry = {"pending": {"old": None, "new": pending(met.holders)}}

        async def work(fetch: Fetch) -> Rows:
            await audit.add_to_entry(fetch, topic, change_of_entry)
            return []

        if database_audit.current() is not None:
            await self._database.operators.transact("note_pending", work)
        return met.holders

    async def unmark(self, wanted: Collection[str]) -> list[str]:
        """Let plain claims take topics again that a server was about to limit when it was killed.

        Not those that are `wanted` limited, which the next try limits. Returns these topics.
        """
        rows = await self._database.operators.fetch("marked_topics", _SQL["marked_topics"], list(wanted))
        unmarked = []
        for (topic,) in rows:
            ((is_plain,),) = await self._database.operators.fetch(
                "unmark_topic", _SQL["unmark_topic"], topic, None
            )
            if is_plain:
                unmarked.append(topic)
        return unmarked

    async def remove_retired(self) -> list[str]:
        """End what changes of limits have left, and make retired topics plain. Returns these topics."""
        rows = await self._database.operators.fetch("unsettled_topics", _SQL["unsettled_topics"])
        removed = []
        for (topic,) in rows:
            with suppress(LimitsLocked):  # the next round meets it again
                ((is_plain,),) = await _wait(
                    self._database.operators, HASTY_MILLISECONDS, "unlimit_topic", topic
                )
                if is_plain:
                    removed.append(topic)
        return removed

    async def hold(self, topic: str, span: timedelta, *, by_operator: bool) -> HeldUntil | None:
        """Start no job of the topic, nor of other topics in its pool, for `span`; zero ends the
        hold.

        The longest hold counts. A worker cannot end an operator's hold. Returns the time when the
        topic's hold ends, or None if the topic is not limited.
        """
        rows = await self._database.operators.fetch("hold", _SQL["hold"], topic, span, by_operator)
        return HeldUntil(rows[0]["closed_until"]) if rows else None

    async def set_lane(self, topic: str, lane: str, weight: int, limit: int | None) -> bool:
        """Set the weight and limit of one lane. False: the topic has no lanes."""
        rows = await self._database.operators.fetch("set_lane", _SQL["set_lane"], topic, lane, weight, limit)
        return bool(rows[0]["has_lanes"])

    async def list_limits(
        self, *, limit: int, after: str = "", topics: Collection[str] | None = None
    ) -> list[Limits]:
        """Limited topics by name, after `after`. With `topics`, only these."""
        named = None if topics is None else list(topics)
        rows = await self._database.reads.fetch("list_limits", _SQL["list_limits"], after, limit, named)
        return [_limits(row) for row in rows]

    async def list_lanes(self, topic: str, *, limit: int, by_share: bool = False) -> list[LaneState]:
        """The longest-waiting lanes; with `by_share`, the lanes with the most running jobs."""
        rows = await self._database.reads.fetch("list_lanes", _SQL["list_lanes"], topic, limit, by_share)
        return [
            LaneState(
                row["lane"],
                row["waiting"],
                row["running"],
                row["oldest"],
                row["next_at"],
                row["weight"],
                row["limit"],
            )
            for row in rows
        ]

    async def forget_lanes(self, limit: int) -> int:
        """Delete lanes that were not used for a long time. Returns their number."""
        rows = await self._database.operators.fetch("forget_lanes", _SQL["forget_lanes"], limit)
        return int(rows[0]["forgotten"])

    async def sweep(self) -> Repaired:
        """Compare the stored counts with the running jobs, and correct wrong counts."""
        rows = await self._database.operators.fetch("sweep", _SQL["sweep"])
        return Repaired(*rows[0])


@dataclass(frozen=True, slots=True)
class _Obstacle:
    """What a change of the limits of a topic has met, for the next try."""

    holders: Sequence[OpenTransaction]
    starts: Sequence[str]
    """Claims of plain topics that were under way."""


class _Change:
    """A try to change the limits of one topic. docs/figures.md#limits-without-a-table-lock"""

    def __init__(
        self, database: Connections, topic: str, arguments: Sequence[object], met_before: _Obstacle | None
    ) -> None:
        self._database = database
        self._topic = topic
        self._arguments = arguments
        self._met_before = met_before
        self._patience = _PATIENT_MILLISECONDS if met_before is None else _LONGEST_MILLISECONDS

    async def make(self) -> _Obstacle | None:
        """Returns None once it is in force; else which transactions have to end first.

        It may find none of them, as for a lock that several sessions share.
        """
        if (before := self._met_before) is not None:
            met_now = await self._obstacle(before.starts)
            if not set(before.holders).isdisjoint(met_now.holders):
                # A try would keep ends of jobs waiting for nothing. So a mark is of a server that was killed.
                await self._unmark(None)
                return met_now
        mark: int | None = None
        until = monotonic() + _PATIENT_MILLISECONDS / 1000
        try:
            while (met := await self._try(mark)) != _IN_FORCE:
                if met == _LOCKED or (mark is not None and monotonic() >= until):
                    return await self._obstacle()
                if met == _UNMARKED:
                    # Those before the mark first: the topic goes on until they have ended.
                    known = before.starts if before is not None else ()
                    if starts := await self._remaining_starts(_PATIENT_MILLISECONDS, known):
                        return await self._obstacle(starts)
                    mark = await self._mark()
                    if starts := await self._remaining_starts(_LONGEST_START_MILLISECONDS):
                        return await self._obstacle(starts)
            mark = None
            return None
        finally:
            if mark is not None:
                # Also if this is canceled: until then no job of the topic starts. If it fails, or this
                # server is killed, the loop of any server ends the mark.
                with suppress(PulseError):
                    await asyncio.shield(self._end(mark))

    async def _try(self, mark: int | None) -> str:
        try:
            rows = await _wait(self._database, self._patience, "limit_topic", *self._arguments, mark)
        except LimitsLocked:
            return _LOCKED
        return str(rows[0]["met"])

    async def _mark(self) -> int | None:
        rows = await self._database.fetch("mark_topic", _SQL["mark_topic"], self._topic)
        # Another server is at it, or was killed.
        rows = rows or await self._database.fetch("read_mark", _SQL["read_mark"], self._topic)
        return rows[0]["mark"] if rows else None

    async def _end(self, mark: int) -> None:
        # A pause that has written the row since has made another mark of it. So has another server: that
        # one sets its mark once more.
        if not await self._unmark(mark):
            await self._unmark(None)

    async def _unmark(self, mark: int | None) -> bool:
        rows = await self._database.fetch("unmark_topic", _SQL["unmark_topic"], self._topic, mark)
        return bool(rows[0]["is_plain"])

    async def _remaining_starts(self, patience: int, among: Sequence[str] = ()) -> Sequence[str]:
        """Returns which plain claims under way do not end in time."""
        until = monotonic() + patience / 1000
        while True:
            rows = await self._database.fetch("plain_starts", _SQL["plain_starts"], list(among) or None)
            among = [number for (number,) in rows]
            if not among or monotonic() >= until:
                return among
            await asyncio.sleep(_BETWEEN_LOOKS.total_seconds())

    async def _obstacle(self, starts: Sequence[str] = ()) -> _Obstacle:
        pools = [self._arguments[1], self._topic]
        rows = await self._database.fetch(
            "open_transactions", _SQL["open_transactions"], self._topic, pools, list(starts)
        )
        return _Obstacle([OpenTransaction(*row) for row in rows], starts)


async def _wait(database: Connections, milliseconds: int, name: str, *args: object) -> Rows:
    """Run a statement of its own transaction. LimitsLocked if a lock is not free in time."""

    async def work(fetch: Fetch) -> Rows:
        return await fetch_hastily(fetch, milliseconds, _SQL[name], *args)

    with lock_named():
        return await database.transact(name, work)


def _limits(row: asyncpg.Record) -> Limits:
    topic, pool = row["topic"], row["name"]
    limits = {
        "running": row["limit"],
        "rate": _rate(row["starts"], row["period"]),
        "pool": None if pool == topic else pool,
        "per_lane": row["per_lane"],
        "lane_rate": _rate(row["lane_starts"], row["lane_period"]),
        "turns": row["laned"] or None,
        "ordered": row["ordered"] or None,
        "aging": row["aging"],
    }
    return Limits(
        topic,
        {name: value for name, value in limits.items() if value is not None},
        row["running"],
        row["closed_until"],
        row["next_start_at"],
        row["started"],
        row["lanes_are_full"],
    )


def _rate(starts: int | None, period: timedelta | None) -> Rate | None:
    return None if starts is None or period is None else Rate(starts, period)
