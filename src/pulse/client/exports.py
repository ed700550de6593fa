"""The verb for exports: finished jobs as a stream, which is continued whenever it breaks."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import grpc.aio

from pulse.client.caller import Caller
from pulse.client.filters import aware, not_empty, one_or_several
from pulse.client.steps import StepInfo, step_info
from pulse.messages import Items, Reader, message
from pulse.models.jobs import JobInfo, JobStatus
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.servers import is_refused_for_now
from pulse.wire.streams import Patience, reconnecting_stream


@dataclass(frozen=True, slots=True)
class ExportedJobs(Items[JobInfo]):
    """The next jobs of an export, with their payloads and histories. There may be none."""

    jobs: tuple[JobInfo, ...]
    next_cursor: str | None
    """Pass it to another `export_jobs` to continue after these jobs. None: nothing follows."""
    before: datetime | None
    """The export has the jobs that finished before it. Begin the next one here."""
    steps: Mapping[str, tuple[StepInfo, ...]] = field(default_factory=dict)
    """The steps of those jobs that have some, by job id, without values."""


exported_jobs = Reader(
    ExportedJobs,
    next_cursor="next_page_token",
    before="finished_before",
    steps=lambda response: {of_job.job_id: tuple(map(step_info, of_job.steps)) for of_job in response.steps},
)
"""Returns the jobs in a message."""


class ExportVerbs:
    """The verbs of a `Pulse` that export jobs."""

    _caller: Caller

    async def export_jobs(
        self,
        *,
        before: datetime | None = None,
        since: datetime | None = None,
        topic: str | None = None,
        topics: Iterable[str] | None = None,
        status: JobStatus | str | None = None,
        statuses: Iterable[JobStatus | str] | None = None,
        cursor: str | None = None,
        timeout: timedelta | None = None,
    ) -> AsyncGenerator[ExportedJobs, None]:
        """Yield jobs that finished before a time, with payload, history and steps, in order of submission.

        Each job comes once at the most, and none that is there throughout is left out. Without `before`, all
        that finished until a few seconds ago. If the connection is lost, the export continues where it was;
        `timeout` bounds each wait for a server. To continue an export later, pass the last `next_cursor`
        with the same filter.
        """
        request = message(
            pb.ExportJobsRequest,
            **one_or_several("topic", topic, topics),
            **one_or_several("status", status, statuses),
            finished_since=aware("since", since),
            finished_before=aware("before", before),
            page_token=not_empty("cursor", cursor),
        )
        export = _Export(self._caller.session().connection, request, self._caller.seconds(timeout))
        async with contextlib.aclosing(export.pages()) as pages:
            async for page in pages:
                yield page


class _Export:
    """One export. Each message moves the place where the next stream begins."""

    def __init__(self, connection: Connection, request: pb.ExportJobsRequest, timeout_seconds: float) -> None:
        self._connection = connection
        self._request = request
        self._timeout_seconds = timeout_seconds

    async def pages(self) -> AsyncGenerator[ExportedJobs, None]:
        patience = Patience(self._connection, self._timeout_seconds, is_refused_for_now)
        stream = reconnecting_stream(
            self._connection, self._open, patience.lost, welcome_seconds=patience.welcome_seconds
        )
        async with contextlib.aclosing(stream):
            async for response in stream:
                yield exported_jobs(response)
                if not response.next_page_token:
                    return
                self._request.page_token = response.next_page_token
                patience.renew(self._timeout_seconds)

    def _open(self) -> grpc.aio.UnaryStreamCall[pb.ExportJobsRequest, pb.ExportJobsResponse]:
        return self._connection.open_stream(self._connection.stub.ExportJobs, self._request)
