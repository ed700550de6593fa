"""The composition root: every address of the dashboard, and the door that it is behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pulse_ui.pages import (
    confirmations,
    dead_letters,
    dispatch,
    job,
    jobs,
    operations,
    overview,
    schedule_editing,
    schedules,
    selections,
    workers,
)
from pulse_ui.pages.doorway import Doorway
from pulse_ui.pages.events import Events
from pulse_ui.settings import Settings
from pulse_ui.web import failures
from pulse_ui.web.accounts import OpenAccount
from pulse_ui.web.assets import Assets
from pulse_ui.web.doors import Doors
from pulse_ui.web.headers import SecurityHeaders
from pulse_ui.web.refusals import Refused
from pulse_ui.web.rendering import Rendering
from pulse_ui.web.sessions import Sessions


class Dashboard:
    """One dashboard: an ASGI application, and the sessions of its visitors."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.sessions = Sessions(settings.session_idle)
        self._open_account = OpenAccount(settings.server)
        self._rendering = Rendering(settings)
        self._doors = Doors(settings, self._rendering, self.sessions, self._open_account)
        self.app = Starlette(
            routes=self._routes(),
            middleware=[Middleware(SecurityHeaders)],
            exception_handlers={404: self._not_found, 405: self._not_found, 500: self._failed},
            lifespan=self._lifespan,
        )
        # It would send visitors to whatever host their request named, and from HTTPS at a proxy to HTTP.
        self.app.router.redirect_slashes = False

    async def close(self) -> None:
        """Log everyone out and end their streams."""
        await self.sessions.close()
        await self._open_account.close()

    def _routes(self) -> list[Route]:
        shown, changed, stranger = self._doors.shown, self._doors.changed, self._doors.stranger
        doorway = Doorway(self._doors)
        events = Events(self.sessions)

        def get(path: str, endpoint: object) -> Route:
            return Route(path, endpoint, methods=["GET"])  # type: ignore[arg-type]

        def post(path: str, endpoint: object) -> Route:
            return Route(path, endpoint, methods=["POST"])  # type: ignore[arg-type]

        return [
            get("/static/{name}", Assets().serve),
            get("/healthz", _alive),
            get("/login", stranger(doorway.show_login)),
            post("/login", stranger(doorway.log_in, is_change=True)),
            post("/logout", changed(doorway.log_out, needs=None)),
            post("/theme", changed(doorway.choose_theme, needs=None)),
            get("/events", shown(events.stream)),
            # --- the whole at a glance
            get("/", shown(overview.show)),
            get("/workers", shown(workers.show, needs="ListWorkers")),
            # --- jobs
            get("/jobs", shown(jobs.show, needs="ListJobs")),
            get("/find", shown(jobs.find, needs="FindJobs")),
            get("/jobs/confirm", shown(confirmations.show, needs="ListJobs")),
            post("/jobs/cancel", changed(selections.cancel, needs="CancelJobs")),
            post("/jobs/retry", changed(selections.retry, needs="RetryJobs")),
            post("/jobs/delete", changed(selections.delete, needs="DeleteJobs")),
            post("/jobs/prioritize", changed(selections.prioritize, needs="PrioritizeJobs")),
            get("/jobs/{job_id}", shown(job.show, needs="GetJob")),
            get("/jobs/{job_id}/payload", shown(job.payload, needs="GetJob")),
            post("/jobs/{job_id}/cancel", changed(job.cancel, needs="CancelJob")),
            post("/jobs/{job_id}/retry", changed(job.retry, needs="RetryJob")),
            post("/jobs/{job_id}/delete", changed(job.delete, needs="DeleteJob")),
            post("/jobs/{job_id}/prioritize", changed(job.prioritize, needs="PrioritizeJob")),
            get("/operations/{number}", shown(operations.show)),
            post("/operations/{number}/stop", changed(operations.stop, needs=None)),
            # --- dead letters
            get("/dead-letters", shown(dead_letters.show, needs="ListDeadLetterGroups")),
            post("/dead-letters/retry-one", changed(dead_letters.retry_one, needs="RetryJob")),
            post("/dead-letters/retry-all", changed(dead_letters.retry_all, needs="RetryJobs")),
            post("/dead-letters/delete-all", changed(dead_letters.delete_all, needs="DeleteJobs")),
            # --- schedules
            get("/schedules", shown(schedules.show_all, needs="ListSchedules")),
            get("/schedules/new", shown(schedule_editing.show_new, needs="CreateSchedule")),
            get("/schedules/preview", shown(schedule_editing.preview, needs="PreviewSchedule")),
            post("/schedules/new", changed(schedule_editing.create, needs="CreateSchedule")),
            get("/schedules/{schedule_id}", shown(schedules.show, needs="GetSchedule")),
            get("/schedules/{schedule_id}/edit", shown(schedule_editing.show_edit, needs="UpdateSchedule")),
            post("/schedules/{schedule_id}/edit", changed(schedule_editing.update, needs="UpdateSchedule")),
            post("/schedules/{schedule_id}/pause", changed(schedules.pause, needs="PauseSchedule")),
            post("/schedules/{schedule_id}/resume", changed(schedules.resume, needs="ResumeSchedule")),
            post("/schedules/{schedule_id}/fire", changed(schedules.fire, needs="FireSchedule")),
            post("/schedules/{schedule_id}/delete", changed(schedules.delete, needs="DeleteSchedule")),
            # --- the pause switch
            get("/dispatch", shown(dispatch.show, needs="GetDispatchStatus")),
            post("/dispatch/pause", changed(dispatch.pause, needs="PauseDispatch")),
            post("/dispatch/resume", changed(dispatch.resume, needs="ResumeDispatch")),
        ]

    async def _not_found(self, request: Request, _error: Exception) -> Response:
        refused = Refused(404, "There is no page at this address. Start from the overview.")
        return failures.answer(self._rendering, request, refused)

    async def _failed(self, request: Request, error: Exception) -> Response:
        return failures.answer(self._rendering, request, error)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        yield
        await self.close()


async def _alive(_request: Request) -> Response:
    return PlainTextResponse("ok\n")
