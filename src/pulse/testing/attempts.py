"""One attempt of a job, with the worker's own parts: the call, its time limit, the verdict and the report."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import math
import threading
from typing import Any

from pulse import tuning
from pulse.handlers.context import make_current, steps_of
from pulse.handlers.handler import Handler
from pulse.handlers.step_calls import StepCalls
from pulse.handlers.steps import GivenSignals
from pulse.handlers.workflows import completes_in_transaction
from pulse.outcomes import SUCCEEDED, Cancelled, Failed, Outcome, Succeeded, TimedOut
from pulse.testing.driving import in_test_thread
from pulse.testing.store import SETTINGS, WORKER
from pulse.tracing.optional import start_run
from pulse.v1 import pulse_pb2 as pb
from pulse.worker.held_jobs import ClaimedJob, LeaseTerms
from pulse.worker.outcomes import concluded, failed, given_up, outcome_of, succeeded
from pulse.worker.reporter import encode_results
from pulse.worker.threads import ThreadCall, TimeLimits, take_back

TERMS = LeaseTerms(max_result_bytes=SETTINGS.max_result_bytes)


class Attempt:
    """A claimed job. `error` is what its handler raised."""

    def __init__(self, assignment: pb.JobAssignment, handler: Handler, steps: StepCalls) -> None:
        self.job = ClaimedJob(assignment.job_id, assignment, handler, math.inf, math.inf, math.inf, steps)
        self.error: BaseException | None = None
        self.is_over = False
        self.is_stored = False
        """Whether the server has taken the report."""
        self._loop = asyncio.get_running_loop()
        self._time_limits = TimeLimits(self._give_up)
        self._is_lost = self._loop.create_future()
        self._watch: threading.Timer | None = None

    async def run(self) -> None:
        """Run the handler to its end, in a task of its own. Sets the outcome of the job."""
        # In the contextvars of the test, like the handler of a job that the test itself would call.
        task = asyncio.create_task(self._run(), context=contextvars.copy_context())
        try:
            await asyncio.wait({task, self._is_lost}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            # A timer keeps its client alive, also a canceled one in the event loop. Later tests would find
            # the handlers of this client.
            if self._watch is not None:
                self._watch.cancel()
            if task.done():
                self.job.context._steps, self.job.context._hold = GivenSignals({}), None
            self._time_limits.close()

    def stop(self) -> None:
        """Interrupt the handler, because its job was canceled. Call it in any thread."""
        self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        job = self.job
        if self.is_over or job.stop_reason or completes_in_transaction(job.context):
            return
        job.stop_reason = "it was canceled"
        self._time_limits.cancel(job)

    @property
    def has_completed(self) -> bool:
        """Whether the job is completed."""
        return self.is_stored and isinstance(self.job.outcome, Succeeded)

    def report(self) -> pb.ReportResultsRequest:
        """Return the report, as a worker encodes it."""
        request = pb.ReportResultsRequest(worker_id=WORKER)
        request.MergeFromString(encode_results([self.job]))
        return request

    async def _run(self) -> None:
        job, handler = self.job, self.job.handler
        job.task = asyncio.current_task()
        make_current(job.context)
        job.span = start_run(job.assignment, WORKER)
        self._begin_time_limit()
        outcome: Outcome | None
        try:
            arguments = handler.decode(job.assignment.payload)
            value = await (self._in_loop(arguments) if handler.is_async else self._in_thread(arguments))
            outcome = SUCCEEDED if value is None else succeeded(job, value, TERMS)
        except BaseException as error:
            self.error = error
            outcome = outcome_of(job, error, lambda _error: None) or failed(job, error)
        self._end(outcome)

    async def _in_loop(self, arguments: Any) -> Any:
        return await self.job.handler.call(arguments, self.job.context)

    async def _in_thread(self, arguments: Any) -> Any:
        job = self.job
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        call = ThreadCall(future, job.handler.call, (arguments, job.context))
        job.call = call
        await in_test_thread(lambda: _run_to_the_end(call))
        job.call = None
        value, error = call.outcome or (None, Cancelled())
        if error is not None:
            raise error
        # A plain function may return a coroutine: dropping it would look like success.
        return await value if inspect.isawaitable(value) else value

    # ------------------------------------------------------------ time limits and the end

    def _begin_time_limit(self) -> None:
        """Watch the time limit, if there is one. The timer finds a handler that blocks its event loop."""
        job = self.job
        if job.handler.options.timeout is None and not job.assignment.HasField("timeout"):
            return
        self._time_limits.begin(job)
        assert job.limit is not None
        patience = job.limit.seconds + 2 * tuning.BLOCKED_LOOP_SECONDS
        self._watch = threading.Timer(patience, self._time_limits.look_at_blocked_loop)
        self._watch.daemon = True
        self._watch.start()

    def _give_up(self, job: ClaimedJob) -> None:
        self._end(given_up(job, job.stack()))
        self._is_lost.set_result(None)

    def _end(self, outcome: Outcome | None) -> None:
        job = self.job
        if self.is_over:
            return  # it was given up, and has ended after all
        self.is_over = True
        self._time_limits.end(job)
        if steps_of(job.context) is not None:
            outcome = concluded(job, outcome)
        if job.span is not None:
            job.span.end(outcome, job.stop_reason)
        if isinstance(outcome, Failed) and outcome.timed_out:
            self.error = TimedOut(outcome.error.partition("\n")[0].removeprefix("TimedOut: "))
        job.outcome = None if job.stop_reason else outcome


def _run_to_the_end(call: ThreadCall) -> None:
    """Call the function in this thread. An error of the time limit may come up a moment later."""
    for _ in range(2):
        try:
            while not call.is_over:
                if call.outcome is None:
                    call.run()
                call.is_over = True
            if call.interrupted_by is not None:
                take_back(threading.get_ident())
            return
        except Cancelled:
            continue  # it came up when the function had returned
