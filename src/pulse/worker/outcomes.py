"""The outcome of an attempt, by what its handler returned or raised, and the verdict of the server on it.

A report is answered without the verdict: the server decides whether the job is retried, and when. For the
hooks of the application the job is read once the server has the report. Without hooks nothing is read.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypeVar

from pulse import tuning
from pulse.error_text import clean, describe, in_a_line, is_too_long_to_log, with_class
from pulse.errors import ClaimLost, InvalidArgument, PulseError
from pulse.handlers.context import is_lost, steps_of
from pulse.handlers.handler import NO_OPTIONS, Handler, HandlerOptions, RetryDelay
from pulse.handlers.registry import Registry
from pulse.handlers.signatures import is_coroutine_function, takes
from pulse.handlers.workflows import completes_in_transaction
from pulse.jobs.caller import seconds_of
from pulse.jobs.models import Attempt, JobInfo, JobStatus, job_info
from pulse.jobs.verbs import ExportVerbs
from pulse.messages import check_duration
from pulse.outcomes import (
    SUCCEEDED,
    Cancelled,
    Discard,
    Failed,
    Outcome,
    Retry,
    Snooze,
    Snoozed,
    Succeeded,
    Suspended,
    TimedOut,
    failure,
    is_cancelled,
    suspension_in,
)
from pulse.payload import UndecodableArgs, encode_result
from pulse.supervision.processes import interrupts_main_thread
from pulse.topic_settings import Backoff
from pulse.v1 import pulse_pb2 as pb
from pulse.worker.held_jobs import ClaimedJob, LeaseTerms, Shared
from pulse.worker.processes import RanInProcess

logger = logging.getLogger("pulse.worker")


def _bound_exception(record: logging.LogRecord) -> bool:
    """Make formatters write the stored text of a long error. The exception stays attached."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and is_too_long_to_log(error):
        record.exc_text = describe(error)
    return True


logger.addFilter(_bound_exception)


def outcome_of(
    job: ClaimedJob, error: BaseException, fatal: Callable[[BaseException], None]
) -> Outcome | None:
    """Return the outcome to report, or None if there is none. Call it in the handler's task and contextvars.

    `sys.exit()` and other errors of the handler's own fail its job. A Ctrl-C that no signal handler took, and
    that interrupted this handler by chance, is passed to `fatal`: the worker drains.
    """
    if isinstance(error, RanInProcess):
        return _of_process(job, error)
    if (suspension := suspension_in(error)) is not None:
        logger.debug("Job %s (%s): %s", job.job_id, in_a_line(job.handler.topic), suspension)
        return Suspended(suspension.step, suspension.signal, suspension.delay)
    if job.limit is not None and job.limit.is_timed_out and not isinstance(error, Retry | Discard | Snooze):
        return _timed_out(job, error)
    if isinstance(error, asyncio.CancelledError):
        # The task was canceled: by the worker, by an event loop that shuts down, or by code of the handler
        # (see Runners). A handler can also raise this itself, when something that it awaits was
        # canceled: that is a failure.
        if _task_is_canceled():
            job.is_interrupted = True
            return None
    elif isinstance(error, KeyboardInterrupt) and job.handler.runs_in_loop and interrupts_main_thread():
        fatal(error)
    return failed(job, error)


def _task_is_canceled() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False  # in a child process, whose event loop has returned
    return task is not None and task.cancelling() > 0


def given_up(job: ClaimedJob, stack: str) -> Outcome | None:
    """Return the outcome to report for a handler that does not end. None if its claim is lost anyway."""
    if job.limit is None or not job.limit.is_timed_out:
        return None
    sentence = f"{_over_limit(job)} It did not end when it was interrupted, and may still run."
    text = with_class(f"TimedOut: {sentence}\n\n{stack}", TimedOut)
    outcome = Failed(clean(text), timed_out=True)
    if not job.stop_reason:
        # Called outside of the handler: by a timer, or in another thread.
        own = job.limit.own or contextvars.copy_context()
        own.copy().run(log_failure, job, TimedOut(sentence), outcome)
    return outcome


