"""Runs the jobs of a kit: one at a time, in the order in which pulsed would start them.

An attempt runs with the worker's own parts: the call, its time limit, the verdict and the report.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import math
import sys
import threading
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Container, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pulse import tuning
from pulse.handlers.context import make_current, steps_of
from pulse.handlers.handler import Handler
from pulse.handlers.step_calls import StepCalls
from pulse.handlers.steps import GivenSignals
from pulse.handlers.workflows import completes_in_transaction
from pulse.jobs.models import JobInfo, JobStatus
from pulse.outcomes import (
    SUCCEEDED,
    Cancelled,
    Discard,
    Failed,
    Outcome,
    Retry,
    Snooze,
    Succeeded,
    Suspension,
    TimedOut,
)
from pulse.payload import result_decoder_for
from pulse.testing.application import Handlers, Served, in_test_thread
from pulse.testing.server import KitServer, Next, Running, ToKit, view
from pulse.testing.store import SETTINGS, WORKER
from pulse.tracing.optional import start_run
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.worker.held_jobs import ClaimedJob, LeaseTerms
from pulse.worker.intake import declared_topic
from pulse.worker.outcomes import (
    call_hooks,
    concluded,
    failed,
    given_up,
    outcome_of,
    succeeded,
    verdict_of_attempt,
)
from pulse.worker.reporter import encode_results
from pulse.worker.threads import ThreadCall, TimeLimits, take_back
from pulse_server.jobs.rules import TERMINAL, Job
from pulse_server.jobs.rules import Outcome as StoredOutcome

TERMS = LeaseTerms(max_result_bytes=SETTINGS.max_result_bytes)


class KitAttempt:
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


# More attempts in one drain: a handler enqueues itself, most likely.
MOST_ATTEMPTS = 10_000

# Handlers raise these on purpose.
_MEANT = (Retry, Snooze, Discard, Suspension)


@dataclass(frozen=True, slots=True)
class Ran:
    """One attempt of a job."""

    outcome: str
    """completed, retry, dead_lettered, snoozed, sleeping, waiting (for a signal) or canceled."""
    delay: timedelta | None
    """How long until the next attempt. None if there is none, or if it waits for a signal."""
    result: Any
    """The result of a completed job, as its handle returns it."""
    error: BaseException | None
    """What the handler raised."""
    job: JobInfo
    """The job after the attempt."""


class Working:
    """The worker of a kit."""

    def __init__(self, server: KitServer, handlers: Handlers) -> None:
        self.server = server
        self.destination = ToKit(server, self.declare)
        self.handlers = handlers
        # By client, how many handlers it had at the last look.
        self._known: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        # Topics of handlers with options that are not declared yet.
        self._undeclared: dict[str, None] = {}
        self._is_running = False

    # ------------------------------------------------------------ verbs

    async def run_one(self, row: Job, attempt: int | None) -> Ran:
        """Run one attempt of the job."""
        if row.status in TERMINAL:
            raise AssertionError(
                f"Job {row.id} ({row.topic}) is {row.status.value}: there is nothing to run."
            )
        if attempt is not None and not 1 <= attempt <= row.max_attempts:
            raise AssertionError(
                f"attempt has to be between 1 and {row.max_attempts}, the attempts of the job, not {attempt}."
            )
        self.declare([row.topic])
        served = self.handlers.find(row.topic)
        if row.held:
            raise AssertionError(
                f"Job {row.id} ({row.topic}) waits for other jobs of its workflow. Run these."
            )
        async with self._opened() as clients:
            await clients.open(served.client)
            running = self.server.claim_job(row.id, attempt)
            ended, _ = await self._attempt(clients, running, served, claims=False)
            return await self._ran(ended, served)

    async def drain(self, raises: bool) -> dict[str, int]:
        """Run what is due, and what that enqueues."""
        counted: Counter[str] = Counter()
        running: Running | None = None
        async with self._opened() as clients:
            try:
                running = await self._start_next(clients, self.server.next(clients.may_start))
                while running is not None:
                    topic, served = running.assignment.topic, self.handlers.find(running.assignment.topic)
                    attempt, found = await self._attempt(clients, running, served, claims=True)
                    running = None if found is None else found.running
                    outcome, error = await self._outcome(attempt, served)
                    counted[outcome] += 1
                    if error is not None and (
                        _is_of_test(error) or (raises and not _is_meant(outcome, error))
                    ):
                        raise error
                    if counted.total() >= MOST_ATTEMPTS:
                        raise AssertionError(
                            f"{MOST_ATTEMPTS} attempts ran and jobs are still due: does {topic!r} enqueue "
                            "itself?"
                        )
                    found = found or self.server.next(clients.may_start)
                    running = await self._start_next(clients, found)
            except BaseException:
                if running is not None:
                    self.server.release(running)
                raise
        return dict(counted)

    async def advance(self, duration: timedelta, schedules: bool, raises: bool) -> dict[str, int]:
        """Move the clock. Jobs run on the way, each when it is due."""
        until = self._begin_advance(duration, schedules)
        counted: Counter[str] = Counter()
        until += await self._drain_now(schedules, raises, counted)
        while (moment := self._next_moment(schedules)) is not None and moment <= until:
            self.server.move_to(moment)
            until += await self._drain_now(schedules, raises, counted)
        self.server.move_to(until)
        return dict(counted)

    async def _drain_now(self, schedules: bool, raises: bool, counted: Counter[str]) -> timedelta:
        """Run what is due now. An occurrence that was queued behind a job fires when that job has ended.

        Returns how far the readings have moved the clock. The end of the way moves with it: a job that is
        enqueued for the last moment is due then.
        """
        begin = self.server.now()
        while True:
            if schedules:
                self.server.fire_schedules()
            ran = await self.drain(raises)
            counted.update(ran)
            if not ran:
                return self.server.now() - begin

    def skip(self, duration: timedelta, schedules: bool) -> None:
        """Move the clock. No job runs."""
        until = self._begin_advance(duration, schedules)
        while schedules and (moment := self.server.next_fire()) is not None and moment <= until:
            self.server.move_to(moment)
            self.server.fire_schedules()
        self.server.move_to(until)
        if schedules:
            self.server.fire_schedules()
        self.server.look()

    # ------------------------------------------------------------ declarations

    def declare(self, topics: Iterable[str] | None = None) -> None:
        """Declare the settings of these topics, or of all handlers, as workers do at their start.

        To put limits in force takes some milliseconds for each topic, and most tests are about one or two.
        """
        self._look_for_handlers()
        some = (
            list(self._undeclared) if topics is None else [one for one in topics if one in self._undeclared]
        )
        if not some:
            return
        for topic in some:
            self._undeclared.pop(topic, None)
        # Two clients may have the topic. If both have a handler for it, running a job of it is refused.
        found = map(self.handlers.look_for, some)
        served = [one for one in found if one is not None]
        for begin in range(0, len(served), tuning.TOPICS_PER_DECLARATION):
            part = served[begin : begin + tuning.TOPICS_PER_DECLARATION]
            declared = [declared_topic(one.handler) for one in part]
            self.server.store.has_settings = True
            request = pb.DeclareTopicsRequest(worker_id=WORKER, topics=declared)
            self.server.ask("DeclareTopics", request)

    def _look_for_handlers(self) -> None:
        """Note the handlers that came since the last look, and serve their topics."""
        has_new = False
        for client in self.handlers.clients:
            known = self.handlers.known(client)
            if known.size != self._known.get(client):
                self._known[client] = known.size
                self._undeclared |= dict.fromkeys(known.with_options)
                has_new = True
        if has_new:
            self.server.serve(self.handlers.topics())

    def _begin_advance(self, duration: timedelta, schedules: bool) -> datetime:
        if duration < timedelta(0):
            raise AssertionError(f"The clock only moves forward, not by {duration}.")
        if schedules:
            self.declare()
            for declaration in self.handlers.schedules():
                request = declaration._complete()
                request.replace = True
                self.server.ask("CreateSchedule", request)
        return self.server.now() + duration

    def _next_moment(self, schedules: bool) -> datetime | None:
        """Return when the next job is due, may start by the limits of its topic, or is made by a schedule."""
        fire = self.server.next_fire() if schedules else None
        moments = [fire, self.server.look().next_due, self.server.next_start]
        return min((moment for moment in moments if moment is not None), default=None)

    # ------------------------------------------------------------ attempts

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[Clients]:
        if self._is_running:
            raise AssertionError("The kit is running jobs already: a handler cannot run other jobs.")
        self._is_running = True
        self.destination.loop = asyncio.get_running_loop()
        try:
            async with contextlib.AsyncExitStack() as stack:
                yield Clients(stack, self.handlers, self._undeclared)
        finally:
            self._is_running = False
            self.destination.loop = None

    async def _start_next(self, clients: Clients, found: Next) -> Running | None:
        """Make the client of the job that comes first ready. None: no job may start."""
        while found.running is None:
            if not found.topics:
                return None
            # Before the claim: a job whose handler cannot be called stays as it is.
            topic = found.topics[0]
            self.declare([topic])
            await clients.open(self.handlers.find(topic).client)
            found = self.server.next(clients.may_start)
        return found.running

    async def _attempt(
        self, clients: Clients, running: Running, served: Served, *, claims: bool
    ) -> tuple[KitAttempt, Next | None]:
        """Run a claimed job, and store its result. With `claims` the next job is claimed after a success."""
        await clients.open(served.client)
        attempt = KitAttempt(running.assignment, served.handler, clients.steps[served.client])
        with running.stopping(attempt.stop):
            await attempt.run()
        if claims and attempt.error is None and isinstance(attempt.job.outcome, Succeeded):
            attempt.is_stored, found = self.server.report_and_next(
                running, attempt.report(), clients.may_start
            )
            return attempt, found
        # Without an outcome the job was canceled.
        report = attempt.report() if attempt.job.outcome is not None else None
        attempt.is_stored = self.server.report(running, report)
        return attempt, None

    async def _outcome(self, attempt: KitAttempt, served: Served) -> tuple[str, BaseException | None]:
        """Return how the attempt ended, and the error of its handler."""
        if attempt.has_completed:
            return "completed", attempt.error
        ran = await self._ran(attempt, served)
        return ran.outcome, ran.error

    async def _ran(self, attempt: KitAttempt, served: Served) -> Ran:
        """Read the job after its attempt, and call the hooks of the application, as a worker does."""
        assignment = attempt.job.assignment
        row = self.server.row(assignment.job_id)
        if row is None:
            raise AssertionError(f"Job {assignment.job_id} ({assignment.topic}) was deleted while it ran.")
        ran = _ran(row, attempt, self.server)
        hooks = getattr(served.client, "_async", served.client)._verdict_hooks
        if hooks and ran.outcome in ("retry", "dead_lettered", "canceled"):
            verdict = verdict_of_attempt(ran.job, WORKER, ran.job.attempts)
            if verdict is not None:
                await call_hooks(hooks, verdict)
        return ran


class Clients:
    """The open clients, while a verb of the kit lasts. Resources open with the first handler of a client."""

    def __init__(
        self, stack: contextlib.AsyncExitStack, handlers: Handlers, undeclared: Container[str]
    ) -> None:
        self._stack = stack
        self._handlers = handlers
        self._undeclared = undeclared
        self.steps: dict[Any, StepCalls] = {}

    def may_start(self, topic: str) -> bool | None:
        """Return whether a job of the topic may be claimed now. None: no client has a handler for it."""
        if topic not in self._handlers.topics():
            return None
        client = self._handlers.find(topic).client
        return topic not in self._undeclared and (client in self.steps or not self._opens_something(client))

    def _opens_something(self, client: Any) -> bool:
        return not client._registry.surroundings.is_empty or self._handlers.known(client).have_resources

    async def open(self, client: Any) -> None:
        """Open the resources of a client, once."""
        if client in self.steps:
            return
        if self._opens_something(client):
            surroundings = client._registry.surroundings
            await self._stack.enter_async_context(surroundings.opened(self._handlers.of(client)))
        # It connects for the first step: most handlers have none.
        steps = StepCalls(lambda: Connection(client._endpoint), asyncio.get_running_loop(), WORKER, client)
        steps.most_bytes = SETTINGS.steps.bytes
        self.steps[client] = steps
        self._stack.push_async_callback(steps.close)


def _ran(row: Job, attempt: KitAttempt, server: KitServer) -> Ran:
    info = view(row)
    delay = None
    if row.status not in TERMINAL and (left := row.next_run_at - server.now()) < timedelta(days=36500):
        delay = max(timedelta(0), timedelta(milliseconds=round(left / timedelta(milliseconds=1))))
    result = None
    if info.status is JobStatus.COMPLETED and info.result_bytes is not None:
        result = result_decoder_for(attempt.job.handler.returns)(info.result_bytes)
    return Ran(_outcome(row, info), delay, result, attempt.error, info)


def _outcome(row: Job, info: JobInfo) -> str:
    if row.status is not row.status.RETRYING:
        return row.status.value.lower()
    last = row.history[-1].outcome if row.history else None
    if last is StoredOutcome.SNOOZED:
        return "snoozed"
    if last is StoredOutcome.SUSPENDED:
        return "waiting" if info.waits_for else "sleeping"
    return "retry"


def _is_meant(outcome: str, error: BaseException) -> bool:
    """Whether the error is no failure: the handler raised it on purpose, or its job was canceled."""
    if outcome == "canceled" and isinstance(error, Cancelled | asyncio.CancelledError):
        return True
    return isinstance(error, _MEANT)


def _is_of_test(error: BaseException) -> bool:
    """Whether the error is not the handler's: Ctrl-C, `pytest.fail` and `pytest.skip`."""
    of_pytest: type[BaseException] = getattr(
        sys.modules.get("_pytest.outcomes"), "OutcomeException", KeyboardInterrupt
    )
    return isinstance(error, KeyboardInterrupt | of_pytest)
