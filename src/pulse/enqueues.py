"""The verbs that store jobs, `enqueue` and `enqueue_many`, and those that wait for the results.

Several jobs are waited for at once, over the one stream of their client.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypeVar, Unpack, cast, overload

import grpc.aio

from pulse import tuning
from pulse.error_text import in_a_line
from pulse.errors import InvalidArgument, PulseError
from pulse.handlers.context import running_context
from pulse.handlers.handler import NO_OPTIONS, Handler
from pulse.handlers.registry import EnqueueMiddleware, Registry, surround
from pulse.ids import uuid7s
from pulse.jobs.caller import Caller, blocks_in_handler_threads, seconds_of
from pulse.jobs.handles import (
    Answer,
    Awaiting,
    JobCanceled,
    JobFailed,
    JobHandle,
    PartialFailure,
    ResultGone,
    ResultTimeout,
    handles_of,
    source_of,
)
from pulse.jobs.models import JobInfo, JobStatus
from pulse.jobs.submissions import (
    OPTIONS,
    EnqueueOptions,
    ItemOptions,
    ManyOptions,
    Outcome,
    SharedOptions,
    Submission,
    Submitter,
    check_known,
    check_shared_unique,
    check_values,
    make_submission,
    moment_of,
    settled,
    takes_options,
)
from pulse.messages import check_items, check_payload
from pulse.payload import Decode, encode, result_decoder_for
from pulse.tracing.optional import in_enqueue_span
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.streams import batch_bounds


def completed(options: SharedOptions, handler: Handler) -> ItemOptions:
    """Return the options. The handler's options replace missing ones."""
    theirs = handler.options
    return _over(
        options,
        {"priority": theirs.priority, "start_within": theirs.start_within, "unique": theirs.unique},
    )


def _over(options: Mapping[str, Any], base: Mapping[str, Any]) -> ItemOptions:
    given = {name: value for name, value in options.items() if value is not None}
    return cast("ItemOptions", {**base, **given})


class JobItem:
    """An item of `enqueue_many` with options. They override the options of the call."""

    __slots__ = ("args", "options")

    def __init__(self, args: object = None, /, **options: Unpack[ItemOptions]) -> None:
        check_known("An item", options, ItemOptions.__annotations__.keys())
        check_values(options)
        self.args = args
        self.options: ItemOptions = options

    def merged_with(self, shared: SharedOptions) -> ItemOptions:
        """Return the options of the item. The options of the call replace missing ones."""
        options = _over(self.options, shared)
        # Both options set the start: either of them on the item overrides both of the call.
        if "delay" in self.options or "run_at" in self.options:
            options["delay"], options["run_at"] = self.options.get("delay"), self.options.get("run_at")
        return options

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"JobItem({self.args!r}{options})"


def encode_items(items: Iterable[object], handler: Handler | None) -> list[bytes]:
    """Return the payload of each item. Raises InvalidArgument for one that the handler could not read.

    Also for one that is too large.
    """
    encoded: list[bytes] = []
    for item in items:
        args = item.args if type(item) is JobItem else item
        try:
            check_payload(payload := encode(args))
            if handler is not None and not isinstance(args, bytes):
                handler.check(payload)
        except InvalidArgument as error:
            raise of_item(len(encoded), error) from error.__cause__
        encoded.append(payload)
    return encoded


def of_item(number: int, error: InvalidArgument) -> InvalidArgument:
    """Return the error with the number of its item, which counts as in PartialFailure: from 0."""
    return InvalidArgument(f"Item number {number}: {error.message}")


logger = logging.getLogger("pulse.worker")

Result = TypeVar("Result")


# ---------------------------------------------------------------- handles


