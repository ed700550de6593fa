"""Processes, their signals and the end of their parent: shared by all that start some.

It imports nothing of pulse.

SIGTERM, SIGINT and SIGHUP are handled while a worker, a server or a supervisor runs. A handler may fork:
`multiprocessing` does it for a process or a pool. The child has the worker's handlers and the pipe that wakes
the worker's event loop: a signal to the child would not end it, but stop the worker. So a child has the
default handlers, from its first moment on. docs/figures.md#forks-and-gevent
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from random import uniform
from typing import Any, Self

DESCRIPTOR_VARIABLE = "PULSE_LIFELINE"
NUMBER_VARIABLE = "PULSE_PROCESS"
# How the last process with this number ended.
LAST_EXIT_VARIABLE = "PULSE_LAST_EXIT"
LAST_WORDS_SECONDS = 1.0


def exit_words(code: int) -> str:
    """Return how a process with this exit code ended: `exit code 3`, or the name of a signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


class Restarts:
    """Counts the starts in a row of a process that died young. Waits double, up to the longest."""

    def __init__(self, first_seconds: float, longest_seconds: float, stable_seconds: float) -> None:
        """A process that lived for `stable_seconds` is started again at once."""
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._stable_seconds = stable_seconds
        self.in_a_row = 0

    def wait_seconds(self, lived_seconds: float) -> float:
        """Return how long to wait before the next start."""
        if lived_seconds >= self._stable_seconds:
            self.in_a_row = 0
            return 0.0
        return self.failed()

    def failed(self) -> float:
        """Count a start that failed, and return how long to wait before the next."""
        self.in_a_row += 1
        ceiling = min(self._longest_seconds, self._first_seconds * 2 ** min(self.in_a_row - 1, 16))
        return uniform(ceiling / 2, ceiling)


async def first_of(*waits: Awaitable[Any]) -> None:
    """Wait until one of the waits is done, and cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


@dataclass(frozen=True, slots=True)
class Command:
    """Starts a process: a fresh interpreter, never a fork of a process that uses gRPC."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Secrets travel here: every user of the machine can read a command line."""
    is_detached: bool = False
    """Start a new session without standard input. The process group then identifies orphans of the
    process, and the keys of a terminal reach only the supervisor."""


class SupervisedProcess:
    """The supervisor's end of a lifeline, and the process at the other end."""

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, writer: asyncio.StreamWriter, command: Command
    ) -> None:
        self.number = number
        self.pid = process.pid
        self.ended = asyncio.Event()
        self._started_at = time.monotonic()
        self._process = process
        self._writer = writer
        self._is_detached = command.is_detached
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def start(cls, command: Command, number: int = 0, last_exit: str = "") -> Self:
        """Start the process. It inherits standard output and error, and ends when this process does.

        `last_exit` states how the last process with this number ended, for operators.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            variables = {DESCRIPTOR_VARIABLE: str(theirs.fileno())}
            if number:
                variables[NUMBER_VARIABLE] = str(number)
            if last_exit:
                variables[LAST_EXIT_VARIABLE] = last_exit
            process = await asyncio.create_subprocess_exec(
                *command.arguments,
                stdin=subprocess.DEVNULL if command.is_detached else None,
                start_new_session=command.is_detached,
                env={**os.environ, **command.environment, **variables},
                pass_fds=(theirs.fileno(),),
            )
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        started = cls(number, process, writer, command)
        listening = asyncio.create_task(started._listen(reader))
        started._tasks = [listening, asyncio.create_task(started._wait(listening))]
        return started

    @property
    def age_seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self._started_at

    @property
    def exit_code(self) -> int:
        """The exit code, negative for a signal. Only after `ended`."""
        return self._process.returncode or 0

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                word, _, rest = line.decode().strip().partition(" ")
                self._received(word, rest)

    def _received(self, word: str, rest: str) -> None:
        """Take a report of the process."""
        raise NotImplementedError

    async def _wait(self, listening: asyncio.Task[None]) -> None:
        await self._process.wait()
        await self._exited(listening)
        self._writer.close()
        self.ended.set()

    async def _exited(self, listening: asyncio.Task[None]) -> None:
        """Read the last reports. A program that the process started may keep the socket open."""
        await asyncio.wait({listening}, timeout=LAST_WORDS_SECONDS)


class ProcessEnd:
    """The process's end of a lifeline. A thread reads it: a blocked event loop must not hide a death."""

    @classmethod
    def taken_from(cls, environ: MutableMapping[str, str]) -> Self | None:
        """Take the lifeline that a supervisor left in the environment. None if there is none."""
        descriptor = environ.pop(DESCRIPTOR_VARIABLE, "")
        try:
            return cls(int(descriptor), int(environ.get(NUMBER_VARIABLE) or 0))
        except (ValueError, OSError):
            return None  # not there, or set by hand

    def __init__(self, descriptor: int, number: int) -> None:
        """Raises OSError if the descriptor is no socket."""
        self.number = number
        self._connection = socket.socket(fileno=descriptor)
        # Programs that this process starts must not keep the socket open.
        self._connection.set_inheritable(False)
        threading.Thread(target=self._listen, name="pulse-lifeline", daemon=True).start()

    def send(self, line: str) -> None:
        """Send a line to the supervisor."""
        with contextlib.suppress(OSError):  # the supervisor is gone; the reading thread sees that
            self._connection.sendall(line.encode(errors="backslashreplace") + b"\n")

    def _listen(self) -> None:
        with contextlib.suppress(OSError), self._connection.makefile("rb") as lines:
            for line in lines:
                self._received(line.decode().strip())
        self._abandoned()

    def _received(self, line: str) -> None:
        """Take a line of the supervisor. In the reading thread."""

    def _abandoned(self) -> None:
        """End the process: the supervisor is gone. In the reading thread."""
        raise NotImplementedError


