"""The handle of a stored workflow: wait for it, read its results, cancel and retry it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeVar, overload

from pulse import tuning
from pulse.enqueues import Handles
from pulse.errors import NotFound, Unavailable
from pulse.handlers.workflows import Node
from pulse.jobs.caller import Caller, returns_in_handler_threads, seconds_of
from pulse.jobs.handles import JobHandle, ResultTimeout
from pulse.messages import existing_id, message
from pulse.models.workflows import WorkflowInfo, workflow_info
from pulse.v1 import pulse_pb2 as pb

R = TypeVar("R")


class WorkflowHandle:
    """A stored workflow. Its verbs block in a `def` handler."""

    id: str
    name: str
    """Empty for a handle that was made of an id."""
    jobs: dict[str, JobHandle[Any]]
    """The jobs that were stored with it, by name. `job` finds others."""
    duplicate: bool
    """True if a workflow with this `id` and the same jobs was stored before."""

    def __init__(
        self,
        caller: Caller,
        handles: Handles,
        workflow_id: str,
        name: str = "",
        jobs: Mapping[str, JobHandle[Any]] | None = None,
        duplicate: bool = False,
    ) -> None:
        self._caller = caller
        self._handles = handles
        self.id = workflow_id
        self.name = name
        self.jobs = dict(jobs or {})
        self.duplicate = duplicate

    @returns_in_handler_threads
    async def wait(self, timeout: timedelta | None = None) -> WorkflowInfo:
        """Wait until all jobs have ended, and return the workflow, whatever its status.

        Raises ResultTimeout, and NotFound if it is not stored any more. Without `timeout` it waits for as
        long as the workflow takes.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + seconds_of("timeout", timeout)
        has_answered = False
        while True:
            left = tuning.WORKFLOW_WAIT_SECONDS if deadline is None else deadline - loop.time()
            try:
                found = await self._ended_within(max(0.0, min(left, tuning.WORKFLOW_WAIT_SECONDS)))
            except Unavailable:
                # As a wait for a job: only the first connection has to be there in time.
                if not has_answered or left <= 0:
                    raise
                continue
            has_answered = True
            if found.finished_at is not None:
                return found
            if left <= 0:
                raise ResultTimeout(f"Workflow {self.id} has not ended after {timeout}. It goes on.")

    @overload
    async def result(self, job: Node[R], timeout: timedelta | None = None) -> R: ...
    @overload
    async def result(self, job: str, timeout: timedelta | None = None) -> Any: ...
    @returns_in_handler_threads
    async def result(self, job: Node[Any] | str, timeout: timedelta | None = None) -> Any:
        """Wait until a job of the workflow has completed, and return its result. See `JobHandle.result`."""
        name = job.name if isinstance(job, Node) else job
        handle = self.jobs.get(name) or await self._find(name)
        return await handle.result(timeout)

    @returns_in_handler_threads
    async def job(self, name: str) -> JobHandle[Any]:
        """Return the handle of a job of the workflow, also of one that was added later. Raises NotFound."""
        return self.jobs.get(name) or await self._find(name)

    @returns_in_handler_threads
    async def status(self, *, timeout: timedelta | None = None) -> WorkflowInfo:
        """Return the workflow as it stands now. Raises NotFound."""
        request = message(pb.GetWorkflowRequest, workflow_id=self._existing_id())
        response = await self._caller.call(lambda stub: stub.GetWorkflow, request, timeout)
        return workflow_info(response.workflow)

    @returns_in_handler_threads
    async def cancel(self, reason: str = "", *, timeout: timedelta | None = None) -> WorkflowInfo:
        """Cancel the jobs that have not ended. No further job starts."""
        request = message(pb.CancelWorkflowRequest, workflow_id=self._existing_id(), reason=reason)
        response = await self._caller.call(lambda stub: stub.CancelWorkflow, request, timeout)
        return workflow_info(response.workflow)

    @returns_in_handler_threads
    async def retry(
        self,
        attempts: int | None = None,
        *,
        now: bool = False,
        reason: str = "",
        timeout: timedelta | None = None,
    ) -> WorkflowInfo:
        """Run dead-lettered and canceled jobs again, with this many more attempts.

        Jobs that wait for them wait again. Completed jobs do not run again. A canceled job that never started
        keeps its later start time, unless `now`.
        """
        request = message(
            pb.RetryWorkflowRequest,
            workflow_id=self._existing_id(),
            attempts=attempts,
            now=now,
            reason=reason,
        )
        response = await self._caller.call(
            lambda stub: stub.RetryWorkflow, request, timeout, repeatable=False
        )
        return workflow_info(response.workflow)

    async def _ended_within(self, seconds: float) -> WorkflowInfo:
        """Return the workflow once it has ended, or after this time."""
        connection = self._caller.session().connection
        request = pb.GetWorkflowRequest(workflow_id=self._existing_id())
        request.wait.FromTimedelta(timedelta(seconds=seconds))
        response = await connection.keep_trying(
            lambda left: connection.try_once(
                connection.stub.GetWorkflow, request, min(left, seconds + tuning.TRY_TIMEOUT_SECONDS)
            ),
            seconds + self._caller.seconds(None),
        )
        return workflow_info(response.workflow)

    async def _find(self, name: str) -> JobHandle[Any]:
        request = message(pb.ListWorkflowJobsRequest, workflow_id=self._existing_id(), names=[name])
        response = await self._caller.call(lambda stub: stub.ListWorkflowJobs, request, None)
        for job in response.jobs:
            return self._handles.made(job.job_id, job.topic)
        raise NotFound(f"Workflow {self.id} has no job {name!r}.")

    def _existing_id(self) -> str:
        return existing_id(self.id, "workflow")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, {self.name!r})"