class Handles:
    """Makes the handles of one client: a class for each handler, since each decodes results in its way."""

    def __init__(self, caller: Caller, registry: Registry) -> None:
        self._caller = caller
        self._registry = registry
        self._known: dict[str, tuple[Handler, type[JobHandle[Any]]]] = {}
        self._plain: type[JobHandle[Any]] | None = None

    def of(self, handler: Handler | None) -> type[JobHandle[Any]]:
        """Return the class of the handles of this handler's jobs, or of jobs without a known handler."""
        if handler is None:
            if self._plain is None:
                self._plain = handles_of(HandleSource(self._caller, self._registry, None))
            return self._plain
        known = self._known.get(handler.topic)
        if known is None or known[0] is not handler:
            handles = handles_of(HandleSource(self._caller, self._registry, handler))
            known = self._known[handler.topic] = handler, handles
        return known[1]

    def made(
        self, job_id: str, topic: str, duplicate: bool = False, replaced: bool = False
    ) -> JobHandle[Any]:
        """Return the handle of a job of this topic."""
        return self.of(self._registry.get(topic))(job_id, topic, duplicate, replaced)


class HandleSource:
    """Waits for the jobs of one client and one handler. See pulse.jobs.handles.Source."""

    def __init__(self, caller: Caller, registry: Registry, handler: Handler | None) -> None:
        self._caller = caller
        self._registry = registry
        self._handler = handler
        self._decode: Decode | None = None
        self._warned: set[tuple[str, str]] = set()

    def wait(self, handle: JobHandle[Any], timeout: timedelta | None) -> Coroutine[Any, Any, JobInfo]:
        return self._blocking_in_handler_threads(handle, self.wait_here(handle, timeout))

    def result(self, handle: JobHandle[Any], timeout: timedelta | None) -> Coroutine[Any, Any, Any]:
        return self._blocking_in_handler_threads(handle, self.result_here(handle, timeout))

    async def wait_here(self, handle: JobHandle[Any], timeout: timedelta | None) -> JobInfo:
        """Return the finished job. Raises ResultTimeout and ResultGone."""
        awaiting = self.awaiting()
        if handle.id in awaiting.answered:
            return job_of(handle.id, awaiting.answered[handle.id])
        seconds = None if timeout is None else seconds_of("timeout", timeout)
        answer = self.begin(awaiting, handle.id)
        try:
            # Not wait_for, which cancels the future that others may share.
            await asyncio.wait({answer}, timeout=seconds)
        finally:
            awaiting.end(handle.id, answer)
        if not answer.done():
            raise await self.timed_out(f"Job {handle.id} has not finished after {timeout}.", handle)
        return job_of(handle.id, answer.result())

    async def timed_out(
        self, sentence: str, handle: JobHandle[Any], otherwise: str = "It goes on."
    ) -> ResultTimeout:
        """Return the error of a wait that ended early. It states if no worker takes this job."""
        connection = self._caller.session().connection
        request = pb.GetJobRequest(job_id=handle.id)
        note = ""
        with contextlib.suppress(grpc.aio.AioRpcError, PulseError):  # no reason can be found
            response = await connection.try_once(connection.stub.GetJob, request, tuning.AWAIT_REASON_SECONDS)
            note = response.job.no_worker
        return ResultTimeout(f"{sentence} {note or otherwise}")

    async def result_here(self, handle: JobHandle[Any], timeout: timedelta | None) -> Any:
        """Return the result of the job. Raises JobFailed and JobCanceled as well."""
        return self.result_of(await self.wait_here(handle, timeout))

    def result_of(self, job: JobInfo) -> Any:
        """Return the result of a finished job. Raises JobFailed and JobCanceled."""
        if job.status is JobStatus.DEAD_LETTERED:
            raise JobFailed(job)
        if job.status is JobStatus.CANCELED:
            raise JobCanceled(job)
        if job.result_bytes is None:
            return None
        if self._decode is None:
            self._decode = result_decoder_for(Any if self._handler is None else self._handler.returns)
        return self._decode(job.result_bytes)

    def awaiting(self) -> Awaiting:
        """Return what waits in the running event loop."""
        return self._caller.session().awaiting

    def begin(self, awaiting: Awaiting, job_id: str) -> asyncio.Future[Answer]:
        return awaiting.begin(job_id, self._caller.seconds(None))

    def warn_in_handler(self, topic: str) -> None:
        """Warn if a handler waits for a job that only its own worker may be there to run."""
        context = running_context()
        if context is None or not self._registry.is_serving or self._registry.get(topic) is None:
            return
        if (context.topic, topic) not in self._warned:
            self._warned.add((context.topic, topic))
            logger.warning(
                "The handler of %s waits for a job of %s, which the same worker serves. It keeps its slot "
                "meanwhile: when all slots wait, no job runs. Let the handler of %s enqueue what comes next, "
                "raise pulse.Snooze until the job has finished, or serve the topics with different workers.",
                *map(in_a_line, (context.topic, topic, topic)),
            )

    def _blocking_in_handler_threads(
        self, handle: JobHandle[Any], coroutine: Coroutine[Any, Any, Result]
    ) -> Coroutine[Any, Any, Result]:
        self.warn_in_handler(handle.topic)
        if running_context() is None or asyncio._get_running_loop() is not None:
            return coroutine
        result: Any = self._caller.run_in_thread(coroutine)
        return result  # type: ignore[no-any-return]


