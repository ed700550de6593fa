"""The verbs that store workflows: `workflow` and `start`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from pulse.client.workflow_drafts import Draft, Workflow, job_of_workflow
from pulse.client.workflow_handles import WorkflowHandle
from pulse.client.workflows import Workflows
from pulse.decorators import Pattern
from pulse.enqueues import EnqueueVerbs
from pulse.errors import InvalidArgument
from pulse.handlers.registry import surround_topics
from pulse.jobs.caller import returns_in_handler_threads
from pulse.jobs.submissions import Submission
from pulse.v1 import pulse_pb2 as pb

V = TypeVar("V")


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
        requests: Sequence[pb.SubmitJobRequest],
        send: Callable[[], Coroutine[Any, Any, V]],
        block: Callable[[Coroutine[Any, Any, V]], V],
    ) -> Any:
        """Send jobs of one topic through the middleware. `block` waits in a thread without an event loop."""
        sending = surround_topics(self._enqueue_middleware, [requests], send)
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
