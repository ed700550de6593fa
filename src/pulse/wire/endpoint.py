"""The addresses of pulsed, with credentials and TLS. Validated when the client is created.

TLS knows the authorities that the client trusts, its own certificate, and the server name that it expects.
"""

from __future__ import annotations

import base64
import os
import re
import ssl
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn, TypeAlias

import grpc

from pulse.errors import InvalidArgument

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
    # The environment can turn TLS on. It cannot turn TLS off if the code asks for it.
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


# Bundles may have comments in any encoding between the blocks.
_PEM_BLOCK = rb"(?s)-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----"
# The object ids of Ed25519 and Ed448. gRPC cannot sign with either: every handshake would fail.
_EDWARDS_CURVES = (bytes.fromhex("06032b6570"), bytes.fromhex("06032b6571"))
_HASHED_NAME = r"[0-9a-f]{8}\.[0-9]+"


def system_authorities() -> bytes | None:
    """Return the certificate authorities of this machine, or None if there are none.

    gRPC's own list would not contain the authority of a company.
    """
    places = ssl.get_default_verify_paths()
    bundle = os.environ.get("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH") or places.cafile
    try:
        if bundle:
            return _pem_blocks(Path(bundle).read_bytes(), "CERTIFICATE") or None
        if places.capath:
            files = [file for file in Path(places.capath).iterdir() if re.fullmatch(_HASHED_NAME, file.name)]
            return b"".join(_pem_blocks(file.read_bytes(), "CERTIFICATE") for file in sorted(files)) or None
    except OSError:
        return None
    return None


def read_authorities(file: Path, source: str) -> bytes:
    """Return the certificates in the file. Raises InvalidArgument if there is none."""
    roots = _pem_blocks(_read(file, source), "CERTIFICATE")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=roots.decode())
    except (ssl.SSLError, ValueError):
        raise InvalidArgument(
            f"{source} {str(file)!r} holds no certificate in PEM form. Give the file of the authority that "
            "signed the server's certificate."
        ) from None
    return roots


def read_pair(certificate: Path, key: Path, source: str) -> tuple[bytes, bytes]:
    """Return the chain and its key. Raises InvalidArgument if they cannot be used together."""
    chain_pem = _pem_blocks(_read(certificate, source), "CERTIFICATE")
    key_pem = _pem_blocks(_read(key, "PULSE_TLS_CLIENT_KEY" if source != "cert" else source), "PRIVATE KEY")
    if not chain_pem:
        raise InvalidArgument(f"{source} {str(certificate)!r} holds no certificate in PEM form.")
    if not key_pem:
        raise InvalidArgument(
            f"{source}: {str(key)!r} holds no private key in PEM form. Give (certificate, key), or one file "
            "with both."
        )
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(
            certificate, key, lambda: _refuse_passphrase(source, key)
        )
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise InvalidArgument(
                f"{source}: the key in {str(key)!r} does not belong to the certificate in "
                f"{str(certificate)!r}."
            ) from None
        raise InvalidArgument(
            f"{source}: {str(certificate)!r} with the key {str(key)!r} cannot be used: "
            f"{error.reason or error}."
        ) from None
    body = b"".join(key_pem.splitlines()[1:-1])
    if any(curve in base64.b64decode(body)[:32] for curve in _EDWARDS_CURVES):
        raise InvalidArgument(
            f"{source}: the key in {str(key)!r} is an Edwards curve key, which gRPC cannot use. Make an "
            "ECDSA (P-256) or RSA key."
        )
    return chain_pem, key_pem


def _refuse_passphrase(source: str, key: Path) -> NoReturn:
    raise InvalidArgument(
        f"{source}: the key in {str(key)!r} needs a passphrase. Give a key without one, in a file that only "
        "this user may read."
    )


def _read(file: Path, source: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InvalidArgument(
            f"{source} {str(file)!r} cannot be read: {error.strerror or error}. "
            "Give a PEM file that this user may read."
        ) from None


def _pem_blocks(content: bytes, kind: str) -> bytes:
    """Return the blocks of this kind in a PEM file."""
    kinds = (kind, f"EC {kind}", f"RSA {kind}", f"ENCRYPTED {kind}")
    blocks = (match[0] for match in re.finditer(_PEM_BLOCK, content) if match[1].decode() in kinds)
    return b"".join(block + b"\n" for block in blocks)


DEFAULT_HOST = "localhost"
DEFAULT_PORT = 50051

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^\s,:/\[\]]*)(?::(?P<port>[0-9]+))?")
_EXPECTED = (
    "Write host, host:port or :port, for example localhost:50051, or several with commas between them, "
    "for example a.example.org,b.example.org:50061."
)