def job_of(job_id: str, answer: Answer) -> JobInfo:
    """Return the finished job of an answer. Raises ResultGone, or the error that ended the wait."""
    if answer is None:
        raise ResultGone(job_id)
    if isinstance(answer, PulseError):
        raise copy.copy(answer)  # each raise extends the traceback of the error that it raises
    return answer


# ---------------------------------------------------------------- several jobs

R = TypeVar("R")


@overload
async def gather(
    *handles: JobHandle[R], timeout: timedelta | None = None, return_exceptions: Literal[False] = False
) -> list[R]: ...
@overload
async def gather(
    *handles: JobHandle[R], timeout: timedelta | None = None, return_exceptions: bool
) -> list[R | PulseError]: ...
async def gather(
    *handles: JobHandle[Any], timeout: timedelta | None = None, return_exceptions: bool = False
) -> list[Any]:
    """Wait for all jobs, and return their results in the order of the handles.

    The first job that does not complete raises its error (see `JobHandle.result`) and ends the
    wait. With `return_exceptions`, errors are returned in the place of results.
    """
    results: list[Any] = [None] * len(handles)
    async with contextlib.aclosing(_answers(handles, timeout)) as answers:
        async for at, answer in answers:
            try:
                source = _source(handles[at])
                results[at] = source.result_of(job_of(handles[at].id, answer))
            except PulseError as error:
                if not return_exceptions:
                    raise
                results[at] = error
    return results


async def as_completed(
    handles: Iterable[JobHandle[R]], *, timeout: timedelta | None = None
) -> AsyncGenerator[JobHandle[R], None]:
    """Yield the handles in the order in which their jobs finish, whatever the outcome.

    In the body of the loop, `await handle.result()` and `await handle.wait()` return at once. Raises
    ResultTimeout if not all finish in time.
    """
    given = tuple(handles)
    async with contextlib.aclosing(_answers(given, timeout)) as answers:
        async for at, answer in answers:
            handle = given[at]
            at_hand = _source(handle).awaiting().answered
            at_hand[handle.id] = answer
            try:
                yield handle
            finally:
                at_hand.pop(handle.id, None)


class GatherVerbs:
    """How a `Pulse` waits for jobs."""

    _handles: Handles

    def handle(self, job_id: str, topic: str = "") -> JobHandle[Any]:
        """Return the handle of a job that was stored before, to wait for it. Makes no call.

        With its `topic`, if this client has the handler, the result is decoded in the type that it returns.
        """
        return self._handles.made(job_id, topic)

    async def gather(
        self, *handles: JobHandle[R], timeout: timedelta | None = None, return_exceptions: bool = False
    ) -> list[R]:
        """Wait for all jobs, and return their results in the order of the handles. See `pulse.gather`."""
        return await gather(*handles, timeout=timeout, return_exceptions=return_exceptions)  # type: ignore[return-value]

    def as_completed(
        self, handles: Iterable[JobHandle[R]], *, timeout: timedelta | None = None
    ) -> AsyncGenerator[JobHandle[R], None]:
        """Yield the handles in the order in which their jobs finish. See `pulse.as_completed`."""
        return as_completed(handles, timeout=timeout)


