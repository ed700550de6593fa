"""Where a client lives, so that another process can import it: the name of a module, and a name in it."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from pulse.errors import InvalidHandler

_MAIN = "__main__"
# The name of a script in a process that imports it, so that `if __name__ == "__main__":` is false there.
_IMPORTED_MAIN = "__pulse_main__"

_is_importing = False


@dataclass(frozen=True, slots=True)
class Origin:
    """A global name of a module, or of a script."""

    module: str
    path: str
    attribute: str


def find_origin(client: object) -> Origin | None:
    """Return the global name that the client has. None if no other process could find it."""
    found: Origin | None = None
    main = sys.modules.get(_MAIN)
    for name, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType):
            continue
        for attribute, value in list(vars(module).items()):
            if value is client:
                # Not by its name: multiprocessing, once imported, has the script as `__mp_main__` too.
                is_main = module is main
                origin = _main_origin(module, attribute) if is_main else Origin(name, "", attribute)
                # A script may also have been imported by its name. Then that is better.
                if origin is not None and (found is None or not origin.path):
                    found = origin
    return found


def _main_origin(module: ModuleType, attribute: str) -> Origin | None:
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
    global _is_importing
    _is_importing = True
    try:
        module = _run_script(origin.path) if origin.path else importlib.import_module(origin.module)
        for name in imports:
            importlib.import_module(name)
        return getattr(module, origin.attribute)
    finally:
        _is_importing = False


def _run_script(path: str) -> ModuleType:
    """Import a script, as multiprocessing does: not as `__main__`, but found by that name too."""
    module = ModuleType(_IMPORTED_MAIN)
    sys.modules[_IMPORTED_MAIN] = sys.modules[_MAIN] = module
    module.__dict__.update(runpy.run_path(path, run_name=_IMPORTED_MAIN))
    return module


def check_not_importing() -> None:
    """Raise InvalidHandler in a module that runs a worker when a child process imports it."""
    if _is_importing:
        raise InvalidHandler(
            "A process that runs handlers with process=True imports this file, and the file calls run() when "
            'it is imported. Put that behind `if __name__ == "__main__":`.'
        )