class ProcessGroup:
    """A program in a new session: Ctrl-C in a terminal misses it, and signals reach its children too.

    Its lifeline is a pipe to which nothing is written.
    """

    def __init__(
        self, command: Callable[[int], Sequence[str]], *, descriptors: Sequence[int] = (), **options: Any
    ) -> None:
        """Start the command, which gets the descriptor of its end of the lifeline. For options see Popen."""
        theirs, ours = os.pipe()
        self._lifeline: int | None = ours
        try:
            with os.fdopen(theirs):
                self.process: subprocess.Popen[bytes] = subprocess.Popen(
                    command(theirs), pass_fds=[*descriptors, theirs], start_new_session=True, **options
                )
        except BaseException:
            self.close()
            raise

    @property
    def is_running(self) -> bool:
        """Whether it still runs. Reaps it when it does not."""
        return self.process.poll() is None

    def ends_within(self, seconds: float) -> bool:
        """Wait for its end. False if it takes longer."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.returncode is not None

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the group, unless it is gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def close(self) -> None:
        """Close our end of the lifeline, as the end of this process would."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None


_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_IN_A_CHILD: dict[signal.Signals, Any] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}

_handled: set[signal.Signals] = set()
"""Signals that a worker of this process handles."""
_forking = threading.local()


@contextlib.contextmanager
def signals_handled(callback: Callable[[], None], enabled: bool) -> Iterator[None]:
    """Call `callback` in the event loop for each SIGTERM and SIGINT of a worker.

    Only in the main thread, and only for signals without a handler: an application that runs the worker next
    to other tasks has its own way to stop, and cancels it.
    """
    actions = {number: callback for number in _SIGNALS if enabled and _is_free(signal.getsignal(number))}
    with handled_in_loop(actions) as before:
        _handled.update(before)
        try:
            yield
        finally:
            _handled.difference_update(before)


@contextlib.contextmanager
def stop_signals(stop: Callable[[], None], replace_all: Callable[[], None]) -> Iterator[None]:
    """Call `stop` for SIGTERM and SIGINT of a supervisor, and `replace_all` for SIGHUP.

    At a terminal SIGHUP means that it was closed, so it stops. Under nohup it stays ignored.
    """
    actions = dict.fromkeys(_SIGNALS, stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        actions[signal.SIGHUP] = stop if _has_terminal() else replace_all
    with handled_in_loop(actions):
        yield


@contextlib.contextmanager
def handled_in_loop(
    actions: Mapping[signal.Signals, Callable[[], None]],
) -> Iterator[Mapping[signal.Signals, Any]]:
    """Call these in the event loop. Yields the handlers before, and restores them afterwards.

    Only in the main thread: another thread receives no signals.
    """
    before: dict[signal.Signals, Any] = {}
    loop = asyncio.get_running_loop()
    if threading.current_thread() is threading.main_thread():
        for number, action in actions.items():
            known = signal.getsignal(number)
            with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
                loop.add_signal_handler(number, action)
                before[number] = known
    try:
        yield before
    finally:
        for number, known in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, known)


def interrupts_main_thread() -> bool:
    """True if a SIGINT raises KeyboardInterrupt right here: in the main thread, without a signal handler."""
    return (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def _is_free(handler: Any) -> bool:
    if handler in (signal.SIG_DFL, signal.default_int_handler):
        return True
    # asyncio.run() turns SIGINT into a cancellation, which would end in a traceback instead of a return.
    return isinstance(handler, functools.partial) and isinstance(
        getattr(handler.func, "__self__", None), asyncio.Runner
    )


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


# ------------------------------------------------------------ forks


def _before_fork() -> None:
    """Block signals: a signal to the child before it has its own handlers would stop the worker."""
    if _handled:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _handled)


def _after_fork() -> None:
    mask = _forking.__dict__.pop("mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _after_fork_in_child() -> None:
    if _handled:
        signal.set_wakeup_fd(-1)
        pending = signal.sigpending()
        for number in _handled:
            # A pending SIGINT ends the child: Python drops an error raised between the fork and its
            # return.
            signal.signal(number, signal.SIG_DFL if number in pending else _IN_A_CHILD[number])
        _handled.clear()
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
