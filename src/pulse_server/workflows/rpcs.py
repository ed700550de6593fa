"""The RPCs of workflows. ADR-0077"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import nullcontext, suppress
from datetime import timedelta
from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import bounds
from pulse_server.base.errors import InvalidArgument, PulseError, ResourceExhausted, Unavailable
from pulse_server.base.ids import parse_id
from pulse_server.base.loops import TURN_ENTRIES, each_in_turns
from pulse_server.base.sharing import Budget
from pulse_server.doors.boundary import Malformed, NoRequest, Unreadable, duration, timestamp
from pulse_server.doors.callers import binds_worker_id, calling_user
from pulse_server.doors.lines import Lines
from pulse_server.doors.ports import peer_address
from pulse_server.jobs import messages as jobs_messages
from pulse_server.jobs.messages import AttemptsOf, new_job
from pulse_server.jobs.new_jobs import OnConflict
from pulse_server.topics.rpcs import UnservedNotes
from pulse_server.workflows.rules import NewNode, Node, When, Workflow, check_count_of_jobs
from pulse_server.workflows.service import Workflows

# ---------------------------------------------------------------- convert workflows
# Workflows, between messages and the domain. Requests are checked here.


def new_node(wire: pb.WorkflowJob, max_attempts_of: AttemptsOf, *, is_added: bool) -> NewNode:
    """The job as it is stored. Raises InvalidArgument, which names the job."""
    name = bounds.check_name(wire.name)
    if name is None:
        raise InvalidArgument("name", "of a job is empty: jobs of a workflow have names.")
    try:
        if wire.job.job_id or wire.job.idempotency_key:
            raise InvalidArgument("job_id", "and idempotency_key are not for jobs of workflows: the name is.")
        job = new_job(wire.job, max_attempts_of)
        if job.unique is not None and job.unique.on_conflict is not OnConflict.SKIP:
            raise InvalidArgument(
                "unique.on_conflict",
                f"is {job.unique.on_conflict}: a taken key can only refuse the workflow, as `skip` does.",
            )
        if wire.before and not is_added:
            raise InvalidArgument(
                "before", "is for jobs that a running job adds. Use `after` of the other job."
            )
        when = _when(wire.when)
        if when is When.FAILED and not wire.after:
            raise InvalidArgument("when", "is 'failed', but no job in `after` could fail.")
        return NewNode(name, job, tuple(wire.after), when, tuple(wire.before))
    except InvalidArgument as error:
        raise InvalidArgument("jobs", f"has a job {name[:60]!r} that is refused: {error}") from None


def _when(text: str) -> When:
    try:
        return When(text or When.SUCCEEDED)
    except ValueError:
        raise InvalidArgument("when", f"{text[:40]!r} is none of {', '.join(When)}.") from None


def workflow_view(workflow: Workflow) -> pb.WorkflowView:
    return pb.WorkflowView(
        workflow_id=workflow.id,
        name=workflow.name,
        status=workflow.status,
        jobs=workflow.jobs,
        unfinished=workflow.unfinished,
        succeeded=workflow.succeeded,
        failed=workflow.failed,
        canceled=workflow.canceled,
        skipped=workflow.skipped,
        submitted_at=timestamp(workflow.submitted_at),
        finished_at=timestamp(workflow.finished_at),
        canceled_at=timestamp(workflow.canceled_at),
        schedule_id=workflow.schedule_id or "",
    )


def node_view(node: Node) -> pb.WorkflowJobView:
    return pb.WorkflowJobView(
        number=node.number,
        job_id=node.job_id,
        name=node.name,
        topic=node.topic,
        when=node.condition,
        state=node.state,
        status=node.status or "",
        outcome=node.outcome or "",
        parents=node.parents,
        unended=node.unended,
        last_error=node.last_error or "",
        result=node.result,
        started_at=timestamp(node.started_at),
        finished_at=timestamp(node.finished_at),
        next_run_at=timestamp(node.next_run_at),
        attempts=node.attempts or 0,
        waiting=None if node.waits_for is None else pb.Waiting(signal=node.waits_for),
    )


# ---------------------------------------------------------------- workflows

# Workflows that are being sent: of all callers together, and of one.
SUBMITS_BYTES = 256 * 1024 * 1024
SUBMITS_BYTES_OF_ONE_CALLER = 128 * 1024 * 1024
# The messages of one submit, once they are parsed.
WORKFLOW_BYTES = 64 * 1024 * 1024
DEFAULT_NODES_PAGE = 500
# How long one call may wait for the end of a workflow. Clients call again.
LONGEST_WAIT = timedelta(seconds=60)
MAX_ADDED = 1000
# How long the rest of a refused submit is read.
READ_OUT_SECONDS = 5

Context = grpc.aio.ServicerContext[Any, Any]

_NO_ROOM = "The server is short of memory and accepts no workflow now. Try again in a moment."
_ENDED = "The server is short of memory, or stops. The workflow is not stored. Try again."
_STATUSES = ("running", "succeeded", "failed", "canceled")


class WorkflowRpcs:
    def __init__(
        self,
        workflows: Workflows,
        max_attempts_of: AttemptsOf,
        unserved: UnservedNotes | None = None,
        lines: Lines | None = None,
    ) -> None:
        """Without `unserved`, callers get no notes about topics without workers.

        Workflows that are being sent end with the lines when memory is short.
        """
        self._lines = lines
        self._unserved = unserved
        self._workflows = workflows
        self._max_attempts_of = max_attempts_of
        self._memory = Budget(SUBMITS_BYTES, of_one=SUBMITS_BYTES_OF_ONE_CALLER)

    async def submit_workflow(self, _requests: Any, context: Context) -> pb.SubmitWorkflowResponse:
        messages = _Messages(context)
        try:
            with nullcontext() if self._lines is None else self._lines.opened(messages, _NO_ROOM):
                return await self._submit(messages, context)
        except PulseError:
            if not messages.have_ended:
                await _read_out(context)
            raise

    async def _submit(self, messages: _Messages, context: Context) -> pb.SubmitWorkflowResponse:
        caller = calling_user() or peer_address(context.peer())
        taken = 0
        workflow_id = name = ""
        nodes: list[NewNode] = []
        digest = hashlib.sha256()
        try:
            while (read := await messages.read()) is not grpc.aio.EOF:
                size = await read.weigh()
                if taken + size > WORKFLOW_BYTES:
                    raise InvalidArgument(
                        "jobs", f"take more than {WORKFLOW_BYTES // 2**20} MiB. Store large data elsewhere."
                    )
                if not self._memory.take(caller, size):
                    raise ResourceExhausted(_NO_ROOM)
                taken += size
                message = await read.parse()
                if isinstance(message, Unreadable):
                    raise Malformed(message)
                if not workflow_id:
                    workflow_id, name = _head(message)
                    digest.update(f"{name}\n".encode())
                check_count_of_jobs(len(nodes) + len(message.jobs), self._workflows.bounds)
                nodes += await each_in_turns(self._node, message.jobs, TURN_ENTRIES)
                for job in message.jobs:
                    digest.update(job.SerializeToString(deterministic=True))
            if not workflow_id:
                raise NoRequest
            if not nodes:
                raise InvalidArgument("jobs", "is empty: a workflow has at least one job.")
            stored = await self._workflows.submit(workflow_id, name, digest.digest(), nodes)
        finally:
            self._memory.give_back(caller, taken)
        topics = dict.fromkeys(node.job.topic for node in nodes)
        return pb.SubmitWorkflowResponse(
            workflow_id=workflow_id,
            job_ids=stored.job_ids,
            duplicate=not stored.is_new,
            no_worker=[] if self._unserved is None else await self._unserved.of_new(topics, context),
        )

    @binds_worker_id
    async def add_to_workflow(
        self, request: pb.AddToWorkflowRequest, _context: Any
    ) -> pb.AddToWorkflowResponse:
        bounds.check_count("jobs", len(request.jobs), MAX_ADDED)
        if not request.jobs:
            raise InvalidArgument("jobs", "is empty: name the jobs to add.")
        claim = jobs_messages.claims_of(request.worker_id)(request.claim)
        nodes = await each_in_turns(lambda job: self._node(job, is_added=True), request.jobs, TURN_ENTRIES)
        addition = await self._workflows.add(claim, nodes)
        return pb.AddToWorkflowResponse(job_ids=addition.job_ids, added=addition.added)

    async def get_workflow(self, request: pb.GetWorkflowRequest, _context: Any) -> pb.GetWorkflowResponse:
        wait = duration(request.wait, "wait")
        if not 0 <= wait.total_seconds() <= LONGEST_WAIT.total_seconds():
            raise InvalidArgument("wait", f"must be from 0 to {LONGEST_WAIT.seconds} seconds.")
        workflow = await self._workflows.get(parse_id(request.workflow_id, "workflow_id"), wait)
        return pb.GetWorkflowResponse(workflow=workflow_view(workflow))

    async def list_workflows(
        self, request: pb.ListWorkflowsRequest, _context: Any
    ) -> pb.ListWorkflowsResponse:
        if request.status and request.status not in _STATUSES:
            raise InvalidArgument("status", f"{request.status[:40]!r} is none of {', '.join(_STATUSES)}.")
        page = await self._workflows.list(
            bounds.check_name(request.name),
            request.status or None,
            limit=bounds.check_page_size(request.limit, bounds.DEFAULT_PAGE_SIZE),
            token=request.page_token,
        )
        return pb.ListWorkflowsResponse(
            workflows=await each_in_turns(workflow_view, page.entries), next_page_token=page.next_token
        )

    async def list_workflow_jobs(
        self, request: pb.ListWorkflowJobsRequest, _context: Any
    ) -> pb.ListWorkflowJobsResponse:
        if bool(request.workflow_id) == bool(request.parents_of):
            raise InvalidArgument("workflow_id", "or parents_of is needed, and only one of them.")
        bounds.check_count("names", len(request.names), bounds.MAX_PAGE_SIZE)
        workflow_id, page = await self._workflows.jobs(
            parse_id(request.workflow_id, "workflow_id") if request.workflow_id else None,
            parents_of=parse_id(request.parents_of, "parents_of") if request.parents_of else None,
            names=[bounds.check_text(name, "names", bounds.MAX_KEY_LENGTH) for name in request.names] or None,
            unended=request.unended,
            results=request.results,
            after=_after(request.page_token),
            limit=bounds.check_page_size(request.limit, DEFAULT_NODES_PAGE),
        )
        return pb.ListWorkflowJobsResponse(
            jobs=await each_in_turns(node_view, page.entries),
            next_page_token=page.next_token,
            workflow_id=workflow_id,
        )

    async def cancel_workflow(
        self, request: pb.CancelWorkflowRequest, _context: Any
    ) -> pb.CancelWorkflowResponse:
        workflow, canceled = await self._workflows.cancel(
            parse_id(request.workflow_id, "workflow_id"), bounds.clean_error(request.reason)
        )
        return pb.CancelWorkflowResponse(workflow=workflow_view(workflow), canceled=canceled)

    async def retry_workflow(
        self, request: pb.RetryWorkflowRequest, _context: Any
    ) -> pb.RetryWorkflowResponse:
        workflow, retried = await self._workflows.retry(
            parse_id(request.workflow_id, "workflow_id"),
            jobs_messages.attempts_granted(request),
            at_once=request.now,
        )
        return pb.RetryWorkflowResponse(workflow=workflow_view(workflow), retried=retried)

    def _node(self, wire: pb.WorkflowJob, *, is_added: bool = False) -> NewNode:
        return new_node(wire, self._max_attempts_of, is_added=is_added)


class _Messages:
    """The messages of a workflow that is being sent. A caller may send one that does not end."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reading: asyncio.Timeout | None = None
        self.have_ended = False

    async def read(self) -> Any:
        """Return the next message. Raises Unavailable once they have ended."""
        try:
            async with asyncio.timeout(0 if self.have_ended else None) as self._reading:
                return await self._context.read()
        except TimeoutError:
            raise Unavailable(_ENDED) from None
        finally:
            self._reading = None

    def end(self) -> None:
        """Read no further. What is read whole is still stored."""
        self.have_ended = True
        if self._reading is not None:
            self._reading.reschedule(0)


async def _read_out(context: Context) -> None:
    """Read the rest of a refused submit, and discard it.

    gRPC hides the refusal from a client that is still writing: its error is "Internal error from Core".
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(READ_OUT_SECONDS):
            while await context.read() is not grpc.aio.EOF:
                pass


def _head(message: pb.SubmitWorkflowRequest) -> tuple[str, str]:
    """The id and the name, from the first message."""
    if not message.workflow_id:
        raise InvalidArgument("workflow_id", "is empty: make a UUID, so that the submit can be repeated.")
    name = bounds.check_name(message.name)
    if name is None:
        raise InvalidArgument("name", "is empty: name the workflow, such as 'nightly'.")
    return parse_id(message.workflow_id, "workflow_id"), name


def _after(token: str) -> int:
    if not token:
        return 0
    if not token.isascii() or not token.isdigit() or len(token) > len("2147483647") or int(token) > 2**31 - 1:
        raise InvalidArgument("page_token", "is not one that this server gave out.")
    return int(token)
