"""Child processes that run handlers with process=True, and the messages between a worker and them.

Each runs one attempt at a time, and can be killed. They are fresh interpreters, never forks: gRPC does not
survive a fork. A child imports the application and finds the handler by its topic. ADR-0061
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from pulse import tuning
from pulse.error_text import JsonFormatter
from pulse.errors import InvalidHandler
from pulse.handlers.context import Context, set_reported_progress
from pulse.handlers.handler import Handler
from pulse.handlers.step_calls import StepCalls
from pulse.handlers.workflows import set_completes_in_transaction
from pulse.jobs.models import Reported
from pulse.outcomes import Cancelled, Failed, Outcome, Snoozed, Succeeded, Suspended
from pulse.supervision.processes import ProcessGroup, exit_words
from pulse.supervision.supervised import find_origin, modules_of
from pulse.worker.held_jobs import ClaimedJob, LeaseTerms


class Load(msgspec.Struct, tag=True):
    """To the child: where the client is, and what else to import."""

    module: str
    path: str
    attribute: str
    imports: list[str]
    log_level: int
    process_name: str
    """Of the worker, as its log records have it: `worker-2` in one of several processes."""
    logs_json: bool = False
    """Whether the worker logs JSON."""


class Run(msgspec.Struct, tag=True):
    """To the child: run an attempt. The assignment is a JobAssignment, as bytes."""

    assignment: bytes
    worker_id: str
    completion_key: bytes
    """A CompletionKey, as bytes."""
    max_step_bytes: int
    max_result_bytes: int
    """0: the worker drops results."""


class Stop(msgspec.Struct, tag=True):
    """To the child: interrupt the attempt."""

    limit_seconds: float
    is_timed_out: bool


class Loaded(msgspec.Struct, tag=True):
    """From the child: the topics that have a handler there, or why there are none."""

    topics: list[str]
    problem: str = ""


class Done(msgspec.Struct, tag=True):
    """From the child: the outcome of the attempt. Neither is set for a success, or if it was interrupted."""

    failed: Failed | None = None
    snoozed: Snoozed | None = None
    suspended: Suspended | None = None
    is_interrupted: bool = False
    result: bytes | None = None
    """The encoded result of the handler."""

    @classmethod
    def of(cls, outcome: Outcome | None) -> Done:
        match outcome:
            case None:
                return cls(is_interrupted=True)
            case Failed():
                return cls(failed=outcome)
            case Snoozed():
                return cls(snoozed=outcome)
            case Suspended():
                return cls(suspended=outcome)
            case Succeeded():
                return cls(result=outcome.result)


class Progressed(msgspec.Struct, tag=True):
    """From the child: the handler's last progress report."""

    reported: Reported


class Completes(msgspec.Struct, tag=True):
    """From the child: the handler calls `ctx.complete`."""


class RanInProcess(Exception):
    """The outcome that a child process reports. It has logged the error."""

    def __init__(self, outcome: Failed | Snoozed | Suspended | None) -> None:
        """None: the handler was interrupted."""
        super().__init__(outcome.error if isinstance(outcome, Failed) else "")
        self.outcome = outcome


Message = Load | Run | Stop | Loaded | Progressed | Completes | Done
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def send(to: Connection, message: Any) -> None:
    """Send a message in one call."""
    to.send_bytes(msgspec.msgpack.encode(message))


def receive(stream: Connection) -> Message | None:
    """Wait for the next message. Returns None at the end of the stream."""
    try:
        return _decoder.decode(stream.recv_bytes())
    except (EOFError, OSError):
        return None


