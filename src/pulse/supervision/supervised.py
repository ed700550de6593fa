"""Inside a process of a worker: it finds its application, listens to its supervisor, and ends.

The application is found again in a fresh interpreter: a global name of a module, or of a script.

The lifeline is a socket to the supervisor. The supervisor sends `stop`, optionally with the seconds that it
waits, and `hurry`. A closed socket means that it is gone. The process sends its state: `running`, `connected`
to pulsed, `ready` once pulsed has accepted its declarations, `due`, and `drained` when no handler runs any
more. Requests are levels, not counts: a signal to the whole process group and the supervisor's own request
together mean one request.

A process may not end by itself. A worker has stopped, and threads or tasks of its handlers still run. Or C
code holds the interpreter: a regular expression, or a power of huge numbers. Then no Python code runs: no
heartbeat, no time limit, no signal handler. So the kernel ends the process, by a timer of its CPU time that a
thread keeps resetting. A process that is stopped or waits uses no CPU time.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import contextlib
import faulthandler
import importlib
import inspect
import json
import logging
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from pulse import tuning
from pulse.errors import InvalidArgument, InvalidHandler, PulseError
from pulse.supervision.processes import Command, ProcessEnd

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

VARIABLE = "PULSE_PROCESS_APPLICATION"
# A child process runs the program's module under this name, so that the code behind
# `if __name__ == "__main__"` does not run.
_NAME_OF_MAIN = "__pulse_main__"
_MAIN = "__main__"

# The path comes first: pulse itself may be found on the path of the program alone.
_START = f"""
import json, os, sys
sys.path[:] = json.loads(os.environ["{VARIABLE}"])["path"]
from pulse.supervision.supervised import main
main()
"""

_refusal = ""


@dataclass(frozen=True, slots=True)
class Application:
    """Where a client is, and what its process has to import to have it."""

    module: str
    name: str
    options: dict[str, Any]
    path: list[str]
    arguments: list[str]
    main_module: str | None
    main_file: str | None


def find_application(client: object, options: dict[str, Any]) -> Application:
    """Find the module and the name of a client. Raises InvalidArgument if it has none."""
    check_not_importing()
    held = lifeline_here()
    if held is not None and not held.has_run:
        raise InvalidArgument(
            "run_processes() was called while a worker process imports the program. "
            'Put the call behind `if __name__ == "__main__":`.'
        )
    module, name = next(_places(client), (None, None))
    main = sys.modules[_MAIN]
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    if module is None or name is None or (module == _MAIN and not (spec or file)):
        raise InvalidArgument(
            "run_processes() starts fresh interpreters, which have to import the client: "
            "make it a global of a module, such as p = pulse.Pulse() in shop/app.py."
        )
    return Application(
        module,
        name,
        options,
        path=[entry or str(Path.cwd()) for entry in sys.path],
        arguments=sys.argv,
        main_module=_importable_name(spec.name) if spec else None,
        main_file=str(Path(file).absolute()) if file else None,
    )


def load_application() -> tuple[Any, dict[str, Any]]:
    """Import the program in this process. Returns its client and the options of `run`."""
    application = Application(**json.loads(os.environ.pop(VARIABLE)))
    sys.argv = application.arguments
    main = _run_main(application)
    if application.module == _MAIN:
        return main[application.name], application.options
    return getattr(importlib.import_module(application.module), application.name), application.options


def _places(client: object) -> Iterator[tuple[str, str]]:
    """Yield the modules and names of a client, the program's own module last.

    A client of a framework may name the module that sets the framework up.
    """
    if (place := getattr(client, "_place", None)) is not None:
        yield place
    # Not by its name: multiprocessing, once imported, has the program as `__mp_main__` too.
    main = sys.modules[_MAIN]
    for module_name, module in sorted(sys.modules.items(), key=lambda item: item[1] is main):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is client:
                yield _MAIN if module is main else module_name, name


def _importable_name(name: str) -> str:
    # Of `python -m package` the module is package.__main__.
    return name.removesuffix(".__main__") if name != "__main__" else name


def _run_main(application: Application) -> dict[str, Any]:
    """Run the program's own module again: the imports in it may register handlers."""
    if application.main_module:
        namespace = runpy.run_module(application.main_module, run_name=_NAME_OF_MAIN, alter_sys=True)
    elif application.main_file and Path(application.main_file).exists():
        namespace = runpy.run_path(application.main_file, run_name=_NAME_OF_MAIN)
    else:
        return {}
    return vars(_as_main(namespace))


