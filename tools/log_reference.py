"""Makes docs/reference/log-events.md from the log calls of the server and tools/log_event_notes.py."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tools.log_event_notes import NOTES, Note
from tools.markdown import code, generated_from, table

ROOT = Path(__file__).resolve().parent.parent
SERVER = ROOT / "src" / "pulse_server"
PAGE = ROOT / "docs" / "reference" / "log-events.md"

INTRODUCTION = """\
# Log events

Each event that `pulsed` logs. [Watch it](../operations/watch.md#logs) describes the format and the settings.
An `error` with a traceback in `exception` is a bug worth reporting.

"""
_LEVELS = {name: name for name in ("debug", "info", "warning", "error")} | {"exception": "error"}


class Call(NamedTuple):
    """One call of a logger. Fields that the code computes are not among its fields."""

    event: str
    level: str
    fields: tuple[str, ...]
    has_computed_fields: bool


def page() -> str:
    """Return the page as it should be. Raises LookupError if the notes differ from the events of the code."""
    calls = logged_events()
    notes = {event: note for group in NOTES.values() for event, note in group.items()}
    if unknown := calls.keys() ^ notes.keys():
        raise LookupError(f"tools/log_event_notes.py differs from the code in {', '.join(sorted(unknown))}")
    parts = [generated_from("src/pulse_server and tools/log_event_notes.py"), INTRODUCTION]
    for title, group in NOTES.items():
        rows = [_row(event, note, calls[event]) for event, note in group.items()]
        parts.append(f"## {title}\n\n{table(['event', 'level', 'fields', 'when'], rows)}\n")
    return "".join(parts).rstrip() + "\n"


def logged_events() -> dict[str, list[Call]]:
    """Return the calls of loggers in the server, by event."""
    found: dict[str, list[Call]] = {}
    for path in sorted(SERVER.rglob("*.py")):
        for call in _calls(ast.parse(path.read_text(encoding="utf-8"))):
            found.setdefault(call.event, []).append(call)
    return found


def _row(event: str, note: Note, calls: list[Call]) -> list[str]:
    if any(call.has_computed_fields for call in calls) != bool(note.computed):
        raise LookupError(f"tools/log_event_notes.py: computed fields of {event} differ from the code")
    levels = dict.fromkeys(call.level for call in calls)
    fields = dict.fromkeys([*(name for call in calls for name in call.fields), *note.computed])
    return [code(event), ", ".join(sorted(levels)), ", ".join(fields), note.when]


def _calls(tree: ast.AST) -> Iterator[Call]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=level), args=[event, *_]) if (
                level in _LEVELS
            ):
                extra = next((keyword.value for keyword in node.keywords if keyword.arg == "extra"), None)
                fields, has_others = _fields(extra)
                for part in ast.walk(event):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield Call(part.value, _LEVELS[level], fields, has_others)


def _fields(extra: ast.expr | None) -> tuple[tuple[str, ...], bool]:
    """Return the fields that are written out, and whether there are others."""
    if extra is None:
        return (), False
    keys = extra.keys if isinstance(extra, ast.Dict) else [None]
    names = tuple(key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
    return names, len(names) < len(keys)
