"""Runs the worker of an application: in this process, in several, or again for each change of a file.

It imports the application that `pulse worker module:app` names, and configures the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import logging
import multiprocessing
import os
import signal
import site
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING

import click

import pulse_cli
from pulse.error_text import BoundedFormatter, JsonFormatter
from pulse.handlers.registry import matching_topics
from pulse.supervision import supervised
from pulse.supervision.processes import Command, first_of, stop_signals
from pulse.supervision.supervised import ended_if_frozen, ending_soon
from pulse.supervision.supervisor import Supervisor, WorkerProcess
from pulse_cli import tuning
from pulse_cli.failures import Misuse
from pulse_text import printable
from pulse_text.times import format_exact

if TYPE_CHECKING:
    from pulse import Pulse, SyncPulse
    from pulse.client import RunOptions


# ---------------------------------------------------------------- options


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The application and the options of a worker process. None means the application's setting."""

    target: str
    topics: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    concurrency: int | None = None
    drain_timeout: timedelta | None = None
    max_jobs: int | None = None
    max_memory: int | None = None
    log_format: str = "text"

    def run_options(self) -> RunOptions:
        """Return the options for `run()`."""
        return {
            "topics": list(self.topics) or None,
            "concurrency": self.concurrency,
            "drain_timeout": self.drain_timeout,
            "max_jobs": self.max_jobs,
            "max_memory": self.max_memory,
        }

    def flags(self) -> Iterator[str]:
        """Yield the options as a command line has them, for a process that runs one worker with them."""
        if self.topics:
            yield from ("--topics", ",".join(self.topics))
        if self.include:
            yield from ("--include", ",".join(self.include))
        if self.concurrency is not None:
            yield from ("--concurrency", str(self.concurrency))
        if self.drain_timeout is not None:
            yield from ("--drain-timeout", format_exact(self.drain_timeout))
        if self.max_jobs is not None:
            yield from ("--max-jobs", str(self.max_jobs))
        if self.max_memory is not None:
            yield from ("--max-memory", f"{self.max_memory // 1024}K")
        if self.log_format != "text":
            yield from ("--log-format", self.log_format)


def names(groups: Iterable[str]) -> tuple[str, ...]:
    """Return the names of an option that takes several, separated by commas, and can be repeated."""
    return tuple(name.strip() for group in groups for name in group.split(",") if name.strip())


# ---------------------------------------------------------------- starting


def start(
    options: WorkerOptions,
    command: Command,
    load: Callable[[], Pulse | SyncPulse],
    *,
    processes: int | None,
    reload: bool,
) -> int:
    """Run handlers until SIGTERM or SIGINT. Returns the exit code.

    `command` starts a process that runs one worker with these options. `load` returns the client, in this
    process.
    """
    if reload:
        if processes is not None or options.max_jobs is not None or options.max_memory is not None:
            raise Misuse("--reload is for development: leave out --processes, --max-jobs and --max-memory.")
        return run_reloading(command, Path.cwd())
    if processes is not None:
        return run_supervised(command, processes, options.log_format)
    held = supervised.lifeline_here()
    run_app(load(), options, held.number if held is not None else 0)
    return 0


# ---------------------------------------------------------------- reloading
# Runs a worker in its own process, and restarts it when a source file changes.

_IGNORED = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "build", "dist"})

_Modified = Mapping[str, int]


def run_reloading(command: Command, directory: Path) -> int:
    """Run this command until SIGINT or SIGTERM. Returns the exit code of the last run."""
    return asyncio.run(_Reloader(command, directory).run())


def snapshot(directory: Path) -> _Modified:
    """Return the modification time of each source file below the directory."""
    found: dict[str, int] = {}
    for path in _sources(directory):
        try:
            found[str(path.relative_to(directory))] = path.stat().st_mtime_ns
        except OSError:
            continue  # deleted during the scan; the next scan sees that
    return found


