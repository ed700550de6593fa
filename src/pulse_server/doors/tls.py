"""The server's certificate and key: read, tested in a handshake, and reloaded when their files change.

A renewal needs no restart. docs/figures.md#certificates
"""

from __future__ import annotations

import base64
import logging
import re
import ssl
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import grpc

from pulse_server.base import tuning
from pulse_server.settings import BadSettings, TlsFiles

_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----(.+?)-----END", re.DOTALL)
# The object identifiers of Ed25519 and Ed448. gRPC supports neither: every handshake would fail.
_EDWARDS_CURVES = (bytes.fromhex("06032b6570"), bytes.fromhex("06032b6571"))
_NOT_PEM = "the first holds no certificate in PEM form, or the second no private key"
_IGNORE_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, tested in a handshake, and the authorities of clients, if required."""

    chain_pem: bytes = field(repr=False)
    key_pem: bytes = field(repr=False)
    client_ca_pem: bytes | None = field(repr=False)
    context: ssl.SSLContext = field(repr=False, compare=False)
    """For HTTP. It does not request client certificates."""
    names: tuple[str, ...]
    """The hosts of the certificate."""
    subject: str
    valid_from: datetime
    expires_at: datetime


class FilesChanged(Exception):
    """The files changed while they were read."""


def read_key_pair(files: TlsFiles, now: datetime | None = None) -> KeyPair:
    """Read the pair. Raises BadSettings, or FilesChanged if it has to be read again."""
    chain_pem, key_pem = _read_both(files)
    context = _server_context(files, key_pem)
    client_ca_pem = None
    if files.client_ca is not None:
        client_ca_pem = _read(files.client_ca, "PULSE_TLS_CLIENT_CA")
        _require_authorities(files.client_ca)
    certificate = _certificate_in_handshake(context, files)
    # OpenSSL read the files for the context: this ensures that both have the same content.
    if _read_both(files) != (chain_pem, key_pem):
        raise FilesChanged
    pair = KeyPair(
        chain_pem,
        key_pem,
        client_ca_pem,
        context,
        names=tuple(name for _, name in certificate.get("subjectAltName", ())),
        subject=", ".join("=".join(part) for parts in certificate.get("subject", ()) for part in parts),
        valid_from=_time(certificate["notBefore"]),
        expires_at=_time(certificate["notAfter"]),
    )
    _require_valid_now(pair, files, now or datetime.now(UTC))
    return pair


def _server_context(files: TlsFiles, key_pem: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(files.certificate, files.key, lambda: _refuse_passphrase(files))
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise BadSettings(
                f"The key in PULSE_TLS_KEY ({files.key}) does not belong to the certificate in "
                f"PULSE_TLS_CERT ({files.certificate}): give the key that the certificate was made with."
            ) from None
        raise BadSettings(
            f"PULSE_TLS_CERT ({files.certificate}) and PULSE_TLS_KEY ({files.key}) cannot be used as a "
            f"certificate and its key: {error.reason or _NOT_PEM}."
        ) from None
    if (found := _KEY.search(key_pem)) and any(
        curve in base64.b64decode(found[1])[:32] for curve in _EDWARDS_CURVES
    ):
        raise BadSettings(
            f"The key in PULSE_TLS_KEY ({files.key}) is an Edwards curve key, which gRPC cannot use: make an "
            "ECDSA (P-256) or RSA key."
        )
    return context


def _require_authorities(client_ca: Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(client_ca)
    except (ssl.SSLError, OSError):
        raise BadSettings(
            f"PULSE_TLS_CLIENT_CA ({client_ca}) holds no certificate in PEM form: give the file of the "
            "authority that signs your clients' certificates."
        ) from None


def _require_valid_now(pair: KeyPair, files: TlsFiles, now: datetime) -> None:
    if pair.expires_at <= now:
        raise BadSettings(
            f"The certificate in PULSE_TLS_CERT ({files.certificate}) expired on "
            f"{pair.expires_at:%Y-%m-%d %H:%M} UTC: renew it."
        )
    if pair.valid_from > now:
        raise BadSettings(
            f"The certificate in PULSE_TLS_CERT ({files.certificate}) is not valid before "
            f"{pair.valid_from:%Y-%m-%d %H:%M} UTC: look at this machine's clock."
        )


def _refuse_passphrase(files: TlsFiles) -> NoReturn:
    raise BadSettings(
        f"The key in PULSE_TLS_KEY ({files.key}) needs a passphrase, which pulsed cannot enter: give a "
        "key without one, in a file that only pulsed may read."
    )


def _certificate_in_handshake(context: ssl.SSLContext, files: TlsFiles) -> dict[str, Any]:
    """Return the certificate as a client of this context receives it."""
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname = False
    # The signer and the time do not matter here: only the content is read.
    client_context.verify_flags = ssl.VerifyFlags(ssl.VERIFY_X509_PARTIAL_CHAIN | _IGNORE_TIME)
    client_context.load_verify_locations(files.certificate)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    try:
        for side in (client, server, client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLError as error:
        raise BadSettings(
            f"The certificate in PULSE_TLS_CERT ({files.certificate}) fails in a handshake: "
            f"{getattr(error, 'verify_message', None) or error.reason or error}."
        ) from None
    return dict(client.getpeercert() or {})


def _read_both(files: TlsFiles) -> tuple[bytes, bytes]:
    return _read(files.certificate, "PULSE_TLS_CERT"), _read(files.key, "PULSE_TLS_KEY")


def _read(file: Path, variable: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise BadSettings(
            f"{variable} ({file}) cannot be read: {error.strerror or error}. "
            "Give a PEM file that pulsed may read."
        ) from None


def _time(text: str) -> datetime:
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC)


# Handshakes check the files no more often than this. A renewed certificate is used that much later.
CERTIFICATE_LOOK_INTERVAL = timedelta(seconds=1)

log = logging.getLogger(__name__)

# Identifies one state of a file. The change time also detects a chmod that made it readable.
_Stamp: TypeAlias = tuple[int, int, int, int] | None


class Certificates:
    """The certificate in use. Each handshake requests it, which reloads changed files.

    Invalid or partly written files leave the old certificate in place. Handshakes run in threads of gRPC, so
    every method is thread-safe.
    """

    def __init__(self, files: TlsFiles) -> None:
        """Read the files. Raises BadSettings if they are invalid."""
        self._files = files
        self._lock = threading.Lock()
        self._stamps = self._file_stamps()
        try:
            self._pair = read_key_pair(files)
        except FilesChanged:
            raise BadSettings(
                f"PULSE_TLS_CERT ({files.certificate}) and PULSE_TLS_KEY ({files.key}) are being written to: "
                "start pulsed once they are complete."
            ) from None
        self._checked_at = time.monotonic()
        self._warned_on: date | None = None
        self._warn_if_expiring()

    @property
    def pair(self) -> KeyPair:
        """The last valid key pair."""
        return self._pair

    def current(self) -> KeyPair:
        """Return the key pair, reloaded if the files have changed."""
        with self._lock:
            now = time.monotonic()
            if now - self._checked_at >= CERTIFICATE_LOOK_INTERVAL.total_seconds():
                self._checked_at = now
                self._read_if_changed()
                self._warn_if_expiring()
            return self._pair

    def read_again(self) -> None:
        """Reload the files now, if they have changed."""
        with self._lock:
            self._read_if_changed()

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials for a gRPC port that follow the files."""
        given = self.current()

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal given
            # Two concurrent handshakes may both receive the new one, which is harmless.
            if (current := self.current()) is given:
                return None  # as before
            given = current
            return _configuration(current)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(given),
            fetch,  # type: ignore[arg-type]  # the stubs do not know that None means "as before"
            require_client_authentication=self._files.client_ca is not None,
        )

    def server_ssl_context(self) -> ssl.SSLContext:
        """Return a context that follows the files, for HTTP. It does not request client certificates."""
        context = self.current().context
        context.sni_callback = self._switch
        return context

    def _switch(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Switch to the current certificate. Called in each handshake, with or without a host name."""
        connection.context = self.current().context

    def _read_if_changed(self) -> None:
        stamps = self._file_stamps()
        if stamps == self._stamps:
            return
        try:
            pair = read_key_pair(self._files)
        except FilesChanged:
            return  # the stamps are unchanged, so the next check reads them again
        except (BadSettings, OSError) as error:
            self._stamps = stamps  # logged once for each state of the files
            log.error(
                "certificate_not_reloaded", extra={"reason": str(error), "still_using": _facts(self._pair)}
            )
            return
        self._stamps = stamps
        if pair == self._pair:
            return
        self._pair = pair
        self._warned_on = None
        log.info("certificate_reloaded", extra=_facts(pair))

    def _file_stamps(self) -> tuple[_Stamp, ...]:
        files = (self._files.certificate, self._files.key, self._files.client_ca)
        return tuple(_stamp(file) for file in files if file is not None)

    def _warn_if_expiring(self) -> None:
        now = datetime.now(UTC)
        left = self._pair.expires_at - now
        if left < tuning.CERTIFICATE_WARNING and self._warned_on != now.date():
            self._warned_on = now.date()  # once a day
            log.warning("certificate_expires_soon", extra={**_facts(self._pair), "days_left": left.days})


def _configuration(pair: KeyPair) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pair.key_pem, pair.chain_pem)], pair.client_ca_pem)


def _facts(pair: KeyPair) -> dict[str, object]:
    return {
        "names": list(pair.names),
        "subject": pair.subject,
        "expires_at": pair.expires_at.isoformat(),
    }


def _stamp(file: Path) -> _Stamp:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
