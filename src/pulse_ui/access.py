"""Login, logout, and the color theme."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

import pulse
from pulse_ui import tuning, words
from pulse_ui.web.endpoints import Endpoints, check_token, is_secure
from pulse_ui.web.forms import Form, form_of, local_path, query_of
from pulse_ui.web.rendering import THEMES
from pulse_ui.web.sessions import Session, connect
from pulse_ui.web.visits import Visit


class LoginThrottle:
    """A token bucket per address. A successful login costs nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str) -> float:
        """Take one token. Returns 0, or the seconds to wait if there is none left.

        Taken before the password is checked: concurrent logins would otherwise all find a full bucket.
        """
        network = _network_of(address)
        tries = self._tries(network)
        if tries < 1.0:
            return (1.0 - tries) * tuning.LOGIN_TRY_EVERY.total_seconds()
        self._set(network, tries - 1.0)
        return 0.0

    def give_back(self, address: str) -> None:
        """Return a token: the password was right, or was not checked."""
        network = _network_of(address)
        self._set(network, self._tries(network) + 1.0)

    def _set(self, network: str, tries: float) -> None:
        self._buckets[network] = (tries, self._clock())
        self._buckets.move_to_end(network)
        while len(self._buckets) > tuning.LOGIN_ADDRESSES:
            self._buckets.popitem(last=False)

    def _tries(self, network: str) -> float:
        tries, at = self._buckets.get(network, (float(tuning.LOGIN_TRIES), self._clock()))
        refilled = tries + (self._clock() - at) / tuning.LOGIN_TRY_EVERY.total_seconds()
        return min(float(tuning.LOGIN_TRIES), refilled)


def _network_of(address: str) -> str:
    """Return the address to throttle: for IPv6 the /64, which belongs to one customer."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(parsed.ipv4_mapped or ipaddress.IPv6Address(int(parsed) >> 64 << 64))
    return address


_THEME_SECONDS = 365 * 86_400
_ENDED = "Your session has ended and nothing was changed. Log in and try again."
_INCOMPLETE = "Enter a user and a password."
_WRONG = "Wrong user or password."
_BUSY = "pulsed throttles logins from this machine. Wait a few seconds, then try again."


class LoginPages:
    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints
        self._throttle = LoginThrottle()

    async def show_login(self, request: Request, session: Session) -> Response:
        query = query_of(request)
        target = local_path(query.raw("next"))
        if session.owns_account or await self._endpoints.open_account.get() is not None:
            return RedirectResponse(target, status_code=303)
        return self._login_page(request, session, target, _ENDED if "ended" in query else "")

    async def log_in(self, request: Request, session: Session) -> Response:
        form = await form_of(request)
        check_token(session.csrf_token, form.raw("csrf"))
        target = local_path(form.raw("next"))
        user, password = form.text("user"), form.raw("password")
        address = request.client.host if request.client is not None else ""
        if not user or not password:
            return self._login_page(request, session, target, _INCOMPLETE, user, status=400)
        if wait := self._throttle.take(address):
            sentence = f"Too many wrong passwords. Wait {words.span(max(1.0, wait))}, then try again."
            return self._login_page(request, session, target, sentence, user, status=429)
        try:
            account = await connect(self._endpoints.settings.server, user, password)
        except (pulse.Unauthenticated, pulse.InvalidArgument):
            return self._login_page(request, session, target, _WRONG, user, status=403)
        except pulse.ResourceExhausted:
            return self._login_page(request, session, target, _BUSY, user, status=429)
        except (pulse.Unavailable, pulse.DeadlineExceeded) as error:
            self._throttle.give_back(address)
            return self._login_page(request, session, target, str(error), user, status=503)
        self._throttle.give_back(address)
        response = RedirectResponse(target, status_code=303)
        self._endpoints.log_in(request, response, session, account)
        return response

    async def log_out(self, visit: Visit, _form: Form) -> Response:
        response = RedirectResponse("/login", status_code=303)
        self._endpoints.log_out(visit.request, response, visit.session)
        return response

    async def choose_theme(self, visit: Visit, form: Form) -> Response:
        theme = form.text("theme")
        response = visit.back(form)
        if theme in THEMES:
            response.set_cookie(
                "pulse_theme",
                theme,
                max_age=_THEME_SECONDS,
                path="/",
                samesite="lax",
                secure=is_secure(visit.request, visit.settings),
            )
        return response

    def _login_page(
        self,
        request: Request,
        session: Session,
        target: str,
        sentence: str,
        user: str = "",
        *,
        status: int = 200,
    ) -> Response:
        return self._endpoints.rendering.page(
            "login.html",
            {
                "title": "Log in",
                "csrf": session.csrf_token,
                "next": target,
                "sentence": sentence,
                "user": user,
                "server": self._endpoints.settings.server or "localhost:50051",
            },
            request=request,
            status=status,
        )
