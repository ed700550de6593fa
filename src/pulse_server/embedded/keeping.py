"""Keeps the embedded Postgres running while pulsed serves: starts it again when it ends.

There is often no process manager that would restart both. A data directory that was removed ends pulsed
at once: another start would make an empty database.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pulse.supervision.processes import Restarts
from pulse_server.embedded.cluster import EmbeddedPostgres
from pulse_server.embedded.errors import DataDirectoryUnusable, EmbeddedError, RestartFailed

LOOK_SECONDS = 0.1
# Failed starts in a row before pulsed ends. With its delays that is about half a minute.
MOST_FAILED_STARTS = 10

log = logging.getLogger(__name__)


@contextmanager
def kept(cluster: EmbeddedPostgres, restarts: Restarts, give_up: Callable[[], object]) -> Iterator[None]:
    """Keep the server running for the length of the block.

    If it cannot be started again, `give_up` is called in another thread. It has to end the block, which
    then raises RestartFailed.
    """
    log.info("postgres_started", extra={"address": cluster.dsn})
    keeper = _Keeper(cluster, restarts, give_up)
    keeper.start()
    try:
        yield
    finally:
        keeper.end()
        if keeper.failure is not None:
            raise keeper.failure


class _Keeper(threading.Thread):
    # Linux ties the server to the thread that starts it. This one ends only when the server has to.

    def __init__(self, cluster: EmbeddedPostgres, restarts: Restarts, give_up: Callable[[], object]) -> None:
        super().__init__(name="pulse-postgres", daemon=True)
        self.failure: Exception | None = None
        self._cluster = cluster
        self._restarts = restarts
        self._give_up = give_up
        self._is_ending = threading.Event()

    def end(self) -> None:
        """Keep the server no longer."""
        self._is_ending.set()
        self._cluster.interrupt()
        self.join()

    def run(self) -> None:
        try:
            self._keep()
        except Exception as error:  # a bug ends pulsed too: its database would stay away
            log.error("postgres_given_up", extra={"reason": str(error)})
            self.failure = error
            self._give_up()

    def _keep(self) -> None:
        ready_at = time.monotonic()
        while not self._is_ending.wait(LOOK_SECONDS):
            if (trouble := self._cluster.trouble) is None:
                continue
            wait_seconds = self._restarts.wait_seconds(time.monotonic() - ready_at)
            log.error("postgres_ended", extra={"how": trouble, "restart_in_seconds": round(wait_seconds, 3)})
            self._start_again(wait_seconds)
            ready_at = time.monotonic()

    def _start_again(self, wait_seconds: float) -> None:
        for failed_starts in range(1, MOST_FAILED_STARTS + 1):
            if self._is_ending.wait(wait_seconds):
                return
            try:
                self._cluster.restart()
            except (EmbeddedError, OSError) as error:
                if self._is_ending.is_set():
                    return
                if isinstance(error, DataDirectoryUnusable) or failed_starts == MOST_FAILED_STARTS:
                    raise RestartFailed(str(error)) from error
                wait_seconds = self._restarts.failed()
                log.warning(
                    "postgres_start_failed",
                    extra={"reason": str(error), "restart_in_seconds": round(wait_seconds, 3)},
                )
            else:
                log.info("postgres_restarted")
                return
