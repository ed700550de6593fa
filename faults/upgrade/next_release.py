"""A release after this one: these sources with one migration more, a function replaced and one added."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pulse_server.database.schema import known_migrations

_ROOT = Path(__file__).resolve().parents[2]
_NUMBER = known_migrations()[-1].version + 1
NAME = f"{_NUMBER:04}_next_release"
_MIGRATION = """
ALTER TABLE pulse.jobs ADD COLUMN of_next_release integer;
CREATE INDEX jobs_of_next_release ON pulse.jobs (topic, of_next_release) WHERE of_next_release IS NOT NULL;
ALTER TABLE pulse.completed_jobs ADD COLUMN of_next_release integer;
ALTER TABLE pulse.schedules ADD COLUMN of_next_release integer;
"""


class NextRelease:
    """Its sources, in a directory of their own. The packages that they need are those of this checkout."""

    def __init__(self, directory: Path) -> None:
        source = directory / "next" / "src"
        shutil.copytree(_ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        database = source / "pulse_server" / "database"
        (database / "migrations" / f"{NAME}.sql").write_text(_MIGRATION, encoding="utf-8")
        functions = source / "pulse_server" / "jobs" / "functions"
        replaced = functions / "completed_among_v1.sql"
        text = replaced.read_text(encoding="utf-8")
        replaced.write_text(f"-- With other content.\n{text}", encoding="utf-8")
        added = functions / "completed_among_v2.sql"
        added.write_text(text.replace("completed_among_v1", "completed_among_v2"), encoding="utf-8")
        self.variables = {"PYTHONPATH": os.pathsep.join([str(source), str(_ROOT)])}
        """The environment of a process that imports this release."""