visitor: ContextVar[str] = ContextVar("pulse_visitor", default="")
"""The address of the visitor that a dashboard acts for. pulsed records it with the changes of the calls."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One pulsed, or several on one database, and the credentials for them."""

    address: str
    """As a user writes it: host:port, of several with commas between them."""
    target: str
    """As gRPC needs it. The first one of several."""
    is_local: bool
    metadata: tuple[tuple[str, str], ...] = field(repr=False)
    """Sent with every call."""
    authority: str
    """The server that calls name, as host:port. With TLS the certificate has to be for it."""
    tls: Tls | None = None
    """None for plain text."""
    servers: tuple[Endpoint, ...] = ()
    """Each of several, in the order of the address. Empty: there is one."""
    has_others: bool = False
    """True for one of several."""

    @property
    def call_metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of a single call: with the visitor that this program acts for, if there is one."""
        address = visitor.get()
        return (*self.metadata, ("pulse-visitor", address)) if address else self.metadata

    @property
    def each(self) -> tuple[Endpoint, ...]:
        """The servers, one by one."""
        return self.servers or (self,)


def make_endpoint(
    address: str | None,
    user: str | None,
    password: str | None,
    *,
    tls: bool | None = None,
    ca: File | None = None,
    cert: ClientCertificate | None = None,
    server_name: str | None = None,
) -> Endpoint:
    """Return where and how to connect. The environment has the defaults.

    The variables are PULSE_ADDR, PULSE_USER and PULSE_PASSWORD; `make_tls` has the variables of
    TLS.
    """
    source = "The address"
    if address is None:
        source, address = "PULSE_ADDR", os.environ.get("PULSE_ADDR", "")
    parsed = _parse_each(address, source)
    metadata = _credentials(user, password)
    each: list[Endpoint] = []
    for host, port in parsed:
        # The server listens on IPv4 by default; to dial ::1 first would cost a refused connection, or a
        # stall.
        dialed = "127.0.0.1" if host == "localhost" else host
        one = Endpoint(
            address=f"{host}:{port}",
            target=f"{dialed}:{port}",
            is_local=dialed == "[::1]" or dialed.startswith("127."),
            metadata=metadata,
            # As the user wrote it, not as it is dialed: a certificate for localhost is not one for 127.0.0.1.
            authority=f"{_bracketed(server_name)}:{port}" if server_name else f"{host}:{port}",
            tls=make_tls(host, tls, ca, cert, server_name),
            has_others=len(parsed) > 1,
        )
        each.append(one)
    if len(each) == 1:
        return each[0]
    return replace(each[0], address=",".join(one.address for one in each), servers=tuple(each))


def _parse_each(address: str, source: str) -> list[tuple[str, int]]:
    if not isinstance(address, str):
        raise InvalidArgument(f"{source} has to be a string, not {address!r}. {_EXPECTED}")
    parts = address.split(",")
    if len(parts) > 1 and not all(map(str.strip, parts)):
        raise InvalidArgument(f"{source} {address!r} has a comma without an address beside it. {_EXPECTED}")
    parsed = [_parse(part, source) for part in parts]
    if twice := [one for one in parsed if parsed.count(one) > 1]:
        host, port = twice[0]
        raise InvalidArgument(f"{source} {address!r} names {host}:{port} twice. Name each server once.")
    return parsed


def _parse(address: str, source: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(address.strip())
    if found is None:
        raise InvalidArgument(f"{source} {address!r} cannot be understood. {_EXPECTED}")
    port = int(found["port"] or DEFAULT_PORT)
    if not 1 <= port <= 65535:
        raise InvalidArgument(f"{source} {address!r} has a port outside of 1 to 65535. {_EXPECTED}")
    return found["host"] or DEFAULT_HOST, port


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") else name


def _credentials(user: str | None, password: str | None) -> tuple[tuple[str, str], ...]:
    # Both from the same source: a user given in code must not be combined with a password of the environment.
    if user is None and password is None:
        user, password = os.environ.get("PULSE_USER"), os.environ.get("PULSE_PASSWORD")
    if not user and not password:
        return ()
    if not user or not password:
        missing = "user (PULSE_USER)" if not user else "password (PULSE_PASSWORD)"
        raise InvalidArgument(f"The {missing} is missing: give both user and password, or neither.")
    if ":" in user:
        raise InvalidArgument(f"The user {user!r} contains a colon, which Basic credentials cannot carry.")
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    return (("authorization", f"Basic {token}"),)
