"""`pulse outbox relay`: carries jobs from the outbox to pulsed.

Rows are locked, submitted under their own ids, deleted, committed. A relay that dies before the commit leaves
its rows, and the next one submits them again: pulsed answers with the jobs that it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, cast

import pulse
from pulse.enqueues import submit_all
from pulse.jobs.submissions import ItemOptions, Submission, make_submission
from pulse.supervision.processes import signals_handled
from pulse.wire.servers import JitteredBackoff
from pulse_cli import tuning
from pulse_cli.outbox.database import Outbox, OutboxUnavailable, opened
from pulse_text.times import format_duration, format_exact

logger = logging.getLogger("pulse.outbox")

# The same request would be refused again. Any other error may pass.
_FOR_GOOD = (pulse.InvalidArgument, pulse.AlreadyExists)


class Relay:
    """Carries jobs until it is stopped. It outlives outages of both sides."""

    def __init__(self, dsn: str, client: pulse.Pulse) -> None:
        self._dsn = dsn
        self._client = client
        self._stop = asyncio.Event()
        self._backoff = JitteredBackoff(
            tuning.OUTBOX_RETRY_FIRST_SECONDS, tuning.OUTBOX_RETRY_LONGEST_SECONDS
        )
        self._resting = Resting()
        self._retention = RetentionCheck(client)
        self._report = Report()

    async def run(self) -> None:
        """Carry jobs until SIGTERM or SIGINT. A batch that has begun is finished, within its timeout."""
        with signals_handled(self._stop.set, enabled=True):
            while not self._stop.is_set():
                try:
                    async with opened(self._dsn) as outbox:
                        await self._carry(outbox)
                except OutboxUnavailable as error:
                    await self._back_off(error.sentence)

    async def _carry(self, outbox: Outbox) -> None:
        """Carry batch after batch over one connection. Raises OutboxUnavailable when it is of no more use."""
        while not self._stop.is_set():
            try:
                carried = await self._carry_batch(outbox)
            except pulse.PulseError as error:
                await self._back_off(error.message)
            except TimeoutError:
                await self._back_off("The batch was not finished in time.")
            else:
                self._backoff.reset()
                if carried < tuning.OUTBOX_BATCH_JOBS:
                    await self._sleep(tuning.OUTBOX_POLL_SECONDS)
            await self._report.log_when_due(outbox)

    async def _back_off(self, reason: str) -> None:
        seconds = self._backoff.next_seconds()
        logger.warning("%s The next try is in %s.", reason, format_duration(timedelta(seconds=seconds)))
        await self._sleep(seconds)

    async def _carry_batch(self, outbox: Outbox) -> int:
        """Carry one batch. Returns how many rows it took."""
        async with asyncio.timeout(tuning.OUTBOX_BATCH_TIMEOUT.total_seconds()), outbox.transaction():
            rows = await outbox.take(self._resting.numbers())
            if not rows:
                return 0
            stored, refused = await self._submit(rows)
            await outbox.settle(stored, refused)
        for row in rows:
            if row["number"] in refused:
                logger.error(
                    "pulsed refused job %s on %s: %s", row["id"], row["topic"], refused[row["number"]]
                )
        self._report.add(len(stored), len(refused))
        # Of stored jobs only: one topic that is not allowed would fail the check of all.
        carried = set(stored)
        await self._retention.check({row["topic"] for row in rows if row["number"] in carried})
        return len(rows)

    async def _submit(self, rows: Sequence[Mapping[str, Any]]) -> tuple[list[int], dict[int, str]]:
        """Submit rows. Returns the numbers of stored rows, and the reason for each refused row."""
        stored: list[int] = []
        refused: dict[int, str] = {}
        jobs: dict[int, Submission] = {}
        for row in rows:
            try:
                jobs[row["number"]] = _submission_of(row)
            except (pulse.PulseError, ValueError, RecursionError) as error:
                refused[row["number"]] = str(error)
        outcomes = await submit_all(self._client, [*jobs.values()], tuning.CALL_TIMEOUT) if jobs else []
        for (number, job), outcome in zip(jobs.items(), outcomes, strict=True):
            if isinstance(outcome, _FOR_GOOD):
                refused[number] = outcome.message
            elif isinstance(outcome, pulse.PulseError):
                self._resting.add(number)
                logger.warning("Job %s waits: %s", job.request.job_id, outcome.message)
            else:
                stored.append(number)
        return stored, refused

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)


def _submission_of(row: Mapping[str, Any]) -> Submission:
    options: dict[str, Any] = {
        name: row[name] for name in ("priority", "run_at", "max_attempts", "start_within", "lane", "key")
    }
    options["job_id"] = str(row["id"])
    if row["metadata_text"] is not None:
        options["metadata"] = json.loads(row["metadata_text"])
    if row["unique_key"] is not None:
        options["unique"] = pulse.Unique(
            row["unique_key"],
            while_=row["unique_scope"],
            on_conflict=row["on_conflict"],
            period=row["period"],
            longest=row["longest"],
        )
    return make_submission(
        row["topic"],
        row["payload"],
        pulse.JobHandle,
        cast("ItemOptions", options),
        row["default_attempts"],
    )


class Resting:
    """Rows that pulsed could not store. The next batches skip them for a moment."""

    def __init__(self) -> None:
        self._until: dict[int, float] = {}

    def add(self, number: int) -> None:
        """Leave a row out for a moment."""
        self._until[number] = time.monotonic() + tuning.OUTBOX_REST_SECONDS

    def numbers(self) -> list[int]:
        """Return the rows to leave out now."""
        now = time.monotonic()
        self._until = {number: until for number, until in self._until.items() if until > now}
        return [*self._until]


class RetentionCheck:
    """Warns of topics whose completed jobs are deleted so soon that a late repeat would run again."""

    def __init__(self, client: pulse.Pulse) -> None:
        self._client = client
        self._checked: set[str] = set()
        self._forget_at = 0.0

    async def check(self, topics: set[str]) -> None:
        """Check topics that were not checked within the hour."""
        if time.monotonic() >= self._forget_at:
            self._checked.clear()
            self._forget_at = time.monotonic() + tuning.OUTBOX_KEPT_AT_LEAST.total_seconds()
        if not (fresh := topics - self._checked):
            return
        self._checked |= fresh
        try:
            found = await self._client.all_topic_settings(names=sorted(fresh), timeout=tuning.CALL_TIMEOUT)
        except pulse.PulseError as error:
            logger.warning("The retention of %s is not checked: %s", ", ".join(sorted(fresh)), error)
            return
        for topic in sorted(fresh):
            keep = found.of(topic).in_force.get("keep_completed")
            if isinstance(keep, timedelta) and keep < tuning.OUTBOX_KEPT_AT_LEAST:
                logger.warning(
                    "Completed jobs on %s are kept for %s only. If a relay dies and another one repeats its "
                    "batch after that, they run twice. Keep them for an hour at least: "
                    "pulse topics set %s --keep-completed 1h",
                    topic,
                    format_exact(keep),
                    topic,
                )


class Report:
    """Logs once a minute how many jobs the relay carried and how many the outbox holds."""

    def __init__(self) -> None:
        self._stored = self._refused = 0
        self._due_at = time.monotonic() + tuning.OUTBOX_REPORT_SECONDS

    def add(self, stored: int, refused: int) -> None:
        """Count a batch."""
        self._stored += stored
        self._refused += refused

    async def log_when_due(self, outbox: Outbox) -> None:
        """Log the minute, if there is something to report."""
        if time.monotonic() < self._due_at:
            return
        self._due_at = time.monotonic() + tuning.OUTBOX_REPORT_SECONDS
        status = await outbox.status()
        if self._stored or self._refused or status.waiting or status.refused:
            logger.info(
                "Carried %d jobs, %d were refused. %d wait%s; %d refused jobs in all.",
                self._stored,
                self._refused,
                status.waiting,
                "" if status.lag is None else f", the oldest for {format_duration(status.lag)}",
                status.refused,
            )
        self._stored = self._refused = 0
