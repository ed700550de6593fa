"""Jobs that share all options and differ in their arguments, sent in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pulse import tuning
from pulse.client.submissions import Outcome, Submission, moment_of, settled
from pulse.client.submitter import Submitter
from pulse.ids import uuid7s
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.coalescing import batch_bounds

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
