"""Requires a login for a page."""

from __future__ import annotations

from http import HTTPStatus

from pulse_server.access.service import Authenticator
from pulse_server.base.errors import PulseError, TooManyLogins, Unauthenticated
from pulse_server.transport.http.exchange import Answer, Request
from pulse_server.transport.http.server import Page

_CHALLENGE = 'Basic realm="pulse", charset="UTF-8"'


def behind_login(page: Page, authenticator: Authenticator) -> Page:
    """Return the page for users of any role. Other clients get a login challenge."""

    async def guarded(request: Request) -> Answer:
        try:
            await authenticator.authenticate(request.headers.get("authorization"), request.peer)
        except Unauthenticated:
            return Answer.sentence(
                HTTPStatus.UNAUTHORIZED,
                "This page requires the user and password of a user of this server, by HTTP Basic.",
                WWW_Authenticate=_CHALLENGE,
            )
        except TooManyLogins as error:
            return Answer.sentence(
                HTTPStatus.TOO_MANY_REQUESTS, str(error), Retry_After=str(error.wait_seconds)
            )
        except PulseError as error:
            return Answer.sentence(HTTPStatus.SERVICE_UNAVAILABLE, str(error), Retry_After="1")
        return await page(request)

    return guarded
