"""Diagnoses why no connection can be made. Makes a separate handshake: gRPC reports few details."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any

from pulse import tuning
from pulse.wire.endpoint import Endpoint
from pulse.wire.tls import Tls

# Verification errors of OpenSSL (x509_vfy.h).
_NOT_YET_VALID, _EXPIRED, _OTHER_NAME, _OTHER_ADDRESS = 9, 10, 62, 64
_UNKNOWN_AUTHORITY = frozenset({2, 18, 19, 20, 21})
_IGNORE_DATES = 0x200000  # X509_V_FLAG_NO_CHECK_TIME

_SETTINGS_FRAME = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS_FRAME


class Diagnosis:
    """The reason why pulsed cannot be reached. Belongs to one event loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._probe: asyncio.Task[str | None] | None = None
        self._begun_at = 0.0
        self.sentence: str | None = None

    def begin(self) -> None:
        """Start a probe, unless one is running or its result is recent."""
        if self._probe is not None and not self._is_outdated(self._probe):
            return
        self._begun_at = time.monotonic()
        self.sentence = None
        self._probe = asyncio.create_task(
            asyncio.to_thread(_why_any_is_unreachable, self._endpoint), name="pulse-diagnosis"
        )
        self._probe.add_done_callback(self._remember)

    async def finished(self) -> None:
        """Return once the probe has ended, in bounded time."""
        if self._probe is not None:
            await asyncio.wait({self._probe}, timeout=tuning.DIAGNOSIS_SECONDS)

    @property
    def recent_sentence(self) -> str | None:
        """The reason, unless it was found too long ago."""
        is_recent = time.monotonic() - self._begun_at <= tuning.DIAGNOSIS_GOOD_FOR_SECONDS
        return self.sentence if is_recent else None

    def close(self) -> None:
        """Cancel the probe."""
        if self._probe is not None:
            self._probe.cancel()

    def _is_outdated(self, probe: asyncio.Task[str | None]) -> bool:
        return probe.done() and time.monotonic() - self._begun_at > tuning.DIAGNOSIS_GOOD_FOR_SECONDS

    def _remember(self, probe: asyncio.Task[str | None]) -> None:
        if not probe.cancelled():
            self.sentence = probe.result() if probe.exception() is None else None


def _why_any_is_unreachable(endpoint: Endpoint) -> str | None:
    return next(filter(None, map(why_unreachable, endpoint.each)), None)


def why_unreachable(endpoint: Endpoint) -> str | None:
    """Return why the handshake fails, as a sentence, or None if it does not. Blocks, for a bounded time."""
    deadline = time.monotonic() + tuning.DIAGNOSIS_SECONDS
    try:
        if endpoint.tls is None:
            return _why_without_tls(endpoint, deadline)
        return _why_with_tls(endpoint, endpoint.tls, deadline)
    except (OSError, ValueError):
        return None  # no server answers, or TLS is not the problem


def _why_without_tls(endpoint: Endpoint, deadline: float) -> str | None:
    if not _speaks_tls(endpoint, deadline):
        return None
    return (
        f"pulsed at {endpoint.address} speaks TLS, and this client does not: give tls=True (PULSE_TLS=on), "
        "or ca=… (PULSE_TLS_CA) with the file of its authority if this machine does not trust it."
    )


def _why_with_tls(endpoint: Endpoint, tls: Tls, deadline: float) -> str | None:
    try:
        with _secured(endpoint, tls.server_name, _context(tls), deadline) as connection:
            connection.sendall(_HELLO)
            if connection.recv(len(_SETTINGS_FRAME)):
                return None  # this handshake succeeded
        return _about_the_client(endpoint, tls, "")
    except ssl.SSLCertVerificationError as error:
        return _about_the_server(endpoint, tls, error, deadline)
    except TimeoutError:
        return None
    except OSError as error:
        if _speaks_plain(endpoint, deadline):
            return (
                f"pulsed at {endpoint.address} does not speak TLS: leave out tls, ca and cert "
                "(PULSE_TLS=off), or turn TLS on there with PULSE_TLS_CERT and PULSE_TLS_KEY."
            )
        if _speaks_tls(endpoint, deadline) or "ALERT" in (getattr(error, "reason", None) or ""):
            return _about_the_client(endpoint, tls, getattr(error, "reason", None) or "")
        raise


