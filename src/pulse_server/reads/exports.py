"""Exports finished jobs, page by page, in the order of submission. ADR-0058"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pulse_server.base.errors import InvalidArgument
from pulse_server.base.ids import PageKey, decode_name, decode_token, encode_name, encode_token
from pulse_server.database.connections import Database
from pulse_server.database.statements import statements
from pulse_server.jobs.reads import THE_BEGINNING, job_from_row
from pulse_server.jobs.rules import TERMINAL, Job, JobStatus, Step
from pulse_server.steps.store import steps_of_timeline

# Jobs that one statement looks at, whether they match or not, and the bytes that it returns, or one
# larger job. That is also the size of a message, and the memory of each export.
LOOK_AT = 2000
PAGE_BYTES = 1024 * 1024
# A job is visible once its statement has committed, a little after the time in its row. Every job
# that finished longer ago than this is committed: no statement that finishes jobs takes longer.
SETTLED_AFTER = timedelta(seconds=10)

_SQL = statements("exports.sql")


@dataclass(frozen=True, slots=True)
class ExportFilter:
    """Selects finished jobs by when they finished, by topic and by status. A None matches all."""

    finished_before: datetime
    finished_since: datetime | None = None
    topics: frozenset[str] | None = None
    statuses: frozenset[JobStatus] = TERMINAL


@dataclass(frozen=True, slots=True)
class ExportPage:
    """Whole jobs in the order of submission, and how far the walk came. `jobs` may be empty."""

    jobs: list[Job]
    steps: dict[str, list[Step]]
    """The steps by job id, without values. Jobs without steps have no entry."""
    reached: PageKey | None
    """The next page starts after it. None: nothing follows."""


class Exports:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def start(self, wanted: ExportFilter, token: str) -> Walk:
        """Begin an export, or continue the export of the token."""
        if token:
            before, after = _decode(token)
            return Walk(self, replace(wanted, finished_before=before), after)
        since, end = wanted.finished_since, wanted.finished_before
        if since is not None and since > end:
            raise InvalidArgument("finished_since", f"is after {end.isoformat()}, where the export ends.")
        before = min(end, await self.moment_ago(SETTLED_AFTER))
        if since is not None and since > before:
            before = since  # nothing has settled since then: the export is empty, and the next begins there
        return Walk(self, replace(wanted, finished_before=before), None)

    async def export_jobs(
        self, wanted: ExportFilter, *, after: PageKey | None, look_at: int, most_bytes: int
    ) -> ExportPage:
        """The matching jobs among the next `look_at` in submission order, with payload and history.

        Stops at `most_bytes`, but returns at least one job.
        """
        after = after or THE_BEGINNING
        rows = await self._database.reads.fetch(
            *("export_jobs", _SQL["export_jobs"], after.moment, after.id, look_at, most_bytes),
            *(
                wanted.finished_since,
                wanted.finished_before,
                wanted.topics and list(wanted.topics),
                list(wanted.statuses),
            ),
        )
        jobs = [job_from_row(row) for row in rows if row["id"] is not None]
        walk = rows[0]
        if jobs and len(jobs) < walk["matched"]:  # the rest has no room on this page
            reached: PageKey | None = PageKey(jobs[-1].submitted_at, jobs[-1].id)
        elif walk["looked_at"] == look_at:
            reached = PageKey(walk["last_submitted_at"], str(walk["last_id"]))
        else:
            reached = None
        steps = {
            str(row["id"]): steps_of_timeline(row["step_list"])
            for row in rows
            if row["step_list"] is not None
        }
        return ExportPage(jobs, steps, reached)

    async def moment_ago(self, ago: timedelta) -> datetime:
        """The database's time minus `ago`."""
        ((moment,),) = await self._database.reads.fetch("moment_ago", _SQL["moment_ago"], ago)
        return moment  # type: ignore[no-any-return]


class Walk:
    """One export under way."""

    def __init__(self, exports: Exports, wanted: ExportFilter, after: PageKey | None) -> None:
        self._exports = exports
        self._wanted = wanted
        self._after = after
        self.finished_before = wanted.finished_before
        self.is_done = False

    async def next(self) -> ExportPage:
        """The next jobs, perhaps none. Until `is_done` there are more."""
        if self._wanted.finished_since == self.finished_before:
            page = ExportPage([], {}, None)
        else:
            page = await self._exports.export_jobs(
                self._wanted, after=self._after, look_at=LOOK_AT, most_bytes=PAGE_BYTES
            )
        self._after, self.is_done = page.reached, page.reached is None
        return page

    @property
    def token(self) -> str:
        """Continues the export after the last page. Empty: nothing follows."""
        return _encode(self.finished_before, self._after) if self._after is not None else ""


def _encode(before: datetime, reached: PageKey) -> str:
    return encode_name(f"{before.isoformat()}|{encode_token(reached)}")


def _decode(token: str) -> tuple[datetime, PageKey]:
    """The end of the export, and the job after which it continues."""
    text, _, place = decode_name(token).partition("|")
    try:
        before = datetime.fromisoformat(text)
    except ValueError:
        before = datetime.min
    if before.tzinfo is None:
        raise InvalidArgument("page_token", "is not one that an export gave out.")
    return before.astimezone(UTC), decode_token(place)