def changed(before: _Modified, after: _Modified) -> set[str]:
    """Return the files that were added, removed or changed."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def _sources(directory: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _IGNORED]
        yield from (Path(here, name) for name in files if name.endswith(".py"))


class _Reloader:
    """Runs a worker process, and another when a file has changed."""

    def __init__(self, command: Command, directory: Path) -> None:
        self._command = command
        self._directory = directory
        self._process: WorkerProcess | None = None
        self._stop = asyncio.Event()

    async def run(self) -> int:
        with stop_signals(self._stop_or_hurry, replace_all=lambda: None):
            process = self._process = await WorkerProcess.start(self._command)
            seen = snapshot(self._directory)
            has_reported = False
            while not await self._stops_within(tuning.RELOAD_POLL_SECONDS):
                current = snapshot(self._directory)
                if current != seen:
                    click.echo(f"Reloading: {', '.join(sorted(changed(seen, current)))} changed.", err=True)
                    seen = current
                    await _end(process)
                    process = self._process = await WorkerProcess.start(self._command)
                    has_reported = False
                elif process.ended.is_set() and not has_reported:
                    has_reported = True
                    click.echo("The worker has exited. It starts again when a file changes.", err=True)
            process.stop()
            await process.ended.wait()
            # A worker that was still importing its application ends by SIGTERM.
            return 0 if process.exit_code == -signal.SIGTERM else process.exit_code

    def _stop_or_hurry(self) -> None:
        if self._stop.is_set() and self._process is not None:
            self._process.hurry()
        self._stop.set()

    async def _stops_within(self, seconds: float) -> bool:
        await first_of(self._stop.wait(), asyncio.sleep(seconds))
        return self._stop.is_set()


async def _end(process: WorkerProcess) -> None:
    """Stop the worker: let it drain, then make it release its jobs, then kill it."""
    for ask, seconds in (
        (partial(process.stop, tuning.RELOAD_GRACE_SECONDS), tuning.RELOAD_GRACE_SECONDS),
        (process.hurry, tuning.RELOAD_HURRY_SECONDS),
        (process.kill, tuning.RELOAD_HURRY_SECONDS),
    ):
        ask()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.ended.wait(), seconds)
            return


# ---------------------------------------------------------------- running


def run_app(app: Pulse | SyncPulse, options: WorkerOptions, number: int = 0) -> None:
    """Run handlers until SIGTERM or SIGINT; drain, then return. `number` is of one process of several."""
    import pulse

    known = app.handled_topics
    matches = {name: matching_topics(name, known) for name in options.topics or known}
    if unknown := [name for name, found in matches.items() if not found]:
        raise Misuse(
            f"The application has no handler for {', '.join(unknown)}; it has: {', '.join(known) or 'none'}."
        )
    served = dict.fromkeys(topic for found in matches.values() for topic in found)
    configure_logging(options.log_format, several=bool(number))
    if number < 2:  # once is enough
        _show_begin(
            f"Running {options.target} against {app.address}: {', '.join(served)}. Ctrl-C drains and stops.",
            options.log_format,
        )
    if isinstance(app, pulse.Pulse):
        asyncio.run(_run(app, options.run_options()))
    else:
        with ending_soon(), ended_if_frozen():
            app.run(**options.run_options())


def _show_begin(line: str, log_format: str) -> None:
    if log_format == "json":
        logging.getLogger(_WORKER).info(line)
        return
    with contextlib.suppress(OSError):  # its reader may be gone
        click.echo(line, err=True)


async def _run(app: Pulse, options: RunOptions) -> None:
    # Within: asyncio.run() waits for the threads of its executor.
    with ending_soon(), ended_if_frozen():
        async with app:
            await app.run(**options)


_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# One log for all processes: the name has the number of the process.
_FORMAT_OF_SEVERAL = "%(asctime)s %(processName)s %(levelname)s %(name)s: %(message)s"
# Sentences of the worker name their job themselves.
_WORKER = "pulse.worker"


def configure_logging(log_format: str = "text", *, several: bool = False) -> None:
    """Log to standard error. An application that logs has configured it when it was imported."""
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    text = JobFormatter(_FORMAT_OF_SEVERAL if several else _FORMAT)
    handler.setFormatter(JsonFormatter() if log_format == "json" else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class JobFormatter(BoundedFormatter):
    """Adds the job to a handler's records. Shortens errors and escapes control characters."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - a name of logging
        line = super().formatMessage(record)
        return line if record.name == _WORKER else line + getattr(record, "pulse_job", "")

    def format(self, record: logging.LogRecord) -> str:
        return printable.lines(super().format(record))