def _as_main(namespace: dict[str, Any]) -> ModuleType:
    """Make a module of the namespace and install it as `__main__`, where pickle and typing look."""
    main = ModuleType(_NAME_OF_MAIN)
    main.__dict__.update(namespace)
    sys.modules[_MAIN] = sys.modules[_NAME_OF_MAIN] = main
    return main


# ------------------------------------------------------------ the process of a supervisor


def command_for(application: Application) -> Command:
    """Return how a process that runs this application is started."""
    environment = {VARIABLE: json.dumps(asdict(application))}
    return Command([sys.executable, "-c", _START], environment, is_detached=True)


def main() -> NoReturn:
    """Run the application's handlers until the supervisor or a signal stops them."""
    hold_lifeline()
    client, options = load_application()
    if "drain_seconds" in options:
        options["drain_timeout"] = timedelta(seconds=options.pop("drain_seconds"))
    try:
        if inspect.iscoroutinefunction(client.run):
            asyncio.run(_run(client, options))
        else:
            with ending_soon(), ended_if_frozen():
                client.run(**options)
    except PulseError as error:
        sys.exit(f"pulse: {error.message}")
    sys.exit(0)


async def _run(client: Any, options: dict[str, Any]) -> None:
    # Within: asyncio.run() waits for the threads of its executor.
    with ending_soon(), ended_if_frozen():
        await client.run(**options)


# ------------------------------------------------------------ the process of a handler


@dataclass(frozen=True, slots=True)
class Origin:
    """A global name of a module, or of a script."""

    module: str
    path: str
    attribute: str


def find_origin(client: object) -> Origin | None:
    """Return the global name that the client has. None if no other process could find it."""
    for module, attribute in _places(client):
        origin = _main_origin(attribute) if module == _MAIN else Origin(module, "", attribute)
        if origin is not None:
            return origin
    return None


def _main_origin(attribute: str) -> Origin | None:
    module = sys.modules[_MAIN]
    spec = module.__spec__
    if spec is not None:
        # `python -m package` runs package/__main__.py, which usually starts the program when it is imported.
        is_program = spec.name.rpartition(".")[2] == _MAIN
        return None if is_program else Origin(spec.name, "", attribute)
    path = getattr(module, "__file__", None)
    return Origin(_MAIN, os.path.abspath(path), attribute) if path else None  # noqa: PTH100


def modules_of(functions: Iterable[Any]) -> list[str]:
    """Return the modules that define the functions. A script is not one of them."""
    names = {getattr(function, "__module__", None) for function in functions}
    return sorted(name for name in names if isinstance(name, str) and name != _MAIN)


def load(origin: Origin, imports: Iterable[str]) -> Any:
    """Import the modules and return the client. In the child process."""
    with importing(_IN_A_CHILD):
        if origin.path:
            module = _as_main(runpy.run_path(origin.path, run_name=_NAME_OF_MAIN))
        else:
            module = importlib.import_module(origin.module)
        for name in imports:
            importlib.import_module(name)
        return getattr(module, origin.attribute)


_IN_A_CHILD = (
    "A process that runs handlers with process=True imports this file, and the file calls run() when "
    'it is imported. Put that behind `if __name__ == "__main__":`.'
)


@contextmanager
def importing(refusal: str) -> Iterator[None]:
    """Refuse a worker that a module starts while the block imports it, with this sentence."""
    global _refusal
    before, _refusal = _refusal, refusal
    try:
        yield
    finally:
        _refusal = before


def check_not_importing() -> None:
    """Raise InvalidHandler in a module that starts a worker when it is imported."""
    if _refusal:
        raise InvalidHandler(_refusal)


# ---------------------------------------------------------------- the lifeline

# The time of a stop beyond the drain: cancellations, releases, and reports for as long as a lease.
STOP_GRACE_SECONDS = 60.0
# The same after a second signal.
HURRY_GRACE_SECONDS = 15.0


class Stoppable(Protocol):
    """The methods of a worker that a lifeline needs."""

    def drain(self, within_seconds: float | None = None) -> None:
        """Take no more jobs, let handlers finish, and return. Idempotent.

        `within_seconds` shortens the time that handlers have.
        """

    def hurry(self) -> None:
        """Drain without waiting for handlers. Idempotent."""


