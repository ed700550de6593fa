"""What operators look up: searches, exports, and the audit."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pulse_server.base import bounds
from pulse_server.base.errors import InvalidArgument
from pulse_server.base.ids import (
    Page,
    PageKey,
    decode_name,
    decode_token,
    encode_name,
    encode_token,
    fitting,
    page_of,
)
from pulse_server.database.audit import Action, entry_columns
from pulse_server.database.connections import Database
from pulse_server.database.statements import Fetch, Rows, statements
from pulse_server.jobs.reads import THE_BEGINNING, Listing, job_from_row
from pulse_server.jobs.rules import TERMINAL, Job, JobFilter, JobStatus, Step
from pulse_server.steps.store import steps_of_timeline
from pulse_server.work.jobs import JOBS_FOUND, SEARCHED_JOBS, job_weight, page_key

# ---------------------------------------------------------------- searches
# Searches jobs by any part of their id, topic, worker, lane or keys, and by fields of their payloads.
#
# A search compares the newest jobs of its filter one by one, a bounded number of them, and passes a bounded
# number of jobs of other topics. Its token continues with older ones.

# Jobs that one call compares, and the bytes of their payloads that it reads if it looks for a field.
COMPARED = 10_000
COMPARED_BYTES = 16 * 1024 * 1024
MOST_TERMS = 8
LONGEST_PATH = 16

_SQL = statements("views/records.sql", "database/audit.sql")
_QUERIES = statements("jobs/queries.sql")
_ID_PREFIX = re.compile(r"[0-9a-f]{1,32}")
# `args` is the payload, as in the SDK.
_FIELD = re.compile(r"(?:args|payload)\.([^=]*)=(.*)")
_ORDER = "ORDER BY submitted_at DESC, id DESC"
_TEXTS = (
    "lower(concat_ws(chr(10), id::text, replace(id::text, '-', ''), topic, worker, lane, idempotency_key, "
    "unique_key))"
)


@dataclass(frozen=True, slots=True)
class Search:
    """What to look for. A job has to match all of it."""

    words: tuple[str, ...]
    fields: tuple[tuple[list[str], str], ...]
    """Path and value of each."""


@dataclass(frozen=True, slots=True)
class Found:
    """Matching jobs, newest first, and how far the search came."""

    jobs: Sequence[Job]
    compared: int
    """0 without `compared_to`: an index was used."""
    compared_to: datetime | None
    """Jobs until then were compared. None: all were, or an index was used."""
    next_token: str
    """For more matches, or older jobs to compare. Empty: there are none."""


def parse_search(text: str) -> Search:
    """Read `mail acme args.order_id=42`. Raises InvalidArgument."""
    terms = bounds.check_text(text, "text", bounds.MAX_SEARCH_LENGTH).split()
    if not terms:
        raise InvalidArgument("text", "is empty: give a part of an id, topic, worker, lane or key.")
    if len(terms) > MOST_TERMS:
        raise InvalidArgument("text", f"has {len(terms)} words; {MOST_TERMS} are allowed at the most.")
    words, fields = [], []
    for term in terms:
        if (found := _FIELD.fullmatch(term)) is None:
            words.append(term)
            continue
        path = found[1].split(".")
        if not all(path) or len(path) > LONGEST_PATH:
            raise InvalidArgument(
                "text", f"{term[:40]!r} names no field: write it as args.customer.name=ada."
            )
        fields.append((path, found[2]))
    return Search(tuple(words), tuple(fields))


class Searches:
    def __init__(self, database: Database) -> None:
        self._reads = database.reads

    async def search(self, text: str, wanted: JobFilter, *, limit: int, token: str) -> Found:
        """Return the matching jobs among the next ones to compare; `limit` of them at the most."""
        search = parse_search(text)
        after = decode_token(token) if token else None
        if await self._is_indexed(search, wanted):
            listing = Listing(_SQL, "search_jobs", wanted, after)
            listing.require(_conditions_of_search(search, listing))
            statement = listing.page(limit=limit + 1)
            rows = await self._reads.fetch("search_jobs", statement, *listing.arguments)
            return await self._found(rows, limit, 0, None)
        until = await self._end(wanted, after) if wanted.passes_other_topics else None
        listing = Listing(_SQL, "search_jobs", wanted, after, until)
        matches = _conditions_of_search(search, listing)
        rows = await self._reads.fetch(
            "search_jobs",
            _comparing(listing, matches, limit, reads_payloads=bool(search.fields)),
            *listing.arguments,
        )
        tally = rows[0]
        is_all = tally["compared"] == tally["newest"] < COMPARED
        oldest = until if is_all else PageKey(tally["oldest_at"], str(tally["oldest_id"]))
        found = await self._found([row for row in rows if row["id"]], limit, tally["compared"], oldest)
        return found if token or wanted != JobFilter() else await self._with_prefix(search, found)

    async def _end(self, wanted: JobFilter, after: PageKey | None) -> PageKey | None:
        """Return the last of the SEARCHED_JOBS of any topic to pass. None: there are fewer."""
        listing = Listing(_QUERIES, "matching_jobs", wanted.as_read(), after)
        statement = listing.page(limit=1, offset=SEARCHED_JOBS - 1)
        rows = await self._reads.fetch("matching_jobs", statement, *listing.arguments)
        return PageKey(rows[0]["submitted_at"], str(rows[0]["id"])) if rows else None

    async def _is_indexed(self, search: Search, wanted: JobFilter) -> bool:
        if wanted.topics is None or len(wanted.topics) > 1 or not search.fields:
            return False
        (topic,) = wanted.topics
        path, _ = search.fields[0]
        asked = _SQL["field_is_indexed"]
        rows = await self._reads.fetch("field_is_indexed", asked, topic, path)
        return bool(rows[0]["is_indexed"])

    async def _found(self, rows: Rows, limit: int, compared: int, oldest: PageKey | None) -> Found:
        """Read the jobs. The next page follows the last one that fits, or the oldest that was compared."""
        jobs = await self._jobs([str(row["id"]) for row in rows[:limit]])
        back_to = None if oldest is None else oldest.moment
        if (count := fitting(map(job_weight, jobs))) < len(jobs):
            oldest = page_key(jobs[count - 1])
        elif len(rows) > limit:
            oldest = PageKey(rows[limit - 1]["submitted_at"], str(rows[limit - 1]["id"]))
        token = "" if oldest is None else encode_token(oldest)
        return Found(jobs[:count], compared, back_to, token)

    async def _with_prefix(self, search: Search, found: Found) -> Found:
        """Add the jobs whose id begins with the only word: an index has the ids, however old they are."""
        digits = search.words[0].replace("-", "").lower() if len(search.words) == 1 else ""
        if search.fields or not _ID_PREFIX.fullmatch(digits):
            return found
        known = {job.id for job in found.jobs}
        first, last = digits.ljust(32, "0"), digits.ljust(32, "f")
        rows = await self._reads.fetch("find_jobs", _QUERIES["find_jobs"], first, last, JOBS_FOUND)
        others = await self._jobs([str(row["id"]) for row in rows if str(row["id"]) not in known])
        return replace(found, jobs=[*found.jobs, *others])

    async def _jobs(self, ids: Sequence[str]) -> list[Job]:
        rows = await self._reads.fetch("found_jobs", _SQL["found_jobs"], ids) if ids else []
        return [job_from_row(row) for row in rows]


def _comparing(listing: Listing, matches: str, limit: int, *, reads_payloads: bool) -> str:
    """The statement that compares the newest jobs of a listing, and counts them."""
    # page() labels a whole statement. Here it is a part of one.
    newest = listing.page(limit=COMPARED).rpartition("*/ ")[2]
    bytes_before = (
        "COALESCE(sum(octet_length(payload)) OVER "
        f"({_ORDER} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)"
        if reads_payloads
        else "0"
    )
    return f"""/* pulse:search_jobs */
        WITH newest AS MATERIALIZED (SELECT *, {bytes_before} AS bytes FROM ({newest}) AS job),
        compared AS (SELECT * FROM newest WHERE bytes < {COMPARED_BYTES})
        SELECT tally.*, oldest.submitted_at AS oldest_at, oldest.id AS oldest_id, found.*
        FROM (
            SELECT (SELECT count(*) FROM newest) AS newest, (SELECT count(*) FROM compared) AS compared
        ) AS tally
        LEFT JOIN (
            SELECT submitted_at, id FROM compared ORDER BY submitted_at, id LIMIT 1
        ) AS oldest ON true
        LEFT JOIN (
            SELECT submitted_at, id FROM compared WHERE {matches} {_ORDER}
            LIMIT {listing.parameter(limit + 1)}
        ) AS found ON true
        ORDER BY found.submitted_at DESC, found.id DESC"""


def _conditions_of_search(search: Search, listing: Listing) -> str:
    words = [f"strpos({_TEXTS}, lower({listing.parameter(word)}::text)) > 0" for word in search.words]
    fields = [
        f"pulse.payload_field_v1(payload, {listing.parameter(path)}::text[])"
        f" = {listing.parameter(value)}::text"
        for path, value in search.fields
    ]
    return " AND ".join(words + fields)


# ---------------------------------------------------------------- exports
# Exports finished jobs, page by page, in the order of submission. docs/figures.md#retention

# Jobs that one statement looks at, whether they match or not, and the bytes that it returns, or one
# larger job. That is also the size of a message, and the memory of each export.
LOOK_AT = 2000
PAGE_BYTES = 1024 * 1024
# A job is visible once its statement has committed, a little after the time in its row. Every job
# that finished longer ago than this is committed: no statement that finishes jobs takes longer.
SETTLED_AFTER = timedelta(seconds=10)


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
            "export_jobs",
            _SQL["export_jobs"],
            after.moment,
            after.id,
            look_at,
            most_bytes,
            wanted.finished_since,
            wanted.finished_before,
            wanted.topics and list(wanted.topics),
            list(wanted.statuses),
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


# ---------------------------------------------------------------- audit
# The audit as operators read it. postgres/audit.py writes the entries of changes. ADR-0081

# The lists of topics and ids have an index that only a bitmap scan reads.
_WITH_BITMAPS = "SET LOCAL enable_bitmapscan = on"
_ENTRY_BYTES = 300
# The entries of a topic with at most so many are read by their ids. For a topic without an entry the
# planner expects 1 in 200 to be of it, and would walk all entries by time.
FEW_ENTRIES = 1_000


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries; None is no condition."""

    user: str | None = None
    method: str | None = None
    topic: str | None = None
    id: str | None = None
    """Of a job, schedule, workflow or action."""
    since: datetime | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One action. `count` is the number of changes, or of refused calls."""

    id: str
    at: datetime
    user: str
    role: str
    address: str
    method: str
    reason: str
    topics: Sequence[str]
    ids: Sequence[str]
    count: int
    outcome: str
    refusal: str
    asked: Mapping[str, Any]
    changes: Mapping[str, Any]


class Audit:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, wanted: AuditFilter, *, limit: int, token: str) -> Page[AuditEntry]:
        """Return one page, newest first."""
        return await page_of(
            lambda count, after: self._read(wanted, count, after),
            limit,
            token,
            key=lambda entry: PageKey(entry.at, entry.id),
            weight=_weight,
        )

    async def _read(self, wanted: AuditFilter, limit: int, after: PageKey | None) -> list[AuditEntry]:
        async def work(fetch: Fetch) -> Rows:
            await fetch(_WITH_BITMAPS)
            of_topic = None
            if wanted.topic is not None:
                found = await fetch(_SQL["entries_of_topic"], wanted.topic, FEW_ENTRIES + 1)
                of_topic = [row["id"] for row in found] if len(found) <= FEW_ENTRIES else None
            conditions, arguments = _conditions_of_entries(wanted, after, of_topic)
            statement = f"{_SQL['list_audit']}{conditions} ORDER BY at DESC, id DESC LIMIT {limit}"
            return await fetch(statement, *arguments)

        return [_entry(row) for row in await self._database.reads.transact("list_audit", work)]

    async def record_calls(self, action: Action, code: str, sentence: str, count: int) -> None:
        """Add calls that were counted to the entry of the action."""
        columns = entry_columns(action, code, sentence, action.topics, action.ids, {}, count)
        await self._database.operators.fetch("write_entry", _SQL["write_entry"], *columns)


def _conditions_of_entries(
    wanted: AuditFilter, after: PageKey | None, of_topic: Sequence[object] | None = None
) -> tuple[str, list[object]]:
    """Return the conditions of the statement. Absent ones would leave the planner no index.

    `of_topic`: the ids of all entries of the topic. None: they are many.
    """
    arguments: list[object] = []

    def parameter(value: object) -> str:
        arguments.append(value)
        return f"${len(arguments)}"

    conditions = " AND outcome <> 'OK'" if wanted.refused else ""
    if wanted.user is not None:
        conditions += f" AND user_name = {parameter(wanted.user)}"
    if wanted.method is not None:
        conditions += f" AND method = {parameter(wanted.method)}"
    if of_topic is not None:
        conditions += f" AND id = ANY({parameter(of_topic)}::uuid[])"
    elif wanted.topic is not None:
        conditions += f" AND topics @> ARRAY[{parameter(wanted.topic)}::text]"
    if wanted.id is not None:
        # As an array that is read first: with OR, the planner walks the entries by time.
        own = parameter(wanted.id)
        conditions += (
            f" AND id = ANY(ARRAY(SELECT {own}::text::uuid UNION ALL"
            f" SELECT named.id FROM pulse.audit AS named WHERE named.ids @> ARRAY[{own}::text] UNION ALL"
            # The last action on a job: of a bulk action the entry names the first jobs only.
            f" SELECT (job.undo ->> 'action')::uuid FROM pulse.jobs AS job WHERE job.id = {own}::text::uuid))"
        )
    if wanted.since is not None:
        conditions += f" AND at >= {parameter(wanted.since)}"
    if after is not None:
        conditions += f" AND (at, id) < ({parameter(after.moment)}, {parameter(after.id)}::uuid)"
    return conditions, arguments


def _entry(row: Any) -> AuditEntry:
    return AuditEntry(
        id=str(row["id"]),
        at=row["at"],
        user=row["user_name"],
        role=row["role"],
        address=row["address"],
        method=row["method"],
        reason=row["reason"],
        topics=row["topics"],
        ids=row["ids"],
        count=row["changed"],
        outcome=row["outcome"],
        refusal=row["refusal"],
        asked=json.loads(row["asked"]),
        changes=json.loads(row["changes"]),
    )


def _weight(entry: AuditEntry) -> int:
    texts = json.dumps([entry.asked, entry.changes, entry.reason, entry.refusal, *entry.topics])
    return len(texts) + 40 * len(entry.ids) + _ENTRY_BYTES
