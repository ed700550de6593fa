"""Reads the server's certificate and key, and tests them in a handshake."""

from __future__ import annotations

import base64
import re
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

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