class Lifeline(ProcessEnd):
    """The worker process's end."""

    def __init__(self, descriptor: int, number: int) -> None:
        self._lock = threading.Lock()
        self._workers: dict[Stoppable, asyncio.AbstractEventLoop] = {}
        self._drain_seconds = 0.0
        self.has_run = False
        """True once a worker has run in this process."""
        super().__init__(descriptor, number)

    @contextlib.contextmanager
    def attached(self, worker: Stoppable, drain_seconds: float) -> Iterator[None]:
        """Stop the worker when the supervisor asks for it, for the length of a block."""
        with self._lock:
            self.has_run = True
            self._drain_seconds = max(self._drain_seconds, drain_seconds)
            self._workers[worker] = asyncio.get_running_loop()
        self.send(f"running {drain_seconds}")
        try:
            yield
        finally:
            with self._lock:
                del self._workers[worker]

    def due(self, reason: str) -> bool:
        """Ask to be replaced. The supervisor answers with `stop` when it is this process's turn.

        Returns False if it replaces none: the only process of a reloader has no number.
        """
        if self.number:
            self.send(f"due {reason}")
        return bool(self.number)

    def _received(self, line: str) -> None:
        word, _, seconds = line.partition(" ")
        self._request(hurry=word == "hurry", within_seconds=float(seconds) if seconds else None)

    def _abandoned(self) -> None:
        self._request(hurry=False)
        time.sleep(self._drain_seconds + STOP_GRACE_SECONDS)
        # A handler that never returns must not outlive the supervisor.
        end_at_once(1)

    def _request(self, *, hurry: bool, within_seconds: float | None = None) -> None:
        with self._lock:
            if not self.has_run:
                # Nothing runs yet: the application is being imported.
                os.kill(os.getpid(), signal.SIGTERM)
            for worker, loop in self._workers.items():
                with contextlib.suppress(RuntimeError):  # the loop was closed
                    if hurry:
                        loop.call_soon_threadsafe(worker.hurry)
                    else:
                        loop.call_soon_threadsafe(worker.drain, within_seconds)


class Unsupervised:
    """The same for a process that no supervisor started."""

    number = 0

    def attached(self, worker: Stoppable, drain_seconds: float) -> contextlib.AbstractContextManager[None]:
        """Do nothing for the length of a block."""
        return contextlib.nullcontext()

    def send(self, line: str) -> None:
        """Report to no supervisor."""

    def due(self, reason: str) -> bool:
        """Return False: this process is not replaced."""
        return False


_held: Lifeline | None = None


def hold_lifeline() -> Lifeline | None:
    """Take the lifeline that the supervisor passed to this process, if there is one.

    Call it before the application is imported: from then on the death of the supervisor ends the process.
    """
    global _held
    if _held is None and (taken := Lifeline.taken_from(os.environ)) is not None:
        _held = taken
        if taken.number:
            _name_process(taken.number)
        # With a SIGHUP the supervisor replaces its processes; a whole group may receive it.
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGHUP, lambda *_: None)
    return _held


def lifeline_here() -> Lifeline | None:
    """Return the lifeline of this process, if a supervisor started it."""
    return _held


def of_this_process() -> Lifeline | Unsupervised:
    """Return the lifeline of this process, or a lifeline that does nothing."""
    return _held or Unsupervised()


def _name_process(number: int) -> None:
    """Put the number on every log record, as `processName`."""
    import multiprocessing

    multiprocessing.current_process().name = f"worker-{number}"


logger = logging.getLogger("pulse.worker")


# ---------------------------------------------------------------- the end of a process

# The time for the application to close its resources, after the worker has stopped.
END_SECONDS = 5.0
_FRAMES = 5


@contextlib.contextmanager
def ending_soon() -> Iterator[None]:
    """End the process soon after the block, with code 0, or 1 if it raises.

    Otherwise a thread that never ends would keep the interpreter from its exit: a `time.sleep()` in
    `asyncio.to_thread()`, in an executor or in a thread of the handler's own cannot be interrupted. Nor can a
    task that swallows its cancellations.
    """
    loop = asyncio._get_running_loop()
    failure: BaseException | None = None
    try:
        yield
    except BaseException as error:
        failure = error
        raise
    finally:
        ending = threading.Timer(END_SECONDS, _end, (failure, loop))
        ending.daemon = True
        ending.start()


def _end(failure: BaseException | None, loop: asyncio.AbstractEventLoop | None) -> None:
    with contextlib.suppress(Exception):
        if isinstance(failure, PulseError) and loop is not None and loop.is_running():
            logger.error("%s", failure)  # nothing has, as long as the loop does not end
        _explain(loop)
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    end_at_once(0 if failure is None else 1)


