"""celery on Redis, with a thread pool: one process per worker, and the slots that are asked for.

As by default, a message is acknowledged before its task runs; no result is stored.
"""

from __future__ import annotations

from benchmarks.peers.environments import PythonEnvironment
from benchmarks.peers.peer import Crew, Peer, Shift, python_program

_MODULE = "benchmarks.peers.programs.celery"
_QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR")


def _crew(shift: Shift) -> Crew:
    # Its guide on optimizing: a high multiplier for many short tasks, a low one where latency counts.
    threads, prefetch = (8, 64) if shift.scenario == "drain" else (shift.slots, 4)
    pool = ("--pool", "threads", "--concurrency", str(threads), "--prefetch-multiplier", str(prefetch))
    commands = [
        ["-m", "celery", "--app", _MODULE, "worker", "--hostname", f"worker-{number}@%h", *pool, *_QUIET]
        for number in range(shift.processes)
    ]
    return Crew(commands, f"{threads} threads, prefetch multiplier {prefetch}, nothing on disk")


PEER = Peer(
    name="celery",
    store="redis",
    environment=PythonEnvironment(("celery[redis]~=5.7.0", "hiredis")),
    program=python_program("celery"),
    # A message that was fetched and not acknowledged has moved from the list to the hash.
    unfinished="return redis.call('LLEN', 'celery') + redis.call('HLEN', 'unacked')",
    crew=_crew,
    has_bulk=False,
)