def run_supervised(command: Command, processes: int, log_format: str) -> int:
    """Run worker processes, each by this command, until SIGINT or SIGTERM. Returns the exit code.

    This process does not import the application: it stays small, and nothing of the application can end it.
    """
    multiprocessing.current_process().name = "supervisor"
    configure_logging(log_format, several=True)
    return asyncio.run(_supervise(replace(command, is_detached=True), processes))


async def _supervise(command: Command, processes: int) -> int:
    return await Supervisor(command, processes, reaps=os.getpid() == 1).run()


# ---------------------------------------------------------------- django setup
# Refuses an application of a Django project that is not set up: each job that uses a model would fail.

REMEDY = (
    "Run `python manage.py pulse_worker` (docs/how-to/django.md), or call django.setup() at the top of the "
    "module, before its other imports."
)
_ERRORS = ("AppRegistryNotReady", "ImproperlyConfigured")


def check_set_up(target: str) -> None:
    """Raise Misuse if the application is part of a Django project, and django.setup() was not called."""
    apps = sys.modules.get("django.apps")
    if apps is not None and apps.apps.ready:
        return
    project = os.environ.get("DJANGO_SETTINGS_MODULE")
    if project:
        raise Misuse(
            f"DJANGO_SETTINGS_MODULE is {project}, but importing {target} has not set Django up: each job "
            f"that uses a model would fail with AppRegistryNotReady. {REMEDY} If the application does "
            "without Django, unset the variable."
        )
    if "django.db" in sys.modules:
        raise Misuse(
            f"{target} imports django.db, but has not set Django up: each job that uses a model would fail. "
            f"{REMEDY}"
        )


def remedy_of(error: BaseException) -> str:
    """Return the next step for an error of a Django that is not set up, or an empty string."""
    is_django = type(error).__module__ == "django.core.exceptions" and type(error).__name__ in _ERRORS
    return f" {REMEDY}" if is_django else ""


# ---------------------------------------------------------------- loading

_WILDCARDS = frozenset("*?[")
# The end of a long chain of imports matters most.
_FRAMES_SHOWN = 8


_STARTS_A_WORKER = (
    "It starts a worker when it is imported, and `pulse worker` imports it to start one. Put the call of "
    'run() behind `if __name__ == "__main__":`.'
)


def import_module(name: str) -> ModuleType:
    """Import a module. The current directory is searched first. Raises Misuse if that fails."""
    from pulse.supervision.supervised import importing

    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        with importing(_STARTS_A_WORKER):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise Misuse(
                f"There is no module {name!r} here or on the path. Run this in the application's directory."
            ) from None
        raise _failure(name, error) from None
    except (Exception, SystemExit) as error:
        raise _failure(name, error) from None


def import_included(patterns: Iterable[str]) -> list[str]:
    """Import the modules of `--include`, and return their names. Raises Misuse for a missing one."""
    imported: list[str] = []
    for pattern in patterns:
        if pattern.startswith("**"):  # this would import every module found
            raise Misuse(
                f"--include {pattern} begins with **: name the package first, such as shop.**.tasks."
            )
        names = sorted(set(_matching(pattern.split(".")))) if _WILDCARDS & set(pattern) else [pattern]
        if not names:
            raise Misuse(
                f"--include {pattern} matches no module. A * stands for one part of a name, ** for any "
                "number: shop.* for shop.tasks, shop.**.tasks for shop.tasks and shop.mail.tasks."
            )
        for name in names:
            import_module(name)
            imported.append(name)
    return imported


