"""The file with the saved connections: named contexts, one of them current. Readable by its owner only.

{"current": "production",
 "contexts": {"production": {"address": "pulse.example:50051", "user": "ops", "password": "…", "tls": true}}}
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pulse_cli.failures import Misuse

DEFAULT_CONTEXT = "default"
TEXTS = ("address", "user", "password", "tls_ca", "tls_cert", "tls_key", "tls_server_name")
SWITCHES = ("tls",)

Context = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The content of the file; empty if there is none."""

    path: Path
    current: str | None = None
    contexts: Mapping[str, Context] = field(default_factory=dict)
    warning: str | None = None
    """A warning about the file itself, such as its mode."""

    def with_context(self, name: str, context: Context) -> ConfigFile:
        """Return the file with this context added or replaced. The first one becomes current."""
        contexts = {
            **self.contexts,
            name: {key: value for key, value in context.items() if value is not None},
        }
        return ConfigFile(self.path, self.current or name, contexts)

    def without_context(self, name: str) -> ConfigFile:
        """Return the file without this context. If it was current, none is."""
        contexts = {known: context for known, context in self.contexts.items() if known != name}
        return ConfigFile(self.path, None if self.current == name else self.current, contexts)

    def with_current(self, name: str) -> ConfigFile:
        """Return the file with another context current."""
        return ConfigFile(self.path, name, self.contexts)

    def unknown(self, name: str) -> Misuse:
        """Return the error for a context that does not exist."""
        known = ", ".join(self.contexts) or "none"
        return Misuse(
            f"There is no context {name!r} in {self.path}. Known contexts: {known}. "
            f"Create it with `pulse save creds --context {name}`."
        )


def config_path(environment: Mapping[str, str]) -> Path:
    """Return the path of the file, which may not exist."""
    base = environment.get("XDG_CONFIG_HOME", "")
    # The XDG specification ignores a relative path.
    if base and Path(base).is_absolute():
        return Path(base) / "pulse" / "config.json"
    try:
        return Path(environment.get("HOME") or Path.home()) / ".config" / "pulse" / "config.json"
    except RuntimeError:
        raise Misuse("Your home directory is unknown: set HOME or XDG_CONFIG_HOME.") from None


def read_config(path: Path) -> ConfigFile:
    """Read the file. Raises Misuse if it exists and cannot be used."""
    try:
        text = path.read_text(encoding="utf-8")
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return ConfigFile(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Misuse(f"{path} cannot be read: {reason}.") from None
    try:
        document = json.loads(text)
    except ValueError as error:
        raise Misuse(
            f"{path} is not JSON ({error}). Correct it, or remove it and run `pulse save creds`."
        ) from None
    current, contexts = _checked(document, path)
    warning = None
    if mode & 0o077:
        warning = f"{path} can be read by others (mode {mode:04o}). Run: chmod 600 {path}"
    return ConfigFile(path, current, contexts, warning)


def write_config(config: ConfigFile) -> None:
    """Replace the file atomically, readable by its owner only."""
    # Follow a link: the configuration may be kept in a repository.
    path = Path(os.path.realpath(config.path))
    document = {"current": config.current, "contexts": {name: dict(c) for name, c in config.contexts.items()}}
    fresh = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        config.path.parent.chmod(0o700)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o600)  # regardless of the umask
            json.dump(document, file, indent=2, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(descriptor)
        fresh.replace(path)
    except OSError as error:
        raise Misuse(f"{config.path} cannot be written: {error.strerror}.") from None
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink()


def _checked(document: Any, path: Path) -> tuple[str | None, dict[str, Context]]:
    def refuse(problem: str) -> Misuse:
        return Misuse(f"{path}: {problem}. Correct it, or remove the file and run `pulse save creds`.")

    if not isinstance(document, dict):
        raise refuse("it is not a JSON object")
    contexts = document.get("contexts", {})
    if not isinstance(contexts, dict) or not all(isinstance(context, dict) for context in contexts.values()):
        raise refuse('"contexts" is not an object of objects')
    for name, context in contexts.items():
        for key, value in context.items():
            if (key in TEXTS and not isinstance(value, str)) or (
                key in SWITCHES and not isinstance(value, bool)
            ):
                kind = "text" if key in TEXTS else "true or false"
                raise refuse(f'"{key}" of the context "{name}" must be {kind}')
    current = document.get("current")
    if current is not None and not isinstance(current, str):
        raise refuse('"current" is not the name of a context')
    return current, contexts
