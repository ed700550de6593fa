"""The part of the fake pulsed that stores workflows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse.wire.servers import FROM_PULSED


class FakeWorkflows:
    """Stores workflows by id, and the jobs that handlers add. Nothing runs: a test sets how they end."""

    changed: threading.Condition
    lose_answers: int

    def __init__(self) -> None:
        self.workflows: dict[str, pb.WorkflowView] = {}
        self.workflow_jobs: dict[str, list[pb.WorkflowJob]] = {}
        self.workflow_messages: list[int] = []  # the jobs in each
        self.parents: dict[str, list[pb.WorkflowJobView]] = {}  # by the id of the child
        self.parent_requests: list[pb.ListWorkflowJobsRequest] = []
        self.added: list[pb.AddToWorkflowRequest] = []
        self.refused_adds: dict[str, tuple[grpc.StatusCode, str]] = {}

    def SubmitWorkflow(  # noqa: N802
        self, requests: Iterator[pb.SubmitWorkflowRequest], context: Any
    ) -> pb.SubmitWorkflowResponse:
        given = list(requests)
        jobs = [job for request in given for job in request.jobs]
        workflow_id = given[0].workflow_id
        with self.changed:
            self.workflow_messages += [len(request.jobs) for request in given]
            duplicate = workflow_id in self.workflows
            if not duplicate:
                self.workflow_jobs[workflow_id] = jobs
                self.workflows[workflow_id] = pb.WorkflowView(
                    workflow_id=workflow_id, name=given[0].name, status="running", jobs=len(jobs)
                )
            is_lost = self.lose_answers > 0
            self.lose_answers -= is_lost
            self.changed.notify_all()
        if is_lost:
            context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        if self.workflow_jobs[workflow_id] != jobs:
            self._refuse(context, grpc.StatusCode.ALREADY_EXISTS, "It has other jobs.")
        ids = [self.job_id(number) for number in range(1, len(jobs) + 1)]
        return pb.SubmitWorkflowResponse(workflow_id=workflow_id, job_ids=ids, duplicate=duplicate)

    @staticmethod
    def job_id(number: int) -> str:
        """Return the id that the job with this number has in every workflow."""
        return f"00000000-0000-7000-8000-{number:012d}"

    def GetWorkflow(self, request: pb.GetWorkflowRequest, context: Any) -> pb.GetWorkflowResponse:  # noqa: N802
        with self.changed:
            if request.workflow_id not in self.workflows:
                self._refuse(context, grpc.StatusCode.NOT_FOUND, "There is no such workflow.")
            self.changed.wait_for(
                lambda: self.workflows[request.workflow_id].HasField("finished_at"),
                request.wait.ToTimedelta().total_seconds(),
            )
            return pb.GetWorkflowResponse(workflow=self.workflows[request.workflow_id])

    def end_workflow(self, workflow_id: str, status: str) -> None:
        """Have it ended, and wake calls that wait for that."""
        with self.changed:
            self.workflows[workflow_id].status = status
            self.workflows[workflow_id].finished_at.GetCurrentTime()
            self.changed.notify_all()

    def ListWorkflowJobs(  # noqa: N802
        self, request: pb.ListWorkflowJobsRequest, _context: Any
    ) -> pb.ListWorkflowJobsResponse:
        with self.changed:
            self.parent_requests.append(request)
            views = self.parents.get(request.parents_of, [])
            if request.workflow_id:
                views = [
                    pb.WorkflowJobView(number=at, job_id=self.job_id(at), name=job.name, topic=job.job.topic)
                    for at, job in enumerate(self.workflow_jobs[request.workflow_id], 1)
                ]
        found = [view for view in views if not request.names or view.name in request.names]
        begin = int(request.page_token or 0)
        end = begin + (request.limit or 500)
        return pb.ListWorkflowJobsResponse(
            jobs=found[begin:end], next_page_token=str(end) if end < len(found) else ""
        )

    def AddToWorkflow(self, request: pb.AddToWorkflowRequest, context: Any) -> pb.AddToWorkflowResponse:  # noqa: N802
        for job in request.jobs:
            if job.name in self.refused_adds:
                self._refuse(context, *self.refused_adds[job.name])
        with self.changed:
            known = {job.name for earlier in self.added for job in earlier.jobs}
            self.added.append(request)
            self.changed.notify_all()
        new = sum(job.name not in known for job in request.jobs)
        return pb.AddToWorkflowResponse(job_ids=[self.job_id(1) for _ in request.jobs], added=new)

    def _refuse(self, context: Any, code: grpc.StatusCode, sentence: str) -> None:
        context.set_trailing_metadata(((FROM_PULSED, "1"),))
        context.abort(code, sentence)
