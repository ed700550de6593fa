"""PEM files of a client. Validated here, because gRPC reports no reason for a file it cannot use."""

from __future__ import annotations

import base64
import os
import re
import ssl
from pathlib import Path
from typing import NoReturn

from pulse.errors import InvalidArgument

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
