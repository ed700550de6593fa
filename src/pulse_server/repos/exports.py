"""The port through which finished jobs are exported."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from pulse_server.domain.exports import ExportFilter, ExportPage
from pulse_server.domain.jobs import PageKey


class ExportRepo(Protocol):
    async def export_jobs(
        self, wanted: ExportFilter, *, after: PageKey | None, look_at: int, most_bytes: int
    ) -> ExportPage:
        """The next jobs that match, with payloads and histories, of `look_at` in the order of submission.

        Fewer if they have `most_bytes`; at least one.
        """
        ...

    async def moment_ago(self, ago: timedelta) -> datetime:
        """That long ago, by the clock of the database."""
        ...
