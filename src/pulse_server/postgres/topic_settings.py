"""The settings of topics. Each method sends the SQL section of the same name, or says which."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import groupby
from typing import NamedTuple

import asyncpg

from pulse.topic_settings import Entries, Keep, from_json, to_json
from pulse_server.database.connections import Database
from pulse_server.database.statements import Fetch, Rows, statements
from pulse_server.domain.topic_settings import (
    GRACE,
    KEPT,
    LIMITS,
    RUNS,
    Declaration,
    Declared,
    Grace,
    Kept,
    Owners,
    OwnRow,
    OwnTopic,
    Replaced,
    Runs,
    Shortened,
    in_force,
    is_news,
    own_entries,
    part,
    shortened,
)

_SQL = statements("topic_settings.sql")
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
            *(
                "forget_declarations",
                _SQL["forget_declarations"],
                list(topics),
                list(LIMITS),
                list(RUNS),
                after,
            )
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
        *(backoffs, by_operator["backoff"], values["max_attempts"], by_operator["max_attempts"]),
        *(values["attempt_timeout"], values["max_crashes"]),
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
