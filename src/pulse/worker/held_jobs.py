"""The jobs that a worker holds, from delivery until the server has their results, and how many it asks for.

It asks for its concurrency, and some prefetch if its handlers are fast. Jobs that have not started are
released when they can run elsewhere sooner. A worker is due after a number of jobs, or once it takes too much
memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import resource
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import uniform
from typing import TYPE_CHECKING, Any, Protocol

import grpc

from pulse import failpoints, tuning
from pulse.handlers.context import context_for
from pulse.handlers.handler import Handler
from pulse.handlers.step_calls import StepCalls
from pulse.handlers.steps import NO_SIGNALS, GivenSignals
from pulse.jobs.models import Reported
from pulse.outcomes import Cancelled, Outcome
from pulse.supervision.supervised import stack_of_task, stack_of_thread
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection

if TYPE_CHECKING:
    from pulse.tracing.spans import RunSpan

if hasattr(time, "CLOCK_BOOTTIME"):

    def lease_clock() -> float:
        """Return monotonic seconds that include the time the machine sleeps, as leases do."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    # Stands still while the machine sleeps. The first heartbeat after that reports the lost jobs.
    lease_clock = time.monotonic


class ServerClock:
    """Computes the age of messages, from the readings of the server's clock that they carry.

    A reading is taken after its request was sent, so the computed age is never too low. It is too high by at
    most the time of the fastest answer.
    """

    def __init__(self) -> None:
        self._ahead_seconds = float("-inf")
        self._clock_id = ""

    def welcome(self, asked_at: float, reading: float, clock_id: str) -> None:
        """Reset to the clock of a new stream: each may go to another server."""
        self._ahead_seconds = asked_at - reading
        self._clock_id = clock_id

    def compare(self, asked_at: float, reading: float, clock_id: str) -> None:
        """Add a reading of the same clock. The fastest answer is the most accurate."""
        if clock_id and clock_id == self._clock_id:
            self._ahead_seconds = max(self._ahead_seconds, asked_at - reading)

    def age_seconds(self, reading: float) -> float:
        """Return an upper bound of the age of the reading."""
        difference = lease_clock() - reading
        # Smaller only if the clocks drift apart. Then the smallest difference is the most accurate.
        self._ahead_seconds = min(self._ahead_seconds, difference)
        return difference - self._ahead_seconds


@dataclass(slots=True)
class LeaseTerms:
    """The length of a lease, the heartbeat interval, the bound of results. The server's welcome sets them."""

    lease_seconds: float = tuning.DEFAULT_LEASE_SECONDS
    heartbeat_seconds: float = tuning.DEFAULT_HEARTBEAT_SECONDS
    # By the `lease_clock`. Set when pulsed reports that its database does not answer: it reaps
    # nothing until a whole lease after the outage.
    spared_until: float = 0.0
    # The bound of a result. 0: this server stores no results.
    max_result_bytes: int = 0
    # Topics whose results this worker dropped, because the server stores no results.
    dropped_results: set[str] = field(default_factory=set)

    def is_over(self, job: ClaimedJob, now: float) -> bool:
        """True if another worker may hold the job by now, so that this one has to give it up."""
        return now >= job.lease_end and now >= self.spared_until and now >= job.spared_until


class OutsideCall(Protocol):
    """A handler that runs outside of the event loop: in a thread or a process."""

    @property
    def thread_id(self) -> int | None: ...

    def interrupt(self, error: type[Cancelled]) -> None:
        """Raise the error in the handler."""

    def kill(self) -> bool:
        """End the handler, whatever it does. Returns False if that is not possible."""


@dataclass(slots=True)
class TimeLimit:
    """When a handler has to end. Seconds are by the `lease_clock`."""

    seconds: float
    due: float
    """When the next step is due: it is interrupted, then killed if possible, then given up."""
    task: asyncio.Task[Any] | None
    """The task that runs the handler."""
    is_timed_out: bool = False
    is_interrupted: bool = False
    is_killed: bool = False
    is_lost: bool = False
    own: contextvars.Context | None = None
    """A copy of the contextvars that the handler started with. None unless the attempt has a time limit."""


