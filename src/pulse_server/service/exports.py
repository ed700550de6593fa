"""Exports finished jobs, page by page, in the order of submission. ADR-0058"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pulse_server.domain.errors import InvalidArgument
from pulse_server.domain.exports import ExportFilter
from pulse_server.domain.jobs import Job, PageKey
from pulse_server.domain.steps import Step
from pulse_server.repos.exports import ExportRepo
from pulse_server.service.paging import decode_name, decode_token, encode_name, encode_token

# Jobs that one statement looks at, whether they match or not, and the bytes that it returns, or one
# larger job. That is also the size of a message, and the memory of each export.
LOOK_AT = 2000
PAGE_BYTES = 1024 * 1024
# A job is visible once its statement has committed, a little after the time in its row. Every job
# that finished longer ago than this is committed: no statement that finishes jobs takes longer.
SETTLED_AFTER = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Exported:
    """A message of an export. An empty token: it was the last one."""

    jobs: list[Job]
    steps: dict[str, list[Step]]
    next_token: str
    finished_before: datetime


class Exports:
    def __init__(self, repo: ExportRepo) -> None:
        self._repo = repo

    async def start(self, wanted: ExportFilter, token: str) -> Walk:
        """Begin an export, or continue the export of the token."""
        if token:
            before, after = _decode(token)
            return Walk(self._repo, replace(wanted, finished_before=before), after)
        settled = await self._repo.moment_ago(SETTLED_AFTER)
        before = min(wanted.finished_before, settled)
        if wanted.finished_since is not None and wanted.finished_since > before:
            raise InvalidArgument("finished_since", f"is after {before.isoformat()}, where the export ends.")
        return Walk(self._repo, replace(wanted, finished_before=before), None)


class Walk:
    """One export under way."""

    def __init__(self, repo: ExportRepo, wanted: ExportFilter, after: PageKey | None) -> None:
        self._repo = repo
        self._wanted = wanted
        self._after = after
        self.is_done = False

    async def next(self) -> Exported:
        """The next jobs, perhaps none. Until `is_done` there are more."""
        page = await self._repo.export_jobs(
            self._wanted, after=self._after, look_at=LOOK_AT, most_bytes=PAGE_BYTES
        )
        before = self._wanted.finished_before
        self._after, self.is_done = page.reached, page.reached is None
        token = _encode(before, page.reached) if page.reached is not None else ""
        return Exported(page.jobs, page.steps, token, before)


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
