"""Handles of a `SyncPulse`: `result` and `wait` block."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from datetime import timedelta
from typing import Any, TypeVar

from pulse.blocking.bridge import Bridge
from pulse.enqueues import HandleSource, as_completed, gather
from pulse.errors import InvalidArgument
from pulse.jobs.handles import JobHandle, R, handles_of, source_of
from pulse.jobs.models import JobInfo

Value = TypeVar("Value")


class SyncJobHandle(JobHandle[R], frozen=True, gc=False):
    """A stored job of a `SyncPulse`. `R` is what its handler returns."""

    # The methods of a JobHandle are awaited; these block.

    def result(self, timeout: timedelta | None = None) -> R:  # type: ignore[override]
        """Wait until the job has completed, and return its result. See `JobHandle.result`."""
        return source_of(self).result(self, timeout)  # type: ignore[return-value]

    def wait(self, timeout: timedelta | None = None) -> JobInfo:  # type: ignore[override]
        """Wait until the job has finished, whatever the outcome, and return it. See `JobHandle.wait`."""
        return source_of(self).wait(self, timeout)  # type: ignore[return-value]


class LaterHandle:
    """Stands for the handle of a job that is stored later."""

    def _stored(self) -> SyncJobHandle[Any]:
        """Return the handle. Raises InvalidTransition before the job is stored."""
        raise NotImplementedError


class BlockingSource:
    """Waits for the jobs of one client and one handler, in the event loop of the bridge."""

    def __init__(self, bridge: Bridge, handles: type[JobHandle[Any]], source: HandleSource) -> None:
        self.handles = handles
        """The class of the same handles of the async client."""
        self._bridge = bridge
        self._source = source
        self.warn_in_handler = source.warn_in_handler

    def wait(self, handle: JobHandle[Any], timeout: timedelta | None) -> Any:
        self.warn_in_handler(handle.topic)
        return self._bridge.call(self._source.wait_here, handle, timeout)

    def result(self, handle: JobHandle[Any], timeout: timedelta | None) -> Any:
        self.warn_in_handler(handle.topic)
        return self._bridge.call(self._source.result_here, handle, timeout)


class SyncHandles:
    """Turns handles of the async client into handles of one `SyncPulse`."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._known: dict[type[Any], type[SyncJobHandle[Any]]] = {}

    def of(self, handle: JobHandle[Any]) -> SyncJobHandle[Any]:
        handles = type(handle)
        known = self._known.get(handles)
        if known is None:
            source = source_of(handle)
            assert isinstance(source, HandleSource)
            blocking = BlockingSource(self._bridge, handles, source)
            known = self._known[handles] = handles_of(blocking, SyncJobHandle)
        return known(handle.id, handle.topic, handle.duplicate, handle.replaced, handle.submitted_at)

    def gather(
        self, handles: Iterable[JobHandle[Any]], timeout: timedelta | None, *, return_exceptions: bool
    ) -> list[Any]:
        async def gathered() -> list[Any]:
            return await gather(
                *map(_async_handle, handles), timeout=timeout, return_exceptions=return_exceptions
            )

        return self._bridge.call(gathered)

    def as_completed(
        self, handles: Iterable[SyncJobHandle[Value]], timeout: timedelta | None
    ) -> Generator[SyncJobHandle[Value], None, None]:
        given = list(handles)
        for handle in self._bridge.iterate(as_completed(map(_async_handle, given), timeout=timeout)):
            yield self.of(handle)


def _async_handle(handle: JobHandle[Any] | LaterHandle) -> JobHandle[Any]:
    if isinstance(handle, LaterHandle):
        handle = handle._stored()
    source = source_of(handle) if isinstance(handle, JobHandle) else None
    if not isinstance(source, BlockingSource):
        raise InvalidArgument(f"Give handles of a SyncPulse, as its `enqueue` returns them, not {handle!r}.")
    source.warn_in_handler(handle.topic)
    return source.handles(handle.id, handle.topic, handle.duplicate, handle.replaced, handle.submitted_at)
