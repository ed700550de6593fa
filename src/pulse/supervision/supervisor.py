"""Runs a number of worker processes, and replaces processes that die or are due."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable
from typing import Any

from pulse.supervision.processes import (
    Command,
    Restarts,
    SupervisedProcess,
    exit_words,
    first_of,
    stop_signals,
)
from pulse.supervision.supervised import HURRY_GRACE_SECONDS, STOP_GRACE_SECONDS

# The time until killed processes are gone.
_GROUP_END_SECONDS = 1.0
_REAP_POLL_SECONDS = 0.01


class WorkerProcess(SupervisedProcess):
    """A worker process that was started, and how far it is."""

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, writer: asyncio.StreamWriter, command: Command
    ) -> None:
        super().__init__(number, process, writer, command)
        self.connected = asyncio.Event()
        self.ready = asyncio.Event()
        self.due = asyncio.Event()
        self.due_reason = ""
        self.was_killed = False
        self._drain_seconds = 0.0
        self._has_drained = False
        self._kill_at: asyncio.TimerHandle | None = None

    @property
    def was_refused(self) -> bool:
        """Whether it ended before it was ready, and not because of a job. Only after `ended`."""
        return not self.ready.is_set() and (not self.connected.is_set() or self._has_drained)

    def replace_because(self, reason: str) -> None:
        """Mark the process as due to be replaced."""
        self.due_reason = self.due_reason or reason
        self.due.set()

    def stop(self, within_seconds: float | None = None) -> None:
        """Ask the process to drain and exit. It is killed if it does not. Idempotent.

        `within_seconds` is the time that its handlers have, if that is less than its own.
        """
        if self._kill_at is None:
            request = "stop\n" if within_seconds is None else f"stop {within_seconds}\n"
            self._send(request.encode(), self._drain_seconds + STOP_GRACE_SECONDS)

    def hurry(self) -> None:
        """Ask the process to release its jobs and exit. It is killed if it does not."""
        self._send(b"hurry\n", HURRY_GRACE_SECONDS)

    def kill(self) -> None:
        """End the process at once."""
        if not self.ended.is_set():
            self.was_killed = True
            self.send_signal(signal.SIGKILL)

    def _send(self, request: bytes, seconds: float) -> None:
        if self.ended.is_set():
            return
        # A closing transport drops the request.
        self._writer.write(request)
        if self._kill_at is not None:
            self._kill_at.cancel()
        self._kill_at = asyncio.get_running_loop().call_later(seconds, self.kill)

    def _received(self, word: str, rest: str) -> None:
        match word:
            case "running":
                self._drain_seconds = float(rest)
            case "connected":
                self.connected.set()
            case "ready":
                self.ready.set()
            case "due":
                self.replace_because(rest)
            case "drained":
                self._has_drained = True

    async def _exited(self, listening: asyncio.Task[None]) -> None:
        if self._is_detached and self.exit_code:
            await _end_group(self.pid)
        await super()._exited(listening)
        if self._is_detached and not self.exit_code and not self._has_drained:
            await _end_group(self.pid)
        if self._kill_at is not None:
            self._kill_at.cancel()

    def __str__(self) -> str:
        return f"Process {self.number} (pid {self.pid})"


async def _end_group(leader: int) -> None:
    """Kill the process group of a process that ended without having drained.

    Otherwise the pool of a handler and its programs would run beside the next attempt, and keep the
    dead worker's connection to pulsed open. A program that has to outlive the worker starts a new
    session.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GROUP_END_SECONDS):
            while not _reap_group(leader):  # noqa: ASYNC110 - orphans announce nothing
                await asyncio.sleep(_REAP_POLL_SECONDS)


