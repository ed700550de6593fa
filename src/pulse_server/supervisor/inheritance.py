"""What a server process gets from its supervisor: the settings, with what several processes need changed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pulse_server.settings import Settings

# sun_path holds 104 bytes on the BSDs and macOS, the closing NUL included.
_LONGEST_DIRECTORY = 80


def environment_of(
    environ: Mapping[str, str], address: str, dsn: str, http_socket: Path | None
) -> dict[str, str]:
    """The variables of one process: it serves this address and database, and HTTP on a socket of its own."""
    changed = {"PULSE_GRPC_ADDR": address, "DB_HOST": dsn, "PULSE_PROCESSES": ""}
    if http_socket is not None:
        # Only the supervisor can open the socket, and it has asked its caller for the password already.
        changed |= {"PULSE_HTTP_ADDR": f"unix:{http_socket}", "PULSE_METRICS_AUTH": ""}
    return {**environ, **changed}


@contextmanager
def private_sockets(settings: Settings) -> Iterator[Sequence[Path]]:
    """One path per process for its HTTP, where only this user gets at it; none if HTTP is off."""
    if settings.http_address is None:
        yield ()
        return
    base = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(
        prefix="pulsed-", dir=base if len(base) <= _LONGEST_DIRECTORY else "/tmp", ignore_cleanup_errors=True
    ) as directory:
        yield [Path(directory) / f"child-{number}.sock" for number in range(1, settings.processes + 1)]
