"""A Postgres of one's own, for `pulsed` without DB_HOST: a child process on a private unix socket.

It imports no other room, and `launch.py` only the standard library. Start with `cluster.py`.
"""

from pulse_server.embedded.cluster import EmbeddedPostgres, kept, psql_command
from pulse_server.embedded.directory import default_data_directory
from pulse_server.embedded.processes import (
    DataDirectoryInUse,
    DataDirectoryUnusable,
    EmbeddedError,
    EmbeddedUnavailable,
    RestartFailed,
    StartFailed,
    WrongMajorVersion,
)

__all__ = [
    "DataDirectoryInUse",
    "DataDirectoryUnusable",
    "EmbeddedError",
    "EmbeddedPostgres",
    "EmbeddedUnavailable",
    "RestartFailed",
    "StartFailed",
    "WrongMajorVersion",
    "default_data_directory",
    "kept",
    "psql_command",
]
