"""TLS of a client: the authorities it trusts, its own certificate, and the server name it expects."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import grpc

from pulse.errors import InvalidArgument
from pulse.wire.pem_files import read_authorities, read_pair, system_authorities

File: TypeAlias = str | Path
ClientCertificate: TypeAlias = File | tuple[File, File]

_ON = frozenset({"1", "on", "true", "yes"})
_OFF = frozenset({"0", "off", "false", "no"})


@dataclass(frozen=True, slots=True)
class Tls:
    """The settings of a handshake. The files have been read and validated."""

    server_name: str
    """The name that the server's certificate has to be for."""
    roots: bytes | None = field(default=None, repr=False)
    """The authorities, as PEM. None for gRPC's own list."""
    ca: Path | None = None
    """The file of the authorities, if one was given."""
    certificate: Path | None = None
    """The client's own certificate, if it has one."""
    key: Path | None = None
    chain_pem: bytes | None = field(default=None, repr=False)
    key_pem: bytes | None = field(default=None, repr=False)

    def credentials(self) -> grpc.ChannelCredentials:
        """Return the credentials for a channel. Starts gRPC, so it must not be called before a fork."""
        return grpc.ssl_channel_credentials(self.roots, self.key_pem, self.chain_pem)


def make_tls(
    host: str,
    tls: bool | None = None,
    ca: File | None = None,
    cert: ClientCertificate | None = None,
    server_name: str | None = None,
) -> Tls | None:
    """Return the TLS settings for a host, or None for plain text.

    `ca`, `cert` and `server_name` each turn TLS on. The defaults are PULSE_TLS, PULSE_TLS_CA,
    PULSE_TLS_CLIENT_CERT, PULSE_TLS_CLIENT_KEY and PULSE_TLS_SERVER_NAME. Raises InvalidArgument for files
    that cannot be used.
    """
    is_given = ca is not None or cert is not None or server_name is not None
    if tls is False:
        if is_given:
            raise InvalidArgument(
                "tls=False contradicts ca, cert and server_name: leave out one or the other."
            )
        return None
    if tls not in (None, True):
        raise InvalidArgument(f"tls has to be True or False, but {tls!r} was given.")
    # The environment can turn TLS on. It cannot turn off what the code asks for.
    if not (tls or is_given or _is_on_in_environment()):
        return None
    ca_source, cert_source = "ca", "cert"
    if ca is None and (found := os.environ.get("PULSE_TLS_CA")):
        ca_source, ca = "PULSE_TLS_CA", found
    if cert is None and (from_environment := _certificate_of_environment()) is not None:
        cert_source, cert = "PULSE_TLS_CLIENT_CERT", from_environment
    name = server_name or os.environ.get("PULSE_TLS_SERVER_NAME") or host.strip("[]")
    ca_file = _path(ca, ca_source) if ca is not None else None
    roots = read_authorities(ca_file, ca_source) if ca_file is not None else system_authorities()
    if cert is None:
        return Tls(name, roots, ca_file)
    certificate, key = _paths(cert, cert_source)
    chain_pem, key_pem = read_pair(certificate, key, cert_source)
    return Tls(name, roots, ca_file, certificate, key, chain_pem, key_pem)


# ---------------------------------------------------------------- the environment


def _is_on_in_environment() -> bool:
    word = os.environ.get("PULSE_TLS", "").strip().lower()
    if word in _OFF:
        return False
    if word and word not in _ON:
        raise InvalidArgument(f"PULSE_TLS is {word!r}: give on or off.")
    variables = ("PULSE_TLS_CA", "PULSE_TLS_SERVER_NAME")
    return bool(word or any(map(os.environ.get, variables)) or _certificate_of_environment())


def _certificate_of_environment() -> ClientCertificate | None:
    # Not PULSE_TLS_CERT and PULSE_TLS_KEY: they belong to the server, which may run in the same container.
    certificate = os.environ.get("PULSE_TLS_CLIENT_CERT")
    key = os.environ.get("PULSE_TLS_CLIENT_KEY")
    if key and not certificate:
        raise InvalidArgument("PULSE_TLS_CLIENT_KEY is set, but PULSE_TLS_CLIENT_CERT is not: set both.")
    if not certificate:
        return None
    return (certificate, key) if key else certificate


# ---------------------------------------------------------------- files


def _paths(cert: ClientCertificate, source: str) -> tuple[Path, Path]:
    if not isinstance(cert, tuple):
        return _path(cert, source), _path(cert, source)
    if len(cert) != 2:
        raise InvalidArgument("cert has to be (certificate, key), or one file with both.")
    return _path(cert[0], source), _path(cert[1], source)


def _path(file: File, source: str) -> Path:
    try:
        return Path(file).expanduser()
    except (TypeError, RuntimeError):
        raise InvalidArgument(f"{source} has to be the name of a PEM file, but {file!r} was given.") from None
