"""When schedules fire next, as pulsed says: asked once for each fire to come, not for each look at a page."""

from __future__ import annotations

from datetime import UTC, datetime

import pulse
from pulse_ui import tuning
from pulse_ui.views.cron_words import read_interval
from pulse_ui.web.visits import Visit

# What an expression comes to is the same for everybody who asks before its next fire.
_previews: dict[tuple[str, str, int], list[datetime]] = {}


async def upcoming(visit: Visit, schedule: pulse.ScheduleInfo, count: int) -> list[datetime]:
    """Return the next fires of a schedule, the first one first; none while it is paused."""
    first = schedule.next_run_at
    if schedule.paused or first is None:
        return []
    match schedule.spec:
        case pulse.Every(interval):
            # Where it stands, not where one made now would.
            return [first + number * interval for number in range(count)]
        case pulse.Cron(expression=expression) if every := read_interval(expression):
            return [first + number * every for number in range(count)]
        case pulse.Cron() as cron if visit.may("PreviewSchedule"):
            later = [fire for fire in await _preview(visit.client, cron, count) if fire > first]
            return [first, *later][:count]
    return [first]


async def _preview(client: pulse.Pulse, cron: pulse.Cron, count: int) -> list[datetime]:
    key = (cron.expression, cron.tz, count)
    known = _previews.get(key)
    if known and known[0] > datetime.now(UTC):
        return known
    try:
        fires = await client.schedules.preview(cron, count)
    except pulse.InvalidArgument:
        return []  # it was stored when the server still knew its zone; the rest of the page stands
    while len(_previews) >= tuning.PREVIEWS:
        del _previews[next(iter(_previews))]
    _previews[key] = fires
    return fires
