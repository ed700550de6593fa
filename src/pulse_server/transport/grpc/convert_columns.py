"""Jobs that arrive as columns: all of them at once if each can be stored, else one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import bounds, tuning
from pulse_server.base.errors import InvalidArgument
from pulse_server.base.ids import has_version_of_fires
from pulse_server.jobs import messages
from pulse_server.jobs.new_jobs import ID_BYTES, UniformJobs


def check_columns(request: pb.SubmitJobsRequest) -> None:
    """Raise InvalidArgument if the columns do not make up jobs, or have more bytes than one statement."""
    columns = request.columns
    if request.jobs or request.unique_jobs:
        raise InvalidArgument("columns", "and jobs are both given: send them in two requests.")
    for field in ("payload", "job_id", "idempotency_key"):
        if getattr(columns.options, field):
            raise InvalidArgument(f"columns.options.{field}", "is given: each job has its own.")
    if columns.options.HasField("unique"):
        raise InvalidArgument("columns.options.unique", "is given: send these in unique_jobs.")
    count, ids, payloads = len(columns.payload_sizes), len(columns.job_ids), len(columns.payloads)
    bounds.check_count("columns.payload_sizes", count, bounds.MAX_JOBS_PER_SUBMIT)
    if ids != count * ID_BYTES:
        raise InvalidArgument(
            "columns.job_ids",
            f"has {ids} bytes, but {count} jobs need {count * ID_BYTES}: {ID_BYTES} for each.",
        )
    if payloads != (needed := sum(columns.payload_sizes)):
        raise InvalidArgument(
            "columns.payloads", f"has {payloads} bytes, but payload_sizes adds up to {needed}."
        )
    # Count the options once per job: a small request must not fill the database.
    size = payloads + count * columns.options.ByteSize()
    if size > tuning.COMMIT_BYTES:
        raise InvalidArgument(
            "columns",
            f"has {size} bytes, the options of each job included; {tuning.COMMIT_BYTES} are allowed at the "
            "most. Send fewer jobs at a time.",
        )


def uniform_jobs(columns: pb.JobColumns, max_attempts_of: messages.AttemptsOf) -> UniformJobs | None:
    """Return the jobs of checked columns, or None if a job has to be refused."""
    if max(columns.payload_sizes, default=0) > bounds.MAX_PAYLOAD_BYTES or has_version_of_fires(
        columns.job_ids
    ):
        return None
    try:
        template = messages.new_job(columns.options, max_attempts_of)
    except InvalidArgument:
        return None
    return UniformJobs(template, columns.job_ids, list(_payloads(columns)))


def each_job(columns: pb.JobColumns) -> Iterator[pb.SubmitJobRequest]:
    """Yield the request for each job of checked columns."""
    ids = columns.job_ids.hex()
    for place, payload in enumerate(_payloads(columns)):
        job = pb.SubmitJobRequest()
        job.CopyFrom(columns.options)
        job.job_id = ids[2 * ID_BYTES * place : 2 * ID_BYTES * (place + 1)]
        job.payload = payload
        yield job


def _payloads(columns: pb.JobColumns) -> Iterator[bytes]:
    payloads = columns.payloads
    return (payloads[begin:end] for begin, end in pairwise(accumulate(columns.payload_sizes, initial=0)))