def _reap_group(leader: int) -> bool:
    """Reap the zombies of a process group. True if this process has no more children in it.

    In a container the supervisor is the first process: all orphans become its children.
    """
    try:
        while os.waitpid(-leader, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def describe_end(process: WorkerProcess) -> str:
    """Return how a process ended, as the end of a sentence."""
    code = process.exit_code
    if process.was_killed:
        return "did not stop in time and was killed"
    if code >= 0:
        return f"exited with code {code}"
    if -code == signal.SIGKILL:
        return "was killed by SIGKILL, by the kernel for want of memory or by hand"
    if -code == signal.SIGPROF:
        return "was killed by SIGPROF: C code kept the interpreter, and its stack is above"
    return f"was killed by {exit_words(code)}"


logger = logging.getLogger("pulse.supervisor")

# Waits between two starts of a process that dies young. It is started for as long as the supervisor runs, as
# systemd does with Restart=always: an outage of an hour must not leave a machine without workers.
RESTART_FIRST_SECONDS = 0.2
RESTART_LONGEST_SECONDS = 30.0
# A process that lived this long is started again at once.
STABLE_SECONDS = 60.0
# pulsed accepts or refuses the declarations of the first process quickly, unless a table is locked.
READY_SECONDS = 10.0
# Processes are replaced one at a time. A drain that takes longer does not delay the next process.
TURN_SECONDS = 60.0
_REAP_SECONDS = 5.0
_PEEK = os.WEXITED | os.WNOHANG | os.WNOWAIT


class Supervisor:
    """Keeps worker processes running until it is stopped. Runs once."""

    def __init__(self, command: Command, processes: int, *, reaps: bool = False) -> None:
        """`reaps`: this is the first process of a container, which inherits all orphans.

        It must have no other children.
        """
        self._reaps = reaps
        self._command = command
        self._processes = processes
        self._alive: set[WorkerProcess] = set()
        self._stop = asyncio.Event()
        self._is_hurried = False
        self._is_clean = True
        self._turn = asyncio.Lock()
        # A deployment sets this event and makes a new one: tasks that wait for it check again.
        self._deployed = asyncio.Event()
        self._forgetting: set[asyncio.Task[None]] = set()
        # How the last process with each number ended, for operators.
        self._ends: dict[int, str] = {}

    async def run(self, handle_signals: bool = True) -> int:
        """Run until a signal or a cancellation, drain, and return the exit code.

        The first process starts alone: an application that cannot be imported or is refused by pulsed is
        reported once, and its exit code is returned. If a signal kills the first process, it is
        started again. Once it is ready, every process that ends is started again. A cancellation
        drains, and is then raised.
        """
        with stop_signals(self.stop, self.replace_all) if handle_signals else contextlib.nullcontext():
            work = asyncio.create_task(self._run())
            reaping = asyncio.create_task(self._reap()) if self._reaps else None
            canceled: asyncio.CancelledError | None = None
            while not work.done():
                try:
                    await asyncio.wait({work})
                except asyncio.CancelledError as error:
                    canceled = error
                    self.stop()
            if reaping is not None:
                reaping.cancel()
            if canceled is not None:
                raise canceled
            return work.result()

    def stop(self) -> None:
        """Drain all processes and return from run(). The second call does not wait for handlers."""
        if self._stop.is_set() and not self._is_hurried:
            self._is_hurried = True
            logger.warning("Stopping without waiting for handlers.")
        elif not self._stop.is_set():
            self._stop.set()
            alive = len(self._alive)
            logger.info("Stopping %s.", "1 process" if alive == 1 else f"{alive} processes")
        for process in self._alive:
            self._ask_to_stop(process)

    def replace_all(self) -> None:
        """Replace every process, one at a time."""
        logger.info("Replacing all processes, one at a time.")
        for process in self._alive:
            process.replace_because("SIGHUP")
        self._deployed.set()
        self._deployed = asyncio.Event()

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(_REAP_SECONDS)
            self._reap_orphans()

    def _reap_orphans(self) -> None:
        """Reap processes that handlers have started and left."""
        own = {process.pid for process in self._alive}
        with contextlib.suppress(ChildProcessError):  # there are no children at all
            # A worker process hides the rest until it is awaited. The next round reaps them.
            while (zombie := os.waitid(os.P_ALL, 0, _PEEK)) is not None and zombie.si_pid not in own:
                os.waitpid(zombie.si_pid, os.WNOHANG)

    async def _run(self) -> int:
        starts = _restarts()
        first: WorkerProcess | None = await self._start(1)
        while first is not None:
            await self._first_of(first.ready.wait(), first.ended.wait(), _connected_for_long(first))
            if self._stop.is_set() or not (first.ended.is_set() and first.was_refused):
                break
            if first.exit_code >= 0:
                logger.error("%s %s before it was ready.", first, describe_end(first))
                return first.exit_code
            first = await self._start_again(first, starts)  # not the application's fault
        slots = [asyncio.create_task(self._keep(1, first))]
        if not self._stop.is_set():
            slots += [asyncio.create_task(self._keep(number)) for number in range(2, self._processes + 1)]
        await asyncio.gather(*slots)
        while self._forgetting:
            await asyncio.wait(self._forgetting)
        logger.info("All processes have stopped.")
        return 0 if self._is_clean else 1

    async def _keep(self, number: int, process: WorkerProcess | None = None) -> None:
        """Keep one process running under this number until the supervisor stops."""
        starts = _restarts()
        process = process or await self._start_at_last(number, starts)
        while process is not None:
            await self._first_of(process.ended.wait(), process.due.wait())
            if self._stop.is_set():
                return
            if not process.ended.is_set():
                process = await self._replace(process, starts)
                continue
            process = await self._start_again(process, starts)

    async def _start_again(self, ended: WorkerProcess, starts: Restarts) -> WorkerProcess | None:
        """Start a process in the place of an ended process. None if the supervisor stops."""
        wait_seconds = starts.wait_seconds(ended.age_seconds)
        self._ends[ended.number] = describe_end(ended)
        logger.error(
            "%s %s. It starts again in %.1f s (start %d in a row, at most %.0f s apart).",
            ended,
            describe_end(ended),
            wait_seconds,
            starts.in_a_row,
            RESTART_LONGEST_SECONDS,
        )
        if await self._stopped_within(wait_seconds):
            return None
        return await self._start_at_last(ended.number, starts)

    async def _start_at_last(self, number: int, starts: Restarts) -> WorkerProcess | None:
        """Start a process; retry while the system cannot. None if the supervisor stops."""
        while not self._stop.is_set():
            try:
                return await self._start(number)
            except OSError as error:
                wait_seconds = starts.failed()
                logger.error(
                    "Process %d cannot be started: %s. The next try is in %.1f s.",
                    number,
                    error,
                    wait_seconds,
                )
                await self._stopped_within(wait_seconds)
        return None

    async def _replace(self, old: WorkerProcess, starts: Restarts) -> WorkerProcess:
        """Start a successor, and drain the old process once the successor is ready.

        If the new code cannot be imported, the old process keeps working. A further deployment ends
        a successor that is not ready. If the old process dies first, it is started again at once.
        Returns the process that now has the number.
        """
        turn = asyncio.create_task(self._turn.acquire())
        await self._first_of(turn, old.ended.wait())
        await asyncio.wait({turn})
        if turn.cancelled():
            return old
        try:
            if self._stop.is_set() or old.ended.is_set():
                return old
            deployed = self._deployed
            logger.info("%s is replaced: %s.", old, old.due_reason)
            self._ends[old.number] = f"was replaced: {old.due_reason}"
            new = await self._start_at_last(old.number, starts)
            if new is None:
                return old
            await self._first_of(new.ready.wait(), new.ended.wait(), old.ended.wait(), deployed.wait())
            if self._stop.is_set() or old.ended.is_set():
                return new
            if new.ready.is_set():
                old.stop()
                await self._first_of(old.ended.wait(), new.ended.wait(), asyncio.sleep(TURN_SECONDS))
                return new
            if not new.ended.is_set():
                new.stop()
                return old
        finally:
            self._turn.release()
        wait_seconds = starts.wait_seconds(new.age_seconds)
        logger.error(
            "%s, which was to replace pid %d, %s. The old process works on; the next try is in %.1f s.",
            new,
            old.pid,
            describe_end(new),
            wait_seconds,
        )
        await self._first_of(asyncio.sleep(wait_seconds), old.ended.wait(), deployed.wait())
        return old

    async def _start(self, number: int) -> WorkerProcess:
        process = await WorkerProcess.start(self._command, number, self._ends.get(number, ""))
        self._alive.add(process)
        forgetting = asyncio.create_task(self._forget(process))
        self._forgetting.add(forgetting)
        forgetting.add_done_callback(self._forgetting.discard)
        logger.info("%s has started.", process)
        if self._stop.is_set():
            self._ask_to_stop(process)
        return process

    async def _forget(self, process: WorkerProcess) -> None:
        await process.ended.wait()
        self._alive.discard(process)
        if process.due.is_set() or self._stop.is_set():
            # A process that was still importing its application ends by SIGTERM.
            log = logger.info if process.exit_code in (0, -signal.SIGTERM) else logger.error
            log("%s %s.", process, describe_end(process))
            self._is_clean = self._is_clean and not (self._stop.is_set() and process.was_killed)

    def _ask_to_stop(self, process: WorkerProcess) -> None:
        if self._is_hurried:
            process.hurry()
        else:
            process.stop()

    async def _stopped_within(self, seconds: float) -> bool:
        await self._first_of(asyncio.sleep(seconds))
        return self._stop.is_set()

    async def _first_of(self, *waits: Awaitable[Any]) -> None:
        """Wait until one of the waits is done, or the supervisor stops."""
        await first_of(*waits, self._stop.wait())


def _restarts() -> Restarts:
    return Restarts(RESTART_FIRST_SECONDS, RESTART_LONGEST_SECONDS, STABLE_SECONDS)


async def _connected_for_long(process: WorkerProcess) -> None:
    """Return some time after the process connected: other processes must not wait for a lock."""
    await process.connected.wait()
    await asyncio.sleep(READY_SECONDS)
