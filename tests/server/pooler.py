"""A PgBouncer in transaction mode in front of a database, where this machine has one."""

import os
import shutil
import socket
import subprocess
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pulse_server.embedded.processes import Launcher, choose_identity, default_parent_watch
from tests.eventually import PATIENCE_SECONDS
from tests.system.stage import free_port

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
# Fewer than a server has connections: its transactions take turns on them.
SERVER_SESSIONS = 4


@contextmanager
def pgbouncer(dsn: str, directory: Path) -> Iterator[str]:
    """Run one for the length of a block. Returns its address; the database is the one of the DSN."""
    assert PROGRAM is not None
    parts = urllib.parse.urlsplit(dsn)
    query = dict(urllib.parse.parse_qsl(parts.query))
    host = query.get("host") or parts.hostname
    port = query.get("port") or parts.port or 5432
    settings = directory / "pgbouncer.ini"
    listening = free_port()
    settings.write_text(
        f"""
        [databases]
        * = host={host} port={port}
        [pgbouncer]
        listen_addr = 127.0.0.1
        listen_port = {listening}
        unix_socket_dir =
        auth_type = any
        pool_mode = transaction
        default_pool_size = {SERVER_SESSIONS}
        """.replace("        ", "")
    )
    # With auth_type = any everybody is the user that the database knows.
    user = parts.username or "postgres"
    settings.write_text(settings.read_text().replace(f"port={port}\n", f"port={port} user={user}\n"))
    # The identity that the embedded Postgres has: PgBouncer does not run as root either.
    launcher = Launcher(choose_identity(directory, directory), default_parent_watch())
    with (directory / "pgbouncer.log").open("wb") as log:
        child = launcher.spawn([PROGRAM, str(settings)], directory, output=log.fileno())
    try:
        _await_port(listening, child.process)
        yield f"postgresql://{user}@127.0.0.1:{listening}{parts.path}?sslmode=disable"
    finally:
        child.stop(())


def _await_port(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        assert process.poll() is None, "pgbouncer ended at its start"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, "pgbouncer does not listen"
            time.sleep(0.01)
        else:
            return