class ClaimedJob:
    """One claim and its state. There is one for every job, hence a plain class with slots.

    Times are by the `lease_clock`. The heartbeat thread sets `lease_end`, `spared_until`, `is_counted` and
    `sent_progress`; the event loop sets everything else.
    """

    __slots__ = (
        "assignment",
        "attempt",
        "begun_at",
        "call",
        "confirm",
        "context",
        "handler",
        "has_begun",
        "is_counted",
        "is_interrupted",
        "job_id",
        "lease_end",
        "limit",
        "outcome",
        "release_by",
        "run",
        "sent_progress",
        "span",
        "spared_until",
        "start_by",
        "stop_reason",
        "task",
    )

    def __init__(
        self,
        job_id: str,
        assignment: pb.JobAssignment,
        handler: Handler,
        lease_end: float,
        start_by: float,
        release_by: float,
        steps: StepCalls | GivenSignals = NO_SIGNALS,
    ) -> None:
        self.assignment = assignment
        self.job_id = job_id
        self.attempt = assignment.attempt
        self.run = assignment.run
        self.handler = handler
        self.context = context_for(assignment, handler.state, handler.hold, steps, handler.context_type)
        self.lease_end = lease_end
        # pulsed could not extend this lease, but keeps the claim: no server reaps it until then.
        self.spared_until = 0.0
        # Whether to confirm the claim before the start, and the time from which that is required.
        self.confirm = assignment.confirm
        self.start_by = start_by
        # A job that has not started by then is released.
        self.release_by = release_by
        self.has_begun = False
        # The start of a handler that waits for something.
        self.begun_at = 0.0
        # Whether the server has a heartbeat of the job: from then on the attempt counts.
        self.is_counted = False
        # The last progress report that the server has.
        self.sent_progress: Reported | None = None
        # Set while the handler waits for something: the task that runs it alone.
        self.task: asyncio.Task[None] | None = None
        # Set while the handler runs in a thread or a process, also if it outlives its task.
        self.call: OutsideCall | None = None
        # Set once the handler has a time limit, or is canceled.
        self.limit: TimeLimit | None = None
        self.outcome: Outcome | None = None
        # Set if the run is traced.
        self.span: RunSpan | None = None
        # Set if the claim is lost: nothing is reported for it.
        self.stop_reason = ""
        # Set if the handler was canceled because the worker stops: the claim waits to be released.
        self.is_interrupted = False

    def stack(self) -> str:
        """Return the stack of the running handler as text. Empty if unknown."""
        if self.call is not None and self.call.thread_id is not None:
            return stack_of_thread(self.call.thread_id)
        return stack_of_task(self.task) if self.task is not None else ""

    def claim(self) -> pb.Claim:
        return pb.Claim(job_id=self.job_id, attempt=self.attempt, run=self.run)


class Held:
    """The jobs of a worker, by id, and the jobs whose handlers have not started."""

    def __init__(self) -> None:
        self.jobs: dict[str, ClaimedJob] = {}
        self.unstarted: set[ClaimedJob] = set()

    def settled(self, jobs: Iterable[ClaimedJob]) -> None:
        """Remove jobs whose results were accepted or refused, or whose claims were released."""
        held = self.jobs
        for job in jobs:
            if held.get(job.job_id) is job:
                del held[job.job_id]

    def not_begun(self) -> list[ClaimedJob]:
        """Return the jobs that have not started, including jobs that wait to be released."""
        return [job for job in self.jobs.values() if not (job.has_begun or job.stop_reason)]

    def interrupted(self) -> list[ClaimedJob]:
        """Return the jobs whose handler was canceled because the worker stops."""
        return [job for job in self.jobs.values() if job.is_interrupted]


# How many times as wide the window becomes in a step. By doubling a worker took 200 ms of fast jobs to reach
# its widest; with 4 a drain of 20,000 jobs is 5% faster.
_STEP = 4


# ---------------------------------------------------------------- capacity


