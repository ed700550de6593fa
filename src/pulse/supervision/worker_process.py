"""A worker process as its supervisor sees it: its start, its reports, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from pulse.supervision.lifeline import HURRY_GRACE_SECONDS, STOP_GRACE_SECONDS
from pulse.supervision.processes import Command, SupervisedProcess, exit_words

# The time until killed processes are gone.
_REAP_SECONDS = 1.0
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
        async with asyncio.timeout(_REAP_SECONDS):
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
