"""The files with the statements, as `statements` names them."""

from __future__ import annotations

from pathlib import Path

from pulse_server.database import statements as module
from pulse_server.database.statements import statements

_ROOT = Path(module.__file__).parents[1] / "postgres" / "sql"
_ALL = sorted(str(file.relative_to(_ROOT)) for file in _ROOT.rglob("*.sql"))
FRAGMENTS = [file for file in _ALL if file.startswith("fragments/")]
FUNCTIONS = [file for file in _ALL if file.startswith("functions/")]
FILES = [file for file in _ALL if file not in (*FRAGMENTS, *FUNCTIONS)]
TRANSITION_FILES = [file for file in FILES if file.startswith("transitions/")]
# Every change of a job's state.
TRANSITIONS = statements(*TRANSITION_FILES)


def read(file: str) -> str:
    return (_ROOT / file).read_text(encoding="utf-8")
