"""Workflows that are being written. Each is stored when its block ends."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, cast, overload
from uuid import UUID

from pulse import tuning
from pulse.client.workflow_handles import WorkflowHandle
from pulse.decorators import Registered, Signature
from pulse.enqueues import EnqueueVerbs
from pulse.errors import InvalidArgument
from pulse.handlers.registry import surround_topics
from pulse.handlers.workflows import Node, Nodes, When, listed, new_job
from pulse.ids import uuid7
from pulse.jobs.caller import Caller
from pulse.jobs.handles import JobHandle
from pulse.jobs.submissions import ItemOptions, SharedOptions, Submission, check_known
from pulse.tracing import spread_context
from pulse.tracing.optional import in_enqueue_span
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.servers import is_ended_for_now
from pulse.wire.streams import batch_bounds

R = TypeVar("R")
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
