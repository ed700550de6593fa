"""A caller of the HTTP port that sees every byte: what it sends is up to the test."""

import asyncio
import json
import ssl
from dataclasses import dataclass
from typing import Any

from tests.eventually import PATIENCE_SECONDS


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def document(self) -> Any:
        return json.loads(self.body)


async def connect(
    address: str, tls: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.startswith("unix:"):
        return await asyncio.open_unix_connection(address.removeprefix("unix:"))
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host.strip("[]"), int(port), ssl=tls)


async def send(address: str, data: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    """Send the bytes and return all that comes back until the server closes the connection."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        reader, writer = await connect(address, tls)
        try:
            writer.write(data)
            return await reader.read()
        finally:
            writer.close()


async def get(
    address: str,
    path: str,
    *,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Reply:
    lines = [f"{method} {path} HTTP/1.1", "Host: test"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return reply(await send(address, "\r\n".join([*lines, "", ""]).encode(), tls))


def reply(data: bytes) -> Reply:
    """The answer that these bytes are."""
    head, separator, body = data.partition(b"\r\n\r\n")
    assert separator, f"no answer: {data!r}"
    first, *lines = head.decode("latin-1").split("\r\n")
    version, status, _ = first.split(" ", 2)
    assert version == "HTTP/1.1"
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return Reply(int(status), headers, body)