def not_imported_beside(name: str) -> list[str]:
    """Return the modules of the same package that are not imported.

    A package in it with such modules becomes `package.*`.
    """
    package = name if hasattr(sys.modules.get(name), "__path__") else name.rpartition(".")[0]
    if not package:
        return []
    found = []
    for child in (f"{package}.{child}" for child in _children(package)):
        if any(f"{child}.{below}" not in sys.modules for below in _below(child)):
            found.append(f"{child}.*")
        elif child not in sys.modules:
            found.append(child)
    return sorted(found)


def _below(name: str) -> list[str]:
    """Return the names directly below a package, without importing it."""
    spec = _spec_of(name)
    return [child.name for child in iter_modules((spec and spec.submodule_search_locations) or [])]


def _matching(parts: list[str], parent: str = "") -> Iterator[str]:
    """Yield the modules that fit the parts of a pattern. Imports the packages on the way to them."""
    part, *rest = parts
    if part == "**":
        yield from _matching(rest or ["*"], parent)
        for name in sorted(_children(parent)):
            spec = _spec_of(f"{parent}.{name}")
            if spec is not None and spec.submodule_search_locations is not None:
                import_module(f"{parent}.{name}")
                yield from _matching(parts, f"{parent}.{name}")
        return
    names = _children(parent) if _WILDCARDS & set(part) else [part]
    for name in names:
        if not fnmatchcase(name, part):
            continue
        whole = f"{parent}.{name}" if parent else name
        spec = _spec_of(whole)
        if spec is None:
            continue
        if not rest:
            yield whole
        elif spec.submodule_search_locations is not None:
            import_module(whole)
            yield from _matching(rest, whole)


