"""Workflows: as the verbs return them, their handles, those that are being written, and the verbs.

A workflow that is being written is stored when its block ends.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Any, Self, TypeVar, cast, overload
from uuid import UUID

from pulse import tuning
from pulse.decorators import Pattern, Registered, Signature
from pulse.enqueues import EnqueueVerbs, Handles
from pulse.errors import InvalidArgument, NotFound, Unavailable
from pulse.handlers.registry import surround_topics
from pulse.handlers.workflows import JobOutcome, Node, Nodes, When, listed, new_job
from pulse.ids import uuid7
from pulse.jobs.caller import Caller, returns_in_handler_threads, seconds_of
from pulse.jobs.handles import JobHandle, ResultTimeout
from pulse.jobs.models import JobStatus
from pulse.jobs.submissions import ItemOptions, SharedOptions, Submission, check_known
from pulse.messages import Items, Reader, existing_id, message
from pulse.payload import decode_result
from pulse.tracing import spread_context
from pulse.tracing.optional import in_enqueue_span
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.servers import is_ended_for_now
from pulse.wire.streams import batch_bounds


class WorkflowStatus(StrEnum):
    """The state of a workflow."""

    RUNNING = "running"
    """Some jobs have not ended."""
    SUCCEEDED = "succeeded"
    """All jobs have ended, and none failed."""
    FAILED = "failed"
    """All jobs have ended. One was dead-lettered, or canceled by an operator."""
    CANCELED = "canceled"
    """Canceled as a whole by an operator. Jobs that run are asked to stop, and end a moment later."""


@dataclass(frozen=True, slots=True)
class WorkflowInfo:
    """A workflow, and how many of its jobs have ended in which way."""

    id: str
    name: str
    status: WorkflowStatus
    jobs: int
    """How many jobs it has."""
    unfinished: int
    """How many have not ended."""
    succeeded: int
    failed: int
    """Dead-lettered."""
    canceled: int
    """By an operator, or because a job that they waited for did not succeed."""
    skipped: int
    """Not needed. They do not count as failures."""
    submitted_at: datetime | None
    finished_at: datetime | None
    """When the last job ended. None: some have not ended."""
    canceled_at: datetime | None
    schedule_id: str | None
    """The schedule that started it."""


workflow_info = Reader(WorkflowInfo, id="workflow_id")
"""Returns the workflow in a `WorkflowView`."""


@dataclass(frozen=True, slots=True)
class WorkflowPage(Items[WorkflowInfo]):
    """One page of workflows, newest first."""

    workflows: tuple[WorkflowInfo, ...]
    next_cursor: str | None
    """Pass it to the next `list`. None on the last page."""


@dataclass(frozen=True, slots=True)
class WorkflowJob:
    """A job of a workflow."""

    number: int
    """Its place in the workflow, from 1 on."""
    id: str
    name: str
    topic: str
    when: When
    state: str
    """waiting: for other jobs. ready: for none, whether it runs or has ended. dropped: canceled, because a
    job that it waited for did not succeed. skipped: not needed."""
    status: JobStatus | None
    """None: the job has been deleted."""
    outcome: JobOutcome | None
    """None: it has not ended."""
    parents: tuple[int, ...]
    """The numbers of the jobs that it waits for, or waited for."""
    unended_parents: int
    """How many of them have not ended."""
    attempts: int
    last_error: str | None
    """The error of the last failed attempt, or the reason of a cancel."""
    started_at: datetime | None
    finished_at: datetime | None
    next_run_at: datetime | None
    """While PENDING or RETRYING: the earliest start."""
    result_bytes: bytes | None = None
    """The stored result, if it was requested."""
    waits_for: str | None = None
    """The signals that its handler waits for, one in each line; "": it sleeps until `next_run_at`."""

    @property
    def result(self) -> Any:
        """The result, decoded as JSON; bytes that are not JSON stay bytes."""
        return None if self.result_bytes is None else decode_result(self.result_bytes)


workflow_job = Reader(
    WorkflowJob,
    id="job_id",
    unended_parents="unended",
    result_bytes="result",
    waits_for=lambda view: view.waiting.signal if view.HasField("waiting") else None,
)
"""Returns the job in a `WorkflowJobView`."""


@dataclass(frozen=True, slots=True)
class WorkflowJobPage(Items[WorkflowJob]):
    """One page of the jobs of a workflow, in the order of their numbers."""

    jobs: tuple[WorkflowJob, ...]
    next_cursor: str | None
    """Pass it to the next `jobs`. None on the last page."""
    workflow_id: str


# ---------------------------------------------------------------- handles

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


# ---------------------------------------------------------------- stored workflows


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


# ---------------------------------------------------------------- drafts

V = TypeVar("V")


class Draft:
    """The jobs of a workflow that is not stored yet. See `Pulse.workflow`."""

    def __init__(
        self, client: EnqueueVerbs, name: str, workflow_id: str | UUID | None, timeout: timedelta | None
    ) -> None:
        if not isinstance(name, str):
            raise InvalidArgument(f"The name of a workflow has to be a string, but {name!r} was given.")
        self.name = name
        self.id = uuid7() if workflow_id is None else _checked_id(workflow_id)
        self._id_is_ours = workflow_id is None
        self._client = client
        self._timeout = timeout
        self._jobs: dict[str, pb.WorkflowJob] = {}
        self._nodes: dict[str, Node[Any]] = {}
        self._numbers: dict[str, int] = {}
        self._handles: list[type[JobHandle[Any]]] = []
        self._handle: Any = None

    @overload
    def add(
        self,
        job: Registered[..., ..., Coroutine[Any, Any, V]],
        /,
        *args: Any,
        name: str | None = None,
        after: Nodes = (),
        when: When = "succeeded",
        **kwargs: Any,
    ) -> Node[V]: ...
    @overload
    def add(
        self,
        job: Registered[..., ..., R] | Signature[R],
        /,
        *args: Any,
        name: str | None = None,
        after: Nodes = (),
        when: When = "succeeded",
        **kwargs: Any,
    ) -> Node[R]: ...
    @overload
    def add(
        self,
        job: str,
        /,
        *args: Any,
        name: str | None = None,
        after: Nodes = (),
        when: When = "succeeded",
        **kwargs: Any,
    ) -> Node[Any]: ...
    def add(
        self,
        job: Any,
        /,
        *args: Any,
        name: str | None = None,
        after: Nodes = (),
        when: When = "succeeded",
        **kwargs: Any,
    ) -> Node[Any]:
        """Add a job. Returns its node, which later jobs can wait for.

        `job` is a handler, and the rest are its arguments: `flow.add(extract, day)`. Its options are
        `extract.options(priority=5)`. Or it is a signature, `extract.s(day)`; or a topic, followed by the
        arguments as one value and the options. A job of a workflow has no `key`, `job_id` and `timeout`.
        `delay`, `run_at` and `start_within` count from when it no longer waits for other jobs.

        It waits for the jobs in `after`: nodes, or names of jobs that were added before. `when` they have
        all "succeeded", it starts; with "failed" when all have ended and one did not succeed; with "always"
        when all have ended. Without a `name` it has the name of its topic, followed by a number from the
        second on: `extract`, `extract-2`.
        """
        if self._handle is not None:
            raise InvalidArgument(f"Workflow {self.name!r} is stored: add jobs before its block ends.")
        submission = job_of_workflow(self._client, job, args, kwargs)
        request = submission.request
        own = self._free_name(request.topic) if name is None else name
        if own in self._jobs:
            raise InvalidArgument(f"Workflow {self.name!r} has two jobs named {own!r}: each needs its own.")
        parents = [self._known(parent) for parent in listed(after)]
        self._jobs[own] = new_job(request, own, parents, when)
        self._handles.append(submission.handles)
        node: Node[Any] = Node(own, request.topic)
        self._nodes[own] = node
        return node

    def _stored(self) -> Any:
        """Return the handle. Raises InvalidArgument before the block has ended."""
        if self._handle is None:
            raise InvalidArgument(
                f"Workflow {self.name!r} is stored when its block ends: read its handle after that."
            )
        return self._handle

    def _free_name(self, topic: str) -> str:
        name = topic
        while name in self._jobs:
            # Counted on: ten thousand jobs of a topic would else compare fifty million names.
            self._numbers[topic] = self._numbers.get(topic, 1) + 1
            name = f"{topic}-{self._numbers[topic]}"
        return name

    def _known(self, parent: Node[Any] | str) -> str:
        """Return the name of a job of this workflow. Raises InvalidArgument for others."""
        name = parent if isinstance(parent, str) else parent.name
        known = self._nodes.get(name)
        if known is None:
            raise InvalidArgument(f"Workflow {self.name!r} has no job named {name!r}: add it first.")
        if isinstance(parent, Node) and known is not parent:
            raise InvalidArgument(f"The job {name!r} in `after` belongs to another workflow.")
        return name

    def _topics(self) -> list[list[pb.SubmitJobRequest]]:
        """Return the requests of the jobs, by topic."""
        if not self._jobs:
            raise InvalidArgument(f"Workflow {self.name!r} has no jobs: add one before its block ends.")
        topics: dict[str, list[pb.SubmitJobRequest]] = {}
        for job in self._jobs.values():
            topics.setdefault(job.job.topic, []).append(job.job)
        return list(topics.values())

    async def _send(self) -> WorkflowHandle:
        """Store the workflow. To be called within the middleware of enqueues."""
        caller = self._client._caller
        traced = pb.SubmitJobRequest(topic=self.name)
        sending = caller.within(self._timeout, functools.partial(self._submit, caller, traced))
        response = await in_enqueue_span(traced, len(self._jobs), sending)
        return self._handle_of(response.job_ids, duplicate=response.duplicate)

    def _handle_of(self, job_ids: Sequence[str], *, duplicate: bool) -> WorkflowHandle:
        """Return the handle of the stored workflow. The ids are in the order of the jobs."""
        stored = zip(self._jobs.items(), self._handles, job_ids, strict=True)
        return WorkflowHandle(
            self._client._caller,
            self._client._handles,
            self.id,
            self.name,
            {name: handles(job_id, job.job.topic) for (name, job), handles, job_id in stored},
            duplicate and not self._id_is_ours,
        )

    async def _submit(
        self, caller: Caller, traced: pb.SubmitJobRequest, seconds: float
    ) -> pb.SubmitWorkflowResponse:
        if self._id_is_ours:  # else a repeat in another trace would be another workflow
            for job in self._jobs.values():
                spread_context(traced.metadata, job.job.metadata)
        messages = self._messages()
        connection = caller.session().connection
        response: pb.SubmitWorkflowResponse = await connection.keep_trying(
            # Half of the time, if that is more: a large workflow takes long, and a second try has to fit.
            lambda left: connection.send_all(
                connection.stub.SubmitWorkflow, messages, max(tuning.TRY_TIMEOUT_SECONDS, left / 2)
            ),
            seconds,
            also=is_ended_for_now,
        )
        connection.unserved.warn(response.no_worker)
        return response

    def _messages(self) -> list[pb.SubmitWorkflowRequest]:
        """Return the workflow in pieces that each fit into a message."""
        jobs = list(self._jobs.values())
        sizes = (job.ByteSize() for job in jobs)
        batches = batch_bounds(sizes, tuning.ENQUEUE_BATCH_JOBS, tuning.ENQUEUE_BATCH_BYTES)
        messages = [pb.SubmitWorkflowRequest(jobs=jobs[begin:end]) for begin, end in batches]
        messages[0].workflow_id, messages[0].name = self.id, self.name
        return messages


class Workflow(Draft):
    """A workflow that is being written. See `Pulse.workflow`."""

    @property
    def handle(self) -> WorkflowHandle:
        """The handle of the stored workflow. Raises InvalidArgument before the block has ended."""
        handle: WorkflowHandle = self._stored()
        return handle

    async def _store(self) -> None:
        self._handle = await surround_topics(self._client._enqueue_middleware, self._topics(), self._send)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self._store()

    # In `def` handlers.

    def __enter__(self) -> Self:
        if asyncio._get_running_loop() is not None:
            raise InvalidArgument("Write `async with p.workflow(…)`: `with` would block the event loop.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._client._caller.run_in_thread(self._store())


def job_of_workflow(
    client: EnqueueVerbs, job: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Submission:
    """Return the request for a job of a workflow: of a handler, a signature or a topic."""
    if isinstance(job, str):
        if len(args) > 1:
            raise InvalidArgument(f"The arguments of {job!r} are one value, but {len(args)} were given.")
        topic, value, handler = job, args[0] if args else None, client._handler_of(job)
        options: Mapping[str, Any] = kwargs
    else:
        if isinstance(job, Registered):
            job = job.s(*args, **kwargs)
        elif not isinstance(job, Signature):
            raise InvalidArgument(
                f"Give a handler, as @p.job makes it, a signature, job.s(…), or a topic, not {job!r}."
            )
        elif args or kwargs:
            raise InvalidArgument(f"The signature of {job.topic!r} has its arguments: give no others.")
        topic, value, options, handler = job.topic, job._payload, job._options, job._handler
    check_known("A job of a workflow", options, SharedOptions.__annotations__)
    submission = client._submission(topic, value, cast("ItemOptions", options), handler)
    submission.request.ClearField("job_id")  # the server makes it
    return submission


def _checked_id(workflow_id: str | UUID) -> str:
    try:
        return str(UUID(str(workflow_id)))
    except ValueError:
        raise InvalidArgument(
            f"The id of a workflow has to be a UUID, not {workflow_id!r}. Make one of a text by "
            "uuid.uuid5(namespace, text)."
        ) from None


# ---------------------------------------------------------------- verbs


class WorkflowVerbs(EnqueueVerbs):
    """How a `Pulse` stores workflows."""

    def workflow(
        self, name: str, *, id: str | UUID | None = None, timeout: timedelta | None = None
    ) -> Workflow:
        """Write a workflow, jobs that wait for jobs: `async with p.workflow("nightly") as flow: …`.

        `flow.add` adds jobs. All are stored together when the block ends, and none if it raises.
        `flow.handle` then waits for them. With an `id` of your own, a UUID, a repeat of the same workflow
        stores nothing; with other jobs it raises AlreadyExists. In a `def` handler write `with`.
        """
        return Workflow(self, name, id, timeout)

    @returns_in_handler_threads
    async def start(
        self,
        pattern: Pattern,
        *,
        name: str | None = None,
        id: str | UUID | None = None,
        timeout: timedelta | None = None,
    ) -> WorkflowHandle:
        """Store a chain or a group as a workflow: `await p.start(pulse.chain(fetch.s(url), parse.s()))`.

        Without a `name` the workflow has the topic of its first job. In a `def` handler this blocks.
        """
        workflow = drafted(Workflow(self, name_of(pattern, name), id, timeout), pattern)
        await workflow._store()
        return workflow.handle

    @property
    def workflows(self) -> Workflows:
        """The verbs for stored workflows: list them, read their jobs, cancel and retry them."""
        return Workflows(self._caller, self._handles)

    def _job_of_workflow(self, job: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Submission:
        return job_of_workflow(self, job, args, kwargs)

    def _surrounded(
        self,
        topics: Sequence[Sequence[pb.SubmitJobRequest]],
        send: Callable[[], Coroutine[Any, Any, V]],
        block: Callable[[Coroutine[Any, Any, V]], V],
    ) -> Any:
        """Send jobs, by topic, through the middleware. `block` waits in a thread without an event loop."""
        sending = surround_topics(self._enqueue_middleware, topics, send)
        return sending if asyncio._get_running_loop() is not None else block(sending)


D = TypeVar("D", bound=Draft)


def drafted(draft: D, pattern: Pattern) -> D:
    """Add the jobs of the pattern to the workflow."""
    pattern._add_to(draft, [])
    return draft


def name_of(pattern: Pattern, name: str | None) -> str:
    """Return the name of a workflow that is made of the pattern."""
    if not isinstance(pattern, Pattern):
        raise InvalidArgument(f"p.start takes pulse.chain(…) or pulse.group(…), not {pattern!r}.")
    return next(pattern._topics()) if name is None else name
