"""Workflows of a `SyncPulse`: the verbs of `pulse.client`, blocking."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, overload
from uuid import UUID

from pulse.blocking.bridge import Bridge
from pulse.blocking.enqueue_middleware import surround_topics_blocking
from pulse.blocking.handles import SyncHandles, SyncJobHandle
from pulse.blocking.methods import blocking, blocking_pages
from pulse.client import Pulse
from pulse.decorators import Pattern
from pulse.handlers.registry import EnqueueMiddleware
from pulse.handlers.workflows import Node
from pulse.jobs.submissions import Submission
from pulse.v1 import pulse_pb2 as pb
from pulse.workflows import Draft, WorkflowHandle, Workflows, drafted, name_of

R = TypeVar("R")


class SyncWorkflowHandle:
    """A stored workflow of a `SyncPulse`, with `id`, `name`, `jobs` and `duplicate`."""

    def __init__(self, bridge: Bridge, handles: SyncHandles, handle: WorkflowHandle) -> None:
        self._bridge = bridge
        self._handles = handles
        self._async = handle
        self.id = handle.id
        self.name = handle.name
        self.jobs: dict[str, SyncJobHandle[Any]] = {
            name: handles.of(job) for name, job in handle.jobs.items()
        }
        self.duplicate = handle.duplicate

    wait = blocking(WorkflowHandle.wait)
    status = blocking(WorkflowHandle.status)
    cancel = blocking(WorkflowHandle.cancel)
    retry = blocking(WorkflowHandle.retry)

    @overload
    def result(self, job: Node[R], timeout: timedelta | None = None) -> R: ...
    @overload
    def result(self, job: str, timeout: timedelta | None = None) -> Any: ...
    def result(self, job: Node[Any] | str, timeout: timedelta | None = None) -> Any:
        """Wait until a job of the workflow has completed, and return its result. See `JobHandle.result`."""
        return self._bridge.call(WorkflowHandle.result, self._async, job, timeout)

    def job(self, name: str) -> SyncJobHandle[Any]:
        """Return the handle of a job of the workflow, also of one that was added later. Raises NotFound."""
        return self._handles.of(self._bridge.call(WorkflowHandle.job, self._async, name))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, {self.name!r})"


class SyncWorkflows:
    """Reads stored workflows, and acts on one. Each is given by its id."""

    def __init__(self, bridge: Bridge, workflows: Workflows, handles: SyncHandles) -> None:
        self._bridge = bridge
        self._async = workflows
        self._handles = handles

    def handle(self, workflow_id: str) -> SyncWorkflowHandle:
        """Return the handle of a workflow that was stored before, to wait for it. Makes no call."""
        return SyncWorkflowHandle(self._bridge, self._handles, self._async.handle(workflow_id))

    get = blocking(Workflows.get)
    cancel = blocking(Workflows.cancel)
    retry = blocking(Workflows.retry)
    list = blocking(Workflows.list)
    iter = blocking_pages(Workflows.iter, Workflows.list)
    jobs = blocking(Workflows.jobs)
    iter_jobs = blocking_pages(Workflows.iter_jobs, Workflows.jobs)


class SyncWorkflow(Draft):
    """A workflow of a `SyncPulse` that is being written. See `Pulse.workflow`."""

    def __init__(
        self,
        client: SyncWorkflowVerbs,
        name: str,
        workflow_id: str | UUID | None,
        timeout: timedelta | None,
    ) -> None:
        super().__init__(client._async, name, workflow_id, timeout)
        self._blocking = client

    @property
    def handle(self) -> SyncWorkflowHandle:
        """The handle of the stored workflow. Raises InvalidArgument before the block has ended."""
        handle: SyncWorkflowHandle = self._stored()
        return handle

    def _store(self) -> None:
        client = self._blocking
        stored = surround_topics_blocking(
            client._enqueue_middleware, self._topics(), lambda: client._bridge.call(self._send)
        )
        self._handle = self._wrapped(stored)

    def _wrapped(self, handle: WorkflowHandle) -> SyncWorkflowHandle:
        return SyncWorkflowHandle(self._blocking._bridge, self._blocking._handles, handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._store()


class SyncWorkflowVerbs:
    """How a `SyncPulse` stores workflows."""

    _async: Pulse
    _bridge: Bridge
    _enqueue_middleware: list[EnqueueMiddleware]
    _handles: SyncHandles

    def workflow(
        self, name: str, *, id: str | UUID | None = None, timeout: timedelta | None = None
    ) -> SyncWorkflow:
        """Write a workflow, jobs that wait for jobs: `with p.workflow("nightly") as flow: …`.

        See `Pulse.workflow`.
        """
        return SyncWorkflow(self, name, id, timeout)

    def start(
        self,
        pattern: Pattern,
        *,
        name: str | None = None,
        id: str | UUID | None = None,
        timeout: timedelta | None = None,
    ) -> SyncWorkflowHandle:
        """Store a chain or a group as a workflow: `run = p.start(pulse.chain(fetch.s(url), parse.s()))`.

        See `Pulse.start`.
        """
        workflow = drafted(SyncWorkflow(self, name_of(pattern, name), id, timeout), pattern)
        workflow._store()
        return workflow.handle

    @property
    def workflows(self) -> SyncWorkflows:
        """The verbs for stored workflows: list them, read their jobs, cancel and retry them."""
        return SyncWorkflows(self._bridge, self._async.workflows, self._handles)

    def _job_of_workflow(self, job: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Submission:
        return self._async._job_of_workflow(job, args, kwargs)

    def _surrounded(
        self,
        requests: Sequence[pb.SubmitJobRequest],
        send: Callable[[], Coroutine[Any, Any, R]],
        block: Callable[[Coroutine[Any, Any, R]], R],
    ) -> Any:
        """Send jobs of one topic through the middleware. It blocks: an async handler gets a thread for it."""
        if not self._enqueue_middleware:
            return self._async._surrounded(requests, send, block)

        def send_blocking() -> R:
            return surround_topics_blocking(self._enqueue_middleware, [requests], lambda: block(send()))

        return send_blocking() if asyncio._get_running_loop() is None else asyncio.to_thread(send_blocking)
