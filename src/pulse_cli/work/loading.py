"""Finds the application that `pulse worker module:app` names."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from pulse_cli.failures import Misuse

if TYPE_CHECKING:
    from pulse import Pulse, SyncPulse

_EXPECTED = "Write it as package.module:app, where app is the Pulse object"


def load_app(target: str) -> Pulse | SyncPulse:
    """Import the module and return its client. The current directory is searched first."""
    import pulse

    name, colon, path = target.partition(":")
    if not name or (colon and not path) or name.endswith(".py"):
        what = f"{target!r} is not an application. {_EXPECTED}"
        raise Misuse(f"{what}: {Path(name).stem}:app" if name.endswith(".py") else f"{what}.")
    module = _import(name)
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


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise Misuse(
                f"There is no module {name!r} here or on the path. Run this in the application's directory."
            ) from None
        raise Misuse(_sentence(name, error)) from None
    except Exception as error:
        raise Misuse(_sentence(name, error)) from None


def _sentence(name: str, error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if "importlib" not in frame.filename and frame.filename != __file__]
    where = f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""
    return f"{name!r} cannot be imported{where}: {type(error).__name__}: {error}"


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
