"""The Django project of the tests: its commands, its worker, its web servers, and its database."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.sdk.libraries import facts_of

SHOP = Path(__file__).parent / "django_shop"
PATIENCE_SECONDS = 60


@dataclass
class Project:
    """A Django project, with an address of pulsed and a database."""

    directory: Path
    """Where its SQLite is, and its logs."""
    address: str
    dsn: str | None = None
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PULSE_", "DB_", "PG", "DJANGO_"))
        }
        database: dict[str, str] = {}
        if self.dsn is not None:
            facts = facts_of(self.dsn)
            database = {
                "PGHOST": facts["host"],
                "PGPORT": facts["port"],
                "PGUSER": facts["user"],
                "PGPASSWORD": facts["password"],
                "PGDATABASE": facts["dbname"],
            }
        return {
            **kept,
            "PULSE_ADDR": self.address,
            "SHOP_DIRECTORY": str(self.directory),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            **database,
            **self.variables,
        }

    def manage(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run manage.py to its end."""
        return subprocess.run(
            [sys.executable, SHOP / "manage.py", *arguments],
            cwd=self.directory,
            env={**self.environment, **variables},
            text=True,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def shell(self, program: str) -> Any:
        """Run a program in the project, and return the JSON that it prints last."""
        ended = self.manage("shell", "--verbosity", "0", "--command", program)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout.splitlines()[-1])

    def create_tables(self) -> None:
        ended = self.manage("migrate", "--run-syncdb")
        assert ended.returncode == 0, ended.stderr

    def new_order(self) -> int:
        return int(self.shell("from orders.models import Order; print(Order.objects.create(total=90).pk)"))

    @contextlib.contextmanager
    def running(self, *command: str | Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
        """Run a program of the project for the length of a block. It has to end by SIGTERM."""
        with (self.directory / "log").open("a+") as log:
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                **options,
            )
            try:
                yield process
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(PATIENCE_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def worker(self, *flags: str) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
        """Run `manage.py pulse_worker` for the length of a block, from another directory."""
        return self.running(SHOP / "manage.py", "pulse_worker", *flags)

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def await_log(self, text: str) -> None:
        """Wait until a program has printed this."""
        until(lambda: text in self.log, lambda: f"{text!r} is not in\n{self.log}")


def until(is_so: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.05)
