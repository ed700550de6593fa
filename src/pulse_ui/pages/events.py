"""The event stream on which an open page learns of changes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from pulse_ui.web.sessions import Sessions
from pulse_ui.web.visits import Visit

_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class Events:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def stream(self, visit: Visit) -> Response:
        """Server-sent events: `changed` when jobs changed, `ended` when the session ended."""
        return StreamingResponse(
            self._events(visit, visit.query.text("job") or None),
            media_type="text/event-stream",
            headers=_HEADERS,
        )

    async def _events(self, visit: Visit, job_id: str | None) -> AsyncIterator[str]:
        yield "retry: 3000\n: watching\n\n"
        if not visit.may("WatchJobs"):
            return
        with visit.account.changes.listening(job_id) as listener:
            async for has_changed in listener.changes():
                if not self._sessions.is_open(visit.session):
                    yield "event: ended\ndata:\n\n"
                    return
                yield "event: changed\ndata:\n\n" if has_changed else ": quiet\n\n"
