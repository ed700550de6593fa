"""Every page and action is wrapped here: host, session, origin, token and permission are checked first.

`page` is for pages, `change` for actions, `public` for what needs no login.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

import pulse
from pulse.wire.endpoint import visitor
from pulse_ui.settings import Settings
from pulse_ui.web import failures
from pulse_ui.web.accounts import OpenAccount, refresh_identity
from pulse_ui.web.failures import LoginNeeded, Refused
from pulse_ui.web.forms import Form, form_of, page_of_form
from pulse_ui.web.origins import check_host, check_openness, check_origin, check_token, is_secure
from pulse_ui.web.rendering import Rendering
from pulse_ui.web.sessions import Account, Session, Sessions
from pulse_ui.web.visits import CHANGES, Visit

log = logging.getLogger(__name__)

# The change was refused: show the reason on the page of its form.
_SHOWN_ON_THE_PAGE = (pulse.InvalidTransition, pulse.NotFound, pulse.InvalidArgument, pulse.AlreadyExists)

LIVE_HEADER = "pulse-live"
"""Sent by the automatic refresh of a page, which does not count as activity of the user."""

Endpoint = Callable[[Request], Awaitable[Response]]
Page = Callable[[Visit], Awaitable[Response]]
Change = Callable[[Visit, Form], Awaitable[Response]]
PublicPage = Callable[[Request, Session], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Endpoints:
    settings: Settings
    rendering: Rendering
    sessions: Sessions
    open_account: OpenAccount

    def page(self, page: Page, *, needs: str | None = None) -> Endpoint:
        """Wrap a page. The user must be permitted to make the call `needs`."""

        async def endpoint(request: Request) -> Response:
            try:
                visit, key = await self._admit(request)
                visit.require(needs)
                response = await page(visit)
            except Exception as error:
                return self._failed(request, error)
            return self._with_cookie(request, response, key)

        return endpoint

    def change(self, change: Change, *, needs: str | None) -> Endpoint:
        """Wrap an action: same origin, the token of the session, and permission are required.

        Without `needs` it changes the session or the browser only.
        """
        if needs is not None and needs not in CHANGES:
            raise ValueError(f"{needs} is not among the calls that change something")

        async def endpoint(request: Request) -> Response:
            try:
                # Before the form is read: a form of another site is refused.
                check_origin(request, self.settings)
                visit, _ = await self._admit(request)
                form = await form_of(request)
                check_token(visit.session.csrf_token, form.raw("csrf"))
                visit.require(needs)
                visitor.set(request.client.host if request.client is not None else "")
                try:
                    return await change(visit, form)
                except _SHOWN_ON_THE_PAGE as error:
                    return visit.back(form, str(error), kind="bad")
            except Exception as error:
                return self._failed(request, error, is_change=True)

        return endpoint

    def public(self, page: PublicPage, *, is_change: bool = False) -> Endpoint:
        """Wrap a page without login. Its form is checked like any other."""

        async def endpoint(request: Request) -> Response:
            try:
                check_host(request, self.settings, is_open=False)
                if is_change:
                    check_origin(request, self.settings)
                key, session = None, self._session(request, touch=True)
                if session is None:
                    if is_change:
                        raise Refused(
                            403, "The form is too old. Nothing was changed. Go back, reload, and try again."
                        )
                    key, session = self.sessions.open()
                response = await page(request, session)
            except Exception as error:
                return self._failed(request, error)
            return self._with_cookie(request, response, key)

        return endpoint

    # ------------------------------------------------------------ sessions

    async def _admit(self, request: Request) -> tuple[Visit, str | None]:
        """Return the visit, and the key of its session if it is new. Raises LoginNeeded."""
        is_live = LIVE_HEADER in request.headers
        key, session = None, self._session(request, touch=not is_live)
        account = session.account if session is not None and session.owns_account else None
        if account is None:
            account = await self.open_account.get()
        is_open = account is not None and account.identity.user is None
        check_host(request, self.settings, is_open=is_open)
        check_openness(self.settings, is_open=is_open)
        if account is None:
            raise LoginNeeded
        if session is None or (session.account is not account and not session.owns_account):
            if request.method == "POST":
                raise Refused(
                    403, "The session has ended. Nothing was changed. Reload the page and try again."
                )
            key, session = self.sessions.open(account)
        await self._check_identity(session, account)
        return Visit(request, self.settings, self.rendering, session, account), key

    async def _check_identity(self, session: Session, account: Account) -> None:
        try:
            await refresh_identity(account)
        except pulse.Unauthenticated:
            self.sessions.end(session)
            raise

    def _session(self, request: Request, *, touch: bool) -> Session | None:
        return self.sessions.find(request.cookies.get(cookie_name(request, self.settings)), touch=touch)

    def log_in(self, request: Request, response: Response, old: Session, account: Account) -> None:
        """Start the user's session with a new key, so that the old key is worthless."""
        self.sessions.end(old)
        key, _ = self.sessions.open(account, owns_account=True)
        self._with_cookie(request, response, key)

    def log_out(self, request: Request, response: Response, session: Session) -> None:
        self.sessions.end(session)
        response.delete_cookie(cookie_name(request, self.settings), path="/")

    def _with_cookie(self, request: Request, response: Response, key: str | None) -> Response:
        if key is not None:
            response.set_cookie(
                cookie_name(request, self.settings),
                key,
                path="/",
                httponly=True,
                samesite="lax",
                secure=is_secure(request, self.settings),
            )
        return response

    # ------------------------------------------------------------ errors

    def _failed(self, request: Request, error: Exception, *, is_change: bool = False) -> Response:
        if isinstance(error, LoginNeeded | pulse.Unauthenticated):
            return _to_login(request, was_change=is_change)
        back = page_of_form(request) if is_change else None
        return failures.answer(self.rendering, request, error, back=back)


def cookie_name(request: Request, settings: Settings) -> str:
    """Return the name of the session's cookie.

    Cookies ignore ports: without ours in the name, two dashboards on one machine would log each other out.
    """
    if is_secure(request, settings):
        return "__Host-pulse-session"
    return f"pulse-session-{settings.port}"


def _to_login(request: Request, *, was_change: bool) -> Response:
    if LIVE_HEADER in request.headers or "text/event-stream" in request.headers.get("accept", ""):
        return Response(status_code=401)  # the script of the page reports it, and keeps typed text
    if was_change:
        target = page_of_form(request)
    else:
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    query = f"?next={quote(target, safe='')}" if target != "/" else ""
    query += ("&" if query else "?") + "ended=change" if was_change else ""
    return RedirectResponse(f"/login{query}", status_code=303)