class Window:
    """Computes how many jobs the worker can hold from the run times of its handlers.

    Slow handlers get no prefetch: a job that only waits here could run elsewhere. Hence the window narrows at
    once. It widens in steps, each after a whole window of fast jobs: one fast job among slow ones is no
    evidence.
    """

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._size = concurrency
        self._finished_at_this_size = 0
        self._mean_seconds: float | None = None
        self._finished = 0
        self._busy_seconds = 0.0
        self._announced = concurrency
        self._is_closed = False
        self._is_resized = False

    def observe(self, seconds: float, finished: int = 1) -> None:
        """Add a run time: of one handler, or the total of several."""
        self._finished += finished
        self._busy_seconds += seconds

    @property
    def concurrency(self) -> int:
        """The number of jobs that run at once."""
        return self._concurrency

    @property
    def size(self) -> int:
        """The number of jobs that the worker can hold now."""
        if self._finished:
            self._learn()
        return self._size

    def announce(self) -> int:
        """Return the size to send to the server, and record it as sent."""
        self._announced = self.size
        return self._announced

    def changed_size(self) -> int:
        """Return the size if it has changed noticeably since it was last sent, else 0."""
        size = self.size
        if self._is_closed or (
            not self._is_resized and abs(size - self._announced) <= self._announced * tuning.WINDOW_NOTICEABLE
        ):
            return 0
        return size

    def resize(self, concurrency: int) -> None:
        """Set the number of jobs that run at once. The change is sent, however small it is."""
        is_smaller = concurrency < self._concurrency
        self._concurrency = concurrency
        self._size = min(self._size, concurrency) if is_smaller else max(self._size, concurrency)
        self._finished_at_this_size = 0
        self._is_resized = True

    @property
    def run_seconds(self) -> float:
        """The mean run time of a handler. 0 while it is unknown."""
        return self._mean_seconds or 0.0

    def close(self) -> None:
        """Report no more changes: the worker stops, or leaves its server, and must not ask for jobs."""
        self._is_closed = True

    def open(self) -> None:
        """Report changes again."""
        self._is_closed = False

    def acknowledged(self, size: int) -> None:
        """Record that the server has this size."""
        if size:
            self._announced = size
            self._is_resized &= size != self._size

    def stall(self, capacity: int) -> None:
        """Narrow to the concurrency, because jobs waited too long. The server has this capacity.

        Called from the heartbeat thread. A lost observation does no harm.
        """
        self._size, self._finished_at_this_size = self._concurrency, 0
        self._mean_seconds = max(self._mean_seconds or 0.0, tuning.HOLD_SECONDS)
        self._announced = capacity

    def _learn(self) -> None:
        mean = self._busy_seconds / self._finished
        self._finished_at_this_size += self._finished
        self._finished, self._busy_seconds = 0, 0.0
        known = self._mean_seconds
        if known is not None:
            weight = tuning.SLOWER_WEIGHT if mean > known else tuning.FASTER_WEIGHT
            mean = known + weight * (mean - known)
        self._mean_seconds = mean
        ahead = self._concurrency * tuning.PREFETCH_SECONDS / max(mean, 1e-6)
        fitting = min(self._concurrency + min(int(ahead), tuning.PREFETCH_MOST), tuning.WINDOW_MOST)
        if fitting > self._size:
            if self._finished_at_this_size < self._size:
                return
            fitting = min(fitting, _STEP * self._size)
        if fitting != self._size:
            self._size, self._finished_at_this_size = fitting, 0


# ---------------------------------------------------------------- releases

logger = logging.getLogger("pulse.worker")

_ASYNCIO = str(Path(asyncio.__file__).parent) + os.sep
_SELECTORS = f"{os.sep}selectors.py"


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """What the parts of one worker share."""

    connection: Connection
    worker_id: str
    window: Window
    terms: LeaseTerms = field(default_factory=LeaseTerms)
    held: Held = field(default_factory=Held)
    clock: ServerClock = field(default_factory=ServerClock)
    woken: threading.Event = field(default_factory=threading.Event)
    """Has the heartbeat thread extend due leases at once."""