def _of_process(job: ClaimedJob, error: RanInProcess) -> Outcome | None:
    outcome = error.outcome
    if outcome is None:
        job.is_interrupted = True
    elif isinstance(outcome, Failed) and job.span is not None:
        job.span.fail(error, outcome)
    return outcome


def _timed_out(job: ClaimedJob, error: BaseException) -> Outcome | None:
    if job.stop_reason:
        return None
    timed_out = TimedOut(_over_limit(job)).with_traceback(error.__traceback__)
    if not isinstance(error, Cancelled | asyncio.CancelledError):
        timed_out.__cause__ = error
    outcome = replace(judge(timed_out, job.handler, job.attempt), timed_out=True)
    if outcome.discard and not isinstance(timed_out, job.handler.options.discard_on):
        outcome = replace(outcome, discard=False)  # retry_on names errors that the handler raises
    if job.span is not None:
        job.span.fail(timed_out, outcome)
    log_failure(job, timed_out, outcome)
    return outcome


def _over_limit(job: ClaimedJob) -> str:
    assert job.limit is not None
    return f"The attempt took longer than its time limit of {timedelta(seconds=job.limit.seconds)}."


def failed(job: ClaimedJob, error: BaseException) -> Outcome | None:
    """Return the outcome of a handler that raised this on its own. None if its claim is lost."""
    if job.stop_reason:
        _log_after_stop(job, error)
        return None
    if is_cancelled(error) and (job.context.cancelled or is_lost(job.context)):
        job.is_interrupted = True
        return None
    if isinstance(error, Snooze):
        topic, reason = in_a_line(job.handler.topic), in_a_line(str(error))
        logger.info("Job %s (%s) is snoozed for %s: %s", job.job_id, topic, error.delay, reason)
        return Snoozed(error.delay, clean(str(error)))
    outcome = judge(error, job.handler, job.attempt)
    if job.span is not None:
        job.span.fail(error, outcome)
    if isinstance(error, ClaimLost):  # of ctx.complete: the server has decided about the job
        logger.info("Job %s (%s): %s", job.job_id, in_a_line(job.handler.topic), in_a_line(error.message))
    else:
        log_failure(job, error, outcome)
    return outcome


def _log_after_stop(job: ClaimedJob, error: BaseException) -> None:
    """Log an error that a handler raised after it was stopped. It is not reported to a server."""
    if is_cancelled(error) or isinstance(error, asyncio.CancelledError | Retry | Discard | Snooze):
        return
    logger.warning(
        "Job %s (%s) was stopped, and its handler failed then, which no server stores: %s",
        job.job_id,
        in_a_line(job.handler.topic),
        in_a_line(describe(error).partition("\n")[0]),
        exc_info=error,
    )


def log_failure(job: ClaimedJob, error: BaseException, outcome: Failed) -> None:
    """Log a failed attempt: as an error if it is the last one, with the exception attached.

    Sentry and others make an event of an error, and of nothing below it: one for a job, not one for each try.
    """
    is_final = outcome.discard or job.attempt >= job.assignment.max_attempts
    if is_final:
        level, then = logging.ERROR, "it is a dead letter"
    else:
        level, then = logging.INFO if isinstance(error, Retry) else logging.WARNING, "it will be retried"
    if completes_in_transaction(job.context):
        then += " unless the transaction of ctx.complete was committed"
    logger.log(
        level,
        "Job %s (%s) failed on attempt %d of %d, %s: %s",
        job.job_id,
        in_a_line(job.handler.topic),
        job.attempt,
        job.assignment.max_attempts,
        then,
        in_a_line(outcome.error.partition("\n")[0]),
        exc_info=_to_attach(error) if is_final or not isinstance(error, UndecodableArgs | Retry) else None,
    )


def _to_attach(error: BaseException) -> BaseException | tuple[type, BaseException, None]:
    # The handler has not run: the lines of arguments that cannot be read are all of the SDK.
    return (type(error), error, None) if isinstance(error, UndecodableArgs) else error


