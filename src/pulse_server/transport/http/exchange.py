"""Requests and answers of HTTP/1.1: the part that probes and scrapers need."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus

_END_OF_HEADERS = b"\r\n\r\n"
METHODS = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Request:
    """A request. Header names are in lower case; `peer` is the client's address without the port."""

    method: str
    path: str
    headers: Mapping[str, str]
    peer: str


@dataclass(frozen=True, slots=True)
class Answer:
    status: HTTPStatus = HTTPStatus.OK
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def sentence(cls, status: HTTPStatus, text: str, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return cls(status, f"{text}\n".encode(), headers=named)

    def encode(self, *, with_body: bool) -> bytes:
        head = {
            "Content-Type": self.content_type,
            "Content-Length": str(len(self.body)),
            "Date": formatdate(usegmt=True),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Connection": "close",
            **self.headers,
        }
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in head.items()]
        text = "\r\n".join(lines).encode("latin-1") + _END_OF_HEADERS
        return text + self.body if with_body else text


class Refused(Exception):
    """The request is refused with `answer`."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status.phrase)
        self.answer = answer


async def read_request(reader: asyncio.StreamReader, peer: str) -> Request | None:
    """Read a request up to the end of its headers. Returns None if the client disconnected. Raises Refused.

    The reader's limit bounds the size. A body is not read: none of the pages takes one.
    """
    try:
        text = await reader.readuntil(_END_OF_HEADERS)
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise Refused(
            Answer.sentence(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request's headers are too long.")
        ) from None
    first, *lines = text.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, target, version = _words(first)
    if not version.startswith("HTTP/1."):
        raise Refused(Answer.sentence(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "This port speaks HTTP/1.1."))
    return Request(method, target.partition("?")[0], _headers(lines), peer)


def _words(line: str) -> tuple[str, str, str]:
    words = line.split(" ")
    if len(words) != 3 or not all(words):
        raise Refused(Answer.sentence(HTTPStatus.BAD_REQUEST, "The request's first line cannot be read."))
    return words[0], words[1], words[2]


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        # A proxy may interpret a header name with white space differently.
        if not colon or not name or any(character.isspace() for character in name):
            raise Refused(Answer.sentence(HTTPStatus.BAD_REQUEST, "A header of the request cannot be read."))
        if name == "authorization" and name in headers:
            # Which of them counts would depend on the reader.
            raise Refused(
                Answer.sentence(HTTPStatus.BAD_REQUEST, "The request has more than one Authorization.")
            )
        headers[name] = value.strip()
    return headers
