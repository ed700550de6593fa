"""Checks of a request: its host, its origin and its token."""

from __future__ import annotations

import re
from hmac import compare_digest
from urllib.parse import urlsplit

from starlette.requests import Request

from pulse_ui.settings import LOOPBACK_NAMES, Settings
from pulse_ui.web.failures import Refused

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
