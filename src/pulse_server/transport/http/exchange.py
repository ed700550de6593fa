"""One request and one answer of HTTP/1.1, as far as a probe or a scraper needs it."""

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
    """The names of headers are in lower case. `peer` is the caller's address, without a port."""

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
    """The request cannot be answered as it is; `answer` tells why."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status.phrase)
        self.answer = answer


async def read_request(reader: asyncio.StreamReader, peer: str) -> Request | None:
    """The request, once its headers are complete; None if the caller hung up. Raises Refused.

    The reader's limit bounds it; a body, which none of these requests has, stays unread.
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
        # A name with a blank in it, or before it, is one that a proxy in front may have read in another way.
        if not colon or not name or any(character.isspace() for character in name):
            raise Refused(Answer.sentence(HTTPStatus.BAD_REQUEST, "A header of the request cannot be read."))
        if name == "authorization" and name in headers:
            # Which one counts would depend on who reads it.
            raise Refused(
                Answer.sentence(HTTPStatus.BAD_REQUEST, "The request has more than one Authorization.")
            )
        headers[name] = value.strip()
    return headers