class Answers:
    """Sends messages to the worker, whole, from several threads.

    A separate thread sends progress, at most a few times a second, so that a handler never waits.
    Nothing of an attempt is sent after its outcome.
    """

    def __init__(self, worker: Connection) -> None:
        self._worker = worker
        # Re-entrant: an error that is raised in the thread of the handler may keep it from being released.
        self._sending = threading.RLock()
        self._unsent: Reported | None = None
        self._is_new = threading.Event()
        self._thread: threading.Thread | None = None

    def progressed(self, reported: Reported) -> None:
        """Send the report soon, unless a newer one comes before. Returns at once."""
        self._unsent = reported
        self._is_new.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pulse-child-progress", daemon=True)
            self._thread.start()

    def completes(self) -> None:
        """Report that the handler calls `ctx.complete`, before it does."""
        with self._sending:
            send(self._worker, Completes())

    def done(self, done: Done) -> None:
        """Send the outcome, after the last progress."""
        while True:
            try:
                with self._sending:
                    self._send_progress()
                    send(self._worker, done)
                return
            except Cancelled:
                continue  # it came up after the handler had ended
            except OSError:
                os._exit(1)  # the worker is gone

    def _run(self) -> None:
        while True:
            self._is_new.wait()
            self._is_new.clear()
            try:
                with self._sending:
                    self._send_progress()
            except OSError:
                return  # the worker is gone: the thread that reads from it ends the process
            time.sleep(tuning.HOLD_LOOK_SECONDS)

    def _send_progress(self) -> None:
        reported, self._unsent = self._unsent, None
        if reported is not None:
            send(self._worker, Progressed(reported))


_MAIN = (
    "import sys; sys.path[:] = {path!r}; from pulse.worker.child_process import main; "
    "main({fd}, {lifeline}, {worker})"
)


class ProcessDied(Exception):
    """The process of an attempt ended before the handler had returned."""


class Processes:
    """Starts children when they are needed, and keeps idle children."""

    def __init__(
        self,
        handlers: list[Handler],
        client: object,
        steps: StepCalls,
        terms: LeaseTerms,
        *,
        are_all: bool = False,
    ) -> None:
        """`are_all`: the worker has no other handlers."""
        self.are_all = are_all
        self._topics = {handler.topic for handler in handlers}
        self._imports = modules_of(handler.function for handler in handlers)
        self._client = client
        self._steps = steps
        self._terms = terms
        self._idle: list[Child] = []
        self._all: set[Child] = set()
        # One thread that lasts: the kernel ends a child with the thread that started it.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="pulse-processes")
        self._is_checked = threading.Event()
        self._are_usable = False

    async def check_in_thread(self) -> None:
        """Check in a thread, if a handler runs in a process."""
        if self._topics:
            await asyncio.get_running_loop().run_in_executor(None, self.check)

    def check(self) -> None:
        """Start the first child. Raises InvalidHandler if it has no handler for a topic."""
        try:
            child = self._first()
            missing = self._topics - child.topics()
            if missing:
                self.drop(child)
                raise InvalidHandler(
                    f"The handlers with process=True for {', '.join(sorted(missing))} are not found in a "
                    "fresh process: register them where their module is imported, not in a function."
                )
            self.give_back(child)
            self._are_usable = True
        finally:
            self._is_checked.set()

    def _first(self) -> Child:
        """Start a child and wait until it has imported the application. Replaces a dead child."""
        for is_last in (False, False, True):
            child = self.take()
            try:
                child.topics()
                break
            except ProcessDied:
                self.drop(child)
                if is_last:
                    raise
        return child

    def wait_for_check(self, look: Callable[[], None]) -> bool:
        """Wait for `check` to end, calling `look`. Returns whether children can run handlers."""
        while not self._is_checked.wait(tuning.CHILD_LOOK_SECONDS):
            look()
        return self._are_usable

    def take(self) -> Child:
        """Return an idle child, or start one. It may still import the application."""
        with contextlib.suppress(IndexError):
            while True:
                child = self._idle.pop()
                if child.is_alive:
                    return child
                self.drop(child)  # killed while it was idle, perhaps for want of memory: no job's fault
        child = self._starter.submit(self._start).result()
        self._all.add(child)
        return child

    def attempt(self, job: ClaimedJob) -> Run:
        """Return the message that has a child run the job."""
        assignment, steps = job.assignment.SerializeToString(), self._steps
        key = steps.completion_key.SerializeToString()
        return Run(assignment, steps.worker_id, key, steps.most_bytes, self._terms.max_result_bytes)

    def give_back(self, child: Child) -> None:
        """Keep a child for the next attempt."""
        self._idle.append(child)

    def drop(self, child: Child) -> None:
        """Kill a child that is not used again."""
        self._all.discard(child)
        child.end()

    def close(self) -> None:
        """End all children: idle children exit, busy children are killed."""
        for child in self._idle:
            child.dismiss()
        for child in self._idle:
            child.wait()
        for child in list(self._all):
            self.drop(child)
        self._idle.clear()
        self._starter.shutdown(wait=False)

    def _start(self) -> Child:
        origin = find_origin(self._client)
        if origin is None:
            raise InvalidHandler(
                "Handlers with process=True run in a fresh process, which has to find this Pulse again: make "
                "it a global name of a module, or of a script that is started by its path."
            )
        level = logging.getLogger().getEffectiveLevel()
        name = multiprocessing.current_process().name
        logs_json = any(isinstance(one.formatter, JsonFormatter) for one in logging.getLogger().handlers)
        return Child(
            Load(origin.module, origin.path, origin.attribute, self._imports, level, name, logs_json)
        )


