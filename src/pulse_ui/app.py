"""The composition root: every route, the call that it needs permission for, the headers, the HTTP server."""

from __future__ import annotations

import asyncio
import logging
import mimetypes
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.resources import files

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from pulse_ui import audit, tuning, workers
from pulse_ui.access import LoginPages
from pulse_ui.jobs import actions as job_actions
from pulse_ui.jobs import pages as jobs
from pulse_ui.overview import pages as overview
from pulse_ui.overview.pages import Events
from pulse_ui.schedules import pages as schedules
from pulse_ui.settings import Settings
from pulse_ui.topics import pages as topics
from pulse_ui.web import rendering
from pulse_ui.web.endpoints import Endpoints
from pulse_ui.web.rendering import Refused, Rendering, static_files
from pulse_ui.web.sessions import OpenAccount, Sessions
from pulse_ui.workflows import pages as workflows

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'; manifest-src 'self'"
)
_ALWAYS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # same-origin, not no-referrer, which would remove the Origin header from our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "x-robots-tag": "noindex, nofollow",
}


class SecurityHeaders:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _ALWAYS.items():
                    headers[name] = value
                # Pages show the content of the queue: no cache may store them.
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers)


# The URL changes with the content (see rendering.asset_path), so a browser may cache it forever.
_HEADERS = {"cache-control": "public, max-age=31536000, immutable"}


class Assets:
    def __init__(self) -> None:
        htmx = (files("js_lib_htmx") / "static" / "htmx" / "htmx.min.js").read_bytes()
        self._files = {**static_files(), "htmx.js": htmx}

    async def serve(self, request: Request) -> Response:
        name = request.path_params["name"]
        content = self._files.get(name)
        if content is None:
            return PlainTextResponse("There is no such file.\n", status_code=404)
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Response(content, media_type=kind, headers=_HEADERS)


