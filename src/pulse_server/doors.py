"""Authentication by the settings, and the log of how the ports are protected."""

from __future__ import annotations

import logging

from pulse_server.access.service import Access
from pulse_server.access.users import BadUsers
from pulse_server.base.metrics import Metrics
from pulse_server.settings import BadSettings, Settings
from pulse_server.settings.options import is_loopback

log = logging.getLogger(__name__)


def access_of(settings: Settings, metrics: Metrics) -> Access | None:
    """The authentication; None if every caller is accepted."""
    if settings.is_open:
        return None
    try:
        return Access(settings.users, settings.users_file, metrics)
    except BadUsers as error:  # the file was changed since the settings were read
        raise BadSettings(str(error)) from None


def doors(settings: Settings) -> dict[str, str]:
    """How the ports of a server are protected, as fields of its first event."""
    tls = "off"
    if settings.tls is not None:
        tls = "mutual" if settings.tls.client_ca is not None else "on"
    return {"auth": "open" if settings.is_open else "users", "tls": tls}


def warn_of_open_doors(settings: Settings) -> None:
    """Log unprotected ports, unless only this machine can reach the server."""
    if is_loopback(settings.grpc_address):
        return
    address = {"address": settings.grpc_address}
    if settings.is_open and (settings.tls is None or settings.tls.client_ca is None):
        hint = "Set PULSE_AUTH_USERS, or listen on 127.0.0.1."
        log.warning("open_to_everyone_who_can_connect", extra=address | {"hint": hint})
    if not settings.is_open and settings.tls is None:
        hint = "Set PULSE_TLS_CERT and PULSE_TLS_KEY: passwords cross the network for everyone on it to read."
        log.warning("credentials_in_plain_text", extra=address | {"hint": hint})
