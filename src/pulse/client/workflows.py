"""`p.workflows`: the verbs for stored workflows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import timedelta

from pulse import tuning
from pulse.client.workflow_handles import WorkflowHandle
from pulse.enqueues import Handles
from pulse.jobs.caller import Caller
from pulse.messages import existing_id, message
from pulse.models.workflows import (
    WorkflowInfo,
    WorkflowJob,
    WorkflowJobPage,
    WorkflowPage,
    workflow_info,
    workflow_job,
)
from pulse.v1 import pulse_pb2 as pb


class Workflows:
    """Reads stored workflows, and acts on one. Each is given by its id."""

    def __init__(self, caller: Caller, handles: Handles) -> None:
        self._caller = caller
        self._handles = handles

    def handle(self, workflow_id: str) -> WorkflowHandle:
        """Return the handle of a workflow that was stored before, to wait for it. Makes no call."""
        return WorkflowHandle(self._caller, self._handles, workflow_id)

    async def get(self, workflow_id: str, *, timeout: timedelta | None = None) -> WorkflowInfo:
        """Return a workflow. Raises NotFound."""
        return await self.handle(workflow_id).status(timeout=timeout)

    async def cancel(
        self, workflow_id: str, reason: str = "", *, timeout: timedelta | None = None
    ) -> WorkflowInfo:
        """Cancel the jobs that have not ended. No further job starts."""
        return await self.handle(workflow_id).cancel(reason, timeout=timeout)

    async def retry(
        self,
        workflow_id: str,
        attempts: int | None = None,
        *,
        now: bool = False,
        reason: str = "",
        timeout: timedelta | None = None,
    ) -> WorkflowInfo:
        """Run dead-lettered and canceled jobs again. See `WorkflowHandle.retry`."""
        return await self.handle(workflow_id).retry(attempts, now=now, reason=reason, timeout=timeout)

    async def list(
        self,
        *,
        limit: int = tuning.PAGE_SIZE,
        cursor: str | None = None,
        name: str | None = None,
        status: str | None = None,
        timeout: timedelta | None = None,
    ) -> WorkflowPage:
        """Return one page of the workflows with this name and status, newest first."""
        request = message(pb.ListWorkflowsRequest, limit=limit, page_token=cursor, name=name, status=status)
        response = await self._caller.call(lambda stub: stub.ListWorkflows, request, timeout)
        return WorkflowPage(tuple(map(workflow_info, response.workflows)), response.next_page_token or None)

    async def iter(
        self,
        *,
        page_size: int = tuning.PAGE_SIZE,
        name: str | None = None,
        status: str | None = None,
        timeout: timedelta | None = None,
    ) -> AsyncIterator[WorkflowInfo]:
        """Yield all workflows with this name and status, newest first. `timeout` bounds each page."""
        cursor: str | None = None
        while True:
            page = await self.list(limit=page_size, cursor=cursor, name=name, status=status, timeout=timeout)
            for workflow in page:
                yield workflow
            cursor = page.next_cursor
            if cursor is None:
                return

    async def jobs(
        self,
        workflow_id: str | None = None,
        *,
        parents_of: str | None = None,
        names: Iterable[str] = (),
        unended: bool = False,
        results: bool = False,
        limit: int = tuning.WORKFLOW_PAGE_JOBS,
        cursor: str | None = None,
        timeout: timedelta | None = None,
    ) -> WorkflowJobPage:
        """Return one page of the jobs of a workflow, in the order of their numbers. Raises NotFound.

        `parents_of`, the id of a job, stands for its workflow: only the jobs that it waits for, or
        waited for. `unended` selects jobs that have not ended. With `results` each job has its result;
        a page then has fewer jobs if they are large.
        """
        request = message(
            pb.ListWorkflowJobsRequest,
            workflow_id=None if workflow_id is None else existing_id(workflow_id, "workflow"),
            parents_of=None if parents_of is None else existing_id(parents_of),
            names=[*names],
            unended=unended,
            results=results,
            limit=limit,
            page_token=cursor,
        )
        response = await self._caller.call(lambda stub: stub.ListWorkflowJobs, request, timeout)
        return WorkflowJobPage(
            tuple(map(workflow_job, response.jobs)), response.next_page_token or None, response.workflow_id
        )

    async def iter_jobs(
        self,
        workflow_id: str | None = None,
        *,
        parents_of: str | None = None,
        unended: bool = False,
        results: bool = False,
        page_size: int = tuning.WORKFLOW_PAGE_JOBS,
        timeout: timedelta | None = None,
    ) -> AsyncIterator[WorkflowJob]:
        """Yield all jobs of a workflow, page by page. See `jobs`. `timeout` bounds each page."""
        cursor: str | None = None
        while True:
            page = await self.jobs(
                workflow_id,
                parents_of=parents_of,
                unended=unended,
                results=results,
                limit=page_size,
                cursor=cursor,
                timeout=timeout,
            )
            for job in page:
                yield job
            cursor = page.next_cursor
            if cursor is None:
                return
