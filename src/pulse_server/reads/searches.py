"""Searches jobs by any part of their id, topic, worker, lane or keys, and by fields of their payloads.

A search compares the newest jobs of its filter one by one, a bounded number of them, and passes a bounded
number of jobs of other topics. Its token continues with older ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pulse_server.base import bounds
from pulse_server.base.errors import InvalidArgument
from pulse_server.base.ids import PageKey, decode_token, encode_token, fitting
from pulse_server.database.connections import Database
from pulse_server.database.statements import Rows, statements
from pulse_server.jobs.reads import Listing, job_from_row
from pulse_server.jobs.rules import Job, JobFilter
from pulse_server.work.jobs import JOBS_FOUND, SEARCHED_JOBS, job_weight, page_key

# Jobs that one call compares, and the bytes of their payloads that it reads if it looks for a field.
COMPARED = 10_000
COMPARED_BYTES = 16 * 1024 * 1024
MOST_TERMS = 8
LONGEST_PATH = 16

_SQL = statements("searches.sql")
_QUERIES = statements("queries.sql")
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
            listing.require(_conditions(search, listing))
            statement = listing.page(limit=limit + 1)
            rows = await self._reads.fetch("search_jobs", statement, *listing.arguments)
            return await self._found(rows, limit, 0, None)
        until = await self._end(wanted, after) if wanted.passes_other_topics else None
        listing = Listing(_SQL, "search_jobs", wanted, after, until)
        matches = _conditions(search, listing)
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


def _conditions(search: Search, listing: Listing) -> str:
    words = [f"strpos({_TEXTS}, lower({listing.parameter(word)}::text)) > 0" for word in search.words]
    fields = [
        f"pulse.payload_field_v1(payload, {listing.parameter(path)}::text[])"
        f" = {listing.parameter(value)}::text"
        for path, value in search.fields
    ]
    return " AND ".join(words + fields)
