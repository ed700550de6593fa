"""Finds the client of a program again, in a fresh interpreter: a global name of a module, or of a script."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import runpy
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from pulse.errors import InvalidArgument, InvalidHandler, PulseError
from pulse.supervision import lifeline
from pulse.supervision.ending import ended_if_frozen, ending_soon
from pulse.supervision.processes import Command

VARIABLE = "PULSE_PROCESS_APPLICATION"
# A child process runs the program's module under this name, so that the code behind
# `if __name__ == "__main__"` does not run.
_NAME_OF_MAIN = "__pulse_main__"
_MAIN = "__main__"

# The path comes first: pulse itself may be found on the path of the program alone.
_START = f"""
import json, os, sys
sys.path[:] = json.loads(os.environ["{VARIABLE}"])["path"]
from pulse.supervision.application import main
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
    held = lifeline.held()
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
    lifeline.hold()
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