async def _answers(
    handles: Sequence[JobHandle[Any]], timeout: timedelta | None
) -> AsyncGenerator[tuple[int, Answer], None]:
    """Yield the positions of the handles and their answers as they come."""
    loop = asyncio.get_running_loop()
    deadline = None if timeout is None else loop.time() + seconds_of("timeout", timeout)
    sources = [_source(handle) for handle in handles]
    finished: asyncio.Queue[int] = asyncio.Queue()
    waits: list[asyncio.Future[Answer]] = []
    awaiting = [source.awaiting() for source in sources]
    try:
        for at, (handle, source) in enumerate(zip(handles, sources, strict=True)):
            source.warn_in_handler(handle.topic)
            wait = source.begin(awaiting[at], handle.id)
            wait.add_done_callback(lambda _, at=at: finished.put_nowait(at))  # type: ignore[misc]
            waits.append(wait)
        for left in range(len(handles), 0, -1):
            try:
                async with asyncio.timeout_at(deadline):
                    at = await finished.get()
            except TimeoutError:
                first = next(at for at, wait in enumerate(waits) if not wait.done())
                raise await sources[first].timed_out(
                    f"{left} of {len(handles)} jobs have not finished after {timeout}.",
                    handles[first],
                    "They go on.",
                ) from None
            yield at, waits[at].result()
    finally:
        for handle, own, wait in zip(handles, awaiting, waits, strict=False):
            own.end(handle.id, wait)


def _source(handle: JobHandle[Any]) -> HandleSource:
    if not isinstance(handle, JobHandle):
        raise InvalidArgument(f"Give the handles of jobs, as `enqueue` returns them, not {handle!r}.")
    source = source_of(handle)
    if not isinstance(source, HandleSource):
        raise InvalidArgument("These handles come from a SyncPulse: use its own p.gather and p.as_completed.")
    return source


# ---------------------------------------------------------------- bulk
# Jobs that share all options and differ in their arguments, sent in batches.

OVERHEAD_BYTES = 64  # id, tags and lengths of one job on the wire


class Bulk:
    """One job for each payload, with the options of the template."""

    def __init__(self, template: Submission, payloads: Sequence[bytes]) -> None:
        self._template = template.request
        self._handles = template.handles
        self._payloads = payloads
        self._job_ids = uuid7s(len(payloads))
        if len(payloads) == 1:
            self._template.job_id = self._job_ids[0]  # the span of a single job carries its id

    async def submit(self, submitter: Submitter, timeout_seconds: float) -> list[Outcome]:
        """Store the jobs. Returns a handle or the error for each, in order.

        `timeout_seconds` bounds each batch. A batch that gets no answer raises a PulseError; later batches
        are not sent.
        """
        # Each job has the options of the template on the wire of servers without columns.
        fixed = self._template.ByteSize() + OVERHEAD_BYTES
        sizes = (fixed + len(payload) for payload in self._payloads)
        bounds = list(batch_bounds(sizes, tuning.ENQUEUE_BATCH_JOBS, tuning.ENQUEUE_BATCH_BYTES))
        outcomes: list[list[Outcome]] = [[] for _ in bounds]
        in_turn = iter(enumerate(bounds))

        async def send() -> None:
            for turn, (begin, end) in in_turn:
                # Encoded only now, while earlier batches are in flight.
                outcomes[turn] = await self._send(submitter, begin, end, timeout_seconds)

        if len(bounds) == 1:
            await send()
        elif bounds:
            await _first_error_ends_all(
                [asyncio.ensure_future(send()) for _ in bounds[: tuning.BULK_BATCHES_IN_FLIGHT]]
            )
        return [outcome for batch in outcomes for outcome in batch]

    async def _send(
        self, submitter: Submitter, begin: int, end: int, timeout_seconds: float
    ) -> list[Outcome]:
        if submitter.may_send_columns():
            response = await submitter.submit_together(self._columns(begin, end), timeout_seconds)
            if response.all_inserted or response.results:
                return self._settle(response, begin, end)
            submitter.columns_were_ignored()
        response = await submitter.submit_together(self._rows(begin, end), timeout_seconds)
        return self._settle(response, begin, end)

    def _columns(self, begin: int, end: int) -> pb.StreamSubmitsRequest:
        message = pb.StreamSubmitsRequest()
        columns = message.request.columns
        columns.options.CopyFrom(self._template)
        columns.options.ClearField("job_id")
        columns.job_ids = bytes.fromhex("".join(self._job_ids[begin:end]).replace("-", ""))
        payloads = self._payloads[begin:end]
        columns.payload_sizes.extend(map(len, payloads))
        columns.payloads = b"".join(payloads)
        return message

    def _rows(self, begin: int, end: int) -> pb.StreamSubmitsRequest:
        """Return the same as a message that servers without columns understand."""
        message = pb.StreamSubmitsRequest()
        message.request.brief = True
        # Reuse one message for all jobs of a batch: appending copies it. Make a new one for each
        # batch: a message keeps the memory of every value that it ever held.
        job = pb.SubmitJobRequest()
        job.CopyFrom(self._template)
        append = message.request.jobs.append
        for job_id, payload in zip(self._job_ids[begin:end], self._payloads[begin:end], strict=True):
            job.job_id = job_id
            job.payload = payload
            append(job)
        return message

    def _settle(self, response: pb.SubmitJobsResponse, begin: int, end: int) -> list[Outcome]:
        topic, handles, job_ids = self._template.topic, self._handles, self._job_ids[begin:end]
        if response.all_inserted:
            submitted_at = moment_of(response)
            return [handles(job_id, topic, False, False, submitted_at) for job_id in job_ids]
        return [
            settled(result, job_id, topic, handles, id_is_ours=True)
            for result, job_id in zip(response.results, job_ids, strict=True)
        ]