def judge(error: BaseException, handler: Handler, attempt: int) -> Failed:
    """Return the outcome of a failed attempt. `attempt` is its number without snoozed attempts.

    A `Discard` or `Retry` of the handler comes first, then `discard_on`, then `retry_on`. The
    server applies the delays of a `Backoff`, as the backoff of the topic.
    """
    if isinstance(error, UndecodableArgs):
        # Another try reads the same bytes. During a rolling deploy it may reach a worker that can read them.
        text = clean(with_class(str(error), UndecodableArgs, is_named=False))
        return Failed(text, discard=not handler.retry_undecodable)
    failed, options = failure(error), handler.options
    if is_discarded(error, options):
        return replace(failed, discard=True)
    if isinstance(error, Retry) or options.retry is None or isinstance(options.retry, Backoff):
        return failed
    delay = _delay(options.retry, handler.topic, attempt, error)
    return failed if delay is None else replace(failed, retry_after=delay, retry_after_is_policy=True)


def is_discarded(error: BaseException, options: HandlerOptions) -> bool:
    """True if this error makes the job a dead letter, whatever attempts are left."""
    if _matches(error, (Discard,)):
        return True  # also in a task group
    if options is NO_OPTIONS or isinstance(error, Retry):
        return False
    if _matches(error, options.discard_on):
        return True
    return bool(options.retry_on) and not _matches(error, options.retry_on)


def _matches(error: BaseException, classes: tuple[type[BaseException], ...]) -> bool:
    """True if the error, or an error in its group, matches. A TaskGroup raises a group."""
    if isinstance(error, classes):
        return True
    return isinstance(error, BaseExceptionGroup) and any(
        _matches(member, classes) for member in error.exceptions
    )


def _delay(retry: RetryDelay, topic: str, attempt: int, error: BaseException) -> timedelta | None:
    """Return the delay that the function chose. None if it failed: then the server's backoff applies."""
    try:
        delay = retry(attempt, error)
        if inspect.iscoroutine(delay):
            delay.close()
            raise InvalidArgument("it is an async function; write a plain one.")
        check_duration("its result", delay, may_be_zero=True)
    except BaseException as problem:  # whatever it raises, the failure of the job is reported
        # A warning, not an error: Sentry makes events of errors, and this attempt has its own line.
        logger.warning(
            "The retry function of %r failed, so the server's backoff applies: %s",
            topic,
            in_a_line(str(problem) or type(problem).__name__),
            exc_info=None if isinstance(problem, InvalidArgument) else problem,
        )
        return None
    return delay


def succeeded(job: ClaimedJob, value: object, terms: LeaseTerms) -> Outcome | None:
    """Return the outcome of a handler that returned this, and not None.

    A value that cannot be stored discards the job: a further attempt would return the same.
    """
    if completes_in_transaction(job.context):
        logger.warning(
            "Job %s (%s) returned a value after ctx.complete, and it is dropped: give it to ctx.complete.",
            job.job_id,
            in_a_line(job.handler.topic),
        )
        return SUCCEEDED
    most = terms.max_result_bytes
    if not most:
        _warn_of_old_server(job, terms)
        return SUCCEEDED
    return encoded(job, value, most)


def encoded(job: ClaimedJob, value: object, most: int) -> Outcome | None:
    """Return the success with its encoded result, or the failure if it cannot be encoded or is too long.

    `most` is in bytes. 0: no bound.
    """
    try:
        result = encode_result(value)
    except InvalidArgument as error:
        return failed(job, Discard(error.message))
    if most and len(result) > most:
        return failed(
            job,
            Discard(
                f"The handler returned a result of {len(result)} bytes; {most} are allowed at the most. "
                "Store large data elsewhere and return a reference to it, or raise PULSE_MAX_RESULT of "
                "pulsed."
            ),
        )
    return Succeeded(result)


def _warn_of_old_server(job: ClaimedJob, terms: LeaseTerms) -> None:
    topic = job.handler.topic
    if topic not in terms.dropped_results:
        terms.dropped_results.add(topic)
        logger.warning(
            "The handler of %s returns a result, which this version of pulsed does not store: it is dropped.",
            in_a_line(topic),
        )


# Names of steps in a warning.
_NAMED = 10


class SuspensionLost(Exception):
    """A handler returned after `ctx.sleep` or `ctx.wait_for` had ended its attempt."""


