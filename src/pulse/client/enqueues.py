"""The verbs that store jobs: `enqueue` and `enqueue_many`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Unpack, cast

from pulse import payload as payloads
from pulse import tuning
from pulse.client.handles import Handles
from pulse.enqueues import JobItem, completed, encode_items
from pulse.errors import PulseError
from pulse.handlers.handler import NO_OPTIONS, Handler
from pulse.handlers.registry import EnqueueMiddleware, Registry, surround
from pulse.ids import uuid7s
from pulse.jobs.caller import Caller, blocks_in_handler_threads
from pulse.jobs.handles import JobHandle, PartialFailure
from pulse.jobs.submissions import (
    OPTIONS,
    EnqueueOptions,
    ItemOptions,
    ManyOptions,
    Outcome,
    Submission,
    Submitter,
    check_known,
    check_shared_unique,
    make_submission,
    moment_of,
    settled,
    takes_options,
)
from pulse.messages import check_items
from pulse.tracing.optional import in_enqueue_span
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.streams import batch_bounds

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
        payload = payloads.encode(args)
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