def _spec_of(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None


def _children(package: str) -> set[str]:
    """Return the names directly below a package. Directories without an __init__.py count as packages."""
    module = import_module(package) if package else None
    places = list(module.__path__) if module is not None and hasattr(module, "__path__") else []
    if not package:
        places = [str(Path.cwd())]
    found = {child.name for child in iter_modules(places)}
    for place in places:
        found |= {path.name for path in Path(place).iterdir() if path.is_dir() and path.name.isidentifier()}
    return found - {"__pycache__", "__main__"}


def _failure(name: str, error: BaseException) -> Misuse:
    frames = _own_frames(error)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    # The text of a SyntaxError ends with its file and line, which are in `where`.
    text = error.msg if isinstance(error, SyntaxError) and _syntax_frame(error) else error
    reason = f"{type(error).__name__}: {text}{remedy_of(error)}"
    if isinstance(error, SystemExit):
        reason = "it calls sys.exit() when it is imported"
    lines = [f"{frame.filename}, line {frame.lineno}: {frame.line}" for frame in frames[-_FRAMES_SHOWN:]]
    return Misuse(f"{name!r} cannot be imported{where}: {reason}", lines if len(lines) > 1 else ())


def _own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames of the application, without the import system, libraries and pulse."""
    import pulse

    ours = tuple(f"{Path(file).parent}{os.sep}" for file in (pulse.__file__, pulse_cli.__file__))
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<frozen ", *ours))
    ]
    if isinstance(error, SyntaxError):
        frames += _syntax_frame(error)
    libraries = tuple({*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_path("stdlib")})
    return [frame for frame in frames if not frame.filename.startswith(libraries)] or frames[-1:]


def _syntax_frame(error: SyntaxError) -> list[traceback.FrameSummary]:
    """Return where a file cannot be parsed: no frame of the traceback is there. Empty for other sources."""
    if not error.filename or error.lineno is None or not Path(error.filename).is_file():
        return []
    return [traceback.FrameSummary(error.filename, error.lineno, "<module>")]


_EXPECTED = "Write it as package.module:app, where app is the Pulse object"


# Enough to find the intended module.
_MODULES_NAMED = 5


def load_app(target: str, include: Sequence[str] = ()) -> Pulse | SyncPulse:
    """Import the module and the included modules, and return the client.

    Raises Misuse if the client has no handlers.
    """
    app = _find_app(target)
    included = import_included(include)
    check_set_up(target)
    if not app.handled_topics:
        raise Misuse(_nothing_to_run(target, included))
    return app


def _nothing_to_run(target: str, included: Sequence[str]) -> str:
    name = target.partition(":")[0]
    others = not_imported_beside(name)
    if router := _with_router(included):
        found = f"{router} has a router, and no client includes it: call include(router) of the Pulse object"
    elif included:
        found = f"Importing {', '.join(included)} registered none"
    elif others:
        more = ", …" if others[_MODULES_NAMED:] else ""
        found = f"Not imported: {', '.join(others[:_MODULES_NAMED])}{more}"
    else:
        found = "No other module was imported"
    is_in_package = "." in name or hasattr(sys.modules.get(name), "__path__")
    example = others[0] if others else f"{name.partition('.')[0]}.tasks" if is_in_package else "MODULE"
    example = f"'{example}'" if "*" in example else example  # a shell would expand it
    return (
        f"There is nothing to run: {target} has no handlers. A handler exists once its module was imported. "
        f"{found}. Name the modules with handlers, such as --include {example}, or import them in {name}."
    )


def _with_router(modules: Sequence[str]) -> str | None:
    """Return the first module that has a router."""
    import pulse

    for name in modules:
        if any(
            isinstance(value, pulse.Router | pulse.SyncRouter) for value in vars(sys.modules[name]).values()
        ):
            return name
    return None


def _find_app(target: str) -> Pulse | SyncPulse:
    import pulse

    name, colon, path = target.partition(":")
    is_file = name.endswith(".py") or "/" in name
    if not name or (colon and not path) or is_file or name.startswith("."):
        what = f"{target!r} is not an application. {_EXPECTED}"
        raise Misuse(f"{what}: {_module_of(name)}:{path or 'app'}" if is_file else f"{what}.")
    module = import_module(name)
    if not colon:
        return _only_app(module)
    found: object = module
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise Misuse(f"{name!r} has no {path!r}. {_expected_in(module)}") from None
        except Exception as error:  # an attribute that is made on first use, such as pulse.django:app
            raise _failure(target, error) from None
    if not isinstance(found, pulse.Pulse | pulse.SyncPulse):
        raise Misuse(f"{target!r} is a {type(found).__name__}, not a Pulse object. {_expected_in(module)}")
    return found


def _module_of(file: str) -> str:
    """Return the name of the module in a file, as it is imported from here."""
    path = Path(os.path.relpath(file.removesuffix(".py")))
    return path.name if ".." in path.parts else ".".join(path.parts)


def _only_app(module: ModuleType) -> Pulse | SyncPulse:
    found = _apps_in(module)
    apps = list({id(app): app for app in found.values()}.values())
    if len(apps) == 1:
        return apps[0]
    named = f"several Pulse objects ({', '.join(found)})" if apps else "no Pulse object"
    raise Misuse(f"{module.__name__!r} has {named}. {_EXPECTED}.")


def _apps_in(module: ModuleType) -> dict[str, Pulse | SyncPulse]:
    import pulse

    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, pulse.Pulse | pulse.SyncPulse)
    }


def _expected_in(module: ModuleType) -> str:
    """Return how a target is written, with the one of this module if it has exactly one."""
    names = list(_apps_in(module))
    return f"{_EXPECTED}: {module.__name__}:{names[0]}" if len(names) == 1 else f"{_EXPECTED}."
