"""A Postgres that a test may stop, kill, start again and freeze, always at the same address."""

import os
import signal
import sys
import tempfile
import urllib.parse
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pulse_server.embedded import EmbeddedPostgres
from pulse_server.embedded.cluster import read_postmaster
from tests.postgres_cluster import FAST_SETTINGS

CAN_FREEZE = sys.platform.startswith("linux")


class OutagePostgres:
    """Its socket is found through a link, which follows it from start to start."""

    def __init__(self, directory: Path, settings: Mapping[str, str] = FAST_SETTINGS) -> None:
        self._directory = directory
        self._postgres = EmbeddedPostgres(directory, settings=settings)
        # Short, whatever the test's own directory is called: a socket's path is.
        self._links = tempfile.TemporaryDirectory(prefix="pulse-link-")
        self._frozen: list[int] = []

    @property
    def dsn(self) -> str:
        query = urllib.parse.urlencode({"host": self._links.name, "port": 5432})
        return f"postgresql://pulse@/pulse?{query}"

    def start(self) -> None:
        self._postgres.start()
        (sockets,) = urllib.parse.parse_qs(urllib.parse.urlsplit(self._postgres.dsn).query)["host"]
        link = Path(self._links.name) / ".s.PGSQL.5432"
        link.unlink(missing_ok=True)
        link.symlink_to(Path(sockets) / link.name)

    def lead_to(self, other: "OutagePostgres") -> None:
        """Have this one's address lead to the other from now on."""
        link, target = (Path(server._links.name) / ".s.PGSQL.5432" for server in (self, other))
        link.unlink()
        link.symlink_to(target.readlink())

    def stop(self) -> None:
        self._postgres.stop()

    def freeze(self) -> None:
        """Stop every process of the server where it stands: connections stay open and say nothing more."""
        server = read_postmaster(self._directory.resolve() / "postgres")
        assert server is not None
        self._frozen = [server.pid]
        os.kill(server.pid, signal.SIGSTOP)  # first, so that no child is born meanwhile
        self._frozen += children_of(server.pid)
        for pid in self._frozen[1:]:
            os.kill(pid, signal.SIGSTOP)

    def kill(self) -> None:
        """End every process of the server where it stands, as a machine does that loses power."""
        self.freeze()  # so that none of them can do a last thing for having seen another one die
        for pid in self._frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._frozen = []
        self.stop()

    def thaw(self) -> None:
        for pid in self._frozen:
            with suppress(ProcessLookupError):  # its client left, and the server was thawed before it
                os.kill(pid, signal.SIGCONT)
        self._frozen = []

    def close(self) -> None:
        self.thaw()
        self.stop()
        self._links.cleanup()


def children_of(parent: int) -> list[int]:
    """The processes that this one has started and that still live."""
    threads = Path(f"/proc/{parent}/task")
    return [int(child) for thread in threads.iterdir() for child in (thread / "children").read_text().split()]