def concluded(job: ClaimedJob, outcome: Outcome | None) -> Outcome | None:
    """Return the outcome. A handler that returned after its suspension has failed: it would skip the wait."""
    steps = steps_of(job.context)
    if steps is None or not isinstance(outcome, Succeeded):
        return outcome
    if steps.suspension is not None:
        return failed(
            job,
            SuspensionLost(
                f"The handler went on after {steps.suspension.what} had ended its attempt: it catches "
                "BaseException, or drops the error of a task. Raise pulse.Suspension again."
            ),
        )
    if forgotten := steps.forgotten():
        logger.warning(
            "Job %s (%s) did not ask for steps that an earlier attempt has stored: %s. Its code has changed.",
            job.job_id,
            in_a_line(job.handler.topic),
            in_a_line(", ".join(forgotten[:_NAMED])),
        )
    return outcome


# ---------------------------------------------------------------- verdicts

# Of attempts whose verdict their worker passes on. A worker that lost its lease may be gone.
_REPORTED = frozenset({"failed", "discarded", "timed_out", "canceled"})
# The error of an attempt that the server ended at its time limit. Its worker has not reported it.
_ENDED_BY_SERVER = "time limit exceeded"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a job: it is retried, it has failed for good, or it is canceled."""

    job: JobInfo
    """The job as it was read after the verdict. A job that is retried may run again by then."""
    status: JobStatus
    """RETRYING, DEAD_LETTERED or CANCELED."""
    next_run_at: datetime | None
    """When it is retried. None if it is not, or if it runs already."""
    attempt: Attempt | None
    """The attempt that ended. None if the job ended while it waited."""


VerdictHook: TypeAlias = Callable[[Verdict], Any]
"""`async def (verdict)`, or a plain function, which runs in a thread."""


def verdict_of_attempt(job: JobInfo, worker_id: str, attempt: int) -> Verdict | None:
    """Return the verdict on an attempt of this worker. None if the worker's report did not decide it."""
    own = [past for past in job.history if (past.attempt, past.worker_id) == (attempt, worker_id)]
    if not own or not _is_reported(own[-1]):
        return None
    is_last = job.history[-1] is own[-1]
    if is_last and job.status in (JobStatus.DEAD_LETTERED, JobStatus.CANCELED):
        return Verdict(job, job.status, None, own[-1])
    next_run_at = job.next_run_at if is_last and job.status is JobStatus.RETRYING else None
    return Verdict(job, JobStatus.RETRYING, next_run_at, own[-1])


def verdict_without_report(job: JobInfo) -> Verdict | None:
    """Return the verdict on a finished job that no worker passes on. None if a worker does."""
    last = job.history[-1] if job.history else None
    if job.status is JobStatus.CANCELED:
        was_running = last is not None and last.outcome == "canceled" and last.attempt == job.attempts
        return None if was_running else Verdict(job, job.status, None, None)
    if last is not None and _is_reported(last):
        return None
    return Verdict(job, job.status, None, last)


def _is_reported(attempt: Attempt) -> bool:
    return attempt.outcome in _REPORTED and attempt.error != _ENDED_BY_SERVER


Settled = Callable[[Iterable[ClaimedJob]], None]


async def call_hooks(hooks: Sequence[VerdictHook], verdict: Verdict) -> None:
    """Call each hook. The error of a hook is logged."""
    for hook in hooks:
        try:
            if is_coroutine_function(hook):
                await hook(verdict)
            else:
                await asyncio.to_thread(hook, verdict)
        except Exception as error:
            logger.error(
                "A hook for verdicts failed on job %s (%s): %s",
                verdict.job.id,
                in_a_line(verdict.job.topic),
                in_a_line(describe(error).partition("\n")[0]),
                exc_info=error,
            )


