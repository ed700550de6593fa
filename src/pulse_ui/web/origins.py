"""Whether a request comes from where it should: the host that it asks for, and the page that sent it."""

from __future__ import annotations

import re
from hmac import compare_digest
from urllib.parse import urlsplit

from starlette.requests import Request

from pulse_ui.settings import LOOPBACK_NAMES, Settings
from pulse_ui.web.failures import Refused

OPEN_TO_NETWORK = (
    "pulsed asks for no password, and this dashboard can be reached from other machines: everyone who "
    "connects could do everything. Give pulsed users (PULSE_AUTH_USERS_FILE), or let the dashboard listen on "
    "127.0.0.1. If an open dashboard is what you want, start it with --insecure-open-to-network."
)

# A name or [an IPv6 address], perhaps with a port; nothing that one reader takes for a name and another not.
_NETLOC = re.compile(r"(?:\[([0-9A-Za-z.:%]+)\]|([^][:/?#@\\\s]+))(?::[0-9]*)?")


def check_host(request: Request, settings: Settings, *, is_open: bool) -> None:
    """Refuse a host that is not ours. `is_open`: pulsed asks for no password.

    A page on the internet can have its own name point to this machine, and then read whatever is served under
    it without a login. So an open dashboard answers only to names that nobody else can have.
    """
    host = _host_of(request.headers.get("host", ""))
    if not host:
        raise Refused(400, "The request names no host, or not as one writes it.")
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
    """Refuse to serve an open pulsed to other machines: each visitor would be an admin."""
    if is_open and not settings.is_loopback and not settings.open_to_network:
        raise Refused(403, OPEN_TO_NETWORK)


def origin_of(request: Request, settings: Settings) -> str:
    """Return the origin that our own pages have in the visitor's browser."""
    if settings.public_url is not None and _host_of(request.headers.get("host", "")) not in LOOPBACK_NAMES:
        return settings.public_url
    return f"{request.url.scheme}://{request.headers.get('host', '').lower()}"


def is_secure(request: Request, settings: Settings) -> bool:
    """True when the browser speaks HTTPS to us, or to the proxy before us."""
    return origin_of(request, settings).startswith("https://")


def check_origin(request: Request, settings: Settings) -> None:
    """Refuse a change that another site's page asks for."""
    expected = origin_of(request, settings)
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    if origin is None and (referer := request.headers.get("referer")):
        origin = _origin_of(referer)
    if site not in ("same-origin", "none") or origin is None or origin.lower() != expected.lower():
        raise Refused(
            403,
            "The request did not come from a page of this dashboard, so nothing was changed. "
            "If a proxy stands in front, start with --public-url.",
        )


def check_token(expected: str, given: str) -> None:
    """Refuse a change whose form was not made for this session."""
    if not compare_digest(expected.encode(), given.encode()):
        raise Refused(
            403, "The form is from another session, so nothing was changed. Reload the page and repeat."
        )


def _origin_of(address: str) -> str | None:
    try:
        parts = urlsplit(address)
    except ValueError:  # such as "http://["
        return None
    return f"{parts.scheme}://{parts.netloc}"


def _host_of(netloc: str) -> str:
    """Return the name without its port; empty if it is not of that form."""
    found = _NETLOC.fullmatch(netloc)
    return (found[1] or found[2]).lower() if found else ""
