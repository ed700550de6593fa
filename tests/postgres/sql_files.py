"""The files with the statements, as `statements` names them."""

from __future__ import annotations

from pathlib import Path

from pulse_server.postgres import statements as module
from pulse_server.postgres.statements import statements

_ROOT = Path(module.__file__).parent / "sql"
FRAGMENTS = "fragments.sql"
FILES = sorted(str(file.relative_to(_ROOT)) for file in _ROOT.rglob("*.sql") if file != _ROOT / FRAGMENTS)
TRANSITION_FILES = [file for file in FILES if file.startswith("transitions/")]
# Every change of a job's state.
TRANSITIONS = statements(*TRANSITION_FILES)
