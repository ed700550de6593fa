"""`p.schedules` of a `SyncPulse`: the verbs for stored schedules, blocking."""

from __future__ import annotations

from typing import Any

from pulse.blocking.bridge import Bridge
from pulse.blocking.handles import SyncHandles, SyncJobHandle
from pulse.blocking.methods import BlockingMethod, blocking, blocking_pages
from pulse.client.stored_schedules import Schedules
from pulse.models.schedules import ScheduleInfo


def _fire(schedules: SyncSchedules, schedule: str | ScheduleInfo, **options: Any) -> SyncJobHandle[Any]:
    handle = schedules._bridge.call(Schedules.fire, schedules._async, schedule, **options)
    return schedules._handles.of(handle)


class SyncSchedules:
    """Manages schedules. Each is given by its id, by its name, or as a ScheduleInfo.

    A string in the form of a UUID is an id. A name costs one more call, to look up the id.
    """

    def __init__(self, bridge: Bridge, schedules: Schedules, handles: SyncHandles) -> None:
        self._bridge = bridge
        self._handles = handles
        self._async = schedules

    get = blocking(Schedules.get)
    list = blocking(Schedules.list)
    iter = blocking_pages(Schedules.iter, Schedules.list)
    update = blocking(Schedules.update)
    pause = blocking(Schedules.pause)
    resume = blocking(Schedules.resume)
    delete = blocking(Schedules.delete)
    vanished = blocking(Schedules.vanished)
    prune = blocking(Schedules.prune)
    fire = BlockingMethod(Schedules.fire, _fire, "SyncJobHandle[Any]")
    preview = blocking(Schedules.preview)
    status = blocking(Schedules.status)
    jobs = blocking(Schedules.jobs)
    fires = blocking(Schedules.fires)