class Releases:
    """Releases jobs that were recalled, and jobs that have waited too long for a handler.

    `send` runs in the heartbeat thread: jobs behind a handler that blocks the event loop are released too,
    and the capacity is reduced until the loop responds. The thread that removes a job from `unstarted` owns
    it. ADR-0043
    """

    def __init__(self, shared: Shared, announce: Callable[[], None]) -> None:
        """`announce` is called in the event loop after a stall."""
        self._worker_id = shared.worker_id
        self._window = shared.window
        self._held = shared.held.jobs
        self._unstarted = shared.held.unstarted
        self._released = shared.held.settled
        self._woken = shared.woken
        self._announce = announce
        self._loop = asyncio.get_running_loop()
        self._loop_thread_id = threading.get_ident()
        self._waiting: deque[ClaimedJob] = deque()
        # The server has a capacity below the window, until the event loop responds.
        self._is_stalled = False
        # That capacity, until the server has acknowledged it.
        self._capacity = 0
        self._asked_loop_at: float | None = None
        self._looked_at = lease_clock()
        self._is_block_logged = False

    def take(self, jobs: Iterable[ClaimedJob]) -> list[ClaimedJob]:
        """Remove jobs from `unstarted`. Returns the removed jobs: their handlers do not start."""
        taken = []
        for job in jobs:
            try:
                self._unstarted.remove(job)
            except KeyError:
                continue  # it has started, or another thread took it
            taken.append(job)
        return taken

    def add(self, jobs: Iterable[ClaimedJob]) -> None:
        """Release the jobs that have not started, soon."""
        self._waiting.extend(self.take(jobs))
        self._woken.set()

    def send(self, call: Callable[[pb.ReleaseRequest], pb.ReleaseResponse]) -> bool:
        """Release due jobs. Returns whether every call succeeded; the next call sends the rest."""
        now = lease_clock()
        # list() of a set is atomic: the event loop cannot change the set during the copy.
        overdue = self.take([job for job in list(self._unstarted) if now >= job.release_by])
        self._waiting.extend(overdue)
        is_blocked = self._is_blocked(now)
        if overdue or (is_blocked and not self._is_stalled):
            self._capacity = self._stall(len(overdue))
        while self._waiting or self._capacity or is_blocked:
            size = min(len(self._waiting), tuning.CLAIMS_PER_RELEASE)
            jobs = [self._waiting.popleft() for _ in range(size)]
            is_answered, again = self._release(call, jobs, is_blocked)
            # Repeated until the server has answered, even after the lease: a confirmation of the job may have
            # been stored, and then only the release gives its attempt back.
            self._waiting.extendleft(job for job in reversed(again) if not job.stop_reason)
            if again or not is_answered:
                return False
            is_blocked = False
        return True

    def _is_blocked(self, now: float) -> bool:
        """True if the event loop has not responded for as long as a job may wait."""
        # If this thread stood still as well, the whole process did.
        stood_still = now >= self._looked_at + tuning.HOLD_SECONDS
        self._looked_at = now
        if self._asked_loop_at is not None:
            is_blocked = now >= self._asked_loop_at + tuning.HOLD_SECONDS
            if is_blocked and not (stood_still or self._is_block_logged):
                self._log_block(now - self._asked_loop_at)
            return is_blocked
        if self._held or self._is_stalled:
            self._asked_loop_at = now
            self._call_in_loop(self._loop_responds)
        return False

    def _log_block(self, seconds: float) -> None:
        """Log the handler's code that blocks the event loop, once for each time that it is blocked."""
        frame = sys._current_frames().get(self._loop_thread_id)
        if frame is None or frame.f_code.co_filename.startswith(_ASYNCIO):
            return  # about to run: the machine was busy
        if frame.f_code.co_filename.endswith(_SELECTORS):
            return  # idle
        self._is_block_logged = True
        logger.warning(
            "The event loop has been blocked for %.1f s. No other job of the worker goes on meanwhile. "
            "Use async calls, `await asyncio.to_thread(…)`, or make the handler a `def`. It is here:\n%s",
            seconds,
            stack_of_thread(self._loop_thread_id),
        )

    def _loop_responds(self) -> None:
        self._asked_loop_at, self._is_block_logged = None, False
        if self._is_stalled:
            self._is_stalled, self._capacity = False, 0
            self._announce()

    def _capacity_was_sent(self, capacity: int) -> None:
        """Announce the window again if the event loop responds: this capacity overwrote it."""
        if not self._is_stalled:
            self._window.acknowledged(capacity)
            self._announce()

    @failpoints.before("worker.returning")
    def _release(
        self,
        call: Callable[[pb.ReleaseRequest], pb.ReleaseResponse],
        jobs: list[ClaimedJob],
        is_blocked: bool,
    ) -> tuple[bool, list[ClaimedJob]]:
        """Release the jobs. Returns whether the server answered, and the jobs to release again."""
        request = pb.ReleaseRequest(
            worker_id=self._worker_id, claims=[job.claim() for job in jobs], capacity=self._capacity
        )
        if is_blocked:
            # Deliveries since then are not among these, and nothing here can read them.
            request.is_blocked = True
            request.held.extend(job.claim() for job in list(self._held.values()) if not job.stop_reason)
        try:
            response = call(request)
        except grpc.RpcError:
            return False, jobs
        finally:
            if request.capacity:
                self._call_in_loop(self._capacity_was_sent, request.capacity)
        self._capacity = 0
        # Another session of the database has these rows locked.
        locked = {claim.job_id for claim in response.locked}
        released = [job for job in jobs if job.job_id not in locked]
        for job in released:
            job.stop_reason = "it was released"
        self._call_in_loop(self._released, released)
        return True, [job for job in jobs if job.job_id in locked]

    def _stall(self, overdue: int) -> int:
        """Reduce the capacity to the running jobs, until the event loop responds. Returns it."""
        running = sum(1 for job in list(self._held.values()) if job.has_begun and job.outcome is None)
        capacity = max(1, running)
        self._window.stall(capacity)
        self._is_stalled = True
        if overdue:
            logger.info(
                "%d jobs waited more than %.0f s for a handler and are released to run elsewhere.",
                overdue,
                tuning.HOLD_SECONDS,
            )
        return capacity

    def _call_in_loop(self, callback: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            return  # the event loop is closed; no handler runs


# ---------------------------------------------------------------- recycling

Settled = Callable[[Iterable[ClaimedJob]], None]

# Each process draws its own limit from here up to max_jobs: a fleet that started at one instant must not be
# replaced at one instant.
JITTER_FROM = 0.9
# Reading it takes 20 µs.
MEMORY_LOOK_SECONDS = 1.0


class Recycling:
    """Calls `due` once, when this process has done its share of jobs or has grown past its limit.

    Without limits nothing is counted and nothing is read.
    """

    def __init__(self, max_jobs: int | None, max_memory: int | None, due: Callable[[str], None]) -> None:
        self._jobs_left = None if max_jobs is None else max(1, round(max_jobs * uniform(JITTER_FROM, 1.0)))
        self._max_memory = max_memory
        self._due = due
        self._is_due = False
        self._done = 0
        self._watch: asyncio.Task[None] | None = None

    def counting(self, settled: Settled) -> Settled:
        """Return the callback for reported jobs. It counts them if there is a limit."""
        if self._jobs_left is None:
            return settled

        def settle(jobs: Iterable[ClaimedJob]) -> None:
            reported = list(jobs)
            settled(reported)
            self._count(len(reported))

        return settle

    def start(self) -> None:
        """Begin to watch the memory, if there is a limit."""
        if self._max_memory is not None:
            self._watch = asyncio.create_task(self._watch_memory(self._max_memory), name="pulse-memory")

    def close(self) -> None:
        """Stop watching: the worker drains."""
        self._is_due = True
        if self._watch is not None:
            self._watch.cancel()

    def _count(self, jobs: int) -> None:
        self._done += jobs
        if self._jobs_left is not None and self._done >= self._jobs_left:
            self._report(f"it has done {self._done} jobs")

    async def _watch_memory(self, limit: int) -> None:
        while True:
            if (used := memory_bytes()) > limit:
                self._report(f"it takes {used >> 20} MiB of memory, more than {limit >> 20} MiB")
                return
            await asyncio.sleep(MEMORY_LOOK_SECONDS)

    def _report(self, reason: str) -> None:
        if not self._is_due:
            self._is_due = True
            self._due(reason)


def memory_bytes() -> int:
    """Return the resident memory of this process; without /proc, its largest so far."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024
