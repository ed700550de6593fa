"""Jobs that arrive as columns, read without the code of pulsed."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from pulse.v1 import pulse_pb2 as pb


def all_jobs(request: pb.SubmitJobsRequest) -> Iterator[pb.SubmitJobRequest]:
    """Yield the request for each job, whether they came as rows or as columns; unique ones last."""
    yield from request.jobs
    columns, begin = request.columns, 0
    for place, size in enumerate(columns.payload_sizes):
        job = pb.SubmitJobRequest(payload=columns.payloads[begin : begin + size])
        job.MergeFrom(columns.options)
        job.job_id = str(UUID(bytes=columns.job_ids[16 * place : 16 * (place + 1)]))
        begin += size
        yield job
    yield from request.unique_jobs