def _explain(loop: asyncio.AbstractEventLoop | None) -> None:
    """Log what keeps the process."""
    frames = sys._current_frames()
    is_explained = False
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if thread.daemon or thread is threading.main_thread() or frame is None or _is_idle(frame):
            continue
        stack = "".join(traceback.format_stack(frame)[-_FRAMES:])
        logger.warning("Thread %s does not end, so the process exits:\n%s", thread.name, stack)
        is_explained = True
    for child in children():
        logger.warning("Process %s (pid %d) does not end, so it is killed.", child.name, child.pid)
        is_explained = True
    # The event loop has a task that waits for its threads.
    for task in asyncio.all_tasks(loop) if loop is not None and not is_explained else ():
        logger.warning(
            "Task %s does not end, so the process exits:\n%s", task.get_name(), stack_of_task(task)
        )


def _is_idle(frame: FrameType) -> bool:
    """True for a thread of an executor that waits for work. It ends with the interpreter."""
    return frame.f_code is concurrent.futures.thread._worker.__code__


def end_at_once(code: int) -> NoReturn:
    """End the process, and with it the children that multiprocessing has started in it.

    At an ordinary exit the interpreter waits for them. After this one they would wait for work for ever.
    """
    with contextlib.suppress(Exception):
        for child in children():
            child.kill()
    os._exit(code)


def children() -> list[BaseProcess]:
    """Return the running children that multiprocessing has started, process pools included."""
    multiprocessing = sys.modules.get("multiprocessing")
    return [] if multiprocessing is None else multiprocessing.active_children()


@contextlib.contextmanager
def ended_if_frozen() -> Iterator[None]:
    """End the process with SIGPROF, and the stacks of its threads, if no Python code runs in it for long."""
    if not hasattr(signal, "setitimer") or signal.getsignal(signal.SIGPROF) is not signal.SIG_DFL:
        yield
        return
    with contextlib.suppress(Exception):  # a standard error that is no file: then without the stacks
        faulthandler.register(signal.SIGPROF, chain=True)
    is_over = threading.Event()
    # On many cores, code that does not keep the interpreter may use a lot of CPU between two looks.
    seconds = max(tuning.FROZEN_CPU_SECONDS, 5 * tuning.FROZEN_LOOK_SECONDS * (os.cpu_count() or 1))
    _set_back(seconds)
    threading.Thread(target=_watch, args=(seconds, is_over), name="pulse-frozen", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


def _watch(seconds: float, is_over: threading.Event) -> None:
    while not is_over.wait(tuning.FROZEN_LOOK_SECONDS):
        _, interval = signal.getitimer(signal.ITIMER_PROF)
        if interval:
            return  # a profiler uses the timer
        _set_back(seconds)
    _set_back(0)


def _set_back(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)


# ---------------------------------------------------------------- stacks

_SDK = str(Path(__file__).parents[1])


def stack_of_task(task: asyncio.Task[Any]) -> str:
    """Return the stack of a task that waits as text, without the frames of the SDK."""
    return _text(_frames_of_task(task))


def stack_of_thread(thread_id: int) -> str:
    """Return the stack of a thread as text, without the frames of the SDK."""
    frames: list[FrameType] = []
    frame = sys._current_frames().get(thread_id)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return _text(frames[::-1])


def _frames_of_task(task: asyncio.Task[Any]) -> list[FrameType]:
    """Return the frames of the coroutines that wait for each other. Task.get_stack() knows the first only."""
    frames: list[FrameType] = []
    waiting: Any = task.get_coro()
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is None:
            break
        frames.append(frame)
        # The coroutine of the handler is a variable of the runner's step.
        waiting = (
            getattr(waiting, "cr_await", None)
            or frame.f_locals.get("coroutine")
            or getattr(waiting, "gi_yieldfrom", None)
        )
    return frames


def _text(frames: list[FrameType]) -> str:
    is_ours = [frame.f_code.co_filename.startswith(_SDK) for frame in frames]
    # Before the first frame of the SDK is what started it: the thread, or the event loop.
    begin = is_ours.index(True) if True in is_ours else 0
    theirs = [
        traceback.FrameSummary(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        for frame, ours in zip(frames[begin:], is_ours[begin:], strict=True)
        if not ours
    ]
    return "".join(traceback.format_list(theirs[-tuning.STACK_FRAMES :])).rstrip()
