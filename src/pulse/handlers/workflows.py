"""The workflow of a running job: its parents, and jobs that it adds. `Context` has the verbs.

`Context.complete`: a handler completes its job in its own transaction. ADR-0075
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from operator import attrgetter
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, get_args

from pulse import tuning
from pulse.connections import Statement, fetch, fetch_async, is_async
from pulse.errors import ClientClosed, InvalidArgument, NotFound, PulseError, Unavailable
from pulse.handlers.step_calls import StepCalls, fail, until_answered
from pulse.handlers.steps import ContextSteps, Steps, returned
from pulse.jobs.models import JobStatus
from pulse.messages import check_unicode
from pulse.payload import Decode, encode_result, result_decoder_for
from pulse.tracing import spread_context
from pulse.tracing.optional import in_enqueue_span
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.redirection import check_database
from pulse.wire.streams import Coalescer, batch_bounds

R = TypeVar("R", covariant=True)
When: TypeAlias = Literal["succeeded", "failed", "always"]
"""When a job starts that waits for others.

succeeded: all have completed. failed: all have ended, and one did not succeed. always: all have ended.
"""


class JobOutcome(StrEnum):
    """How a job of a workflow has ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """Dead-lettered."""
    CANCELED = "canceled"
    """By an operator, or because a job that it waited for did not succeed."""
    SKIPPED = "skipped"
    """Not needed: it was to start after a failure, and every job that it waited for succeeded."""


@dataclass(frozen=True, slots=True, eq=False)
class Node(Generic[R]):
    """A job of a workflow that is being written: give it to `after`. `R` is what its handler returns."""

    name: str
    """Unique in its workflow."""
    topic: str


@dataclass(frozen=True, slots=True)
class Parent:
    """A job that the running one waited for."""

    name: str
    topic: str
    job_id: str
    status: JobStatus | None
    """None: the job has been deleted."""
    outcome: JobOutcome | None
    result: Any
    """The return value of its handler, decoded as `JobHandle.result` decodes it. None without a success."""
    error: str | None
    """The error of its last failed attempt, or the reason of its cancel."""


_COMPLETE = "SELECT pulse.complete_job($1::text::uuid, $2::text, $3::integer, $4::bytea, $5::bytea)"
_TOKEN_BYTES = 16


class ContextTransaction(ContextSteps):
    """What a handler can do to complete its job with its rows."""

    __slots__ = ("_completes_in_transaction", "_on_complete")

    _completes_in_transaction: bool
    _on_complete: Callable[[], None]  # unset outside of child processes

    def complete(self, connection: Any, result: object = None) -> Coroutine[Any, Any, None]:
        """Complete the job in the transaction of this connection: `await ctx.complete(connection)`.

        Call it last, then commit: the job is completed exactly if your rows are stored. It takes the
        connections that `pulse.sql.enqueue` takes. Raises ClaimLost if the job is no longer held here,
        AlreadyCompleted if an earlier transaction of this run was committed, and InvalidArgument outside of a
        transaction. From this call on the handler's return no longer completes the job: without a commit the
        attempt has failed. Give the `result` of the job here; what the handler returns is dropped. After a
        rollback it may be called again. In a `def` handler it blocks, without `await`. In a unit test it does
        nothing.
        """
        key: pb.CompletionKey | None = getattr(self._steps, "completion_key", None)
        if key is None:
            return returned(None)  # type: ignore[no-any-return]
        # First: if the handler forgets to await, or catches the error and returns, the attempt has failed.
        self._completes_in_transaction = True
        if (pass_on := getattr(self, "_on_complete", None)) is not None:
            pass_on()
        check_database()
        claim, encoded = self._assignment, None if result is None else encode_result(result)
        values = [claim.job_id, key.worker, claim.run, token_of(key.key, claim), encoded]
        statement = Statement(_COMPLETE, values, "ctx.complete", needs_transaction=True)
        if not is_async(connection):
            fetch(connection, statement)
            return returned(None)  # type: ignore[no-any-return]
        if asyncio._get_running_loop() is None:
            raise InvalidArgument(
                "ctx.complete was given an async connection in a `def` handler, which cannot await it: write "
                "`async def`, or use a connection that blocks."
            )
        return _complete(connection, statement)


async def _complete(connection: Any, statement: Statement) -> None:
    await fetch_async(connection, statement)


def token_of(key: bytes, claim: pb.JobAssignment) -> bytes | None:
    """What proves to the database that this worker was sent the claim. None: the server has sent no key."""
    return sha256(key + f"{claim.job_id}:{claim.run}".encode()).digest()[:_TOKEN_BYTES] if key else None


