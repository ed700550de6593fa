"""The files with the statements, as `statements` names them: from pulse_server on."""

from __future__ import annotations

from pathlib import Path

from pulse_server.database import statements as module
from pulse_server.database.statements import statements

_ROOT = Path(module.__file__).parents[1]
_ALL = sorted(
    name
    for file in _ROOT.rglob("*.sql")
    if not (name := str(file.relative_to(_ROOT))).startswith("database/migrations/")
)
FRAGMENTS = [file for file in _ALL if "/fragments" in file]
FUNCTIONS = [file for file in _ALL if "/functions/" in file]
FILES = [file for file in _ALL if file not in (*FRAGMENTS, *FUNCTIONS)]
TRANSITION_FILES = [file for file in FILES if "transitions" in file]
# Every change of a job's state.
TRANSITIONS = statements(*TRANSITION_FILES)


def function(name: str) -> str:
    """The text of a function."""
    (file,) = (file for file in FUNCTIONS if file.endswith(f"/{name}.sql"))
    return read(file)


def read(file: str) -> str:
    return (_ROOT / file).read_text(encoding="utf-8")