class Dashboard:
    """One dashboard: an ASGI application and its sessions."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.sessions = Sessions(settings.session_idle)
        self._open_account = OpenAccount(settings.server)
        self._rendering = Rendering(settings)
        self._endpoints = Endpoints(settings, self._rendering, self.sessions, self._open_account)
        self.app = Starlette(
            routes=self._routes(),
            middleware=[Middleware(SecurityHeaders)],
            exception_handlers={404: self._not_found, 405: self._not_found, 500: self._failed},
            lifespan=self._lifespan,
        )
        # It would redirect to the host that the request names, and behind a proxy from HTTPS to HTTP.
        self.app.router.redirect_slashes = False

    async def close(self) -> None:
        """End all sessions and their streams."""
        await self.sessions.close()
        await self._open_account.close()

    def _routes(self) -> list[Route]:
        page, change, public = self._endpoints.page, self._endpoints.change, self._endpoints.public
        login_pages = LoginPages(self._endpoints)
        events = Events(self.sessions)

        def get(path: str, endpoint: object) -> Route:
            return Route(path, endpoint, methods=["GET"])  # type: ignore[arg-type]

        def post(path: str, endpoint: object) -> Route:
            return Route(path, endpoint, methods=["POST"])  # type: ignore[arg-type]

        return [
            get("/static/{name}", Assets().serve),
            get("/healthz", _alive),
            get("/login", public(login_pages.show_login)),
            post("/login", public(login_pages.log_in, is_change=True)),
            post("/logout", change(login_pages.log_out, needs=None)),
            post("/theme", change(login_pages.choose_theme, needs=None)),
            get("/events", page(events.stream)),
            # --- overview
            get("/", page(overview.show)),
            # --- workers
            get("/workers", page(workers.show, needs="ListWorkers")),
            post("/workers/state", change(workers.set_state, needs="SetWorkerState")),
            # --- topics
            get("/topics", page(topics.show_all, needs="ListTopics")),
            get("/topics/{topic:path}", page(topics.show, needs="ListTopics")),
            post("/topics/{topic:path}", change(topics.update, needs="SetTopic")),
            post("/holds", change(topics.hold, needs="HoldTopic")),
            post("/lanes", change(topics.set_lane, needs="SetLane")),
            # --- jobs
            get("/jobs", page(jobs.show_list, needs="ListJobs")),
            get("/find", page(jobs.find, needs="FindJobs")),
            get("/jobs/new", page(jobs.show_form, needs="SubmitJob")),
            post("/jobs/new", change(jobs.enqueue, needs="SubmitJob")),
            get("/jobs/confirm", page(job_actions.confirm, needs="ListJobs")),
            post("/jobs/cancel", change(job_actions.cancel, needs="CancelJobs")),
            post("/jobs/retry", change(job_actions.retry, needs="RetryJobs")),
            post("/jobs/delete", change(job_actions.delete, needs="DeleteJobs")),
            post("/jobs/prioritize", change(job_actions.prioritize, needs="PrioritizeJobs")),
            get("/jobs/{job_id}", page(jobs.show_one, needs="GetJob")),
            get("/jobs/{job_id}/payload", page(jobs.payload, needs="GetJob")),
            get("/jobs/{job_id}/result", page(jobs.result, needs="GetJob")),
            post("/jobs/{job_id}/cancel", change(jobs.cancel, needs="CancelJob")),
            post("/jobs/{job_id}/retry", change(jobs.retry, needs="RetryJob")),
            post("/jobs/{job_id}/delete", change(jobs.delete, needs="DeleteJob")),
            post("/jobs/{job_id}/prioritize", change(jobs.prioritize, needs="PrioritizeJob")),
            post("/jobs/{job_id}/run-again", change(jobs.run_again, needs="SubmitJob")),
            post("/jobs/{job_id}/signal", change(jobs.signal, needs="SignalJob")),
            get("/operations/{number}", page(job_actions.show_operation)),
            post("/operations/{number}/stop", change(job_actions.stop_operation, needs=None)),
            # --- workflows
            get("/workflows", page(workflows.show_all, needs="ListWorkflows")),
            get("/workflows/{workflow_id}", page(workflows.show_one, needs="GetWorkflow")),
            post("/workflows/{workflow_id}/cancel", change(workflows.cancel, needs="CancelWorkflow")),
            post("/workflows/{workflow_id}/retry", change(workflows.retry, needs="RetryWorkflow")),
            # --- dead letters
            get("/dead-letters", page(overview.show_dead_letters, needs="ListDeadLetterGroups")),
            post("/dead-letters/retry-one", change(overview.retry_one, needs="RetryJob")),
            post("/dead-letters/retry-all", change(overview.retry_all, needs="RetryJobs")),
            post("/dead-letters/delete-all", change(overview.delete_all, needs="DeleteJobs")),
            # --- schedules
            get("/schedules", page(schedules.show_all, needs="ListSchedules")),
            get("/schedules/new", page(schedules.show_new, needs="CreateSchedule")),
            get("/schedules/preview", page(schedules.preview, needs="PreviewSchedule")),
            post("/schedules/new", change(schedules.create, needs="CreateSchedule")),
            get("/schedules/{schedule_id}", page(schedules.show, needs="GetSchedule")),
            get("/schedules/{schedule_id}/edit", page(schedules.show_edit, needs="UpdateSchedule")),
            post("/schedules/{schedule_id}/edit", change(schedules.update, needs="UpdateSchedule")),
            post("/schedules/{schedule_id}/reset", change(schedules.reset, needs="UpdateSchedule")),
            post("/schedules/{schedule_id}/pause", change(schedules.pause, needs="PauseSchedule")),
            post("/schedules/{schedule_id}/resume", change(schedules.resume, needs="ResumeSchedule")),
            post("/schedules/{schedule_id}/fire", change(schedules.fire, needs="FireSchedule")),
            post("/schedules/{schedule_id}/delete", change(schedules.delete, needs="DeleteSchedule")),
            # --- dispatch
            get("/dispatch", page(topics.show_pauses, needs="GetDispatchStatus")),
            post("/dispatch/pause", change(topics.pause, needs="PauseDispatch")),
            post("/dispatch/resume", change(topics.resume, needs="ResumeDispatch")),
            # --- audit
            get("/audit", page(audit.show, needs="ListAudit")),
            get("/audit/{action_id}/undo", page(audit.ask_undo, needs="UndoAction")),
            post("/audit/{action_id}/undo", change(audit.undo, needs="UndoAction")),
        ]

    async def _not_found(self, request: Request, _error: Exception) -> Response:
        refused = Refused(404, "There is no page at this address. Start from the overview.")
        return rendering.answer(self._rendering, request, refused)

    async def _failed(self, request: Request, error: Exception) -> Response:
        return rendering.answer(self._rendering, request, error)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        yield
        await self.close()


async def _alive(_request: Request) -> Response:
    return PlainTextResponse("ok\n")


class Connection(H11Protocol):
    """A connection that is closed if no complete request arrives in time.

    uvicorn closes a connection that is idle between two requests, but not one whose request never ends.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._check_later()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def _check_later(self) -> None:
        wait = tuning.REQUEST_TIMEOUT.total_seconds()
        self._timer = self.loop.call_later(wait, self._check, self.cycle)

    def _check(self, last: RequestResponseCycle | None) -> None:
        is_served = self.cycle is not None and not self.cycle.response_complete
        if self.cycle is last and not is_served:
            self.transport.close()
        else:
            self._check_later()


class Server(uvicorn.Server):
    """uvicorn, except that open pages do not delay its stop, and a requested stop is a success."""

    def __init__(
        self,
        dashboard: Dashboard,
        *,
        handles_signals: bool = True,
        on_serving: Callable[[], None] | None = None,
    ) -> None:
        settings = dashboard.settings
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        super().__init__(
            uvicorn.Config(
                dashboard.app,
                http=Connection,
                log_config=None,
                access_log=False,
                server_header=False,
                # Without a configured proxy, forwarded headers are not trusted.
                proxy_headers=settings.public_url is not None,
                ssl_certfile=settings.tls_certificate,
                ssl_keyfile=settings.tls_key,
                timeout_graceful_shutdown=round(tuning.STOP_GRACE.total_seconds()),
            )
        )
        self._dashboard = dashboard
        self._handles_signals = handles_signals
        self._on_serving = on_serving
        self._closing: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._on_serving is not None:
            self._on_serving()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM) if self._handles_signals else ()
        for number in signals:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Accept no more connections and end the streams of open jobs. The second call does not wait."""
        self.force_exit = self.should_exit
        self.should_exit = True
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._dashboard.close())


def listen(settings: Settings) -> socket.socket:
    """Bind the address. Raises OSError with a sentence."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(tuning.BACKLOG)
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise OSError(
            f"cannot listen on {settings.host}:{settings.port} ({reason}). "
            "Is another dashboard running there? Choose another address with --addr host:port."
        ) from None
    listener.setblocking(False)
    return listener