async def _first_error_ends_all(senders: list[asyncio.Future[None]]) -> None:
    try:
        await asyncio.gather(*senders)
    finally:
        for sender in senders:
            sender.cancel()
        await asyncio.wait(senders)


# ---------------------------------------------------------------- enqueues


class EnqueueVerbs:
    """How a `Pulse` stores jobs."""

    _caller: Caller
    _registry: Registry
    _enqueue_middleware: list[EnqueueMiddleware]
    _handles: Handles
    _wake: Callable[[], None]
    """Wakes servers after a commit that has stored jobs. Never raises."""

    @blocks_in_handler_threads
    @takes_options(EnqueueOptions)
    async def enqueue(
        self, topic: str, args: object = None, **options: Unpack[EnqueueOptions]
    ) -> JobHandle[Any]:
        """Store a job. Returns its handle once the job is committed to the database.

        Jobs with a higher `priority` always run first, over all topics that a worker serves. A job that has
        not started within `start_within`, counted from when it is due, is canceled. If this client has the
        handler of the topic, its options are the defaults, and arguments that it could not read are refused.
        The `lane`, such as a customer, is what `per_lane`, `lane_rate`, `turns` and `ordered` of the topic
        count by.

        Concurrent calls share a batch. If an answer is lost, the job is sent again until `timeout`; it is
        stored once. With `key`, a later enqueue on the topic with the same key and arguments returns this
        job (`.duplicate`); with other arguments it raises AlreadyExists. With `unique`, at most one job of
        its key waits, or lives; False stores the job whatever the handler says. In a `def` handler this
        blocks.
        """
        check_known("An enqueue", options, OPTIONS)
        timeout = options.pop("timeout", None)
        submission = self._submission(topic, args, options, self._handler_of(topic))
        if self._enqueue_middleware:
            return await self._enqueue_surrounded(submission, timeout)
        return await in_enqueue_span(submission.request, 1, self._submit(submission, timeout))

    @blocks_in_handler_threads
    @takes_options(ManyOptions)
    async def enqueue_many(
        self, topic: str, items: Iterable[object], **options: Unpack[ManyOptions]
    ) -> list[JobHandle[Any]]:
        """Store a job for each item, in batches. Returns their handles in the same order.

        All jobs share the options. A `JobItem` can override them for its job. `timeout` bounds each
        batch. Arguments that cannot be encoded or have more than 1 MiB raise InvalidArgument, and nothing is
        stored. If the server refuses some items, the rest is stored, and PartialFailure lists both. A batch
        without an answer raises a PulseError: any of the jobs may be stored, and later batches are not sent.
        With `unique`, the key of each job is made from its fields. Unique jobs take longer: each is
        sent separately.
        """
        check_items(items)
        check_known("enqueue_many", options, ManyOptions.__annotations__.keys())
        timeout = options.pop("timeout", None)
        check_shared_unique(options)
        handler = self._handler_of(topic)
        shared = completed(options, handler) if handler else cast("ItemOptions", options)
        default_attempts = None if handler is None else handler.options.max_attempts
        # Encode all items before sending any: if one cannot be encoded or is too large, no job is stored.
        given = list(items)
        encoded = encode_items(given, handler)
        handles = self._handles.of(handler)
        template = make_submission(topic, b"", handles, {**shared, "unique": None}, default_attempts)
        lone = {
            at: make_submission(
                topic,
                encoded[at],
                handles,
                item.merged_with(shared) if type(item) is JobItem else shared,
                default_attempts,
            )
            for at, item in enumerate(given)
            if shared.get("unique") or type(item) is JobItem
        }
        together = [payload for at, payload in enumerate(encoded) if at not in lone] if lone else encoded
        bulk = Bulk(template, together)

        def send() -> Coroutine[Any, Any, list[JobHandle[Any]]]:
            sending = self._caller.within(timeout, functools.partial(self._submit_all, bulk, lone))
            return in_enqueue_span(template.request, len(encoded), sending)

        if not self._enqueue_middleware:
            return await send()
        requests = [template.request, *(submission.request for submission in lone.values())]
        return await surround(self._enqueue_middleware, requests, encoded, send)

    def _submission(
        self, topic: str, args: object, options: ItemOptions, handler: Handler | None
    ) -> Submission:
        """Return the request for a job. The handler has defaults of options, and checks the arguments."""
        payload = encode(args)
        if handler is None:
            return make_submission(topic, payload, self._handles.of(None), options)
        if not isinstance(args, bytes):
            handler.check(payload)
        if handler.options is not NO_OPTIONS:
            options = completed(options, handler)
        handles = self._handles.of(handler)
        return make_submission(topic, payload, handles, options, handler.options.max_attempts)

    async def _enqueue_surrounded(self, submission: Submission, timeout: timedelta | None) -> JobHandle[Any]:
        request = submission.request

        def send() -> Coroutine[Any, Any, JobHandle[Any]]:
            return in_enqueue_span(request, 1, self._submit(submission, timeout))

        return await surround(self._enqueue_middleware, [request], [request.payload], send)

    def _handler_of(self, topic: object) -> Handler | None:
        return self._registry.get(topic) if isinstance(topic, str) else None

    def _submit(
        self, submission: Submission, timeout: timedelta | None
    ) -> Coroutine[Any, Any, JobHandle[Any]]:
        caller = self._caller
        submit = caller.session().submitter.submit
        if caller.bounds_outages:
            return caller.within(timeout, functools.partial(submit, submission))
        return submit(submission, caller.seconds(timeout))

    async def _submit_all(
        self, bulk: Bulk, lone: Mapping[int, Submission], timeout_seconds: float
    ) -> list[JobHandle[Any]]:
        """Store `bulk` in batches and `lone`, keyed by position, one by one."""
        submitter = self._caller.session().submitter
        outcomes = await bulk.submit(submitter, timeout_seconds)
        if lone:
            sending = [
                in_enqueue_span(job.request, 1, submitter.submit(job, timeout_seconds))
                for job in lone.values()
            ]
            answers = await asyncio.gather(*sending, return_exceptions=True)
            for at, answer in zip(lone, answers, strict=True):  # in order, so that each finds its place
                if not isinstance(answer, JobHandle | PulseError):
                    raise answer
                outcomes.insert(at, answer)
        stored = [outcome for outcome in outcomes if isinstance(outcome, JobHandle)]
        if len(stored) < len(outcomes):
            raise PartialFailure(
                {at: outcome for at, outcome in enumerate(outcomes) if isinstance(outcome, PulseError)},
                [outcome if isinstance(outcome, JobHandle) else None for outcome in outcomes],
            )
        return stored


async def submit_all(client: EnqueueVerbs, jobs: Sequence[Submission], timeout: timedelta) -> list[Outcome]:
    """Submit the jobs, in batches. Returns a handle or the error for each. Unique jobs have to come last.

    Raises a PulseError if a batch gets no answer; then any of the jobs may be stored. `timeout` bounds each
    batch.
    """
    return await client._caller.session().submitter.submit_all(jobs, timeout.total_seconds())
