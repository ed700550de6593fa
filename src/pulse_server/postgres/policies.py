"""The policies of topics. Each method sends the SQL section of the same name."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from pulse_server.domain.policies import Grace, Kept, PolicyChange, TopicPolicy, keep_anew
from pulse_server.domain.run_policies import NO_RUN_POLICY, Backoff, Declaration, RunPolicy, StoredRun
from pulse_server.domain.status import JobStatus
from pulse_server.postgres.database import Database
from pulse_server.postgres.limit_owners import limit_policy_to_json
from pulse_server.postgres.statements import Fetch, Rows, statements

_SQL = statements("policies.sql")
_STATUSES = {
    "completed": JobStatus.COMPLETED,
    "canceled": JobStatus.CANCELED,
    "dead_lettered": JobStatus.DEAD_LETTERED,
}
# Stored for `forever`: longer than any accepted duration, but short enough for Postgres to subtract
# it from the present.
_FOREVER = timedelta(days=365_000)
# Some 500 topics. Longer texts are parsed in a thread: 10,000 take 60 ms, which would delay jobs.
_LONG_TEXT = 64 * 1024


class PostgresPolicyRepo:
    def __init__(self, database: Database, grace: Grace | None = None) -> None:
        self._database = database
        self._grace = grace or Grace()
        # The last policies, and their checksum. They are read every few seconds and rarely change.
        self._last: tuple[str, Mapping[str, StoredRun]] = ("", {})

    async def set_policy(self, topic: str, change: PolicyChange, by: str) -> TopicPolicy:
        """Change the policy and return the new one. An empty policy is deleted.

        All of the change is stored, or nothing: retention, runs, and the operators' limits.
        """

        async def work(fetch: Fetch) -> Rows:
            if change.changes_retention:
                (row,) = await fetch(_SQL["lock_policy"], topic)
                known = TopicPolicy(
                    topic, _kept(row), before=_kept(row, "before"), shorter_from=row["shorter_from"]
                )
                policy = keep_anew(known, change, self._grace, row["now"])
                columns = (*_stored(policy.kept), *_stored(policy.before), policy.shorter_from)
                await fetch(_SQL["set_policy"], topic, *columns, by)
                await fetch(_SQL["delete_empty_policy"], topic)
            if change.changes_runs:
                entries, returned = run_policy_to_json(change.run), sorted(change.run_returned)
                await fetch(_SQL["override_policy"], topic, entries, returned, by)
                await fetch(_SQL["delete_empty_run_policies"], [topic])
            if change.changes_limits:
                limits, returned = limit_policy_to_json(change.limits), sorted(change.limits_returned)
                await fetch(_SQL["override_limits"], topic, limits, returned, by)
            return await fetch(_SQL["list_policies"], "", 1, [topic])

        rows = await self._database.operators.transact("set_policy", work)
        return _policy(rows[0]) if rows else TopicPolicy(topic)

    async def declare_policies(self, declared: Mapping[str, RunPolicy], by: str) -> Sequence[Declaration]:
        """Store a worker's declarations by topic. An empty policy withdraws the declaration.

        Returns the previous values of the declarations that changed. An empty one: there was none.
        """
        topics = sorted(declared)
        texts = [run_policy_to_json(declared[topic]) for topic in topics]

        async def work(fetch: Fetch) -> Rows:
            rows = await fetch(_SQL["declare_policies"], topics, texts, by)
            if rows:
                await fetch(_SQL["delete_empty_run_policies"], topics)
            return rows

        rows = await self._database.operators.transact("declare_policies", work)
        return [
            Declaration(
                row["topic"],
                run_policy_from_json(json.loads(row["before"])),
                row["declared_by"] or "",
                row["declared_at"],
            )
            for row in rows
        ]

    async def list_policies(
        self, *, limit: int, after: str = "", topics: Collection[str] | None = None
    ) -> list[TopicPolicy]:
        """Policies by topic, after `after`. With `topics`, only these."""
        rows = await self._database.reads.fetch(
            *("list_policies", _SQL["list_policies"], after, limit),
            list(topics) if topics is not None else None,
        )
        return [_policy(row) for row in rows]

    async def read_run_policies(self) -> Mapping[str, StoredRun]:
        """Operators' settings and workers' declarations, for each topic that has either."""
        checksum, policies = self._last
        ((text,),) = await self._database.hot.fetch("read_run_policies", _SQL["read_run_policies"], checksum)
        if text is not None:
            policies = await asyncio.to_thread(_read, text) if len(text) > _LONG_TEXT else _read(text)
            self._last = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(), policies
        return policies


def kept_from_column(span: timedelta) -> Kept:
    return None if span >= _FOREVER else span


def run_policy_to_json(policy: RunPolicy) -> str:
    entries: dict[str, Any] = {}
    if policy.backoff is not None:
        entries["backoff"] = backoff_to_json(policy.backoff)
    if policy.max_attempts is not None:
        entries["max_attempts"] = policy.max_attempts
    if policy.timeout is not None:
        entries["timeout"] = policy.timeout.total_seconds()
    if policy.max_crashes is not None:
        entries["max_crashes"] = policy.max_crashes
    return json.dumps(entries)


def backoff_to_json(backoff: Backoff) -> dict[str, float]:
    return {
        "first": backoff.first.total_seconds(),
        "factor": backoff.factor,
        "longest": backoff.longest.total_seconds(),
        "jitter": backoff.jitter,
    }


def run_policy_from_json(entries: Mapping[str, Any]) -> RunPolicy:
    backoff = entries.get("backoff")
    timeout = entries.get("timeout")
    return RunPolicy(
        backoff=Backoff(
            timedelta(seconds=backoff["first"]),
            backoff["factor"],
            timedelta(seconds=backoff["longest"]),
            backoff["jitter"],
        )
        if backoff is not None
        else None,
        max_attempts=entries.get("max_attempts"),
        timeout=timedelta(seconds=timeout) if timeout is not None else None,
        max_crashes=entries.get("max_crashes"),
    )


def _read(text: str) -> Mapping[str, StoredRun]:
    return {
        topic: StoredRun(run_policy_from_json(override), run_policy_from_json(declared))
        for topic, (override, declared) in json.loads(text).items()
    }


def _stored(kept: Mapping[JobStatus, Kept]) -> list[timedelta | None]:
    return [
        (_FOREVER if kept[status] is None else kept[status]) if status in kept else None
        for status in _STATUSES.values()
    ]


def _kept(row: asyncpg.Record, kind: str = "kept") -> dict[JobStatus, Kept]:
    spans = {status: row[f"{name}_{kind}"] for name, status in _STATUSES.items()}
    return {status: kept_from_column(span) for status, span in spans.items() if span is not None}


def _policy(row: asyncpg.Record) -> TopicPolicy:
    kept = _kept(row)
    shorter_from = row["shorter_from"]
    is_in_grace = shorter_from is not None and shorter_from > row["now"]
    overrides = _entries(row["overrides"])
    changes: list[tuple[datetime, str]] = []
    if kept or is_in_grace:
        changes.append((row["kept_at"], row["kept_by"]))
    if not overrides.is_empty:
        changes.append((row["overridden_at"], row["overridden_by"]))
    set_at, set_by = max(changes, default=(None, ""))
    declared = _entries(row["declared"])
    return TopicPolicy(
        row["topic"],
        kept,
        set_by,
        set_at,
        overrides,
        declared,
        "" if declared.is_empty else row["declared_by"],
        None if declared.is_empty else row["declared_at"],
        _kept(row, "before") if is_in_grace else {},
        shorter_from if is_in_grace else None,
    )


def _entries(text: str | None) -> RunPolicy:
    return NO_RUN_POLICY if text is None else run_policy_from_json(json.loads(text))
