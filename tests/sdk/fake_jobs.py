"""The part of the fake pulsed that stores jobs and returns them."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse.wire.servers import FROM_PULSED
from tests.sdk.columns import all_jobs
from tests.sdk.patience import PATIENCE_SECONDS


class FakeJobs:
    """Stores what is submitted, and answers as the test asks."""

    changed: threading.Condition

    def __init__(self) -> None:
        self.stored: dict[str, pb.SubmitJobRequest] = {}
        self.submit_sizes: list[int] = []
        self.wakes = 0
        self.submit_peers: set[str] = set()
        self.submit_may_answer = threading.Event()
        self.submit_may_answer.set()
        self.lose_answers = self.submits_without_room = 0
        self.ignores_columns = False
        self.refused_topics: dict[str, tuple[grpc.StatusCode, str]] = {}

    def _change(self, context: grpc.ServicerContext) -> AbstractContextManager[None]:
        """Take the lock, and notify those that wait for a fact."""
        raise NotImplementedError

    def SubmitJobs(self, request: pb.SubmitJobsRequest, context: Any) -> pb.SubmitJobsResponse:  # noqa: N802
        with self.changed:
            has_room = not self.submits_without_room
            self.submits_without_room -= not has_room
        if not has_room:
            context.set_trailing_metadata(((FROM_PULSED, "1"),))
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "There is no room now. Try again in a moment.")
        with self._change(context):
            results = [*map(self._store, request.jobs if self.ignores_columns else all_jobs(request))]
            self.submit_sizes.append(len(results))
            self.wakes += request.wake
            self.submit_peers.add(context.peer())
            is_lost = self.lose_answers > 0
            self.lose_answers -= is_lost
        assert self.submit_may_answer.wait(PATIENCE_SECONDS)
        if is_lost:
            context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        return pb.SubmitJobsResponse(results=results)

    def _store(self, job: pb.SubmitJobRequest) -> pb.SubmitResult:
        if job.topic in self.refused_topics:
            code, sentence = self.refused_topics[job.topic]
            return pb.SubmitResult(refusal=pb.Refusal(code=code.value[0], message=sentence))
        for known in self.stored.values():
            if job.idempotency_key and known.idempotency_key == job.idempotency_key:
                return pb.SubmitResult(job_id=known.job_id, duplicate=True)
        is_known = job.job_id in self.stored
        self.stored[job.job_id] = job
        return pb.SubmitResult(job_id=job.job_id, duplicate=is_known)

    def GetJob(self, request: pb.GetJobRequest, context: Any) -> pb.GetJobResponse:  # noqa: N802
        with self._change(context):
            job = self.stored.get(request.job_id)
        if job is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"There is no job {request.job_id}.")
        view = pb.JobView(
            job_id=job.job_id, status="PENDING", topic=job.topic, payload=job.payload, metadata=job.metadata
        )
        view.submitted_at.GetCurrentTime()
        return pb.GetJobResponse(job=view)

    def ListJobs(self, request: pb.ListJobsRequest, context: Any) -> pb.ListJobsResponse:  # noqa: N802
        begin = int(request.page_token or 0)
        ids = sorted(self.stored, reverse=True)
        end = begin + request.limit
        return pb.ListJobsResponse(
            jobs=[pb.JobView(job_id=job_id, status="PENDING") for job_id in ids[begin:end]],
            next_page_token=str(end) if end < len(ids) else "",
        )

    def CancelJob(self, request: pb.CancelJobRequest, context: Any) -> pb.CancelJobResponse:  # noqa: N802
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "The job is COMPLETED, which cannot be canceled.")
