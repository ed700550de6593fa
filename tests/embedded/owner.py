"""A process that owns an embedded Postgres, for tests that kill it; standard library only.

Run with a JSON object as its argument. Prints one line of JSON once the server is ready, or the error that
stopped it, and ends, after an orderly stop, when its standard input closes.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pulse_server.embedded import EmbeddedError, EmbeddedPostgres
from pulse_server.embedded.cluster import read_postmaster

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Owner:
    """A running owner process."""

    process: "subprocess.Popen[str]"

    def answer(self) -> dict[str, Any]:
        """Wait for its line: `server` (pid), `dsn` and `uid`, or `error` and `kind`."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the owner printed nothing and exited with {self.process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """Let it stop its server and end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0


@contextmanager
def owner(
    directory: Path, *, python: str = sys.executable, uid: int | None = None, **options: Any
) -> Iterator[Owner]:
    """Start an owner of the directory; a process that is left at the end of the block is killed."""
    argument = json.dumps({"directory": str(directory), **options})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])}
    account: dict[str, Any] = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    process = subprocess.Popen(
        [python, "-B", __file__, argument],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd="/",
        **account,
    )
    with process:
        try:
            yield Owner(process)
        finally:
            process.kill()


def _main(directory: str, **options: Any) -> None:
    cluster = EmbeddedPostgres(Path(directory), **options)
    try:
        cluster.start()
    except EmbeddedError as error:
        print(json.dumps({"error": str(error), "kind": type(error).__name__}), flush=True)
        return
    server = read_postmaster(Path(directory) / "postgres")
    assert server is not None
    print(json.dumps({"server": server.pid, "dsn": cluster.dsn, "uid": os.geteuid()}), flush=True)
    sys.stdin.read()
    cluster.stop()


if __name__ == "__main__":
    _main(**json.loads(sys.argv[1]))