class Child:
    """A child process, and the pipe to it. Its methods block; `stop` and `kill` are for other threads."""

    def __init__(self, first: Load) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]

        def command(lifeline: int) -> list[str]:
            code = _MAIN.format(path=sys.path, fd=theirs.fileno(), lifeline=lifeline, worker=os.getpid())
            return [sys.executable, *flags, "-c", code]

        with theirs:
            # When the lifeline closes, the kernel kills the child and its process group.
            self._group = ProcessGroup(command, descriptors=[theirs.fileno()], stdin=subprocess.DEVNULL)
        self._topics: set[str] | None = None
        self._sending = threading.Lock()
        self._is_ended = False
        self._send(first)

    @property
    def is_alive(self) -> bool:
        """True while the process runs."""
        return self._group.is_running

    def topics(self) -> set[str]:
        """Return the topics that have a handler there. Raises InvalidHandler if it cannot start."""
        if self._topics is None:
            loaded = self._receive()
            if not isinstance(loaded, Loaded):
                raise ProcessDied(self._how_it_ended())
            if loaded.problem:
                self.end()
                raise InvalidHandler(f"A process for handlers cannot start: {loaded.problem}")
            self._topics = set(loaded.topics)
        return self._topics

    def run(self, attempt: Run, context: Context) -> Done:
        """Run an attempt. The context takes over what its handler reports meanwhile. Raises ProcessDied."""
        self._send(attempt)
        while True:
            answer = self._receive()
            if isinstance(answer, Progressed):
                set_reported_progress(context, answer.reported)
            elif isinstance(answer, Completes):
                set_completes_in_transaction(context)
            elif isinstance(answer, Done):
                return answer
            else:
                raise ProcessDied(self._how_it_ended())

    def stop(self, limit_seconds: float, is_timed_out: bool) -> None:
        """Interrupt the attempt."""
        self._send(Stop(limit_seconds, is_timed_out))

    def kill(self) -> None:
        """Kill the process and its process group."""
        if not self._is_ended:
            self._group.send_signal(signal.SIGKILL)

    def end(self) -> None:
        """Kill the process, and wait for its end."""
        self.kill()
        self._group.process.wait()
        self._pipe.close()
        self._is_ended = True
        self._group.close()

    def dismiss(self) -> None:
        """Have an idle process end by itself."""
        self._pipe.close()

    def wait(self) -> None:
        """Wait for the end of a process that was dismissed, for a moment."""
        self._group.ends_within(tuning.CHILD_EXIT_SECONDS)

    def _receive(self) -> Message | None:
        """Wait for the next message. Returns None if the process is gone."""
        # A process that the handler has forked may hold the pipe open after the death of its parent.
        with contextlib.suppress(OSError):
            while not self._pipe.poll(tuning.CHILD_LOOK_SECONDS):
                if not self.is_alive and not self._pipe.poll():
                    return None
        return receive(self._pipe)

    def _send(self, message: Load | Run | Stop) -> None:
        """Send a message. It is lost if the process is gone: the next read detects that."""
        # A worker that stops interrupts an attempt while a thread sends it.
        with self._sending, contextlib.suppress(OSError):
            send(self._pipe, message)

    def _how_it_ended(self) -> str:
        if not self._group.ends_within(tuning.CHILD_EXIT_SECONDS):
            return "The process of this attempt closed its connection to the worker."
        code = self._group.process.returncode
        if code >= 0:
            return f"The process of this attempt exited with code {code} before the handler had returned."
        hint = " Perhaps there was no memory left." if -code == signal.SIGKILL else ""
        return f"The process of this attempt was killed by {exit_words(code)}.{hint}"