class Verdicts:
    """Reads jobs whose attempts failed or were canceled, and calls the hooks. At most once for an attempt."""

    def __init__(self, shared: Shared, hooks: Sequence[VerdictHook]) -> None:
        self._connection = shared.connection
        self._worker_id = shared.worker_id
        self._hooks = hooks
        self._calls: set[asyncio.Task[None]] = set()
        self._few_at_a_time = asyncio.Semaphore(tuning.VERDICTS_AT_A_TIME)
        self._left_out = 0

    def after(self, settled: Settled) -> Settled:
        """Return the callback for reported jobs. It asks for the verdicts on those that failed."""
        if not self._hooks:
            return settled

        def settle(jobs: Iterable[ClaimedJob]) -> None:
            reported = list(jobs)
            settled(reported)
            for job in reported:
                if isinstance(job.outcome, Failed) and not job.stop_reason:
                    self.ask(job)

        return settle

    def ask(self, job: ClaimedJob) -> None:
        """Read the job soon, and call the hooks with the verdict on this attempt, if there is one."""
        if not self._hooks:
            return
        if len(self._calls) >= tuning.MOST_VERDICTS:
            self._note_left_out()
            return
        call = asyncio.create_task(self._pass_on(job.job_id, job.attempt), name="pulse-verdict")
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def close(self) -> None:
        """Wait for hooks under way, in bounded time."""
        if self._calls:
            await asyncio.wait(self._calls, timeout=tuning.EXIT_TIMEOUT_SECONDS)
        for call in self._calls:
            call.cancel()

    async def _pass_on(self, job_id: str, attempt: int) -> None:
        async with self._few_at_a_time:
            request, stub = pb.GetJobRequest(job_id=job_id), self._connection.stub
            try:
                response = await self._connection.keep_trying(
                    lambda seconds: stub.GetJob(request, timeout=seconds), tuning.DEFAULT_TIMEOUT_SECONDS
                )
            except PulseError as error:
                logger.warning("The verdict on job %s cannot be read: %s", job_id, error.message)
                return
            verdict = verdict_of_attempt(job_info(response.job), self._worker_id, attempt)
            if verdict is not None:
                await call_hooks(self._hooks, verdict)

    def _note_left_out(self) -> None:
        self._left_out += 1
        if self._left_out == 1:
            logger.warning(
                "Hooks for verdicts are slower than jobs fail: %d wait, and further verdicts are left out.",
                tuning.MOST_VERDICTS,
            )


H = TypeVar("H", bound=Callable[..., Any])

_FOLLOWED = (JobStatus.DEAD_LETTERED, JobStatus.CANCELED)


class VerdictVerbs(ExportVerbs):
    """The verbs of a `Pulse` about what became of jobs that did not succeed."""

    _registry: Registry
    _verdict_hooks: list[VerdictHook]

    def on_verdict(self, function: H, /) -> H:
        """Call this function with the `Verdict` on each attempt that did not succeed. For use as a decorator.

        A job is retried, has failed for good, or is canceled. `run()` calls it in the worker that ran the
        attempt, at most once, after the server has stored the verdict: not if the worker is killed before. An
        error of the function is logged, and changes nothing. A plain function runs in a thread. Snoozes,
        sleeps and lost leases are not passed on here: see `follow_verdicts`.
        """
        if not callable(function) or not takes(function, None):
            raise InvalidArgument(f"p.on_verdict takes a function of (verdict), but {function!r} was given.")
        self._verdict_hooks.append(function)
        return function

    async def follow_verdicts(
        self,
        *,
        since: datetime,
        topic: str | None = None,
        interval: timedelta = timedelta(seconds=5),
        timeout: timedelta | None = None,
    ) -> AsyncGenerator[datetime, None]:
        """Call the `on_verdict` functions with jobs that ended without a handler's report, until closed.

        These are dead letters whose last lease was lost or that the server ended at their time limit, and
        jobs that were canceled while they waited: by an operator, by `start_within`, or in their workflow.
        A job that was canceled while it ran is left to its worker: if that is killed before its handler has
        stopped, the job is not passed on. Yields a moment after each look: jobs that ended before it were
        passed on. Begin there the next time, and each job is passed on at least once. Each look reads all
        dead letters and canceled jobs that are kept. One process of an application runs this, with a user
        that may export jobs. `timeout` bounds each wait for a server.
        """
        seconds = seconds_of("interval", interval)
        while True:
            until = since
            async for page in self.export_jobs(since=since, topic=topic, statuses=_FOLLOWED, timeout=timeout):
                until = page.before or until
                for job in page:
                    if (verdict := verdict_without_report(job)) is not None:
                        await call_hooks(self._verdict_hooks, verdict)
            since = until
            yield since
            await asyncio.sleep(seconds)
