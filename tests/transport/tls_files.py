"""Certificates in files, as an operator has them, and handshakes that return the one a server uses."""

import asyncio
import ssl
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import trustme

from pulse_server.settings import TlsFiles


@dataclass(frozen=True)
class Authority:
    """Signs certificates and writes them into a directory."""

    directory: Path
    ca: trustme.CA

    @property
    def file(self) -> Path:
        """Its own certificate."""
        return self.directory / "authority.pem"

    @property
    def pem(self) -> bytes:
        return self.ca.cert_pem.bytes()

    def server(
        self, *names: str, client_ca: Path | None = None, not_after: datetime | None = None
    ) -> TlsFiles:
        """Write the pair of a server, replacing an earlier one."""
        files = TlsFiles(self.directory / "server.pem", self.directory / "server.key", client_ca)
        certificate = self.ca.issue_cert(*(names or ("localhost", "127.0.0.1")), not_after=not_after)
        files.certificate.write_bytes(chain_of(certificate))
        files.key.write_bytes(certificate.private_key_pem.bytes())
        return files

    def client(self, name: str = "worker@example.org") -> tuple[Path, Path]:
        """Write the pair of a client."""
        certificate = self.ca.issue_cert(name)
        paths = self.directory / "client.pem", self.directory / "client.key"
        paths[0].write_bytes(chain_of(certificate))
        paths[1].write_bytes(certificate.private_key_pem.bytes())
        return paths


def make_authority(directory: Path) -> Authority:
    directory.mkdir(parents=True, exist_ok=True)
    authority = Authority(directory, trustme.CA())
    authority.file.write_bytes(authority.pem)
    return authority


def chain_of(certificate: trustme.LeafCert) -> bytes:
    return b"".join(blob.bytes() for blob in certificate.cert_chain_pems)


def channel_to(
    address: str, authority: Authority, client: tuple[Path, Path] | None = None
) -> grpc.aio.Channel:
    """A channel that shares its connection with no other."""
    chain, key = (file.read_bytes() for file in client) if client else (None, None)
    credentials = grpc.ssl_channel_credentials(authority.pem, key, chain)
    return grpc.aio.secure_channel(address, credentials, [("grpc.use_local_subchannel_pool", 1)])


async def names_shown(address: str, authority: Authority) -> list[str]:
    """Connect, and return the names in the certificate of the server."""
    context = ssl.create_default_context(cadata=authority.pem.decode())
    context.check_hostname = False
    host, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    certificate: dict[str, Any] = writer.get_extra_info("peercert")
    writer.close()
    return [name for _, name in certificate["subjectAltName"]]
