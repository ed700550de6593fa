"""The testing kit: a test looks at the jobs that were enqueued, runs them, and moves their clock."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any, Literal, Protocol, Self, TypeAlias, runtime_checkable

from pulse.ids import uuid7
from pulse.jobs.models import JobInfo, JobStatus
from pulse.jobs.verbs import encode_signal
from pulse.payload import decode_json, encode, result_decoder_for
from pulse.testing import application
from pulse.testing.application import Handlers
from pulse.testing.server import KitServer, view
from pulse.testing.working import Ran, Working
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.redirection import redirected
from pulse_server.jobs.rules import Job

# ---------------------------------------------------------------- matching
# Finds jobs by topic and arguments, and lists them in the text of an error.

_MOST_LISTED = 20


class HasTopic(Protocol):
    """A job of the application: the object that `@p.job` returns."""

    @property
    def topic(self) -> str: ...


@runtime_checkable
class TaskOfDjango(Protocol):
    """A task of `django.tasks`, or of its backport."""

    @property
    def module_path(self) -> str: ...

    @property
    def func(self) -> Callable[..., Any]: ...

    @property
    def takes_context(self) -> bool: ...


AnyJob: TypeAlias = str | HasTopic | TaskOfDjango


class HasId(Protocol):
    """A JobInfo, or the handle that an enqueue returns."""

    @property
    def id(self) -> str: ...


def matching(rows: Iterable[Job], job: AnyJob | None, args: Mapping[str, Any]) -> list[Job]:
    """Return the jobs of the topic that have these arguments, as JSON has them."""
    wanted = {name: decode_json(encode(value)) for name, value in args.items()}
    return [row for row in rows if _is_of(row, job) and (not wanted or _has(_args(row, job), wanted))]


def _is_of(row: Job, job: AnyJob | None) -> bool:
    if isinstance(job, TaskOfDjango):
        return row.topic.rpartition(":")[2] == job.module_path  # in any queue
    return job is None or row.topic == _topic(job)


def _args(row: Job, job: AnyJob | None) -> Any:
    args = view(row).args
    if not isinstance(job, TaskOfDjango) or not isinstance(args, dict):
        return args
    names = list(inspect.signature(job.func).parameters)[job.takes_context :]
    return {**dict(zip(names, args.get("args", ()), strict=False)), **args.get("kwargs", {})}


def _has(args: Any, wanted: Mapping[str, Any]) -> bool:
    return isinstance(args, dict) and all(name in args and args[name] == wanted[name] for name in wanted)


def id_of(job: str | HasId) -> str:
    """Return the id of a job. Raises AssertionError for anything else."""
    found = job if isinstance(job, str) else getattr(job, "id", None)
    if not isinstance(found, str):
        raise AssertionError(
            "This takes one job that was enqueued: its handle, its JobInfo or its id, not "
            f"{_described(job)}. pulse_kit.one(job) finds it."
        )
    return found


def _topic(job: AnyJob) -> str:
    if isinstance(job, TaskOfDjango):
        return job.module_path
    topic = job if isinstance(job, str) else getattr(job, "topic", None)
    if not isinstance(topic, str):
        raise AssertionError(
            f"This takes a job of the application, not {_described(job)}: the object that @p.job or "
            "p.register returned, its topic, or a task of Django."
        )
    return topic


def _described(given: object) -> str:
    """Return what a test has given, in the text of an error."""
    if inspect.isfunction(given):
        return f"the function {given.__qualname__}"
    return f"{given!r:.80}"


def asked(job: AnyJob | None, args: Mapping[str, Any]) -> str:
    """Return what a test looked for, in the text of an error."""
    given = ", ".join(f"{name}={value!r}" for name, value in args.items())
    return f"{'any topic' if job is None else _topic(job)}({given})"


def listed(rows: list[Job]) -> str:
    """Return the jobs, one in each line, for the text of an error."""
    if not rows:
        return " nothing."
    lines = [f"\n  {row.topic} {view(row).args!r:.200} {row.status.value}" for row in rows[:_MOST_LISTED]]
    more = len(rows) - len(lines)
    return "".join(lines) + (f"\n  and {more} more" if more else "")


# ---------------------------------------------------------------- kit

Errors: TypeAlias = Literal["raise", "keep"]


class Kit:
    """A queue for one test. While it is open, every client of the process uses it.

    Use the fixture `pulse_kit`, or `with pulse.testing.Kit() as kit:`. Jobs run when the test calls `run` or
    `drain`, and by a clock that stands still until `advance`. In an async test use `arun`, `adrain` and
    `aadvance`. A process has one open kit at a time.
    """

    def __init__(self, *clients: Any) -> None:
        """With `clients`, only the handlers and schedules of these count. See `use`."""
        self._handlers = Handlers(clients)
        self._open: Working | None = None
        self._ending = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            server = KitServer()
            stack.callback(server.close)
            working = Working(server, self._handlers)
            stack.enter_context(redirected(working.destination))
            self._open = working
            self._ending = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open = None
        self._ending.close()

    @property
    def _working(self) -> Working:
        if self._open is None:
            raise AssertionError(
                "This kit is not open. Use the fixture pulse_kit, or `with Kit() as kit:`, and look at its "
                "jobs inside of the block."
            )
        return self._open

    @property
    def _server(self) -> KitServer:
        return self._working.server

    def use(self, *clients: Any) -> None:
        """Take handlers and schedules from these clients alone. By default all clients count."""
        self._handlers.use(clients)

    # ------------------------------------------------------------ jobs

    @property
    def now(self) -> datetime:
        """The time of the queue. Code of the application that asks for the time has the real one."""
        return self._server.now()

    @property
    def jobs(self) -> list[JobInfo]:
        """All jobs, in the order in which they were enqueued."""
        return [view(row) for row in self._server.rows()]

    def job(self, job: str | HasId) -> JobInfo:
        """Return the job as it is now."""
        return view(self._row(job))

    def due_in(self, job: str | HasId) -> timedelta:
        """Return how long the job still waits. Zero: it may start."""
        left = self._row(job).next_run_at - self.now
        return max(timedelta(0), timedelta(milliseconds=round(left / timedelta(milliseconds=1))))

    def all(self, job: AnyJob | None = None, /, **args: Any) -> list[JobInfo]:
        """Return the jobs of this topic with these arguments. Other arguments may have any value."""
        return [view(row) for row in self._matching(job, args)]

    def one(self, job: AnyJob, /, **args: Any) -> JobInfo:
        """Return the job with these arguments. Raises AssertionError unless there is exactly one.

        `job` is what `@p.job` returned, its topic, or a task of Django. Only arguments that the enqueue was
        given can be found: defaults of the handler are not stored.
        """
        found = self._matching(job, args)
        if len(found) == 1:
            return view(found[0])
        raise AssertionError(
            f"{len(found)} jobs match {asked(job, args)}, not one. Enqueued:{listed(self._server.rows())}"
            f"{_hint_of_commit()}"
        )

    def none(self, job: AnyJob | None = None, /, **args: Any) -> None:
        """Raise AssertionError if a job of this topic with these arguments was enqueued."""
        if found := self._matching(job, args):
            raise AssertionError(f"{len(found)} jobs match {asked(job, args)}, not none:{listed(found)}")

    def result(self, job: str | HasId) -> Any:
        """Return the result of a completed job, as its handle returns it."""
        info = self.job(job)
        if info.status is not JobStatus.COMPLETED:
            error = f" Its error: {info.last_error}" if info.last_error else ""
            raise AssertionError(f"Job {info.id} ({info.topic}) is {info.status} and has no result.{error}")
        if info.result_bytes is None:
            return None
        returns = self._handlers.find(info.topic).handler.returns
        return result_decoder_for(returns)(info.result_bytes)

    def signal(self, job: str | HasId, name: str, value: object = None) -> None:
        """Send a signal to a job, like `p.signal`."""
        request = pb.SignalJobRequest(
            job_id=id_of(job), name=name, value=encode_signal(value), signal_id=uuid7()
        )
        self._server.ask("SignalJob", request)

    # ------------------------------------------------------------ running

    def run(self, job: str | HasId, *, attempt: int | None = None) -> Ran:
        """Run one attempt of the job now, whether or not it is due. Does not raise the handler's error.

        `attempt` is the number that the attempt has.
        """
        return application.run("run", lambda: self.arun(job, attempt=attempt))

    async def arun(self, job: str | HasId, *, attempt: int | None = None) -> Ran:
        """Do the same as `run`, in an async test."""
        return await self._working.run_one(self._row(job), attempt)

    def drain(self, *, errors: Errors = "raise") -> dict[str, int]:
        """Run every job that is due, and the jobs that those enqueue. Returns how many attempts ended how.

        An error of a handler is raised once its attempt is stored; with "keep" the next job runs. Retry,
        Snooze and Discard are not raised.
        """
        return application.run("drain", lambda: self.adrain(errors=errors))

    async def adrain(self, *, errors: Errors = "raise") -> dict[str, int]:
        """Do the same as `drain`, in an async test."""
        return await self._working.drain(_raises(errors))

    def advance(
        self,
        duration: timedelta = timedelta(0),
        /,
        *,
        schedules: bool = False,
        drain: bool = False,
        errors: Errors = "raise",
        **units: float,
    ) -> dict[str, int]:
        """Move the clock: `advance(days=3)`. Sleeps, retries, delays, unique periods and rates follow it.

        With `schedules` the schedules of the application fire on the way. With `drain` jobs run on the way,
        each when it is due. `errors` is that of `drain`: "keep" goes on through failures and their retries.
        Returns how many attempts ended how, as `drain` does.
        """
        span = _span(duration, units)
        if drain:
            return application.run("advance", lambda: self._working.advance(span, schedules, _raises(errors)))
        self._working.skip(span, schedules)
        return {}

    async def aadvance(
        self,
        duration: timedelta = timedelta(0),
        /,
        *,
        schedules: bool = False,
        drain: bool = False,
        errors: Errors = "raise",
        **units: float,
    ) -> dict[str, int]:
        """Do the same as `advance`, in an async test."""
        span = _span(duration, units)
        if drain:
            return await self._working.advance(span, schedules, _raises(errors))
        self._working.skip(span, schedules)
        return {}

    @contextlib.contextmanager
    def on_commit(self) -> Iterator[list[Any]]:
        """Django: run the `on_commit` callbacks of the test's transaction at the end of the block.

        The transaction is that of the database `PULSE["DATABASE"]`.
        """
        django: Any = import_module("django.test")
        with django.TestCase.captureOnCommitCallbacks(using=_database(), execute=True) as callbacks:
            yield callbacks

    # ------------------------------------------------------------ rows

    def _row(self, job: str | HasId) -> Job:
        row = self._server.row(id_of(job))
        if row is None:
            raise AssertionError(f"There is no job {id_of(job)}. Enqueued:{listed(self._server.rows())}")
        return row

    def _matching(self, job: AnyJob | None, args: Mapping[str, Any]) -> list[Job]:
        return matching(self._server.rows(), job, args)


def _span(duration: timedelta, units: Mapping[str, float]) -> timedelta:
    try:
        return duration + timedelta(**units)
    except (TypeError, ValueError, OverflowError):
        given = ", ".join(f"{name}={value!r}" for name, value in units.items()) or repr(duration)
        raise AssertionError(
            f"advance takes a timedelta, or units of one as in advance(days=3), not {given}."
        ) from None


def _database() -> str:
    """Return the alias of the database whose commits enqueue jobs, in a Django project."""
    if import_module("django.apps").apps.is_installed("pulse.django"):
        return str(import_module("pulse.django.clients").configured().database)
    return "default"


def _hint_of_commit() -> str:
    """Return a sentence if callbacks of Django wait for the commit, which a test does not reach."""
    if not application.uses_django() or not import_module("django.apps").apps.ready:
        return ""
    waiting = len(import_module("django.db").connections[_database()].run_on_commit)
    if not waiting:
        return ""
    return (
        f"\n{waiting} on_commit callback{'s' * (waiting > 1)} of Django did not run, as the transaction of "
        "this test is not committed: put the code into `with pulse_kit.on_commit():`."
    )


def _raises(errors: Errors) -> bool:
    if errors not in ("raise", "keep"):
        raise AssertionError(f'errors has to be "raise" or "keep", not {errors!r}.')
    return errors == "raise"
