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
        """The matching jobs among the next `look_at` in submission order, with payload and history.

        Stops at `most_bytes`, but returns at least one job.
        """
        ...

    async def moment_ago(self, ago: timedelta) -> datetime:
        """The database's time minus `ago`."""
        ...
