"""Every page and action is wrapped here: host, session, origin, token and permission are checked first.

`page` is for pages, `change` for actions, `public` for what needs no login.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hmac import compare_digest
from urllib.parse import quote, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

import pulse
from pulse.wire.endpoint import visitor
from pulse_ui.settings import LOOPBACK_NAMES, Settings
from pulse_ui.web import rendering as web_rendering
from pulse_ui.web.forms import Form, form_of, page_of_form
from pulse_ui.web.rendering import LoginNeeded, Refused, Rendering
from pulse_ui.web.sessions import Account, OpenAccount, Session, Sessions, refresh_identity
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
        return web_rendering.answer(self.rendering, request, error, back=back)


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


# ---------------------------------------------------------------- checks
# Of the host, the origin and the token of a request.

OPEN_TO_NETWORK = (
    "pulsed has no users, and this dashboard can be reached from other machines: every visitor would be an "
    "admin. Configure users in pulsed (PULSE_AUTH_USERS_FILE), or let the dashboard listen on 127.0.0.1. To "
    "serve it without login anyway, start it with --insecure-open-to-network."
)

# A name or [an IPv6 address], with an optional port; nothing that two parsers could read differently.
_NETLOC = re.compile(r"(?:\[([0-9A-Za-z.:%]+)\]|([^][:/?#@\\\s]+))(?::[0-9]*)?")


def check_host(request: Request, settings: Settings, *, is_open: bool) -> None:
    """Refuse an unknown host. `is_open`: pulsed has no users.

    With DNS rebinding, a site on the internet can point its name to this machine and read pages
    that need no login. So a dashboard without login answers only to names that no other site can
    have.
    """
    host = _host_of(request.headers.get("host", ""))
    if not host:
        raise Refused(400, "The Host header is missing or invalid.")
    public = _host_of(urlsplit(settings.public_url).netloc) if settings.public_url else None
    if host == public or host in LOOPBACK_NAMES or host == settings.host.lower():
        return
    if public is None and not is_open and not settings.is_loopback:
        return
    raise Refused(
        421,
        f"This dashboard does not answer to the name {host!r}. If that is its name, "
        "start it with --public-url (PULSE_UI_PUBLIC_URL).",
    )


def check_openness(settings: Settings, *, is_open: bool) -> None:
    """Refuse to serve a pulsed without users to other machines: every visitor would be an admin."""
    if is_open and not settings.is_loopback and not settings.open_to_network:
        raise Refused(403, OPEN_TO_NETWORK)


def origin_of(request: Request, settings: Settings) -> str:
    """Return the origin of our pages in the visitor's browser."""
    if settings.public_url is not None and _host_of(request.headers.get("host", "")) not in LOOPBACK_NAMES:
        return settings.public_url
    return f"{request.url.scheme}://{request.headers.get('host', '').lower()}"


def is_secure(request: Request, settings: Settings) -> bool:
    """True if the browser uses HTTPS, to us or to the proxy in front."""
    return origin_of(request, settings).startswith("https://")


def check_origin(request: Request, settings: Settings) -> None:
    """Refuse a change requested by a page of another site."""
    expected = origin_of(request, settings)
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    if origin is None and (referer := request.headers.get("referer")):
        origin = _origin_of(referer)
    if site not in ("same-origin", "none") or origin is None or origin.lower() != expected.lower():
        raise Refused(
            403,
            "The request did not come from a page of this dashboard. Nothing was changed. "
            "Behind a proxy, start the dashboard with --public-url.",
        )


def check_token(expected: str, given: str) -> None:
    """Refuse a change without the token of this session."""
    if not compare_digest(expected.encode(), given.encode()):
        raise Refused(
            403, "The form is from another session. Nothing was changed. Reload the page and try again."
        )


def _origin_of(address: str) -> str | None:
    try:
        parts = urlsplit(address)
    except ValueError:  # such as "http://["
        return None
    return f"{parts.scheme}://{parts.netloc}"


def _host_of(netloc: str) -> str:
    """Return the host without its port; empty if it is invalid."""
    found = _NETLOC.fullmatch(netloc)
    return (found[1] or found[2]).lower() if found else ""
