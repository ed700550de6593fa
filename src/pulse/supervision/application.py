"""Finds again, in a fresh interpreter, the client that a program calls `run_processes` on."""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pulse.errors import InvalidArgument
from pulse.supervision import lifeline

VARIABLE = "PULSE_PROCESS_APPLICATION"
# The program's own module, run again, has this name: what is behind `if __name__ == "__main__"` does not run.
_NAME_OF_MAIN = "__pulse_worker__"


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

    def environment(self) -> dict[str, str]:
        """Return the variables that carry this to a process."""
        return {VARIABLE: json.dumps(asdict(self))}


def find_application(client: object, options: dict[str, Any]) -> Application:
    """Find the module and the name of a client. Raises InvalidArgument if it has none."""
    held = lifeline.held()
    if held is not None and not held.has_run:
        raise InvalidArgument(
            "run_processes() was called while a worker process imports the program. "
            'Put the call behind `if __name__ == "__main__":`.'
        )
    module, name = next(_places(client), (None, None))
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    if module is None or name is None or (module == "__main__" and not (spec or file)):
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
    if application.module == "__main__":
        return main[application.name], application.options
    return getattr(importlib.import_module(application.module), application.name), application.options


def _places(client: object) -> Iterator[tuple[str, str]]:
    """Yield the modules and names of a client, that of the program itself last."""
    # Not by its name: multiprocessing, once imported, has the program as `__mp_main__` too.
    main = sys.modules["__main__"]
    for module_name, module in sorted(sys.modules.items(), key=lambda item: item[1] is main):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is client:
                yield "__main__" if module is main else module_name, name


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
    # Where pickle and typing look for the names of a program's own functions and classes.
    main = ModuleType(_NAME_OF_MAIN)
    main.__dict__.update(namespace)
    sys.modules["__main__"] = sys.modules[_NAME_OF_MAIN] = main
    return namespace
