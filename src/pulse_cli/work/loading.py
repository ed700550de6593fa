"""Finds the application that `pulse worker module:app` names."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from pulse_cli.failures import Misuse
from pulse_cli.work.importing import import_included, import_module, not_imported_beside

if TYPE_CHECKING:
    from pulse import Pulse, SyncPulse

_EXPECTED = "Write it as package.module:app, where app is the Pulse object"


# Enough to see the one that was meant.
_MODULES_NAMED = 5


def load_app(target: str, include: Sequence[str] = ()) -> Pulse | SyncPulse:
    """Import the module and those to include, and return the client. It has handlers, or this is Misuse."""
    app = _find_app(target)
    included = import_included(include)
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
    example = others[0] if others else f"{name.partition('.')[0]}.tasks"
    example = f"'{example}'" if "*" in example else example  # a shell would expand it
    return (
        f"There is nothing to run: {target} has no handlers. A handler exists once its module was imported. "
        f"{found}. Name the modules with handlers, such as --include {example}, or import them in {name}."
    )


def _with_router(modules: Sequence[str]) -> str | None:
    """Return the first of these modules that has a router."""
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
    if not name or (colon and not path) or name.endswith(".py"):
        what = f"{target!r} is not an application. {_EXPECTED}"
        raise Misuse(f"{what}: {_module_of(name)}:{path or 'app'}" if name.endswith(".py") else f"{what}.")
    module = import_module(name)
    if not colon:
        return _only_app(module)
    found: object = module
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise Misuse(f"{name!r} has no {path!r}. {_EXPECTED}.") from None
    if not isinstance(found, pulse.Pulse | pulse.SyncPulse):
        raise Misuse(f"{target!r} is a {type(found).__name__}, not a Pulse object. {_EXPECTED}.")
    return found


def _module_of(file: str) -> str:
    """Return the name of the module in a file, as it is imported from here."""
    path = Path(os.path.relpath(file)).with_suffix("")
    return path.name if ".." in path.parts else ".".join(path.parts)


def _only_app(module: ModuleType) -> Pulse | SyncPulse:
    import pulse

    found = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, pulse.Pulse | pulse.SyncPulse)
    }
    apps = list({id(app): app for app in found.values()}.values())
    if len(apps) == 1:
        return apps[0]
    named = f"several Pulse objects ({', '.join(found)})" if apps else "no Pulse object"
    raise Misuse(f"{module.__name__!r} has {named}. {_EXPECTED}.")