def _about_the_server(
    endpoint: Endpoint, tls: Tls, error: ssl.SSLCertVerificationError, deadline: float
) -> str:
    subject = f"The certificate of pulsed at {endpoint.address}"
    if error.verify_code in _UNKNOWN_AUTHORITY:
        if tls.ca is not None:
            return (
                f"{subject} is not signed by an authority in {str(tls.ca)!r}: give the file of the one that "
                "signed it with ca=… or PULSE_TLS_CA."
            )
        return (
            f"{subject} is signed by an authority that this machine does not know: give that one's file "
            "with ca=… or PULSE_TLS_CA."
        )
    shown = _certificate(endpoint, tls, deadline)
    if error.verify_code in (_OTHER_NAME, _OTHER_ADDRESS):
        names = ", ".join(value for _, value in shown.get("subjectAltName", ())) or "another name"
        return (
            f"{subject} is for {names}, not for {tls.server_name}: connect to a name that it is for, or give "
            "that name with server_name=…."
        )
    if error.verify_code == _EXPIRED:
        when = f" on {shown['notAfter']}" if "notAfter" in shown else ""
        return f"{subject} expired{when}: renew it there (PULSE_TLS_CERT), or look at this machine's clock."
    if error.verify_code == _NOT_YET_VALID:
        when = f" before {shown['notBefore']}" if "notBefore" in shown else " yet"
        return f"{subject} is not valid{when}: compare the clocks of the two machines."
    return f"{subject} is not accepted: {error.verify_message}."


def _about_the_client(endpoint: Endpoint, tls: Tls, alert: str) -> str:
    """Return the sentence for a server that hung up: gRPC refuses a certificate without a reason."""
    if tls.certificate is None:
        return (
            f"pulsed at {endpoint.address} hangs up after the handshake, as a server that requires a client "
            "certificate does: give cert=(certificate, key), or set PULSE_TLS_CLIENT_CERT and "
            "PULSE_TLS_CLIENT_KEY."
        )
    reason = f" ({alert})" if alert and "EOF" not in alert else ""
    return (
        f"pulsed at {endpoint.address} refuses the client certificate {str(tls.certificate)!r}{reason}: "
        "it has expired, or its authority is not one of PULSE_TLS_CLIENT_CA there."
    )


# ---------------------------------------------------------------- probes


def _speaks_tls(endpoint: Endpoint, deadline: float) -> bool:
    context = _unverified()
    try:
        with _secured(endpoint, "", context, deadline):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _speaks_plain(endpoint: Endpoint, deadline: float) -> bool:
    try:
        with _connected(endpoint, deadline) as plain:
            plain.sendall(_HELLO)
            return plain.recv(len(_SETTINGS_FRAME))[3:4] == b"\x04"
    except OSError:
        return False


def _certificate(endpoint: Endpoint, tls: Tls, deadline: float) -> dict[str, Any]:
    """Return the fields of the server's certificate, even if its name or its dates are wrong."""
    context = _context(tls)
    context.check_hostname = False
    context.verify_flags = ssl.VerifyFlags(context.verify_flags | _IGNORE_DATES)
    with contextlib.suppress(OSError), _secured(endpoint, tls.server_name, context, deadline) as connection:
        return dict(connection.getpeercert() or {})
    return {}


def _context(tls: Tls) -> ssl.SSLContext:
    # Not create_default_context: since Python 3.13 it is stricter than gRPC and would report other errors.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.roots:
        context.load_verify_locations(cadata=tls.roots.decode())
    else:
        context.load_default_certs()
    context.set_alpn_protocols(["h2"])
    if tls.certificate is not None:
        context.load_cert_chain(tls.certificate, tls.key, password="")
    return context


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


@contextlib.contextmanager
def _secured(
    endpoint: Endpoint, name: str, context: ssl.SSLContext, deadline: float
) -> Iterator[ssl.SSLSocket]:
    with (
        _connected(endpoint, deadline) as plain,
        context.wrap_socket(plain, server_hostname=name or None) as connection,
    ):
        yield connection


@contextlib.contextmanager
def _connected(endpoint: Endpoint, deadline: float) -> Iterator[socket.socket]:
    remaining = max(0.05, deadline - time.monotonic())
    host, _, port = endpoint.target.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=remaining) as plain:
        yield plain
