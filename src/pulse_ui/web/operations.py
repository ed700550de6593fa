"""Actions on many jobs that run in the background."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pulse
from pulse_ui import tuning
from pulse_ui.words import count, plural

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Operation:
    """One action on all jobs that match. If stopped, it leaves the rest unchanged."""

    number: int
    title: str
    """Such as "Retry 1,204 dead letters of email"."""
    done_word: str
    """Such as "retried"."""
    total: int | None
    """How many were counted at the start; None: not counted."""
    back: str
    """The page it was started from."""
    again: str = ""
    """The page that confirms the same action for the rest, if it ended early."""
    undo_id: str = ""
    """The action to undo; empty: it cannot be undone."""
    done: int = 0
    state: str = "running"
    """running, done, stopped or failed."""
    is_stopping: bool = False
    """It stops after the current batch."""
    is_uncertain: bool = False
    """It failed without a response: one more batch may have been committed."""
    error: str = ""
    task: asyncio.Task[None] | None = None
    clock: Callable[[], float] = time.monotonic
    _began: float = field(init=False)
    _ended: float | None = None

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def is_running(self) -> bool:
        return self.state == "running"

    @property
    def can_be_undone(self) -> bool:
        return bool(self.undo_id) and not self.is_running and (self.done > 0 or self.is_uncertain)

    @property
    def elapsed_seconds(self) -> float:
        """How long it has been running, or ran."""
        return (self.clock() if self._ended is None else self._ended) - self._began

    @property
    def rate(self) -> float | None:
        """Jobs per second; None while there are none."""
        return self.done / self.elapsed_seconds if self.done and self.elapsed_seconds > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """The estimated time for the rest, if known."""
        if not self.is_running or self.total is None or self.rate is None:
            return None
        return max(0, self.total - self.done) / self.rate

    @property
    def skipped(self) -> int:
        """How many were skipped because they had changed, once it is done."""
        return max(0, self.total - self.done) if self.state == "done" and self.total is not None else 0

    def stop(self) -> None:
        """Stop after the current batch, so that the count is exact."""
        if self.is_running:
            self.is_stopping = True

    async def settle(self, seconds: float) -> None:
        """Wait for its end, at most this long."""
        if self.task is not None:
            await asyncio.wait({self.task}, timeout=seconds)

    def end(self, state: str, error: str = "") -> None:
        self.state, self.error = state, error
        self._ended = self.clock()


class Operations:
    """The operations of one user: running ones, and the last that ended."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._operations: dict[int, Operation] = {}

    def begin(
        self,
        steps: AsyncGenerator[int, None],
        *,
        title: str,
        done_word: str,
        total: int | None,
        back: str,
        again: str = "",
        undo_id: str = "",
    ) -> Operation:
        """Run the steps in the background; each yields the running total of jobs."""
        operation = Operation(next(self._numbers), title, done_word, total, back, again, undo_id)
        self._operations[operation.number] = operation
        operation.task = asyncio.create_task(_run(operation, steps))
        finished = [number for number, old in self._operations.items() if not old.is_running]
        for number in finished[: max(0, len(self._operations) - tuning.OPERATIONS_KEPT)]:
            del self._operations[number]
        return operation

    def get(self, number: int) -> Operation | None:
        return self._operations.get(number)

    def running(self) -> list[Operation]:
        return [operation for operation in reversed(self._operations.values()) if operation.is_running]

    async def close(self) -> None:
        """Cancel running operations, without waiting for responses."""
        tasks = [operation.task for operation in self.running() if operation.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(operation: Operation, steps: AsyncGenerator[int, None]) -> None:
    try:
        async for done in steps:
            operation.done = done
            if operation.is_stopping:
                operation.end("stopped")
                return
        operation.end("done")
    except asyncio.CancelledError:
        operation.end("stopped")
        raise
    except pulse.PulseError as error:
        operation.is_uncertain = isinstance(error, pulse.Unavailable)
        operation.end("failed", str(error))
    except Exception:
        log.exception("an operation on many jobs failed")
        operation.end("failed", "Internal error of the dashboard. See its log.")
    finally:
        await steps.aclose()


_REASONS_SHOWN = 2

Act = Callable[[str], Awaitable[object]]


@dataclass(slots=True)
class Outcome:
    """The result of an action on single jobs."""

    done: int = 0
    refused: list[str] = field(default_factory=list)
    """The reason of each refusal."""
    failure: pulse.PulseError | None = None
    """Why it ended early."""
    untried: int = 0

    @property
    def is_good(self) -> bool:
        return not self.refused and self.failure is None

    def sentence(self, done_word: str) -> str:
        """Return the result as sentences."""
        said = [f"{plural(self.done, 'job')} {'was' if self.done == 1 else 'were'} {done_word}."]
        if self.refused:
            shown = self.refused[:_REASONS_SHOWN]
            more = len(self.refused) - len(shown)
            said.append(f"{count(len(self.refused))} were refused: {' '.join(shown)}")
            said += [f"And {count(more)} more."] if more else []
        if self.failure is not None:
            said.append(f"Then: {self.failure} {count(self.untried)} were not tried, or got no response.")
        return " ".join(said)


async def act_on_each(ids: Sequence[str], act: Act) -> Outcome:
    """Act on each. Raises the error that ended it early, unless a job was changed before."""
    outcome = Outcome()

    async def act_on_one(job_id: str) -> None:
        if outcome.failure is not None:
            outcome.untried += 1
            return
        try:
            await act(job_id)
            outcome.done += 1
        except (pulse.InvalidTransition, pulse.NotFound) as error:
            outcome.refused.append(str(error))
        except pulse.PulseError as error:
            outcome.failure = error
            outcome.untried += 1

    await each(ids, act_on_one)
    if outcome.failure is not None and not outcome.done and not outcome.refused:
        raise outcome.failure
    return outcome


async def each(ids: Sequence[str], act: Callable[[str], Awaitable[None]]) -> None:
    """Act on each, a few at a time."""
    turn = asyncio.Semaphore(tuning.CALLS_AT_ONCE)

    async def one(job_id: str) -> None:
        async with turn:
            await act(job_id)

    await asyncio.gather(*map(one, ids))
