"""The page of an action on many jobs: its progress and its result."""

from __future__ import annotations

import re

from starlette.responses import Response

from pulse_ui import tuning
from pulse_ui.web.forms import Form
from pulse_ui.web.operations import Operation
from pulse_ui.web.rendering import Refused
from pulse_ui.web.visits import Visit

_NUMBER = re.compile(r"[0-9]{1,12}")


async def show(visit: Visit) -> Response:
    operation = _wanted(visit)
    return await visit.page(
        "operation.html",
        title=operation.title,
        live="jobs" if operation.is_running else None,
        refresh_seconds=tuning.OPERATION_REFRESH_SECONDS,
        operation=operation,
    )


async def stop(visit: Visit, form: Form) -> Response:
    operation = _wanted(visit)
    operation.stop()
    return visit.go(f"/operations/{operation.number}")


def _wanted(visit: Visit) -> Operation:
    number = visit.part("number")
    operation = visit.account.operations.get(int(number)) if _NUMBER.fullmatch(number) else None
    if operation is None:
        raise Refused(
            404,
            f"There is no operation {number[:20]}: it ended long ago, or the dashboard was restarted. "
            "See the list of jobs for their current state.",
        )
    return operation