def completes_in_transaction(context: ContextTransaction) -> bool:
    """True once the handler has called `ctx.complete`: no report completes its job. Safe in any thread."""
    return context._completes_in_transaction


def set_completes_in_transaction(context: ContextTransaction) -> None:
    """Take over that the handler has called `ctx.complete` in another process."""
    context._completes_in_transaction = True


def on_complete(context: ContextTransaction, call: Callable[[], None]) -> None:
    """Have the function called before the handler completes its job, in the thread of the handler."""
    context._on_complete = call


Answer = TypeVar("Answer")
Added = TypeVar("Added")
Nodes: TypeAlias = Node[Any] | str | Iterable[Node[Any] | str]

# Threads of a handler share one RunningWorkflow: two of them would give out the same names, and the server
# leaves out a job whose name exists.
_FIRST_USE = threading.Lock()


class WorkflowClient(Protocol):
    """The client of a worker, as far as its handlers need it here."""

    @property
    def _registry(self) -> Any: ...

    def _job_of_workflow(self, job: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the submission of a job of a workflow."""

    def _surrounded(
        self,
        topics: Sequence[Sequence[pb.SubmitJobRequest]],
        send: Callable[[], Coroutine[Any, Any, Any]],
        block: Callable[[Coroutine[Any, Any, Any]], Any],
    ) -> Any:
        """Send jobs, by topic, through the middleware of enqueues."""


class ContextWorkflow(ContextTransaction):
    """What a handler can do with the workflow of its job."""

    __slots__ = ("_given_parents", "_workflow")

    _workflow: RunningWorkflow  # unset until it is used
    _given_parents: Mapping[str, Any]  # set in unit tests

    @property
    def parents(self) -> Parents:
        """The jobs that this one waited for: `(await ctx.parents["fetch"]).result`.

        `async for parent in ctx.parents` reads all, page by page. A `def` handler leaves out `await` and
        `async`. Each access asks the server.
        """
        return Parents(self)

    @property
    def workflow(self) -> RunningWorkflow:
        """The workflow of this job, to add jobs to it: `await ctx.workflow.add(parse, page)`."""
        if (workflow := getattr(self, "_workflow", None)) is None:
            with _FIRST_USE:
                if (workflow := getattr(self, "_workflow", None)) is None:
                    workflow = self._workflow = RunningWorkflow(self)
        return workflow

    def _calls(self) -> StepCalls | None:
        """Return the calls of the worker. None in a unit test."""
        steps = self._steps
        if isinstance(steps, Steps):
            return steps.calls
        return steps if isinstance(steps, StepCalls) else None

    async def _ask(self, call: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        return await until_answered(
            call,
            self._assignment.job_id,
            lambda: self._cancelled,
            lambda: self._completes_in_transaction,
        )


class Parents:
    """The jobs that a running job waited for, by name."""

    def __init__(self, context: ContextWorkflow) -> None:
        self._context = context

    def __getitem__(self, name: str) -> Coroutine[Any, Any, Parent]:
        """Return one of them, with its result. Raises NotFound. In a `def` handler it blocks."""
        parent: Coroutine[Any, Any, Parent] = self._run(self._get(name))
        return parent

    async def __aiter__(self) -> AsyncIterator[Parent]:
        token = ""
        while True:
            page, token = await self._page(token)
            for parent in page:
                yield parent
            if not token:
                return

    def __iter__(self) -> Iterator[Parent]:
        if asyncio._get_running_loop() is not None:
            raise InvalidArgument(
                "Write `async for parent in ctx.parents`: `for` would block the event loop."
            )
        token = ""
        while True:
            page, token = self._run(self._page(token))
            yield from page
            if not token:
                return

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if asyncio._get_running_loop() is not None:
            return coroutine
        calls = self._context._calls()
        return asyncio.run(coroutine) if calls is None else calls.block(coroutine)

    async def _get(self, name: str) -> Parent:
        page, _ = await self._page("", name)
        for parent in page:
            return parent
        raise NotFound(f"Job {self._context._assignment.job_id} waited for no job named {name!r}.")

    async def _page(self, token: str, name: str | None = None) -> tuple[list[Parent], str]:
        context, calls = self._context, self._context._calls()
        if calls is None:
            given = getattr(context, "_given_parents", {})
            return [_given(key, given[key]) for key in given if name in (None, key)], ""
        request = pb.ListWorkflowJobsRequest(
            parents_of=context._assignment.job_id,
            names=[] if name is None else [name],
            results=True,
            limit=tuning.WORKFLOW_PAGE_JOBS,
            page_token=token,
        )
        response = await context._ask(lambda: calls.call(lambda stub: stub.ListWorkflowJobs, request))
        decoders = {
            topic: self._decoder(calls.client, topic) for topic in {job.topic for job in response.jobs}
        }
        return [_parent(view, decoders[view.topic]) for view in response.jobs], response.next_page_token

    def _decoder(self, client: WorkflowClient, topic: str) -> Decode:
        handler = client._registry.get(topic)
        return result_decoder_for(Any if handler is None else handler.returns)


class Addition(NamedTuple):
    """Jobs that one call adds together. `stored` ends once they are stored, or with the refusal."""

    jobs: Sequence[pb.WorkflowJob]
    stored: asyncio.Future[None]

    @property
    def weight(self) -> int:
        """Its part of a message, in bytes: many small jobs weigh as much as few large ones."""
        share = len(self.jobs) * tuning.ENQUEUE_BATCH_BYTES // tuning.ADDED_JOBS
        return max(share, sum([job.ByteSize() for job in self.jobs]))


class RunningWorkflow:
    """The workflow of a running job."""

    def __init__(self, context: ContextWorkflow) -> None:
        self._context = context
        self._numbers = itertools.count(1)  # of jobs without names
        self._additions: Coalescer[Addition] | None = None  # in the event loop of the worker

    def add(
        self,
        job: Any,
        /,
        *args: Any,
        name: str | None = None,
        after: Nodes = (),
        before: Nodes = (),
        when: When = "succeeded",
        **kwargs: Any,
    ) -> Coroutine[Any, Any, Node[Any]]:
        """Add a job to the workflow of the running one. It is stored at once. Returns its node.

        A job without a workflow starts one: it has the name of its topic there, and is the first job.

        The parameters are those of `Workflow.add`; `after` takes names of any jobs of the workflow. Jobs in
        `before` then wait for the new one too: they have to wait for other jobs still, else it raises
        InvalidTransition. Descendants of the running job always do.

        A repeat adds nothing: a job whose name exists is left out. Later attempts run this again, so the
        names have to be the same in each. Without a name, jobs are numbered in the order of the calls. In a
        `def` handler it blocks, without `await`. In a unit test it stores nothing.
        """
        calls = self._context._calls()
        own = self._free_name() if name is None else name
        if calls is None:
            return returned(_unstored(own, job))  # type: ignore[no-any-return]
        request = calls.client._job_of_workflow(job, args, kwargs).request
        added = new_job(request, own, names_of(after), when, names_of(before))
        node: Node[Any] = Node(own, added.job.topic)
        return self._surrounded(calls, [added], node)

    def add_many(
        self,
        jobs: Iterable[Any],
        /,
        *,
        names: Iterable[str] | None = None,
        after: Nodes = (),
        before: Nodes = (),
        when: When = "succeeded",
    ) -> Coroutine[Any, Any, list[Node[Any]]]:
        """Add many jobs in few messages: `await ctx.workflow.add_many([parse.s(page) for page in pages])`.

        Each job is a signature, a handler without arguments or a topic. `names` has a name for each;
        `after`, `before` and `when` are the same for all, as for `add`. Returns the nodes, in order. Up to
        1,000 jobs of 1 MiB in all are stored together or, if one is refused, not at all. More go in several
        messages: those before the refused one are stored.
        """
        calls, given = self._context._calls(), [*jobs]
        owns = [self._free_name() for _ in given] if names is None else [*names]
        if len(owns) != len(given):
            raise InvalidArgument(f"There are {len(owns)} names for {len(given)} jobs: give one for each.")
        if calls is None or not given:
            return returned([_unstored(own, job) for own, job in zip(owns, given, strict=True)])  # type: ignore[no-any-return]
        parents, children = names_of(after), names_of(before)
        client = calls.client
        requests = [client._job_of_workflow(job, (), {}).request for job in given]
        added = [
            new_job(request, own, parents, when, children)
            for request, own in zip(requests, owns, strict=True)
        ]
        return self._surrounded(calls, added, [Node(job.name, job.job.topic) for job in added])

    def _free_name(self) -> str:
        # With the id: handlers of one topic that run beside each other must not take each other's names.
        # Cut: the server takes names of up to 255 characters.
        assignment = self._context._assignment
        return f"{assignment.topic[:200]}/{assignment.job_id}/{next(self._numbers)}"

    def _surrounded(
        self, calls: StepCalls, added: Sequence[pb.WorkflowJob], answer: Added
    ) -> Coroutine[Any, Any, Added]:
        """Store the jobs within the middleware of enqueues, and then return the answer."""
        topics: dict[str, list[pb.SubmitJobRequest]] = {}
        for job in added:
            topics.setdefault(job.job.topic, []).append(job.job)
        traced = added[0].job

        async def send() -> Added:
            for job in added[1:]:
                spread_context(traced.metadata, job.job.metadata)
            sizes = (job.ByteSize() for job in added)
            for begin, end in batch_bounds(sizes, tuning.ADDED_JOBS, tuning.ENQUEUE_BATCH_BYTES):
                store = functools.partial(self._store, calls, added[begin:end])
                await self._context._ask(lambda store=store: calls.in_loop(store()))  # type: ignore[misc]
            return answer

        adding: Coroutine[Any, Any, Added] = calls.client._surrounded(
            [*topics.values()], lambda: in_enqueue_span(traced, len(added), send()), calls.block
        )
        return adding

    async def _store(self, calls: StepCalls, added: Sequence[pb.WorkflowJob]) -> None:
        """Store the jobs in one try, in a message that calls beside each other share."""
        if self._additions is None:
            self._additions = Coalescer(
                functools.partial(self._send, calls),
                size_of=attrgetter("weight"),
                most_items=tuning.ADDED_JOBS,
                most_bytes=tuning.ENQUEUE_BATCH_BYTES,
                in_flight=1,  # a message waits for the lock on the workflow that the one before it holds
            )
        addition = Addition(added, asyncio.get_running_loop().create_future())
        self._additions.add(addition)
        await addition.stored

    async def _send(self, calls: StepCalls, additions: Sequence[Addition]) -> None:
        claim, answers = self._context._assignment, [addition.stored for addition in additions]
        request = pb.AddToWorkflowRequest(
            worker_id=calls.worker_id,
            claim=pb.Claim(job_id=claim.job_id, attempt=claim.attempt, run=claim.run),
            jobs=[job for addition in additions for job in addition.jobs],
        )
        try:
            await calls.call(lambda stub: stub.AddToWorkflow, request)
        except PulseError as error:
            if len(additions) == 1 or isinstance(error, Unavailable):
                fail(answers, error)
                return
            # Nothing was added. The others must not fail with the one that is refused.
            for addition in additions:
                await self._send(calls, [addition])
        except BaseException:
            # Otherwise the handler would wait without end.
            fail(answers, ClientClosed("The client was closed while a job was being added."))
            raise
        else:
            for answer in answers:
                if not answer.done():  # else its handler was canceled
                    answer.set_result(None)


def _unstored(name: str, job: Any) -> Node[Any]:
    """Return the node of a job in a unit test."""
    return Node(name, job if isinstance(job, str) else job.topic)


def new_job(
    request: pb.SubmitJobRequest, name: str, after: Sequence[str], when: str, before: Sequence[str] = ()
) -> pb.WorkflowJob:
    """Return the message of a job. Raises InvalidArgument for a name or condition that cannot be sent."""
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"The name of a job has to be a text that is not empty, not {name!r}.")
    check_unicode("The name", name)
    if when not in get_args(When):
        raise InvalidArgument(f"when={when!r} is not known: use {', '.join(map(repr, get_args(When)))}.")
    return pb.WorkflowJob(job=request, name=name, after=after, when=when, before=before)


def names_of(nodes: Nodes) -> list[str]:
    """Return the names of one node, or of several, each once."""
    return [node if isinstance(node, str) else node.name for node in listed(nodes)]


def listed(nodes: Nodes) -> list[Node[Any] | str]:
    """Return one node or name, or several, each once. Raises InvalidArgument for anything else."""
    several = [nodes] if isinstance(nodes, Node | str) else nodes
    found = list(dict.fromkeys(several)) if isinstance(several, Iterable) else [several]
    for node in found:
        if not isinstance(node, Node | str):
            raise InvalidArgument(f"Give nodes, as `add` returns them, or names of jobs, not {node!r}.")
    return found


def _parent(view: pb.WorkflowJobView, decode: Decode) -> Parent:
    return Parent(
        name=view.name,
        topic=view.topic,
        job_id=view.job_id,
        status=JobStatus(view.status) if view.status else None,
        outcome=JobOutcome(view.outcome) if view.outcome else None,
        result=decode(view.result) if view.HasField("result") else None,
        error=view.last_error or None,
    )


def _given(name: str, value: Any) -> Parent:
    """Return a parent of a unit test: with this result, or as it was given."""
    if isinstance(value, Parent):
        return value
    return Parent(name, name, "", JobStatus.COMPLETED, JobOutcome.SUCCEEDED, value, None)
