"""An attempt of a handler with process=True, as its worker sees it."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

from pulse.handlers.context import request_stop, set_reported_progress
from pulse.outcomes import Cancelled
from pulse.worker.child_messages import RanInProcess
from pulse.worker.held_jobs import HeldJob
from pulse.worker.processes import Child, Processes


class ProcessCall:
    """An attempt that runs in a child process. A thread waits for it."""

    thread_id = None

    def __init__(self, processes: Processes, job: HeldJob, loaded: Callable[[], object]) -> None:
        """`loaded` is called once the process has imported the application."""
        self._processes = processes
        self._loaded = loaded
        self._job = job
        self._child: Child | None = None
        self._interrupted_by: type[Cancelled] | None = None
        self._is_killed = False
        # What is meant for this attempt must not reach the next one of the same process.
        self._lock = threading.Lock()

    def run(self) -> bytes | None:
        """Run the attempt. Returns the result of the handler, encoded.

        Raises RanInProcess unless the handler returned, and ProcessDied. Cancelled if no process can run
        handlers: the worker stops, and releases the job.
        """
        if not self._processes.wait_for_check(self._raise_if_interrupted):
            request_stop(self._job.context)
            raise Cancelled("No process can run this handler: the worker stops.")
        child = self._child = self._processes.take()
        try:
            self._raise_if_interrupted()
            child.topics()
            self._loaded()
            self._raise_if_interrupted()  # from here on the child keeps a Stop for its attempt
            attempt = self._processes.attempt(self._job)
            done = child.run(attempt, functools.partial(set_reported_progress, self._job.context))
        except BaseException:
            self._let_go()
            self._processes.drop(child)
            if self._is_killed and self._interrupted_by is not None:
                raise self._interrupted_by from None
            raise
        if self._let_go():
            self._processes.give_back(child)
        else:
            self._processes.drop(child)  # the error may come up after the attempt
        if done.is_interrupted or (outcome := done.failed or done.snoozed or done.suspended) is not None:
            raise RanInProcess(None if done.is_interrupted else outcome)
        return done.result

    def interrupt(self, error: type[Cancelled]) -> None:
        """Raise the error in the process."""
        limit = self._job.limit
        assert limit is not None
        with self._lock:
            self._interrupted_by = error
            if self._child is not None:
                self._child.stop(limit.seconds, limit.is_timed_out)

    def kill(self) -> bool:
        """Kill the process."""
        with self._lock:
            self._is_killed = True
            if self._child is not None:
                self._child.kill()
        return True

    def _raise_if_interrupted(self) -> None:
        if self._interrupted_by is not None:
            raise self._interrupted_by

    def _let_go(self) -> bool:
        """Take the process from this attempt. Returns whether it can run another."""
        with self._lock:
            self._child = None
            return self._interrupted_by is None
